package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"gatekit/core/pipeline"
)

// batch is lines that are written together. Who adds the first owns it: it writes the batch and
// tells the others.
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

// missed are records that could not be written, and have no number. The messages did not move.
type missed struct {
	count int
	since time.Time
	err   error // of the last
}

// outcome is the record of them.
func (m *missed) outcome() pipeline.Outcome {
	return pipeline.Outcome{Time: time.Now(), Action: "gap", Err: m.err,
		Reason: fmt.Sprintf("%d records could not be written since %s: their messages did not move",
			m.count, m.since.UTC().Format(timeFormat))}
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
		// others may be about to record: one write for all costs less than one for each. To wait
		// for nobody costs too, so it is tried now and then
		runtime.Gosched()
	}
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	if l.durability == DurabilityFsync {
		// those whose batch was just written are about to record again: they share this one, or two
		// batches take turns for ever
		runtime.Gosched()
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
		err = fmt.Errorf("%d bytes of records wait to be written, the queue is full",
			len(l.pending.lines))
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
	if err == nil && l.durability == DurabilityFsync {
		err = l.out.Sync()
	}
	if err == nil && l.files != nil && (l.durability == DurabilityFsync ||
		time.Since(l.looked) >= lookEvery) {
		err = l.ours()
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

// lookEvery is how long, but with Fsync, the file is taken to be the log's once that was seen: to
// look costs as much as to write.
const lookEvery = 100 * time.Millisecond

// ours is an error when the file that is written is no longer the log's, and nothing is written any
// more. The caller has l.writing.
func (l *Log) ours() error {
	if l.gone == nil {
		l.looked = time.Now()
		if l.gone = l.files.there(); l.gone != nil {
			l.upkeep.lost(l.gone)
		}
	}
	return l.gone
}

// room begins another file when this one would grow too large.
func (l *Log) room(more int64) error {
	if err := l.upkeep.behind(); err != nil {
		return err
	}
	if l.size == 0 || l.size+more <= l.segment {
		return nil
	}
	return l.turn()
}

// turn begins another file. The caller has l.writing.
func (l *Log) turn() error {
	if err := l.ours(); err != nil { // it is renamed by its name
		return err
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

// whole says whether the file holds nothing but what was answered for.
func (l *Log) whole() bool {
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	return !l.torn
}
