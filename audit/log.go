package audit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"gatekit/core/pipeline"
)

// Bodies says what a line tells of the bodies of messages.
type Bodies string

const (
	None     Bodies = "none"     // their size
	Digest   Bodies = "digest"   // their size and SHA-256; the default
	Redacted Bodies = "redacted" // also the text of what passed, after the stages
)

// Durability says what is true when Record returns.
type Durability string

const (
	Write Durability = "write" // the line was handed to the system: it survives the process, not the machine; the default
	Fsync Durability = "fsync" // the line is on the disk
	Async Durability = "async" // the line is in a bounded queue; a full one is an error
)

// Options say where the log is and what is in it.
type Options struct {
	File       string    // of JSON lines; made, with its folder, where absent, else continued
	Writer     io.Writer // instead of File, from the start of a chain; its Sync() error and Truncate(int64) error are used where it has them
	Bodies     Bodies
	Durability Durability
	Queue      int          // bytes of lines that may wait with Async; default 4 MiB
	Log        *slog.Logger // is told when writing begins to fail and when it works again, as messages are denied in between; may be nil

	// What follows is for a File.

	SegmentBytes int64                   // a file is not written beyond this size, and another begun; default 64 MiB
	Keep         Retention               // of the files before the one that is written; the zero value keeps all
	Key          string                  // file of the key that signs checkpoints; made where absent; default File + ".key"
	AnchorFile   string                  // gets a copy of each checkpoint; a file that others keep, or that cannot be written anew, is best; none when empty
	Anchor       func(checkpoint []byte) // gets each checkpoint, one at a time, and holds nothing up: while it runs, others but the newest are passed over; may be nil
}

// Retention says which files of a log are kept beside the one that is written: those that are within each bound. Zero is no bound.
type Retention struct {
	Files int           // that many
	Bytes int64         // all together
	For   time.Duration // since their last record
}

// errClosed is what a Record after Close gets.
var errClosed = errors.New("the audit log is closed")

// Log is an open audit log. It is safe for many goroutines.
type Log struct {
	bodies     Bodies
	durability Durability
	values     *Values // nil with None
	queue      int
	report     *slog.Logger

	// writing holds a token while somebody writes to out. It is taken before mu, never while mu is held.
	writing chan struct{}
	out     output
	files   *files // out, when it is a File
	segment int64  // SegmentBytes
	size    int64  // up to here out holds the lines that were answered for, and nothing else unless torn
	torn    bool   // out may hold something beyond size
	failing error  // of the last write
	gone    error  // why nothing may be written any more: the file is not ours

	committed atomic.Uint64 // number of the last record that was written
	upkeep    *upkeep       // the tree of a File; nil of a Writer

	// mu is held while a line gets its place: the order of lines in the batches is that of the chain.
	mu      sync.Mutex
	head    head
	pending *batch // lines that nobody has begun to write; nil when there are none
	spare   []byte // for the next batch, as are
	leaves  []tlog.Hash
	alone   int    // how many batches in a row had one line
	missed  missed // records that could not be written
	lost    error  // with Async: why the lines in pending were not written
	drains  bool   // with Async: drain runs
	closed  bool
	writers sync.WaitGroup // those that write, or will; none is added once closed
}

// head is where a chain stands: the number and hash of its last line.
type head struct {
	seq  uint64
	hash [sha256.Size]byte
}

// batch is lines that are written together. Who adds the first owns it: it writes the batch and tells the others.
type batch struct {
	lines  []byte
	leaves []tlog.Hash   // of its lines, for the tree
	count  int           // of its lines, without the one that tells of missed
	missed missed        // that its first line tells of
	start  head          // before its first line
	last   uint64        // number of its last line
	alone  int           // that of the log when the batch was begun
	done   chan struct{} // closed when err is final; nil as long as only the owner waits
	err    error
}

