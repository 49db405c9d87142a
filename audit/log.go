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

// Bodies selects what a record keeps of the bodies of messages.
type Bodies string

const (
	BodiesNone     Bodies = "none"     // only the size
	BodiesDigest   Bodies = "digest"   // size and hash, see Body; the default
	BodiesRedacted Bodies = "redacted" // size, hash and the body that was forwarded
)

// Durability is the guarantee that holds for a line when Record returns nil.
type Durability string

const (
	// the operating system has the line: it survives a crash of the process, not of the machine;
	// the default
	DurabilityWrite Durability = "write"
	DurabilityFsync Durability = "fsync" // the line is on the disk
	DurabilityAsync Durability = "async" // the line is in a bounded queue; a full queue is an error
)

// Options configure a log.
type Options struct {
	File string // path of the log; the file and its folder are created if they do not exist
	// replaces File, and always starts a new chain; if the Writer has the methods Sync() error and
	// Truncate(int64) error, they are called
	Writer     io.Writer
	Bodies     Bodies
	Durability Durability
	QueueBytes int // size of the queue of DurabilityAsync; default 4 MiB
	// reports when writing starts to fail, which denies messages, and when writing works again; may
	// be nil
	Logger *slog.Logger

	// The following fields apply to File only.

	// maximal size of each file of the log; default 64 MiB
	SegmentBytes int64
	// which segments are kept; the zero value keeps all
	Keep Retention
	// file of the private key that signs checkpoints; created if missing; default File + ".key"
	Key string
	// receives the newest checkpoint once a minute while records are written, and at Close; best on
	// another machine, or append-only; "" for none
	AnchorFile string
	// name of the replica that writes the log, see RosterEntry; "" for none
	Replica string
	// names of the replicas that the configuration has; only with Replica
	Peers []string
	// called with each new checkpoint, one call at a time; while a call runs, only the newest
	// checkpoint waits; never delays a record; may be nil
	OnCheckpoint func(checkpoint []byte)
}

// Retention bounds the segments that are kept in addition to the active file. A segment is removed
// when it exceeds any of the bounds; zero is no bound.
type Retention struct {
	Files int   // number of segments
	Bytes int64 // size of all segments together
	// maximal age of a segment's last record. The age counts the time for which the log was open
	// since that record. The time between a stop and the next start counts up to a tenth of For.
	For time.Duration
}

// errClosed is the error of Record after Close.
var errClosed = errors.New("the audit log is closed")

// Log is an open audit log. It is safe for concurrent use.
type Log struct {
	bodies      Bodies
	durability  Durability
	private     string       // the private key that signs checkpoints; random with a Writer
	valueHasher *ValueHasher // nil with BodiesNone
	queueBytes  int
	logger      *slog.Logger

	// writing is a semaphore: its one token is held while out is written. The token is taken before
	// mu, and never while mu is held.
	writing      chan struct{}
	out          output
	files        *files // same as out; nil with a Writer
	segmentBytes int64  // Options.SegmentBytes
	// length of the committed lines in out; any bytes after them are a partial write
	size     int64
	last     []byte // the last bytes of the committed lines, at most tailBytes; only with files
	torn     bool   // out may hold a partial write after size
	writeErr error  // error of the last write
	// set when the active file was replaced, or changed by somebody else; then nothing is written
	fileErr       error
	lastFileCheck time.Time // when the identity of the active file was last checked

	committed   atomic.Uint64 // seq of the last record that was written
	maintenance *maintenance  // nil with a Writer
	gapFile     *gapFile      // nil with a Writer
	roster      *roster       // nil without Options.Replica

	// mu is held while a line gets its place in the chain, so that the batches hold the lines in
	// the order of the chain.
	mu            sync.Mutex
	head          head
	pending       *batch // lines that nobody has begun to write; nil for none
	spareLines    []byte // buffers for the next batch
	spareLeaves   []tlog.Hash
	singleBatches int // batches in a row with a single line
	// the records that could not be written, except those that a written or pending gap record
	// counts
	gap gap
	// the records that could not be written, except those that a written gap record counts; so
	// missed includes gap
	missed   gap
	asyncErr error // DurabilityAsync: why the last write failed
	draining bool  // DurabilityAsync: a goroutine runs drain
	closed   bool
	writers  sync.WaitGroup // goroutines that write or will write; none is added after Close
}

// head is the state of the chain after a line: the line's seq and hash.
type head struct {
	seq  uint64
	hash [sha256.Size]byte
}

