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
	saveInterval   = time.Second // between two saves of the cursor
)

// Receiver is the destination of a sink. It is called by one goroutine at a time.
type Receiver interface {
	// Send delivers a batch, in order, before ctx ends. A nil error means that the receiver has the
	// whole batch. After an error the receiver may have any part of the batch. It then gets the
	// whole batch again, unless the error is a [RejectedError].
	Send(ctx context.Context, b Batch) error

	// Close releases all resources. It is the last call.
	Close() error
}

// Batch is a list of records, or a checkpoint.
type Batch struct {
	Records    []audit.Record
	Checkpoint []byte // a signed note
	// send the records in their short form (see format.ShortEncoder), because the receiver has
	// rejected the full form
	Short bool
}

// RejectedError means that the receiver refuses the content of a batch: the batch is too large, or
// the receiver cannot process one of its records. The sink sends the batch in halves. If a batch of
// one record is rejected, the sink sends the record in its short form. If the short form is
// rejected, too, the sink skips the record.
type RejectedError struct {
	Err error
	// the receiver has accepted an unknown part of the batch, and must not get the batch again
	Partial bool
}

func (r *RejectedError) Error() string { return r.Err.Error() }
func (r *RejectedError) Unwrap() error { return r.Err }

// Options configure a sink.
type Options struct {
	Name      string
	Receiver  Receiver
	LogFile   string        // active file of the audit log
	Committed func() uint64 // returns the seq of the last record that is final, see audit.Log

	// file that holds the position of the last record that was sent. If CursorFile is "", the
	// position is not saved, and after each start the sink begins with the next new record.
	CursorFile  string
	Records     bool // send records
	Checkpoints bool // send checkpoints

	Logger *slog.Logger
	// writes a record to the audit log; may be nil
	RecordEvent func(action, reason string, err error)
}

// Sink sends the content of the audit log to one receiver. Its methods are safe for concurrent use.
type Sink struct {
	Options
	checkpoints chan []byte // holds the newest checkpoint that was not sent

	sendMu          sync.Mutex // held during Receiver.Send
	sentSeq         atomic.Uint64
	cursor          cursor
	recordState     deliveryState // of sending records
	checkpointState deliveryState // of sending checkpoints
	// The goroutine that sends records owns these two fields.
	hasAccepted bool // the receiver has accepted at least one record, even if before a restart
	skipped     int  // records that were skipped since the last accepted record

	stopping atomic.Bool
}

// deliveryState counts the failures of sending records or checkpoints. One goroutine owns it.
type deliveryState struct {
	name     string
	failures int  // failed tries in a row
	reported bool // the failure was reported
}

// New returns a sink that sends nothing before Run. If the cursor cannot be read, New logs a
// warning, and all records in the log are sent again.
func New(o Options) *Sink {
	s := &Sink{Options: o, checkpoints: make(chan []byte, 1), cursor: cursor{path: o.CursorFile,
		logFile: o.LogFile,
		logger:  o.Logger}}
	s.recordState.name, s.checkpointState.name = fmt.Sprintf("sink %q", o.Name),
		fmt.Sprintf("checkpoints to sink %q", o.Name)
	if o.CursorFile == "" {
		s.sentSeq.Store(o.Committed())
		return s
	}
	if err := s.cursor.load(); err != nil {
		o.Logger.Warn("audit sink cursor unreadable; all records are sent again",
			"sink", o.Name, "error", err)
	}
	s.sentSeq.Store(s.cursor.pos.Seq)
	s.hasAccepted = s.cursor.pos.Seq > 0
	return s
}

// Backlog returns the number of records in the log that were not sent.
func (s *Sink) Backlog() uint64 {
	committed, sent := s.Committed(), s.sentSeq.Load()
	if !s.Records || committed < sent {
		return 0
	}
	return committed - sent
}

// QueueCheckpoint queues a checkpoint, if the sink sends checkpoints. It does not block.
func (s *Sink) QueueCheckpoint(note []byte) {
	if !s.Checkpoints {
		return
	}
	for {
		select {
		case s.checkpoints <- note:
			return
		default:
		}
		select {
		case <-s.checkpoints: // note replaces this older checkpoint
		default:
		}
	}
}

// Run sends records and checkpoints until ctx ends. Then it sends the remaining records for at most
// the duration drain, even if the log is closed. It gives up at once if the receiver is already
// failing. The error says how many records were not sent. Run closes the receiver.
func (s *Sink) Run(ctx context.Context, drain time.Duration) error {
	drainCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		s.stopping.Store(true)
		time.AfterFunc(drain, stop)
	})()
	var parts sync.WaitGroup
	if s.Checkpoints {
		parts.Go(func() { s.sendCheckpoints(ctx, drainCtx) })
	}
	if s.Records {
		s.sendRecords(ctx, drainCtx)
	}
	parts.Wait()
	err := errors.Join(s.cursor.close(), s.Receiver.Close())
	if n := s.Backlog(); n > 0 && s.CursorFile != "" {
		err = errors.Join(err, fmt.Errorf("sink %q: %d records were not sent; they will be sent "+
			"after the next start", s.Name, n))
	} else if n > 0 {
		err = errors.Join(err, fmt.Errorf("sink %q: %d records were not sent", s.Name, n))
	}
	return err
}

