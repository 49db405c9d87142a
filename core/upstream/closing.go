package upstream

import (
	"context"
	"sync"
)

// maxClosing limits the connections to one server that are closing and have never served a client.
// When the limit is reached, no other connection is opened.
const maxClosing = 16

// closer is anything that can be closed.
type closer interface{ Close() error }

// closingLimit limits the connections to one server that are closing and have never served a
// client. A connection has served a client if notifications/initialized was sent on it. A process
// that ignores SIGTERM takes seconds to end. A client that was refused may try again at once, and
// no restart schedule limits that. Without this limit, such a client could make the number of
// processes grow. Connections that have served a client do not count.
type closingLimit struct {
	mu      sync.Mutex
	closing int
	room    chan struct{} // closed when a connection may be opened; nil if no goroutine waits
}

// wait waits until another connection may be opened. The error is context.Cause(ctx).
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

// close closes c, and counts c while it is closing.
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

// countedCloser is a connection that counts towards a limit while it is closing.
type countedCloser struct {
	closer
	limit  *closingLimit
	closed chan struct{} // closed when the connection has been closed
}

// counted returns c as a connection that counts towards the limit while it is closing.
func (l *closingLimit) counted(c closer) *countedCloser {
	return &countedCloser{c, l, make(chan struct{})}
}

// Close implements closer. It may be called once.
func (c *countedCloser) Close() error {
	defer close(c.closed)
	return c.limit.close(c.closer)
}
