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
	"gatekit/audit/format"
)

const (
	batchRecords   = 512
	batchBytes     = 1 << 20
	attemptTimeout = 30 * time.Second
	saveEvery      = time.Second // for the cursor, at the most
)

// Receiver is where a sink sends to. It is called by one goroutine at a time.
type Receiver interface {
	// Send hands a batch over, in its order, before ctx ends. Nil says that the receiver has all of
	// it. After an error it may have any part, and is sent all of it again, unless the error is a
	// [RejectedError].
	Send(ctx context.Context, b Batch) error

	// Close gives up what is open. Nothing is sent afterwards.
	Close() error
}

// Batch is records, or a checkpoint.
type Batch struct {
	Records    []audit.Record
	Checkpoint []byte // a signed note
	// the records are to be sent in their short form, see format.Short: the receiver has refused
	// the whole one
	Short bool
}

// RejectedError is an error of a receiver that has looked at a batch and does not want it: it is
// too large, or of records that the receiver cannot take. It is sent by halves; the record that is
// refused alone is sent short, and left out when that is refused, too.
type RejectedError struct {
	Err error
	// the receiver has taken a part, does not say which, and wants nothing of the batch again
	Partial bool
}

func (r *RejectedError) Error() string { return r.Err.Error() }
func (r *RejectedError) Unwrap() error { return r.Err }

// Options are those of a sink.
type Options struct {
	Name      string
	Receiver  Receiver
	LogFile   string        // the file of the audit log
	Committed func() uint64 // the number of the last record that is in the log for good

	// the file that says what was sent; "" for none: the sink begins with the next record, and so
	// again after each start
	CursorFile  string
	Records     bool // are sent
	Checkpoints bool // are sent

	Logger      *slog.Logger
	RecordEvent func(action, reason string, err error) // puts a record into the log; may be nil
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
	// the receiver has taken records, now or before this process; of the goroutine that sends them
	taker   bool
	leftOut int // records, since it took one; of that goroutine
	ending  atomic.Bool
}

// stream is one of the two things that a sink sends. It belongs to one goroutine.
type stream struct {
	what     string
	failures int  // in a row
	told     bool // that it fails
}

// New makes a sink, which sends nothing before Run. A cursor that cannot be read is reported, and
// all that is in the log is sent again.
func New(o Options) *Sink {
	s := &Sink{Options: o, notes: make(chan []byte, 1), cursor: cursor{file: o.CursorFile,
		log:    o.LogFile,
		report: o.Logger}}
	s.records.what, s.heads.what = fmt.Sprintf("sink %q", o.Name),
		fmt.Sprintf("checkpoints to sink %q", o.Name)
	if o.CursorFile == "" {
		s.sent.Store(o.Committed())
		return s
	}
	if err := s.cursor.load(); err != nil {
		o.Logger.Warn("what was sent to an audit sink is not known, and all is sent again",
			"sink", o.Name, "error", err)
	}
	s.sent.Store(s.cursor.at.Seq)
	s.taker = s.cursor.at.Seq > 0
	return s
}

// Backlog is how many records are in the log and were not sent.
func (s *Sink) Backlog() uint64 {
	committed, sent := s.Committed(), s.sent.Load()
	if !s.Records || committed < sent {
		return 0
	}
	return committed - sent
}

// QueueCheckpoint has the checkpoint sent, if the sink is for those. It does not wait.
func (s *Sink) QueueCheckpoint(note []byte) {
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

// Run sends until ctx ends, and then, for at most the time given, what is in the log by then; a
// receiver that is lost by then holds up nobody. The log may be closed by then. The error says what
// was not sent. It closes the receiver.
func (s *Sink) Run(ctx context.Context, drain time.Duration) error {
	hard, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		s.ending.Store(true)
		time.AfterFunc(drain, stop)
	})()
	var parts sync.WaitGroup
	if s.Checkpoints {
		parts.Go(func() { s.sendCheckpoints(ctx, hard) })
	}
	if s.Records {
		s.sendRecords(ctx, hard)
	}
	parts.Wait()
	err := errors.Join(s.cursor.close(), s.Receiver.Close())
	if n := s.Backlog(); n > 0 && s.CursorFile != "" {
		err = errors.Join(err, fmt.Errorf("sink %q: %d records were not sent; they will be "+
			"after the next start", s.Name, n))
	} else if n > 0 {
		err = errors.Join(err, fmt.Errorf("sink %q: %d records were not sent", s.Name, n))
	}
	return err
}

// sendRecords walks through the log again and again: an error of reading ends a walk, and so does a
// log that is another one.
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
			s.Logger.Error("read what an audit sink has not sent", "sink", s.Name, "error", err)
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
	reading := audit.Reader{File: s.LogFile, From: s.sent.Load() + 1, Limit: s.Committed}
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
			s.event("sink gap", fmt.Sprintf("%s: records %d to %d were removed before they were "+
				"sent", s.records.what, last+1, r.Seq-1), nil)
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
	s.event("sink reset", fmt.Sprintf("%s: the log is another one: %s; all of it is sent",
		s.records.what, why), nil)
	s.sent.Store(0)
	s.cursor.move(position{})
}

// deliver sends the records until they were taken or left out, or time is over, and says which. It
// leaves the batch empty.
func (s *Sink) deliver(ctx, hard context.Context, batch *[]audit.Record, bytes *int) bool {
	records := *batch
	*batch, *bytes = (*batch)[:0], 0
	defer clear(records) // their lines need not be kept
	return len(records) == 0 || s.send(ctx, hard, records)
}