// Open opens the log, or says why it cannot be written to. A last line that was torn by a crash is cut off, and a line with the action "recovered" says so.
func Open(o Options) (*Log, error) {
	l := &Log{bodies: o.Bodies, durability: o.Durability, queue: o.Queue, report: o.Log, writing: make(chan struct{}, 1)}
	if l.bodies == "" {
		l.bodies = Digest
	}
	if l.durability == "" {
		l.durability = Write
	}
	if l.queue <= 0 {
		l.queue = 4 << 20
	}
	if l.report == nil {
		l.report = slog.New(slog.DiscardHandler)
	}
	switch l.bodies {
	case None, Digest, Redacted:
	default:
		return nil, fmt.Errorf("open the audit log: unknown bodies %q\nhint: %q, %q or %q", l.bodies, None, Digest, Redacted)
	}
	switch l.durability {
	case Write, Fsync, Async:
	default:
		return nil, fmt.Errorf("open the audit log: unknown durability %q\nhint: %q, %q or %q", l.durability, Write, Fsync, Async)
	}
	if (o.File == "") == (o.Writer == nil) {
		return nil, errors.New("open the audit log: it needs a file or a writer, and not both")
	}
	if o.Writer != nil {
		l.out = stream{o.Writer}
		l.values = newValues(rand.Text(), "a writer")
		return l, nil
	}
	if err := l.open(o); err != nil {
		return nil, fmt.Errorf("open the audit log %q: %w", o.File, err)
	}
	return l, nil
}

// open continues the log in a file, or begins it.
func (l *Log) open(o Options) error {
	f, end, err := openFiles(o.File)
	if err != nil {
		return err
	}
	l.files, l.out, l.size, l.head, l.segment = f, f, end.size, end.head, o.SegmentBytes
	if l.segment <= 0 {
		l.segment = 64 << 20
	}
	l.committed.Store(end.head.seq)
	if l.upkeep, err = newUpkeep(l, o, end); err != nil {
		return errors.Join(err, f.Close())
	}
	if end.torn > 0 {
		if err := f.Truncate(end.size); err != nil {
			return errors.Join(fmt.Errorf("cut off a torn last line: %w", err), f.Close())
		}
	}
	l.upkeep.start()
	if end.torn > 0 {
		err = l.event("recovered", fmt.Sprintf("%d bytes of a torn last record were cut off", end.torn))
	}
	if now := time.Now(); err == nil && now.Before(end.time) {
		err = l.event("clock", setBack(end.time.Sub(now)))
	}
	if err != nil {
		l.upkeep.stop()
		return errors.Join(err, f.Close())
	}
	return nil
}

// event records what happened to the log itself.
func (l *Log) event(action, reason string) error {
	_, err := l.Record(context.Background(), pipeline.Outcome{Time: time.Now(), Action: action, Reason: reason})
	return err
}

// Committed is the number of the last record that is as safe as configured; it and those before it are not taken back.
func (l *Log) Committed() uint64 { return l.committed.Load() }

// Waiting is how many records have their number and are not written yet. Only with Async were they answered for.
func (l *Log) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.head.seq - l.committed.Load())
}

// missed are records that could not be written, and have no number. The messages did not move.
type missed struct {
	count int
	since time.Time
	err   error // of the last
}

// outcome is the record of them.
func (m *missed) outcome() pipeline.Outcome {
	return pipeline.Outcome{Time: time.Now(), Action: "gap", Err: m.err,
		Reason: fmt.Sprintf("%d records could not be written since %s: their messages did not move", m.count, m.since.UTC().Format(timeFormat))}
}

func (m *missed) add(other missed) {
	if other.count == 0 {
		return
	}
	if m.count == 0 || other.since.Before(m.since) {
		m.since = other.since
	}
	m.count += other.count
	m.err = other.err
}

// Record keeps o. It is a pipeline.Recorder's: the message may move when it returns nil, and must not otherwise. It does not heed the context:
// what was decided for a client that has left is a decision, too.
func (l *Log) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	return l.record(l.encode(o))
}

