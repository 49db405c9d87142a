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

// batch is a group of lines that are written together. The goroutine that adds the first line owns
// the batch: it writes it and wakes the others.
type batch struct {
	lines         []byte
	leaves        []tlog.Hash   // Merkle tree hashes of the lines
	count         int           // number of lines, without that of the gap
	gap           gap           // the gap that the first line records
	start         head          // head before the first line
	last          uint64        // seq of the last line
	singleBatches int           // Log.singleBatches when the batch was started
	done          chan struct{} // closed when err is final; nil while only the owner waits
	err           error
}

// gap counts records that could not be written and have no seq. Their messages were not forwarded.
type gap struct {
	count int
	since time.Time
	err   error // of the last of them
}

// outcome returns the record of the gap.
func (m *gap) outcome() pipeline.Outcome {
	return pipeline.Outcome{Time: time.Now(), Action: "gap", Err: m.err,
		Reason: fmt.Sprintf("%d records could not be written since %s: their messages were denied",
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

// joinBatch returns the batch that accepts lines. The caller owns it if it is new. l.mu is held.
func (l *Log) joinBatch() (b *batch, owner bool) {
	if l.pending != nil {
		return l.pending, false
	}
	l.pending = &batch{lines: l.spareLines, leaves: l.spareLeaves, start: l.head,
		singleBatches: l.singleBatches}
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

// appendLine appends a line to the batch and to the chain, and returns its seq. l.mu is held.
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

// commit writes the caller's batch and wakes those who wait for it.
func (l *Log) commit(b *batch) {
	defer l.writers.Done()
	if b.singleBatches < 4 || b.singleBatches%64 == 0 {
		// Others may be about to record, and one write for all is cheaper than one each. Yielding
		// costs time when there is nobody, so after four single batches it is only tried now and
		// then.
		runtime.Gosched()
	}
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	if l.durability == DurabilityFsync {
		// Those whose batch was just written are about to record again. Let them join this one, or
		// two batches alternate forever.
		runtime.Gosched()
	}
	l.mu.Lock()
	if l.pending == b {
		l.pending = nil // nobody can join anymore
	}
	if l.singleBatches++; b.done != nil {
		l.singleBatches = 0
	}
	l.mu.Unlock()
	failedBefore := b.err != nil // because the batch before it failed
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

// recycle keeps the buffers of a written batch for the next one. l.mu is held.
func (l *Log) recycle(b *batch) {
	if cap(b.lines) <= 1<<20 {
		l.spareLines, l.spareLeaves = b.lines[:0], b.leaves[:0]
	}
}

// enqueue is Record with DurabilityAsync. l.mu is held.
func (l *Log) enqueue(e *entry) (uint64, error) {
	err := l.asyncErr
	if err == nil && l.pending != nil && len(l.pending.lines)+len(e.rest) > l.queueBytes {
		err = fmt.Errorf("the queue is full: %d bytes of records are waiting to be written",
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

// drain writes pending batches until there are none, or until a write fails.
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
			if l.pending != nil { // keep the order of the lines
				b.appendBatch(l.pending)
			}
			l.pending = b
			break
		}
		l.recycle(b)
	}
	l.draining = false
}

// appendBatch appends the lines of next to b.
func (b *batch) appendBatch(next *batch) {
	b.lines = append(b.lines, next.lines...)
	b.leaves = append(b.leaves, next.leaves...)
	b.count += next.count
	b.last = next.last
}
