package upstream

import (
	"context"
	"sync"
)

// maxClosing is how many connections to a server may be closing at a time without having served. A
// connection beyond that waits.
const maxClosing = 16

// closer is anything that can be closed.
type closer interface{ Close() error }

// closingLimit counts the connections to one server that are being closed without having served. A
// process that ignores SIGTERM takes seconds to end. A client that was refused may try again at
// once, and no restart schedule limits that. So the number of such processes is bounded here.
// Connections that have served do not count.
type closingLimit struct {
	mu      sync.Mutex
	closing int
	room    chan struct{} // closed when there is room again; nil while no goroutine waits for it
}

// wait waits until another connection may be opened. The error is the cause of ctx.
func (l *closingLimit) wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		if l.closing < maxClosing {
			l.mu.Unlock()
			return nil
		}
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		l.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// close closes c and counts it until it is closed.
func (l *closingLimit) close(c closer) error {
	l.mu.Lock()
	l.closing++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.closing--
		if l.closing < maxClosing && l.room != nil {
			close(l.room)
			l.room = nil
		}
	}()
	return c.Close()
}

// countedCloser is a connection that counts against a limit while it is being closed.
type countedCloser struct {
	closer
	limit  *closingLimit
	closed chan struct{} // closed when the connection has been closed
}

// counted returns c as a connection that counts against the limit while it is being closed.
func (l *closingLimit) counted(c closer) *countedCloser {
	return &countedCloser{c, l, make(chan struct{})}
}

// Close implements closer. It may be called once.
func (c *countedCloser) Close() error {
	defer close(c.closed)
	return c.limit.close(c.closer)
}