func (l *Log) record(e *entry) (uint64, error) {
	defer e.free()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return 0, errClosed
	}
	if l.durability == Async {
		defer l.mu.Unlock()
		seq, err := l.enqueue(e)
		if err != nil {
			l.missed.add(missed{1, time.Now(), err})
		}
		return seq, err
	}
	b, owner := l.join()
	seq := l.link(b, e)
	if owner {
		l.writers.Add(1)
	} else if b.done == nil {
		b.done = make(chan struct{})
	}
	l.mu.Unlock()
	if owner {
		l.commit(b)
	} else {
		<-b.done
	}
	if b.err != nil {
		return 0, b.err
	}
	return seq, nil
}

// join answers the batch that takes lines, and whether it is new, and the caller's. l.mu is held.
func (l *Log) join() (b *batch, owner bool) {
	if l.pending != nil {
		return l.pending, false
	}
	l.pending = &batch{lines: l.spare, leaves: l.leaves, start: l.head, alone: l.alone}
	l.spare, l.leaves = nil, nil
	if l.missed.count > 0 {
		l.pending.missed, l.missed = l.missed, missed{}
		gap := l.encode(l.pending.missed.outcome())
		l.link(l.pending, gap)
		l.pending.count = 0
		gap.free()
	}
	return l.pending, true
}

// link adds the line to the batch and to the chain. l.mu is held.
func (l *Log) link(b *batch, e *entry) uint64 {
	from := len(b.lines)
	l.head.seq++
	b.count++
	b.lines = append(b.lines, `{"seq":`...)
	b.lines = strconv.AppendUint(b.lines, l.head.seq, 10)
	b.lines = append(b.lines, e.time...)
	b.lines = append(b.lines, `,"prev":"`...)
	b.lines = hex.AppendEncode(b.lines, l.head.hash[:])
	b.lines = append(b.lines, '"')
	b.lines = append(b.lines, e.rest...)
	l.head.hash = sha256.Sum256(b.lines[from:])
	if l.upkeep != nil {
		b.leaves = append(b.leaves, l.upkeep.leaf(b.lines[from:]))
	}
	b.lines = append(b.lines, '\n')
	b.last = l.head.seq
	return l.head.seq
}

// commit writes the caller's batch and tells all that are in it.
func (l *Log) commit(b *batch) {
	defer l.writers.Done()
	if b.alone < 4 || b.alone%64 == 0 {
		runtime.Gosched() // others may be about to record: one write for all costs less than one for each. To wait for nobody costs too, so it is tried now and then
	}
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	if l.durability == Fsync {
		runtime.Gosched() // those whose batch was just written are about to record again: they share this one, or two batches take turns for ever
	}
	l.mu.Lock()
	if l.pending == b {
		l.pending = nil // from here on nobody joins
	}
	if l.alone++; b.done != nil {
		l.alone = 0
	}
	l.mu.Unlock()
	failedBefore := b.err != nil // the batch before, and this one with it
	if !failedBefore {
		b.err = l.write(b)
	}
	l.mu.Lock()
	switch {
	case b.err == nil:
		l.recycle(b)
	case !failedBefore:
		l.head = b.start
		if l.pending != nil {
			l.pending.err = b.err
			l.pending = nil
		}
		fallthrough
	default:
		l.missed.add(b.missed)
		l.missed.add(missed{b.count, time.Now(), b.err})
	}
	l.mu.Unlock()
	if b.done != nil {
		close(b.done)
	}
}

// recycle keeps the memory of a batch that was written for the next one. l.mu is held.
func (l *Log) recycle(b *batch) {
	if cap(b.lines) <= 1<<20 {
		l.spare, l.leaves = b.lines[:0], b.leaves[:0]
	}
}

// enqueue is Record for Async. l.mu is held.
func (l *Log) enqueue(e *entry) (uint64, error) {
	err := l.lost
	if err == nil && l.pending != nil && len(l.pending.lines)+len(e.rest) > l.queue {
		err = fmt.Errorf("%d bytes of records wait to be written, the queue is full", len(l.pending.lines))
	}
	var seq uint64
	if err == nil {
		b, _ := l.join()
		seq = l.link(b, e)
	}
	if !l.drains {
		l.drains = true
		l.writers.Add(1)
		go l.drain()
	}
	return seq, err
}

