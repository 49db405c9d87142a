// Package backoff computes how long to wait before a failed operation is tried again.
package backoff

import (
	"context"
	"time"
)

// Delay returns first, doubled for each failure after the first one, and at most longest. Without a
// failure it returns 0.
//
// # Why no library
//
// github.com/cenkalti/backoff/v5 keeps the current delay in a mutable value that each caller has to
// construct with four fields, and adds jitter unless told otherwise. A function of the number of
// failures is shorter at every place that needs a delay.
func Delay(first, longest time.Duration, failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	return min(first<<min(failures-1, 16), longest)
}

// Sleep waits for d. It reports whether d passed before ctx ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