// Open opens or creates a log. If a crash has left an incomplete last line, Open cuts the line off
// and writes a record with the action "recovered". The error says why the log cannot be written.
func Open(o Options) (*Log, error) {
	l := &Log{bodies: o.Bodies, durability: o.Durability, queueBytes: o.QueueBytes,
		logger:  o.Logger,
		writing: make(chan struct{}, 1)}
	if l.bodies == "" {
		l.bodies = BodiesDigest
	}
	if l.durability == "" {
		l.durability = DurabilityWrite
	}
	if l.queueBytes <= 0 {
		l.queueBytes = 4 << 20
	}
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
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
		return nil, errors.New("open the audit log: either File or Writer must be set")
	}
	if o.Writer != nil {
		l.out = writerOutput{o.Writer}
		l.private = rand.Text()
		l.valueHasher = newValueHasher(l.private, "a writer")
		return l, nil
	}
	if err := l.openFile(o); err != nil {
		return nil, fmt.Errorf("open the audit log %q: %w", o.File, err)
	}
	return l, nil
}

// openFile opens or creates a log in a file.
func (l *Log) openFile(o Options) (err error) {
	if err := o.checkPaths(); err != nil {
		return err
	}
	f, end, err := openFiles(o.File)
	if err != nil {
		return err
	}
	l.files, l.out, l.size, l.head, l.segmentBytes = f, f, end.size, end.head, o.SegmentBytes
	if l.segmentBytes <= 0 {
		l.segmentBytes = 64 << 20
	}
	if l.last, err = f.readLast(end.size); err != nil {
		return errors.Join(err, f.Close())
	}
	l.committed.Store(end.head.seq)
	for _, hole := range f.missingRanges() {
		l.logger.Error("audit log file missing; gatekit audit verify shows details",
			"from", hole.From, "through", hole.Through)
	}
	var from *Checkpoint
	if l.maintenance, from, err = newMaintenance(l, o, end); err != nil {
		return errors.Join(err, f.Close())
	}
	var gap *savedGap
	if l.gapFile, gap, err = openGapFile(o.File + ".tree"); err != nil {
		return errors.Join(fmt.Errorf("reserve space for the count of missing records: %w", err),
			f.Close())
	}
	defer func() {
		if err != nil {
			l.gapFile.f.Close()
		}
	}()
	if end.torn > 0 {
		if err := f.Truncate(end.size); err != nil {
			return errors.Join(fmt.Errorf("cut off an incomplete last line: %w", err), f.Close())
		}
	}
	// The events below record the state in which the log was found. A checkpoint must not cover the
	// existing records before these events are written. So maintenance, which signs checkpoints,
	// starts after these events. If an event cannot be written, nothing is signed.
	durability := l.durability
	if l.durability == DurabilityAsync { // Record would return before an event is written
		l.durability = DurabilityWrite
	}
	if end.torn > 0 {
		err = l.recordEvent("recovered",
			fmt.Sprintf("%d bytes of an incomplete last record were cut off",
				end.torn))
	}
	if unsigned := uint64(from.Size) + 1; err == nil && unsigned <= end.head.seq {
		l.logger.Warn("audit log was not closed; its last records had no checkpoint",
			"from", unsigned, "through", end.head.seq)
		_, err = l.recordRange("recovered",
			fmt.Sprintf("records %d to %d had no checkpoint when Gatekit started: only the hash "+
				"chain protects them", unsigned, end.head.seq),
			unsigned, end.head.seq)
	}
	if now := time.Now(); err == nil && now.Before(end.time) {
		err = l.recordEvent("clock", clockReason(end.time.Sub(now)))
	}
	if err == nil && gap != nil {
		if _, err = l.Record(context.Background(), gap.outcome()); err == nil {
			err = l.gapFile.clear()
		}
	}
	if uncounted := l.maintenance.uncounted; err == nil && uncounted >= clockJump {
		err = l.recordEvent("clock", fmt.Sprintf("the clock is %s ahead of the time when the log "+
			"was last open: keep_for counts only %s of this difference",
			(uncounted+l.maintenance.ages.stops).Round(time.Second), l.maintenance.ages.stops))
	}
	if err == nil {
		err = l.startRoster(o)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.durability = durability
	l.maintenance.start()
	l.maintenance.anchorFirst(from)
	return nil
}

// recordEvent writes a record about the log itself.
func (l *Log) recordEvent(action, reason string) error {
	_, err := l.Record(context.Background(), pipeline.Outcome{Time: time.Now(), Action: action,
		Reason: reason})
	return err
}

// recordRange writes a record about a range of the log's records.
func (l *Log) recordRange(action, reason string, from, through uint64) (uint64, error) {
	e := l.encode(pipeline.Outcome{Time: time.Now(), Action: action, Reason: reason})
	e.rest = fmt.Appendf(e.rest[:len(e.rest)-1], `,"from":%d,"through":%d}`, from, through)
	return l.record(e)
}

// Committed returns the seq of the last record that is as safe as configured. A failed write never
// removes this record or an earlier one.
func (l *Log) Committed() uint64 { return l.committed.Load() }

// Health returns the errors of the background work: writing checkpoints and the anchor, removing
// segments, and checking that the active file is still in place. It returns nil when everything
// works.
func (l *Log) Health() error {
	if l.maintenance == nil {
		return nil
	}
	return l.maintenance.health()
}

// Pending returns the number of records that have a seq and are not written yet. With
// DurabilityAsync, Record has already returned for these records; otherwise their calls of Record
// still wait.
func (l *Log) Pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.head.seq - l.committed.Load())
}

