package sink

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/audit"
)

const (
	batchRecords   = 512
	batchBytes     = 1 << 20
	attemptTimeout = 30 * time.Second
	saveEvery      = time.Second // for the cursor, at the most
)

// Receiver is where a sink sends to. It is called by one goroutine at a time.
type Receiver interface {
	// Send hands a batch over, in its order, before ctx ends. Nil says that the receiver has all of it. After an error it may have any part, and is sent all of it again.
	Send(ctx context.Context, b Batch) error

	// Close gives up what is open. Nothing is sent afterwards.
	Close() error
}

// Batch is records, or a checkpoint.
type Batch struct {
	Records    []audit.Record
	Checkpoint []byte // a signed note
}

// Options are those of a sink.
type Options struct {
	Name      string
	To        Receiver
	Log       string        // the file of the audit log
	Committed func() uint64 // the number of the last record that is in the log for good

	Cursor      string // the file that says what was sent; "" for none: the sink begins with the next record, and so again after each start
	Records     bool   // are sent
	Checkpoints bool   // are sent

	Report *slog.Logger
	Event  func(action, reason string, err error) // puts a record into the log; may be nil
}

// Sink sends what is in the log to one receiver. Its methods may be called by many goroutines.
type Sink struct {
	Options
	notes chan []byte // holds the last checkpoint that was not sent

	sending sync.Mutex // held while To sends
	sent    atomic.Uint64
	cursor  cursor
	records stream // how sending them goes
	heads   stream // how sending checkpoints goes
}

// stream is one of the two things that a sink sends. It belongs to one goroutine.
type stream struct {
	what     string
	failures int  // in a row
	told     bool // that it fails
}

// New makes a sink, which sends nothing before Run. A cursor that cannot be read is reported, and all that is in the log is sent again.
func New(o Options) *Sink {
	s := &Sink{Options: o, notes: make(chan []byte, 1), cursor: cursor{file: o.Cursor, report: o.Report}}
	s.records.what, s.heads.what = fmt.Sprintf("sink %q", o.Name), fmt.Sprintf("checkpoints to sink %q", o.Name)
	if o.Cursor == "" {
		s.sent.Store(o.Committed())
		return s
	}
	if err := s.cursor.load(); err != nil {
		o.Report.Warn("what was sent to an audit sink is not known, and all is sent again", "sink", o.Name, "error", err)
	}
	s.sent.Store(s.cursor.at.Seq)
	return s
}

// Behind is how many records are in the log and were not sent.
func (s *Sink) Behind() uint64 {
	committed, sent := s.Committed(), s.sent.Load()
	if !s.Records || committed < sent {
		return 0
	}
	return committed - sent
}

// Checkpoint has the checkpoint sent, if the sink is for those. It does not wait.
func (s *Sink) Checkpoint(note []byte) {
	if !s.Checkpoints {
		return
	}
	for {
		select {
		case s.notes <- note:
			return
		default:
		}
		select {
		case <-s.notes: // older
		default:
		}
	}
}

// Run sends until ctx ends, and then, for at most the time given, what is in the log by then. The error says what was not sent. It closes the receiver.
func (s *Sink) Run(ctx context.Context, drain time.Duration) error {
	hard, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(drain, stop) })()
	var parts sync.WaitGroup
	if s.Checkpoints {
		parts.Go(func() { s.sendCheckpoints(ctx, hard) })
	}
	if s.Records {
		s.sendRecords(ctx, hard)
	}
	parts.Wait()
	err := errors.Join(s.cursor.close(), s.To.Close())
	if n := s.Behind(); n > 0 && s.Cursor != "" {
		err = errors.Join(err, fmt.Errorf("sink %q: %d records were not sent; they will be after the next start", s.Name, n))
	} else if n > 0 {
		err = errors.Join(err, fmt.Errorf("sink %q: %d records were not sent", s.Name, n))
	}
	return err
}

// sendRecords walks through the log again and again: an error of reading ends a walk, and so does a log that is another one.
func (s *Sink) sendRecords(ctx, hard context.Context) {
	for wait := (pause{}); ctx.Err() == nil; {
		err := s.walk(ctx, hard, true)
		if err != nil && ctx.Err() == nil {
			s.failed(&s.records, err)
			wait.wait(ctx, hard, 0)
		}
	}
	if hard.Err() == nil {
		if err := s.walk(ctx, hard, false); err != nil {
			s.Report.Error("read what an audit sink has not sent", "sink", s.Name, "error", err)
		}
	}
}

