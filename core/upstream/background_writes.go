package upstream

import (
	"context"
	"sync/atomic"
	"time"

	"gatekit/core/taskgroup"
)

// maxBackgroundWrites is how many background writes to one connection may wait. Further writes are
// dropped.
const maxBackgroundWrites = 256

// Time limits of background writes.
const (
	shortWriteTimeout = 5 * time.Second  // of a cancellation, a pong or a refusal
	answerTimeout     = 30 * time.Second // of a POST that answers a server's request
)

// backgroundWrites counts the messages that are being written to a connection in the background.
type backgroundWrites struct{ waiting atomic.Int32 }

// run calls write in a new goroutine, with a time limit. When the server does not read and too many
// writes wait, or when goroutines is closed, run drops the write and returns false.
func (b *backgroundWrites) run(goroutines *taskgroup.Group, timeout time.Duration,
	write func(ctx context.Context)) (started bool) {
	if b.waiting.Add(1) > maxBackgroundWrites {
		b.waiting.Add(-1)
		return false
	}
	started = goroutines.Go(func(ctx context.Context) {
		defer b.waiting.Add(-1)
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		write(ctx)
	})
	if !started {
		b.waiting.Add(-1)
	}
	return started
}
