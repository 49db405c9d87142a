package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"gatekit/core/pipeline"
)

// batch is lines that are written together. Who adds the first owns it: it writes the batch and
// tells the others.
type batch struct {
	lines         []byte
	leaves        []tlog.Hash   // of its lines, for the tree
	count         int           // of its lines, without the one that tells of missed
	gap           gap           // that its first line tells of
	start         head          // before its first line
	last          uint64        // number of its last line
	singleBatches int           // that of the log when the batch was begun
	done          chan struct{} // closed when err is final; nil as long as only the owner waits
	err           error
}

// gap are records that could not be written, and have no number. The messages did not move.
type gap struct {
	count int
	since time.Time
	err   error // of the last
}

// outcome is the record of them.
func (m *gap) outcome() pipeline.Outcome {
	return pipeline.Outcome{Time: time.Now(), Action: "gap", Err: m.err,
		Reason: fmt.Sprintf("%d records could not be written since %s: their messages did not move",
			m.count, m.since.UTC().Format(timeFormat))}
}

func (m *gap) add(other gap) {
	if other.count == 0 {
		return
	}
	if m.count == 0 || other.since.Before(m.since) {
		m.since = other.since
	}
	m.count += other.count
	m.err = other.err
}

// joinBatch answers the batch that takes lines, and whether it is new, and the caller's. l.mu is held.
func (l *Log) joinBatch() (b *batch, owner bool) {
	if l.pending != nil {
		return l.pending, false
	}
	l.pending = &batch{lines: l.spareLines, leaves: l.spareLeaves, start: l.head, singleBatches: l.singleBatches}
	l.spareLines, l.spareLeaves = nil, nil
	if l.gap.count > 0 {
		l.pending.gap, l.gap = l.gap, gap{}
		gap := l.encode(l.pending.gap.outcome())
		l.appendLine(l.pending, gap)
		l.pending.count = 0
		gap.release()
	}
	return l.pending, true
}

// appendLine adds the line to the batch and to the chain. l.mu is held.
func (l *Log) appendLine(b *batch, e *entry) uint64 {
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
	if l.maintenance != nil {
		b.leaves = append(b.leaves, l.maintenance.hashLeaf(b.lines[from:]))
	}
	b.lines = append(b.lines, '\n')
	b.last = l.head.seq
	return l.head.seq
}

// commit writes the caller's batch and tells all that are in it.
func (l *Log) commit(b *batch) {
	defer l.writers.Done()
	if b.singleBatches < 4 || b.singleBatches%64 == 0 {
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
	if l.singleBatches++; b.done != nil {
		l.singleBatches = 0
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
		l.gap.add(b.gap)
		l.gap.add(gap{b.count, time.Now(), b.err})
	}
	l.mu.Unlock()
	if b.done != nil {
		close(b.done)
	}
}

// recycle keeps the memory of a batch that was written for the next one. l.mu is held.
func (l *Log) recycle(b *batch) {
	if cap(b.lines) <= 1<<20 {
		l.spareLines, l.spareLeaves = b.lines[:0], b.leaves[:0]
	}
}

// enqueue is Record for Async. l.mu is held.
func (l *Log) enqueue(e *entry) (uint64, error) {
	err := l.asyncErr
	if err == nil && l.pending != nil && len(l.pending.lines)+len(e.rest) > l.queueBytes {
		err = fmt.Errorf("%d bytes of records wait to be written, the queue is full",
			len(l.pending.lines))
	}
	var seq uint64
	if err == nil {
		b, _ := l.joinBatch()
		seq = l.appendLine(b, e)
	}
	if !l.draining {
		l.draining = true
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
		if l.asyncErr = err; err != nil {
			if l.pending != nil { // what has come in the meantime follows on
				b.appendBatch(l.pending)
			}
			l.pending = b
			break
		}
		l.recycle(b)
	}
	l.draining = false
}

// appendBatch appends the lines of next to those of b.
func (b *batch) appendBatch(next *batch) {
	b.lines = append(b.lines, next.lines...)
	b.leaves = append(b.leaves, next.leaves...)
	b.count += next.count
	b.last = next.last
}