// Record writes a record, and implements pipeline.Recorder: the message may be forwarded only when
// the error is nil. Record ignores the context, because a decision is recorded even when its client
// has left.
func (l *Log) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	return l.record(l.encode(o))
}

func (l *Log) record(e *entry) (uint64, error) {
	seq, err := l.tryRecord(e)
	if err != nil && err != errClosed && l.gapFile != nil {
		l.saveGap(0, false)
	}
	return seq, err
}

// saveGap saves the count of records that could not be written. forwarded is the number of records
// that are lost in the queue of DurabilityAsync although their messages were forwarded. saveGap
// adds these records to the count. The count is saved at most once in gapSaveInterval, unless
// closing is set.
func (l *Log) saveGap(forwarded int, closing bool) {
	// The lock is taken before the count is read. Otherwise the record of the gap could be written
	// in between, and the gap would be recorded again at the next start.
	l.gapFile.mu.Lock()
	defer l.gapFile.mu.Unlock()
	l.mu.Lock()
	missed := l.missed
	l.mu.Unlock()
	missed.count += forwarded
	if missed.count == 0 {
		return
	}
	if err := l.gapFile.save(missed, forwarded, closing); err != nil {
		l.logger.Error("count of missing audit records not saved", "records", missed.count,
			"error", err)
	}
}

func (l *Log) tryRecord(e *entry) (uint64, error) {
	defer e.release()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return 0, errClosed
	}
	if len(e.rest) > maxLineBytes-1024 { // seq, time and prev need less than 1024 bytes
		defer l.mu.Unlock()
		err := fmt.Errorf("the record has %d bytes, but a line of the log can have at most %d\n"+
			"hint: do not keep such large bodies: see bodies in [audit] and message_bytes in "+
			"[limits]", len(e.rest), maxLineBytes)
		l.addMissed(gap{1, time.Now(), err})
		return 0, err
	}
	if l.durability == DurabilityAsync {
		defer l.mu.Unlock()
		seq, err := l.enqueue(e)
		if err != nil {
			l.addMissed(gap{1, time.Now(), err})
		}
		return seq, err
	}
	b, owner := l.joinBatch()
	seq := l.appendLine(b, e)
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

// Close refuses further records, waits until the records under way are written, and closes the
// file. The error says what could not be written. A Writer stays open.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	l.writers.Wait()

	err := l.writeRemaining()
	if l.maintenance != nil {
		err = errors.Join(err, l.maintenance.stop(), l.gapFile.f.Close())
	}
	return errors.Join(err, l.out.Close())
}

// writeRemaining writes the last batch, and checks that the active file is still in place.
func (l *Log) writeRemaining() (err error) {
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	// a batch is left if a write of DurabilityAsync has failed; the record of a gap comes after it
	for err == nil && (l.pending != nil || l.gap.count > 0) {
		b, _ := l.joinBatch() // a new batch begins with the record of the gap
		if err = l.write(b); err != nil {
			if b.count > 0 {
				err = fmt.Errorf("%d bytes of records are lost: %w", len(b.lines), err)
			}
			if l.gapFile != nil {
				l.saveGap(b.count, true) // recorded at the next start
			}
		}
		l.pending = nil
	}
	// the file may have been lost since the last check
	if l.files != nil && l.fileErr == nil {
		err = errors.Join(err, l.checkFile())
	}
	return errors.Join(err, l.truncateTorn(), l.out.Sync())
}

// output is the destination of the lines.
type output interface {
	io.Writer
	Sync() error
	Truncate(size int64) error
	Close() error
}

// writerOutput is an output that writes to Options.Writer.
type writerOutput struct{ io.Writer }

func (s writerOutput) Sync() error {
	if w, ok := s.Writer.(interface{ Sync() error }); ok {
		return w.Sync()
	}
	return nil
}

func (s writerOutput) Truncate(size int64) error {
	if w, ok := s.Writer.(interface{ Truncate(int64) error }); ok {
		return w.Truncate(size)
	}
	return errors.ErrUnsupported
}

func (s writerOutput) Close() error { return nil }

var _ pipeline.Recorder = (*Log)(nil)
