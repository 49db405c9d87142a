package downstream

import (
	"context"
	"sync"
	"time"
)

// endedCallsWait is how long Drain waits for the error answers of the calls that it has ended. A
// client that does not read must not hold up the shutdown.
const endedCallsWait = 2 * time.Second

// Drain refuses new requests and waits until those in flight are answered. Until then clients can
// still send notifications and answers. When ctx ends first, Drain ends the requests that are left:
// each is answered with an error, and the server is notified. It returns the number of these
// requests. Subscriptions are not waited for: Close ends them.
func (e *Endpoint) Drain(ctx context.Context) (ended int) {
	e.proxy.StopAccepting()
	if e.requests.wait(ctx) {
		return 0
	}
	ended = e.proxy.EndCalls()
	written, cancel := context.WithTimeout(context.WithoutCancel(ctx), endedCallsWait)
	defer cancel()
	e.requests.wait(written)
	return ended
}

// requestCounter counts the requests whose answers have not been written yet. The zero value is
// ready for use.
type requestCounter struct {
	mu    sync.Mutex
	count int
	none  chan struct{} // closed when count falls to zero; nil while nothing waits for that
}

// add counts a request, or a goroutine that serves one.
func (c *requestCounter) add() {
	c.mu.Lock()
	c.count++
	c.mu.Unlock()
}

// done undoes an add.
func (c *requestCounter) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count--; c.count == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// wait waits until nothing is counted, or until ctx ends. It reports whether nothing is counted.
func (c *requestCounter) wait(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.count > 0 && ctx.Err() == nil {
		if c.none == nil {
			c.none = make(chan struct{})
		}
		none := c.none
		c.mu.Unlock()
		select {
		case <-none:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
	return c.count == 0
}
