package downstream

import (
	"context"
	"sync"
	"time"
)

// endedCallsWait is how long Drain waits until the error answers of ended calls are written. A
// client that does not read must not delay the shutdown.
const endedCallsWait = 2 * time.Second

// StopAccepting refuses new requests from now on. Requests in flight go on.
func (e *Endpoint) StopAccepting() { e.proxy.StopAccepting() }

// Drain refuses new requests and waits until the requests in flight are answered. Until then,
// clients can still send notifications and answers. When ctx ends first, Drain ends the remaining
// requests: each is answered with an error, and its server is notified. Drain returns the number of
// requests that it ended. It does not wait for subscriptions, which Close ends.
func (e *Endpoint) Drain(ctx context.Context) (ended int) {
	e.StopAccepting()
	if e.requests.wait(ctx) {
		return 0
	}
	ended = e.proxy.EndCalls()
	written, cancel := context.WithTimeout(context.WithoutCancel(ctx), endedCallsWait)
	defer cancel()
	e.requests.wait(written)
	return ended
}

// EndSessions ends each legacy HTTP session as soon as none of its requests is in flight, and opens
// no new session: an initialize gets status 503. It returns when no session is left, or when ctx
// ends. Modern requests, pipes, and the sessions that are left are served as before.
//
// A client whose session has ended gets status 404 for its next request, for which the protocol has
// words: it initializes again. Nothing of that request was run. So no call is lost, in contrast to
// Drain, which answers new calls with an error.
func (e *Endpoint) EndSessions(ctx context.Context) {
	e.endingSessions.Store(true)
	e.endIdleSessions()
	e.legacySessions.waitUntilEmpty(ctx)
}

// endIdleSessions ends the legacy HTTP sessions of which no request is in flight.
func (e *Endpoint) endIdleSessions() { e.legacySessions.removeIf((*httpSession).endIfIdle) }

// requestCounter counts the requests whose answers have not been written yet. The zero value is
// ready for use.
type requestCounter struct {
	mu    sync.Mutex
	count int
	none  chan struct{} // closed when count falls to zero; nil while no call of wait needs it
}

// add counts a request, or a goroutine that serves a request.
func (c *requestCounter) add() {
	c.mu.Lock()
	c.count++
	c.mu.Unlock()
}

// done subtracts what one call of add has added.
func (c *requestCounter) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count--; c.count == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// wait waits until the count is zero, or until ctx ends. It reports whether the count is zero.
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