// sendRecords sends the log to the receiver. It starts again when the log cannot be read, and when
// another log has replaced the log.
func (s *Sink) sendRecords(ctx, drainCtx context.Context) {
	for wait := (backoff{}); ctx.Err() == nil; {
		err := s.sendFromLog(ctx, drainCtx, true)
		if err != nil && ctx.Err() == nil {
			s.reportFailure(&s.recordState, err)
			wait.wait(ctx, drainCtx, 0)
		}
	}
	if drainCtx.Err() == nil {
		if err := s.sendFromLog(ctx, drainCtx, false); err != nil {
			s.Logger.Error("reading the rest of the audit log for a sink failed", "sink", s.Name,
				"error", err)
		}
	}
}

// sendFromLog sends the records after the cursor. If follow is set, it also sends new records until
// ctx ends.
func (s *Sink) sendFromLog(ctx, drainCtx context.Context, follow bool) error {
	at := s.cursor.position()
	if s.Committed() < at.Seq {
		s.restart(fmt.Sprintf("record %d was sent, but the log ends with record %d", at.Seq,
			s.Committed()))
		return nil
	}
	reader := audit.Reader{File: s.LogFile, From: s.sentSeq.Load() + 1, Limit: s.Committed}
	checkPosition := at.SHA256 != ""
	if checkPosition {
		reader.From = at.Seq // read the last sent record again, to see whether the log is the same
	}
	records := reader.All(drainCtx)
	if follow {
		records = reader.Follow(ctx)
	}
	var batch []audit.Record
	bytes := 0
	for r, err := range records {
		if err != nil {
			return err
		}
		if r.Seq > s.Committed() { // Reader.All may return records that are not committed
			return nil
		}
		if checkPosition {
			checkPosition = false
			if !at.sameLog(&r) {
				s.restart(fmt.Sprintf("record %d differs from the record %[1]d that was sent",
					at.Seq))
				return nil
			}
			if r.Seq == at.Seq {
				continue
			}
		}
		if last := s.sentSeq.Load() + uint64(len(batch)); r.Seq > last+1 && last > 0 {
			if !s.deliver(ctx, drainCtx, &batch, &bytes) {
				return nil
			}
			s.recordEvent("sink gap", fmt.Sprintf("%s: records %d to %d were removed before "+
				"they were sent", s.recordState.name, last+1, r.Seq-1), nil)
			s.sentSeq.Store(r.Seq - 1)
		} else if last == 0 { // a new sink begins with the first record that exists
			s.sentSeq.Store(r.Seq - 1)
		}
		batch = append(batch, r)
		bytes += len(r.Line)
		if len(batch) < batchRecords && bytes < batchBytes && r.Seq < s.Committed() {
			continue // the batch has room, and the next record can be read at once
		}
		if !s.deliver(ctx, drainCtx, &batch, &bytes) {
			return nil
		}
	}
	return nil
}

// restart makes the sink begin at the first record of the log. reason says how the sink noticed
// that the log was replaced.
func (s *Sink) restart(reason string) {
	s.recordEvent("sink reset",
		fmt.Sprintf("%s: another log has replaced the log: %s; all records of the new log are sent",
			s.recordState.name, reason), nil)
	s.sentSeq.Store(0)
	s.cursor.move(cursorPosition{})
}

// deliver sends the records of the batch, and empties the batch. It returns false if the sink gives
// up before all records are accepted or skipped.
func (s *Sink) deliver(ctx, drainCtx context.Context, batch *[]audit.Record, bytes *int) bool {
	records := *batch
	*batch, *bytes = (*batch)[:0], 0
	defer clear(records) // release the lines
	return len(records) == 0 || s.send(ctx, drainCtx, records)
}

// send sends records until all of them are accepted or skipped. It returns false if the sink gives
// up before that. It splits a rejected batch in halves, until it has found the records that the
// receiver rejects.
func (s *Sink) send(ctx, drainCtx context.Context, records []audit.Record) bool {
	rejections := 0 // how often the record was rejected, if records has only one record
	for wait := (backoff{}); ; {
		err := s.attempt(drainCtx, Batch{Records: records, Short: rejections/maxTries%2 == 1})
		if err == nil {
			s.reportSuccess(&s.recordState)
			s.advance(records)
			s.hasAccepted, s.skipped = true, 0
			return true
		}
		rejection, rejected := errors.AsType[*RejectedError](err)
		switch {
		case rejected && rejection.Partial:
			s.reportSuccess(&s.recordState)
			s.skip(records, "the receiver rejected the record", err)
			s.hasAccepted, s.skipped = true, 0
			return true
		case rejected && len(records) > 1:
			half := len(records) / 2
			return s.send(ctx, drainCtx, records[:half]) && s.send(ctx, drainCtx, records[half:])
		case rejected:
			// no record is skipped during the drain, which may be too short for all tries
			if rejections++; rejections%(2*maxTries) == 0 && s.maySkip() && ctx.Err() == nil {
				s.skip(records, "the receiver rejected its full form and its short form", err)
				s.skipped++
				return true
			}
		}
		if drainCtx.Err() != nil {
			return false
		}
		if !rejected || !s.maySkip() {
			s.reportFailure(&s.recordState, err)
		}
		if s.recordState.reported && ctx.Err() != nil || !wait.wait(ctx, drainCtx,
			retryDelay(err)) {
			return false
		}
	}
}

