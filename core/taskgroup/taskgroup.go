// Package taskgroup runs the goroutines of one long-lived component: a session, a connection, a
// pool. They share one context, which ends when the component is closed, and Close waits for them.
package taskgroup

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is the cause of the group's context once the group is closed.
var ErrClosed = errors.New("closed")

// Group is a set of goroutines that end together. Its methods may be called from many goroutines.
type Group struct {
	// ctx ends when the group is closed. It is stored because goroutines are started by callers
	// whose own contexts end earlier than the component that the group belongs to.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex // held while a goroutine is added, so that none starts once Close waits
	closed bool
	wg     sync.WaitGroup
}

// New returns an empty group. It starts nothing.
func New() *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	return g
}

// Go runs f in a goroutine, with the group's context. It reports false, and does not run f, when
// the group is closed.
func (g *Group) Go(f func(ctx context.Context)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Go(func() { f(g.ctx) })
	return true
}

// Context returns the group's context.
func (g *Group) Context() context.Context { return g.ctx }

// Bind returns a context that ends when ctx ends, with the cause of ctx, or when the group's
// context ends, with ErrClosed. The caller calls the returned function to release it.
func (g *Group) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.ctx, func() { cancel(context.Cause(g.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Cancel ends the group's context and does not wait. Goroutines can still be started.
func (g *Group) Cancel() { g.cancel(ErrClosed) }

// Close ends the group's context and waits for all goroutines. It is safe to call twice.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel(ErrClosed)
	g.wg.Wait()
}
