package main

import (
	"context"
	"time"
)

// background is a goroutine that runs until stop is called.
type background struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has returned
}

// startBackground calls run in a goroutine. The context of run ends with stop, and not with ctx.
func startBackground(ctx context.Context, run func(context.Context)) *background {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := &background{cancel, make(chan struct{})}
	go func() {
		defer close(b.done)
		run(running)
	}()
	return b
}

// stop ends the context of the goroutine, and waits until the goroutine has returned.
func (b *background) stop() {
	b.cancel()
	<-b.done
}

// repeat calls f after each interval until ctx ends.
func repeat(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		f()
	}
}