// maxSkipped is the maximal number of records that are skipped in a row. A receiver that rejects
// more records in a row is treated as failing.
const maxSkipped = 8

// maySkip reports whether a record may be skipped. It returns false for a receiver that has never
// accepted a record, because that receiver is probably misconfigured.
func (s *Sink) maySkip() bool { return s.hasAccepted && s.skipped < maxSkipped }

// skip moves the cursor past records of which the receiver rejected at least one, and writes a
// record "sink gap". If the skipped record is itself a "sink gap", skip writes no record and only
// logs the gap: otherwise each "sink gap" could lead to another "sink gap".
func (s *Sink) skip(records []audit.Record, cause string, err error) {
	first, last := &records[0], &records[len(records)-1]
	reason := fmt.Sprintf("%s: record %d was skipped: %s", s.recordState.name, first.Seq, cause)
	if first != last {
		reason = fmt.Sprintf("%s: some of the records %d to %d were skipped, because the receiver "+
			"rejected them", s.recordState.name, first.Seq, last.Seq)
	}
	if first == last && first.Action == "sink gap" {
		s.Logger.Error("sink gap", "reason", reason, "error", err)
	} else {
		s.recordEvent("sink gap", reason, err)
	}
	s.advance(records)
}

// advance moves the cursor to the last of the records.
func (s *Sink) advance(records []audit.Record) {
	last := &records[len(records)-1]
	s.sentSeq.Store(last.Seq)
	sum := sha256.Sum256(last.Line)
	s.cursor.move(cursorPosition{last.Seq, hex.EncodeToString(sum[:])})
}

func (s *Sink) sendCheckpoints(ctx, drainCtx context.Context) {
	for {
		select {
		case note := <-s.checkpoints:
			s.sendCheckpoint(ctx, drainCtx, note)
			continue
		case <-ctx.Done():
		}
		select {
		case note := <-s.checkpoints: // the last checkpoint, made when the log was closed
			s.sendCheckpoint(ctx, drainCtx, note)
		default:
		}
		return
	}
}

// sendCheckpoint sends a checkpoint until the receiver has accepted it or the sink gives up. If
// there is a newer checkpoint after a failed try, sendCheckpoint goes on with the newer checkpoint.
func (s *Sink) sendCheckpoint(ctx, drainCtx context.Context, note []byte) {
	for wait := (backoff{}); ; {
		err := s.attempt(drainCtx, Batch{Checkpoint: note})
		if err == nil {
			s.reportSuccess(&s.checkpointState)
			return
		}
		if drainCtx.Err() != nil {
			return
		}
		s.reportFailure(&s.checkpointState, err)
		if s.checkpointState.reported && ctx.Err() != nil || !wait.wait(ctx, drainCtx,
			retryDelay(err)) {
			return
		}
		select {
		case note = <-s.checkpoints:
		default:
		}
	}
}

func (s *Sink) attempt(drainCtx context.Context, b Batch) error {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	ctx, cancel := context.WithTimeoutCause(drainCtx, attemptTimeout,
		fmt.Errorf("no response within %s",
			attemptTimeout))
	defer cancel()
	err := s.Receiver.Send(ctx, b)
	if err != nil && ctx.Err() != nil && drainCtx.Err() == nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// maxTries is the number of failed tries in a row after which a failure is reported. A single
// record that is rejected is sent maxTries times in its full form and maxTries times in its short
// form before it is skipped.
const maxTries = 3

func (s *Sink) reportFailure(st *deliveryState, err error) {
	if st.failures++; st.failures < maxTries || st.reported {
		s.Logger.Debug("audit sink failed", "sink", s.Name, "error", err)
		return
	}
	st.reported = true
	s.Logger.Error("audit sink failing; its records stay in the audit log and are sent later",
		"sink", s.Name, "behind", s.Backlog(), "error", err)
	s.recordEvent("sink lost", st.name, err)
}

func (s *Sink) reportSuccess(st *deliveryState) {
	if st.reported {
		s.Logger.Info("audit sink works again", "sink", s.Name, "behind", s.Backlog())
		s.recordEvent("sink back", st.name, nil)
	}
	st.failures, st.reported = 0, false
}

func (s *Sink) recordEvent(action, reason string, err error) {
	if action == "sink gap" || action == "sink reset" {
		s.Logger.Error(action, "reason", reason, "error", err)
	}
	if s.RecordEvent != nil && !s.stopping.Load() { // a closed log accepts no records
		s.RecordEvent(action, reason, err)
	}
}

// encoderOf returns f or, if short is set, the encoder of the short form.
func encoderOf(f format.Encoder, short bool) format.Encoder {
	if short {
		return format.ShortEncoder(f)
	}
	return f
}
