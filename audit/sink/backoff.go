package sink

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	minBackoff    = time.Second
	maxBackoff    = time.Minute
	maxRetryAfter = 15 * time.Minute // longest delay that a receiver may ask for
)

// backoff is the delay between tries. It doubles from minBackoff to maxBackoff, and up to half of
// it is taken off at random, so that several Gatekits do not retry at the same moments.
// (github.com/cenkalti/backoff/v5 would replace one line of it, and need more to configure and
// reset.)
type backoff struct{ last time.Duration }

// wait waits for the next delay, or for the one that the receiver asked for if that is longer. When
// ctx ends, wait returns at once, for one more try before the end. It reports whether drainCtx is
// still valid.
func (b *backoff) wait(ctx, drainCtx context.Context, requested time.Duration) bool {
	b.last = min(max(2*b.last, minBackoff), maxBackoff)
	t := time.NewTimer(max(b.last/2+rand.N(b.last/2), min(requested, maxRetryAfter)))
	defer t.Stop()
	stopping := ctx.Done()
	if ctx.Err() != nil {
		stopping = nil
	}
	select {
	case <-t.C:
	case <-stopping:
		b.last = 0
	case <-drainCtx.Done():
	}
	return drainCtx.Err() == nil
}

// retryLaterError is the error of a receiver that asks for a delay.
type retryLaterError struct {
	error
	after time.Duration
}

func (e *retryLaterError) Unwrap() error { return e.error }

func retryDelay(err error) time.Duration {
	if l, ok := errors.AsType[*retryLaterError](err); ok {
		return l.after
	}
	return 0
}

// retryAfter returns the delay in a response's Retry-After, which is in seconds or a time.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(min(max(seconds, 0), int(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
