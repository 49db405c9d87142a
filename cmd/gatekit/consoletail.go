package main

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"gatekit/audit"
	"gatekit/audit/query"
	"gatekit/transport/console"
)

// Bounds of the calls that viewers follow. They bound the costs of all viewers together, whatever
// the traffic is.
const (
	followPoll    = 500 * time.Millisecond
	followRecords = 100   // records that are read in a second, on average
	followBurst   = 1_000 // records that are read at once after a quiet time
	// records before the last one that are read again when the first viewer comes: the calls that
	// are open then began before
	followOverlap = 2_000
	// calls, and their records, that are kept for viewers who are slow or come again
	followKeptCalls   = 1_000
	followKeptRecords = 4_000
)

// trafficTail reads the end of the log for all viewers who follow the traffic: each record once,
// however many they are. It reads nothing while nobody looks. A viewer who does not take the calls
// in time skips the older ones, and holds up neither the reader nor the others.
type trafficTail struct {
	file      string        // of the audit log
	committed func() uint64 // seq of the last record that may be read
	replica   string        // that of the calls, if there are several logs
	options   query.Options

	mu      sync.Mutex
	viewers int
	run     *tailRun // nil if there are no viewers
}

// tailRun is the time from the first viewer until there is none.
type tailRun struct {
	stop context.CancelFunc
	done chan struct{} // closed when nothing is read any more

	mu      sync.Mutex
	batches []tailBatch
	dropped int           // batches that are no longer kept
	calls   int           // in batches
	records int           // of these calls
	changed chan struct{} // closed when a batch is added, or the run has failed
	err     error         // why the log cannot be read
}

// tailBatch has the calls that ended while the records from from to through were read.
type tailBatch struct {
	from, through uint64
	calls         []*console.LiveCall
	records       int
}

// follow calls send with the calls that end after the record after, until ctx ends or send fails.
func (t *trafficTail) follow(ctx context.Context, filter *query.Filter, after uint64,
	send func(console.NewCalls) error) error {
	after = min(after, t.committed())
	run := t.join(after)
	defer t.leave()
	seen, n := after, console.NewCalls{Through: after}
	for next := 0; ; {
		var batches []tailBatch
		var changed <-chan struct{}
		var err error
		if batches, next, changed, err = run.since(next); err != nil {
			return err
		}
		for _, b := range batches {
			if b.from > seen+1 {
				n.Skipped += b.from - 1 - seen
			}
			seen = max(seen, b.through)
			for _, c := range b.calls {
				if c.LastSeq() > after && c.IsSelected(filter) {
					n.Calls = append(n.Calls, c)
				}
			}
		}
		if n.Through = seen; len(n.Calls) > 0 || n.Skipped > 0 {
			if err := send(n); err != nil {
				return err
			}
			n = console.NewCalls{}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// join adds a viewer. The first one starts the reader, a little before the record after.
func (t *trafficTail) join(after uint64) *tailRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.viewers++
	if t.run != nil {
		return t.run
	}
	from, now := after+1-min(after, followOverlap), t.committed()
	if now > after+followOverlap { // after a long interruption
		from = now - followRecords + 1
	}
	ctx, stop := context.WithCancel(context.Background())
	run := &tailRun{stop: stop, done: make(chan struct{}), changed: make(chan struct{})}
	t.run = run
	go func() {
		defer close(run.done)
		t.read(ctx, run, from)
	}()
	return run
}

// leave removes a viewer. The last one ends the reader.
func (t *trafficTail) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.viewers--; t.viewers == 0 {
		t.run.stop()
		<-t.run.done
		t.run = nil
	}
}

// read reads records until ctx ends. When records are written faster than the bounds allow, it
// skips the older ones.
func (t *trafficTail) read(ctx context.Context, run *tailRun, from uint64) {
	allowance := rate.NewLimiter(followRecords, followBurst)
	for ctx.Err() == nil {
		through, err := t.readFrom(ctx, run, from, allowance)
		if err != nil {
			run.fail(err)
			return
		}
		from = through + 1
		if now := t.committed(); ctx.Err() == nil && now > through {
			allowed := uint64(max(1, allowance.Tokens()))
			from = max(from, now-min(now, allowed)+1)
			allowance.AllowN(time.Now(), int(now-from+1))
		}
	}
}

// readFrom reads until the records are written faster than they are read. It returns the seq of the
// last record that it has read.
func (t *trafficTail) readFrom(ctx context.Context, run *tailRun, from uint64,
	allowance *rate.Limiter) (through uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	through = t.committed()
	reader := &audit.Reader{File: t.file, From: from, Seek: true, Poll: followPoll,
		Limit: func() uint64 {
			now := t.committed()
			if allowance.AllowN(time.Now(), int(now-through)) {
				through = now
			} else {
				cancel()
			}
			return through
		}}
	batch := tailBatch{from: from}
	flush := func() {
		// Some calls end a moment after their last record, when no record is left to be read.
		if batch.through = through; through >= batch.from || len(batch.calls) > 0 {
			run.add(batch)
			batch = tailBatch{from: through + 1}
		}
	}
	options := t.options
	options.Follow, options.KeepRecords, options.Idle = true, true, flush
	for c, err := range query.Calls(ctx, reader, &query.Filter{}, options) {
		if err != nil {
			return through, err
		}
		// The beginning of the call was skipped.
		if c.Kind != "response" && c.Kind != "error" {
			c.Replica = t.replica
			batch.calls = append(batch.calls, console.NewLiveCall(c))
			batch.records += len(c.Records)
		}
	}
	flush()
	return through, nil
}

// add adds a batch, and drops the oldest ones if there is too much.
func (r *tailRun) add(b tailBatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, b)
	r.calls += len(b.calls)
	r.records += b.records
	n := 0
	for ; n < len(r.batches)-1 && (r.calls > followKeptCalls || r.records > followKeptRecords ||
		len(r.batches)-n > followKeptCalls); n++ {
		r.calls -= len(r.batches[n].calls)
		r.records -= r.batches[n].records
	}
	if n > 0 {
		r.batches = append([]tailBatch(nil), r.batches[n:]...) // so that the memory is freed
		r.dropped += n
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *tailRun) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	close(r.changed)
	r.changed = make(chan struct{})
}

// since returns the batches that are kept from the number first on, the number of the next one, and
// a channel that is closed when there is more.
func (r *tailRun) since(first int) (batches []tailBatch, next int, changed <-chan struct{},
	err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next = r.dropped + len(r.batches)
	return r.batches[max(0, first-r.dropped):], next, r.changed, r.err
}
