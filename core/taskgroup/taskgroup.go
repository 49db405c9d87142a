// Package taskgroup runs the goroutines of one long-lived component: a session, a connection, a
// pool. The goroutines share one context, which ends when the component is closed. Close waits for
// all of them.
package taskgroup

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is the cause of the group's context after Close or Cancel.
var ErrClosed = errors.New("closed")

// Group is a set of goroutines that end together. Its methods may be called from many goroutines.
type Group struct {
	// ctx ends when the group is closed. The group stores a context of its own because a goroutine
	// may outlive the call that started the goroutine, and the context of that call.
	ctx    context.Context
	cancel context.CancelCauseFunc

	// held while a goroutine starts: no goroutine may start after Close has set closed
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// New returns a group without goroutines.
func New() *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	return g
}

// Go runs f in a goroutine, with the group's context. If the group is closed, Go returns false and
// does not run f.
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

// Bind returns a context that ends when ctx or the group's context ends. Its cause is the cause of
// ctx, or ErrClosed if the group's context ended first. The caller must call the returned function
// to release the context.
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

// Close ends the group's context and waits for all goroutines. Close may be called more than once.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel(ErrClosed)
	g.wg.Wait()
}
