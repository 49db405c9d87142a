package upstream

import (
	"context"
	"errors"
	"sync"
)

// errClosed is the cause of everything that ends because its owner was closed.
var errClosed = errors.New("closed")

// life is how long an object's goroutines run: each is started by run and has ended when end
// returns.
type life struct {
	// ctx ends with the object. It is kept here, and only here, because a life has no call of its
	// own whose context it could take.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu    sync.Mutex // guards ended, so that nothing starts once end waits
	ended bool
	wg    sync.WaitGroup
}

func newLife() *life {
	l := &life{}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// run runs f in a goroutine, or answers false when the life has ended.
func (l *life) run(f func(ctx context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.wg.Go(func() { f(l.ctx) })
	return true
}

// end cancels the goroutines and waits for them. It is safe to call twice.
func (l *life) end() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.cancel(errClosed)
	l.wg.Wait()
}

// bind answers a context that ends with ctx, with the cause of ctx, or with the life.
func (l *life) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
