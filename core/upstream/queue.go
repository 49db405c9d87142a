package upstream

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/taskgroup"
)

// Limits of one queue.
const (
	maxQueuedMessages = 1024
	maxQueuedBytes    = 32 << 20
)

var errQueueFull = errors.New("the client does not read the server's messages fast enough")

// orderedQueue delivers a server's messages to one session, in the order in which they were read.
// The reader does not wait for the delivery.
//
// # Why one queue for a whole session
//
// A log message on stdio names no call. The client must still get the log message before the answer
// to the call that caused it, as it would without Gatekit. So all messages are delivered in order,
// and an answer waits for the messages that were read before it. When no message waits, an answer
// does not enter the queue.
type orderedQueue struct {
	goroutines *taskgroup.Group // runs drain

	mu       sync.Mutex
	queue    []delivery
	bytes    int
	draining bool // drain is running, or was started
	dropped  int  // deliveries that were dropped
}

// delivery is one element of a queue: a message to deliver, or a function to call.
type delivery struct {
	size int // in bytes
	// records that the delivery was dropped; nil if the delivery may not be dropped
	recordDrop func()
	run        func(ctx context.Context)
}

// newOrderedQueue returns an empty queue that delivers until goroutines is closed.
func newOrderedQueue(goroutines *taskgroup.Group) *orderedQueue {
	return &orderedQueue{goroutines: goroutines}
}

// add appends a delivery. When the queue is full, it drops the oldest droppable deliveries to make
// room. If no delivery is droppable, the error is errQueueFull.
func (q *orderedQueue) add(d delivery) error {
	var recordDrops []func()
	defer func() {
		for _, recordDrop := range recordDrops {
			recordDrop()
		}
	}()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queue) >= maxQueuedMessages ||
		len(q.queue) > 0 && q.bytes+d.size > maxQueuedBytes {
		i := 0
		for i < len(q.queue) && q.queue[i].recordDrop == nil {
			i++
		}
		if i < len(q.queue) {
			q.bytes -= q.queue[i].size
			recordDrops = append(recordDrops, q.queue[i].recordDrop)
			q.queue = append(q.queue[:i], q.queue[i+1:]...)
			q.dropped++
			continue
		}
		if d.recordDrop != nil {
			recordDrops = append(recordDrops, d.recordDrop)
			q.dropped++
			return nil
		}
		return errQueueFull
	}
	q.queue = append(q.queue, d)
	q.bytes += d.size
	if !q.draining {
		q.draining = q.goroutines.Go(q.drain)
	}
	return nil
}

// after runs f when all earlier messages have been delivered, or at once if the queue is empty. It
// ignores the limits of the queue, because each call uses after once, and the number of calls in
// flight is limited.
func (q *orderedQueue) after(f func()) {
	q.mu.Lock()
	if !q.draining && len(q.queue) == 0 {
		q.mu.Unlock()
		f()
		return
	}
	q.queue = append(q.queue, delivery{run: func(context.Context) { f() }})
	q.mu.Unlock()
}

// drain delivers until the queue is empty or ctx ends.
func (q *orderedQueue) drain(ctx context.Context) {
	for {
		d, ok := q.next()
		if !ok {
			return
		}
		d.run(ctx)
		if ctx.Err() != nil {
			return
		}
	}
}

func (q *orderedQueue) next() (delivery, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.draining = len(q.queue) > 0
	if !q.draining {
		return delivery{}, false
	}
	d := q.queue[0]
	q.queue[0] = delivery{}
	q.queue = q.queue[1:]
	q.bytes -= d.size
	return d, true
}

// logDropped logs how many deliveries were dropped. It is called when the queue has ended.
func (q *orderedQueue) logDropped(log *slog.Logger, server string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dropped > 0 {
		log.Warn("dropped progress and log messages that a client did not read in time",
			"server", server, "messages", q.dropped)
	}
}

// Reasons why messages are dropped, for the audit log.
const (
	tooSlow      = "the client does not read the server's messages fast enough"
	unknownToken = "no request in flight has this progress token"
)

// isDroppable reports whether a notification may be dropped when too many messages wait. Progress
// and log messages may be dropped.
func isDroppable(m *mcp.Message) bool {
	return m.Method == "notifications/progress" || m.Method == "notifications/message"
}