// walk sends what is in the log from where the sink is on; with follow, until ctx ends.
func (s *Sink) walk(ctx, hard context.Context, follow bool) error {
	at := s.cursor.position()
	if s.Committed() < at.Seq {
		s.reset(fmt.Sprintf("record %d was sent, and the log ends with %d", at.Seq, s.Committed()))
		return nil
	}
	reading := audit.Reading{File: s.Log, From: s.sent.Load() + 1, Until: s.Committed}
	known := at.SHA256 != ""
	if known {
		reading.From = at.Seq // to see that it is the same log
	}
	records := reading.All(hard)
	if follow {
		records = reading.Follow(ctx)
	}
	var batch []audit.Record
	bytes := 0
	for r, err := range records {
		if err != nil {
			return err
		}
		if r.Seq > s.Committed() { // without follow, All answers what is there
			return nil
		}
		if known {
			known = false
			if !at.of(&r) {
				s.reset(fmt.Sprintf("record %d is not the one that was sent", at.Seq))
				return nil
			}
			if r.Seq == at.Seq {
				continue
			}
		}
		if last := s.sent.Load() + uint64(len(batch)); r.Seq > last+1 && last > 0 {
			if !s.deliver(ctx, hard, &batch, &bytes) {
				return nil
			}
			s.event("sink gap", fmt.Sprintf("%s: records %d to %d were removed before they were sent", s.records.what, last+1, r.Seq-1), nil)
			s.sent.Store(r.Seq - 1)
		} else if last == 0 { // what was removed before the sink was there is no gap
			s.sent.Store(r.Seq - 1)
		}
		batch = append(batch, r)
		bytes += len(r.Line)
		if len(batch) < batchRecords && bytes < batchBytes && r.Seq < s.Committed() {
			continue // there is more to come at once
		}
		if !s.deliver(ctx, hard, &batch, &bytes) {
			return nil
		}
	}
	return nil
}

// reset has the sink begin at the first record of the log.
func (s *Sink) reset(why string) {
	s.event("sink reset", fmt.Sprintf("%s: the log is another one: %s; all of it is sent", s.records.what, why), nil)
	s.sent.Store(0)
	s.cursor.move(position{})
}

// deliver sends the records until they were taken or time is over, and says which. It leaves the batch empty.
func (s *Sink) deliver(ctx, hard context.Context, batch *[]audit.Record, bytes *int) bool {
	records := *batch
	*batch, *bytes = (*batch)[:0], 0
	defer clear(records) // their lines need not be kept
	if len(records) == 0 {
		return true
	}
	if !s.send(ctx, hard, &s.records, records, nil) {
		return false
	}
	last := &records[len(records)-1]
	s.sent.Store(last.Seq)
	sum := sha256.Sum256(last.Line)
	s.cursor.move(position{last.Seq, hex.EncodeToString(sum[:])})
	return true
}

func (s *Sink) sendCheckpoints(ctx, hard context.Context) {
	for {
		select {
		case note := <-s.notes:
			s.send(ctx, hard, &s.heads, nil, note)
			continue
		case <-ctx.Done():
		}
		select {
		case note := <-s.notes: // the last one, of the end of the log
			s.send(ctx, hard, &s.heads, nil, note)
		default:
		}
		return
	}
}

// send tries until the receiver has taken it or hard ends, and says which.
func (s *Sink) send(ctx, hard context.Context, st *stream, records []audit.Record, note []byte) bool {
	for wait := (pause{}); ; {
		err := s.try(hard, Batch{records, note})
		if err == nil {
			s.works(st)
			return true
		}
		if _, large := errors.AsType[*tooLarge](err); large && len(records) > 1 {
			half := len(records) / 2
			return s.send(ctx, hard, st, records[:half], nil) && s.send(ctx, hard, st, records[half:], nil)
		}
		if hard.Err() != nil {
			return false
		}
		s.failed(st, err)
		if !wait.wait(ctx, hard, askedFor(err)) {
			return false
		}
		if note != nil {
			select {
			case note = <-s.notes: // stands for the one before
			default:
			}
		}
	}
}

func (s *Sink) try(hard context.Context, b Batch) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	ctx, cancel := context.WithTimeoutCause(hard, attemptTimeout, fmt.Errorf("no answer within %s", attemptTimeout))
	defer cancel()
	err := s.To.Send(ctx, b)
	if err != nil && ctx.Err() != nil && hard.Err() == nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// patience is how many tries in a row may fail before it is said. One that fails now and then would else fill the log with its own records.
const patience = 3

func (s *Sink) failed(st *stream, err error) {
	if st.failures++; st.failures < patience || st.told {
		s.Report.Debug("an audit sink takes nothing", "sink", s.Name, "error", err)
		return
	}
	st.told = true
	s.Report.Error("an audit sink takes nothing; what it misses is kept in the log and sent later", "sink", s.Name, "behind", s.Behind(), "error", err)
	s.event("sink lost", st.what, err)
}

func (s *Sink) works(st *stream) {
	if st.told {
		s.Report.Info("an audit sink works again", "sink", s.Name, "behind", s.Behind())
		s.event("sink back", st.what, nil)
	}
	st.failures, st.told = 0, false
}

func (s *Sink) event(action, reason string, err error) {
	if action == "sink gap" || action == "sink reset" {
		s.Report.Error(action, "reason", reason)
	}
	if s.Event != nil {
		s.Event(action, reason, err)
	}
}
