// Package backoff computes how long to wait before a failed operation is tried again.
package backoff

import (
	"context"
	"time"
)

// Delay returns the delay before the next attempt. After one failure the delay is the parameter
// first. Each further failure doubles it, up to longest. Without a failure, Delay returns 0.
//
// # Why no library
//
// github.com/cenkalti/backoff/v5 keeps the current delay in a mutable value that each caller has to
// construct with four fields, and adds jitter by default. Callers of Delay need no such value: they
// only count their failures.
func Delay(first, longest time.Duration, failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	return min(first<<min(failures-1, 16), longest)
}

// Sleep waits for d. It returns early, with false, when ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
