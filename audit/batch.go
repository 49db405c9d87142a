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
// the batch: it writes the batch and wakes the goroutines that added the other lines.
type batch struct {
	lines         []byte
	leaves        []tlog.Hash   // Merkle tree hashes of the lines
	count         int           // number of lines, not counting the line about the gap
	gap           gap           // if gap.count is not 0, the first line records the gap
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
	err   error // why the last of these records could not be written
}

// outcome returns the outcome from which the record of the gap is made.
func (g *gap) outcome() pipeline.Outcome {
	return pipeline.Outcome{Time: time.Now(), Action: "gap", Err: g.err,
		Reason: fmt.Sprintf("%d records could not be written since %s: their messages were denied",
			g.count, g.since.UTC().Format(timeFormat))}
}

func (g *gap) add(other gap) {
	if other.count == 0 {
		return
	}
	if g.count == 0 || other.since.Before(g.since) {
		g.since = other.since
	}
	g.count += other.count
	g.err = other.err
}

// addMissed counts records that could not be written. The caller holds l.mu.
func (l *Log) addMissed(g gap) {
	l.gap.add(g)
	l.missed.add(g)
}

// noteGapRecorded notes that the record of a gap was written.
func (l *Log) noteGapRecorded(g gap) {
	if g.count == 0 || l.gapFile == nil {
		return
	}
	l.gapFile.mu.Lock()
	defer l.gapFile.mu.Unlock()
	l.mu.Lock()
	l.missed.count -= g.count
	recorded := l.missed.count == 0
	if recorded {
		l.missed = gap{}
	}
	l.mu.Unlock()
	if !recorded {
		return // the next failure or Close saves the new count
	}
	if err := l.gapFile.clear(); err != nil {
		l.logger.Error("count of missing audit records not cleared", "error", err)
	}
}

// joinBatch returns the pending batch. If there is none, it starts a batch and reports that the
// caller owns the new batch. The caller holds l.mu.
func (l *Log) joinBatch() (b *batch, owner bool) {
	if l.pending != nil {
		return l.pending, false
	}
	l.pending = &batch{lines: l.spareLines, leaves: l.spareLeaves, start: l.head,
		singleBatches: l.singleBatches}
	l.spareLines, l.spareLeaves = nil, nil
	if l.gap.count > 0 {
		l.pending.gap, l.gap = l.gap, gap{}
		e := l.encode(l.pending.gap.outcome())
		l.appendLine(l.pending, e)
		l.pending.count = 0
		e.release()
	}
	return l.pending, true
}

// appendLine appends a line to the batch and to the chain, and returns the line's seq. The caller
// holds l.mu.
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

// commit writes the caller's batch and wakes the other calls of Record whose lines are in it.
func (l *Log) commit(b *batch) {
	defer l.writers.Done()
	if b.singleBatches < 4 || b.singleBatches%64 == 0 {
		// Other goroutines may be about to record, and one write for all lines is cheaper than one
		// write per line. Yielding costs time if no other goroutine is about to record. So after
		// four batches with a single line, only every 64th batch yields.
		runtime.Gosched()
	}
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	if l.durability == DurabilityFsync {
		// The goroutines whose batch was just written are about to record again. Let them join this
		// batch. Otherwise there would always be two batches that take turns.
		runtime.Gosched()
	}
	l.mu.Lock()
	if l.pending == b {
		l.pending = nil // no line can join the batch anymore
	}
	if l.singleBatches++; b.done != nil {
		l.singleBatches = 0
	}
	l.mu.Unlock()
	failedBefore := b.err != nil // the previous batch failed, and b is chained to that batch
	if !failedBefore {
		b.err = l.write(b)
	}
	l.mu.Lock()
	switch {
	case b.err == nil:
		l.recycle(b)
	case !failedBefore:
		l.head = b.start
		if l.pending != nil { // the pending lines are chained to the failed lines
			l.pending.err = b.err
			l.pending = nil
		}
		fallthrough
	default:
		l.gap.add(b.gap)
		l.addMissed(gap{b.count, time.Now(), b.err})
	}
	l.mu.Unlock()
	if b.done != nil {
		close(b.done)
	}
}

// recycle keeps the buffers of a written batch for the next batch. The caller holds l.mu.
func (l *Log) recycle(b *batch) {
	if cap(b.lines) <= 1<<20 {
		l.spareLines, l.spareLeaves = b.lines[:0], b.leaves[:0]
	}
}

// enqueue adds a line to the queue of DurabilityAsync, and starts drain unless drain is running.
// The caller holds l.mu.
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
			if l.pending != nil { // the lines that failed come first
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
