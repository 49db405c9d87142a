package audit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"gatekit/core/pipeline"
)

// Bodies says what a line tells of the bodies of messages.
type Bodies string

const (
	BodiesNone     Bodies = "none"     // their size
	BodiesDigest   Bodies = "digest"   // their size and SHA-256; the default
	BodiesRedacted Bodies = "redacted" // also the text of what passed, after the stages
)

// Durability says what is true when Record returns.
type Durability string

const (
	// the line was handed to the system: it survives the process, not the machine; the default
	DurabilityWrite Durability = "write"
	DurabilityFsync Durability = "fsync" // the line is on the disk
	DurabilityAsync Durability = "async" // the line is in a bounded queue; a full one is an error
)

// Options say where the log is and what is in it.
type Options struct {
	File string // of JSON lines; made, with its folder, where absent, else continued
	// instead of File, from the start of a chain; its Sync() error and Truncate(int64) error are
	// used where it has them
	Writer     io.Writer
	Bodies     Bodies
	Durability Durability
	QueueBytes int // bytes of lines that may wait with Async; default 4 MiB
	// is told when writing begins to fail and when it works again, as messages are denied in
	// between; may be nil
	Logger *slog.Logger

	// What follows is for a File.

	// a file is not written beyond this size, and another begun; default 64 MiB
	SegmentBytes int64
	// of the files before the one that is written; the zero value keeps all
	Keep Retention
	// file of the key that signs checkpoints; made where absent; default File + ".key"
	Key string
	// gets a checkpoint when it is new, once a minute while the log is written, and at Close; a
	// file that others keep, or that cannot be written anew, is best; none when empty
	AnchorFile string
	// gets each checkpoint, one at a time, and holds nothing up: while it runs, others but the
	// newest are passed over; may be nil
	OnCheckpoint func(checkpoint []byte)
}

// Retention says which files of a log are kept beside the one that is written: those that are
// within each bound. Zero is no bound.
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
	values     *ValueHasher // nil with None
	queue      int
	report     *slog.Logger

	// writing holds a token while somebody writes to out. It is taken before mu, never while mu is
	// held.
	writing chan struct{}
	out     output
	files   *files // out, when it is a File
	segment int64  // SegmentBytes
	// up to here out holds the lines that were answered for, and nothing else unless torn
	size    int64
	torn    bool      // out may hold something beyond size
	failing error     // of the last write
	gone    error     // why nothing may be written any more: the file is not ours
	looked  time.Time // when that was last asked

	committed atomic.Uint64 // number of the last record that was written
	upkeep    *upkeep       // the tree of a File; nil of a Writer

	// mu is held while a line gets its place: the order of lines in the batches is that of the
	// chain.
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

