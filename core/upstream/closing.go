package upstream

import (
	"context"
	"sync"
)

// maxLeaving is how many connections to a server may be ending without having served, before others
// wait to be opened.
const maxLeaving = 16

// leaving counts the connections to a server that are being closed without having served. A process
// that ignores TERM takes seconds to end, a client that was refused tries again at once, and pace
// does not see it: without a bound such processes would pile up. Sessions that went well do not
// count, however many there are.
type leaving struct {
	mu   sync.Mutex
	n    int
	room chan struct{} // closed when there is room again; nil when nobody waits
}

// wait waits until another connection may be opened.
func (l *leaving) wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		if l.n < maxLeaving {
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

// close closes c, which counts for as long as that takes.
func (l *leaving) close(c closer) error {
	l.mu.Lock()
	l.n++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.n--
		if l.n < maxLeaving && l.room != nil {
			close(l.room)
			l.room = nil
		}
	}()
	return c.Close()
}

// giveUp closes a link that the server was not greeted on, and waits for that as long as the
// request may wait: a client that tries again then finds one process gone before it gets another.
func (s *legacy) giveUp(ctx context.Context, l link) {
	p := s.up.leaving.later(l)
	s.up.dropLater(p)
	select {
	case <-p.over:
	case <-ctx.Done():
	}
}

// parting is a connection that leaves when it is closed.
type parting struct {
	closer
	of   *leaving
	over chan struct{} // closed when the connection is
}

// later is c for dropLater.
func (l *leaving) later(c closer) *parting { return &parting{c, l, make(chan struct{})} }

func (p *parting) Close() error {
	defer close(p.over)
	return p.of.close(p.closer)
}