// send sends records until they were taken or left out, or hard ends, and says which. Of what is
// refused, halves are sent, so that in the end one record is found.
func (s *Sink) send(ctx, hard context.Context, records []audit.Record) bool {
	refusals := 0 // of the one record
	for wait := (pause{}); ; {
		err := s.try(hard, Batch{Records: records, Short: refusals/patience%2 == 1})
		if err == nil {
			s.works(&s.records)
			s.passed(records)
			s.taker, s.leftOut = true, 0
			return true
		}
		refusal, refused := errors.AsType[*RejectedError](err)
		switch {
		case refused && refusal.Partial:
			s.works(&s.records)
			s.leave(records, "some were refused", err)
			s.taker, s.leftOut = true, 0
			return true
		case refused && len(records) > 1:
			half := len(records) / 2
			return s.send(ctx, hard, records[:half]) && s.send(ctx, hard, records[half:])
		case refused:
			// at a stop there is no time to be sure
			if refusals++; refusals%(2*patience) == 0 && s.mayLeave() && ctx.Err() == nil {
				s.leave(records, "it was refused, and so was its short form", err)
				s.leftOut++
				return true
			}
		}
		if hard.Err() != nil {
			return false
		}
		if !refused || !s.mayLeave() {
			s.failed(&s.records, err)
		}
		if s.records.told && ctx.Err() != nil || !wait.wait(ctx, hard, askedFor(err)) {
			return false
		}
	}
}

// maxLeftOut is how many records in a row are left out. A receiver that refuses more than that
// refuses whatever it is sent, and is waited for.
const maxLeftOut = 8

// mayLeave says whether a record may be left out: what no record ever went to is set up wrongly.
func (s *Sink) mayLeave() bool { return s.taker && s.leftOut < maxLeftOut }

// leave goes on behind records that were not, or not all, taken, and says so. Of a record that says
// so there is none: they would have no end.
func (s *Sink) leave(records []audit.Record, what string, why error) {
	first, last := &records[0], &records[len(records)-1]
	reason := fmt.Sprintf("%s: record %d is left out: %s", s.records.what, first.Seq, what)
	if first != last {
		reason = fmt.Sprintf("%s: of records %d to %d %s and are left out", s.records.what,
			first.Seq, last.Seq, what)
	}
	if first == last && first.Action == "sink gap" {
		s.Logger.Error("sink gap", "reason", reason, "error", why)
	} else {
		s.event("sink gap", reason, why)
	}
	s.passed(records)
}

// passed goes on behind records.
func (s *Sink) passed(records []audit.Record) {
	last := &records[len(records)-1]
	s.sent.Store(last.Seq)
	sum := sha256.Sum256(last.Line)
	s.cursor.move(position{last.Seq, hex.EncodeToString(sum[:])})
}

func (s *Sink) sendCheckpoints(ctx, hard context.Context) {
	for {
		select {
		case note := <-s.notes:
			s.sendCheckpoint(ctx, hard, note)
			continue
		case <-ctx.Done():
		}
		select {
		case note := <-s.notes: // the last one, of the end of the log
			s.sendCheckpoint(ctx, hard, note)
		default:
		}
		return
	}
}

// sendCheckpoint tries until the receiver has taken it, or one that came meanwhile and stands for
// it, or hard ends.
func (s *Sink) sendCheckpoint(ctx, hard context.Context, note []byte) {
	for wait := (pause{}); ; {
		err := s.try(hard, Batch{Checkpoint: note})
		if err == nil {
			s.works(&s.heads)
			return
		}
		if hard.Err() != nil {
			return
		}
		s.failed(&s.heads, err)
		if s.heads.told && ctx.Err() != nil || !wait.wait(ctx, hard, askedFor(err)) {
			return
		}
		select {
		case note = <-s.notes:
		default:
		}
	}
}

func (s *Sink) try(hard context.Context, b Batch) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	ctx, cancel := context.WithTimeoutCause(hard, attemptTimeout, fmt.Errorf("no answer within %s",
		attemptTimeout))
	defer cancel()
	err := s.Receiver.Send(ctx, b)
	if err != nil && ctx.Err() != nil && hard.Err() == nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// patience is how many tries in a row may fail before it is said, and how often a record is sent
// whole, and then short, before it is left out. One that fails now and then would else fill the log
// with its own records.
const patience = 3

func (s *Sink) failed(st *stream, err error) {
	if st.failures++; st.failures < patience || st.told {
		s.Logger.Debug("an audit sink takes nothing", "sink", s.Name, "error", err)
		return
	}
	st.told = true
	s.Logger.Error("an audit sink takes nothing; what it misses is kept in the log and sent later",
		"sink", s.Name, "behind", s.Backlog(), "error", err)
	s.event("sink lost", st.what, err)
}

func (s *Sink) works(st *stream) {
	if st.told {
		s.Logger.Info("an audit sink works again", "sink", s.Name, "behind", s.Backlog())
		s.event("sink back", st.what, nil)
	}
	st.failures, st.told = 0, false
}

func (s *Sink) event(action, reason string, err error) {
	if action == "sink gap" || action == "sink reset" {
		s.Logger.Error(action, "reason", reason, "error", err)
	}
	if s.RecordEvent != nil && !s.ending.Load() { // a log that is closed takes none
		s.RecordEvent(action, reason, err)
	}
}

// formOf is a receiver's form, or the short one of it.
func formOf(f format.Encoder, short bool) format.Encoder {
	if short {
		return format.ShortEncoder(f)
	}
	return f
}