// Open opens the log, or says why it cannot be written to. A last line that was torn by a crash is
// cut off, and a line with the action "recovered" says so.
func Open(o Options) (*Log, error) {
	l := &Log{bodies: o.Bodies, durability: o.Durability, queue: o.QueueBytes, report: o.Logger,
		writing: make(chan struct{}, 1)}
	if l.bodies == "" {
		l.bodies = BodiesDigest
	}
	if l.durability == "" {
		l.durability = DurabilityWrite
	}
	if l.queue <= 0 {
		l.queue = 4 << 20
	}
	if l.report == nil {
		l.report = slog.New(slog.DiscardHandler)
	}
	switch l.bodies {
	case BodiesNone, BodiesDigest, BodiesRedacted:
	default:
		return nil, fmt.Errorf("open the audit log: unknown bodies %q\nhint: %q, %q or %q",
			l.bodies, BodiesNone, BodiesDigest, BodiesRedacted)
	}
	switch l.durability {
	case DurabilityWrite, DurabilityFsync, DurabilityAsync:
	default:
		return nil, fmt.Errorf("open the audit log: unknown durability %q\nhint: %q, %q or %q",
			l.durability, DurabilityWrite, DurabilityFsync, DurabilityAsync)
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
	if err := o.checkFiles(); err != nil {
		return err
	}
	f, end, err := openFiles(o.File)
	if err != nil {
		return err
	}
	l.files, l.out, l.size, l.head, l.segment = f, f, end.size, end.head, o.SegmentBytes
	if l.segment <= 0 {
		l.segment = 64 << 20
	}
	l.committed.Store(end.head.seq)
	for _, hole := range f.missing() {
		l.report.Error("records of the audit log are missing, their file is gone; gatekit audit "+
			"verify says more", "from", hole.From, "through", hole.Through)
	}
	var from *Checkpoint
	if l.upkeep, from, err = newUpkeep(l, o, end); err != nil {
		return errors.Join(err, f.Close())
	}
	if end.torn > 0 {
		if err := f.Truncate(end.size); err != nil {
			return errors.Join(fmt.Errorf("cut off a torn last line: %w", err), f.Close())
		}
	}
	// No checkpoint may speak for what is found before a record says how it was found: so those are
	// written before the upkeep begins, and where they cannot be nothing is signed.
	durability := l.durability
	if l.durability == DurabilityAsync {
		l.durability = DurabilityWrite
	}
	if end.torn > 0 {
		err = l.event("recovered", fmt.Sprintf("%d bytes of a torn last record were cut off",
			end.torn))
	}
	if unsigned := uint64(from.Size) + 1; err == nil && unsigned <= end.head.seq {
		l.report.Warn("the audit log was not closed: its last records had no checkpoint",
			"from", unsigned, "through", end.head.seq)
		_, err = l.span("recovered",
			fmt.Sprintf("records %d to %d had no checkpoint when Gatekit was started: the chain "+
				"alone says that they are as they were written", unsigned, end.head.seq),
			unsigned, end.head.seq)
	}
	if now := time.Now(); err == nil && now.Before(end.time) {
		err = l.event("clock", setBack(end.time.Sub(now)))
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.durability = durability
	l.upkeep.start()
	l.upkeep.begin(from)
	return nil
}

// event records what happened to the log itself.
func (l *Log) event(action, reason string) error {
	_, err := l.Record(context.Background(), pipeline.Outcome{Time: time.Now(), Action: action,
		Reason: reason})
	return err
}

// span records what happened to records of the log, from one to another.
func (l *Log) span(action, reason string, from, through uint64) (uint64, error) {
	e := l.encode(pipeline.Outcome{Time: time.Now(), Action: action, Reason: reason})
	e.rest = fmt.Appendf(e.rest[:len(e.rest)-1], `,"from":%d,"through":%d}`, from, through)
	return l.record(e)
}

// Committed is the number of the last record that is as safe as configured; it and those before it
// are not taken back.
func (l *Log) Committed() uint64 { return l.committed.Load() }

// Health is what of the log does not work though records may be written: checkpoints, their anchor,
// the removal of files, or that the file is gone. It is nil when all does.
func (l *Log) Health() error {
	if l.upkeep == nil {
		return nil
	}
	return l.upkeep.fault()
}

// Pending is how many records have their number and are not written yet. Only with Async were they
// answered for.
func (l *Log) Pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.head.seq - l.committed.Load())
}

// Record keeps o. It is a pipeline.Recorder's: the message may move when it returns nil, and must
// not otherwise. It does not heed the context: what was decided for a client that has left is a
// decision, too.
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
	if len(e.rest) > maxLine-1024 { // what is before that has less
		defer l.mu.Unlock()
		err := fmt.Errorf("the record has %d bytes, and a line of the log at most %d\nhint: "+
			"keep no bodies that are so large: bodies in [audit], message_bytes in [limits]",
			len(e.rest), maxLine)
		l.missed.add(missed{1, time.Now(), err})
		return 0, err
	}
	if l.durability == DurabilityAsync {
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

// Close refuses further records, waits for those under way and closes the file. The error says what
// was not written. A Writer stays open.
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
	// what was written since it was looked at last may be nowhere
	if l.files != nil && l.gone == nil {
		err = errors.Join(err, l.ours())
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