// drain writes what waits until nothing does, or until it fails.
func (l *Log) drain() {
	defer l.writers.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.pending != nil {
		b := l.pending
		l.pending = nil
		l.mu.Unlock()

		l.writing <- struct{}{}
		err := l.write(b)
		<-l.writing

		l.mu.Lock()
		if l.lost = err; err != nil {
			if l.pending != nil { // what has come in the meantime follows on
				b.follow(l.pending)
			}
			l.pending = b
			break
		}
		l.recycle(b)
	}
	l.drains = false
}

// follow appends the lines of next to those of b.
func (b *batch) follow(next *batch) {
	b.lines = append(b.lines, next.lines...)
	b.leaves = append(b.leaves, next.leaves...)
	b.count += next.count
	b.last = next.last
}

// write writes whole lines to the end, or leaves out as it was. The caller has l.writing.
func (l *Log) write(b *batch) error {
	err := l.attempt(b.lines)
	switch {
	case err != nil:
		err = fmt.Errorf("write the audit log: %w", err)
		if l.failing == nil {
			l.report.Error("the audit log cannot be written, messages are denied", "error", err)
		}
	case l.failing != nil:
		l.report.Info("the audit log is written again")
	}
	l.failing = err
	if err == nil {
		if l.upkeep != nil {
			l.upkeep.add(b.leaves)
		}
		l.committed.Store(b.last)
	}
	return err
}

func (l *Log) attempt(lines []byte) error {
	if err := errors.Join(l.gone, l.takeBack()); err != nil {
		return err
	}
	if l.files != nil {
		if err := l.room(int64(len(lines))); err != nil {
			return err
		}
	}
	n, err := l.out.Write(lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	if err == nil && l.durability == Fsync {
		err = l.out.Sync()
	}
	if err != nil {
		l.torn = true
		back := l.takeBack()
		if n == 0 && errors.Is(back, errors.ErrUnsupported) {
			l.torn, back = false, nil // a writer that took nothing has nothing to give back
		}
		return errors.Join(err, back)
	}
	l.size += int64(len(lines))
	return nil
}

// room begins another file when this one would grow too large.
func (l *Log) room(more int64) error {
	if err := l.upkeep.behind(); err != nil {
		return err
	}
	if l.size == 0 || l.size+more <= l.segment {
		return nil
	}
	rotated, err := l.files.rotate()
	if rotated {
		l.size = 0
		l.upkeep.rotated()
	}
	if err != nil {
		return fmt.Errorf("begin another file: %w", err)
	}
	return nil
}

// takeBack cuts off what a failed write may have left behind.
func (l *Log) takeBack() error {
	if !l.torn {
		return nil
	}
	if err := l.out.Truncate(l.size); err != nil {
		return fmt.Errorf("take back what was written in part: %w", err)
	}
	l.torn = false
	return nil
}

// Close refuses further records, waits for those under way and closes the file. The error says what was not written. A Writer stays open.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	l.writers.Wait()

	err := l.last()
	if l.upkeep != nil {
		err = errors.Join(err, l.upkeep.stop())
	}
	return errors.Join(err, l.out.Close())
}

// last writes what was not written yet.
func (l *Log) last() (err error) {
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	if l.pending == nil && l.missed.count > 0 {
		l.join() // the record of what was missed
	}
	if b := l.pending; b != nil { // more than that only with Async, when its last write failed
		if err = l.write(b); err != nil {
			err = fmt.Errorf("%d bytes of records are lost: %w", len(b.lines), err)
		}
	}
	return errors.Join(err, l.takeBack(), l.out.Sync())
}

// output is where lines go.
type output interface {
	io.Writer
	Sync() error
	Truncate(size int64) error
	Close() error
}

// stream is an output that is somebody else's.
type stream struct{ io.Writer }

func (s stream) Sync() error {
	if w, ok := s.Writer.(interface{ Sync() error }); ok {
		return w.Sync()
	}
	return nil
}

func (s stream) Truncate(size int64) error {
	if w, ok := s.Writer.(interface{ Truncate(int64) error }); ok {
		return w.Truncate(size)
	}
	return errors.ErrUnsupported
}

func (s stream) Close() error { return nil }

var _ pipeline.Recorder = (*Log)(nil)
