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

// backoff computes and waits for the delays between tries. The delay doubles from minBackoff to
// maxBackoff. A random part, at most half, is subtracted from each delay, so that several Gatekits
// do not retry at the same moments. (github.com/cenkalti/backoff/v5 would save one line here, and
// need more lines for its configuration and reset.)
type backoff struct {
	last time.Duration // the last delay, before the random part was subtracted
}

// wait waits for the next delay, or for the delay that the receiver has requested if that is
// longer. When ctx ends (the sink is stopped), wait returns at once and resets the delay: the sink
// sends the remaining records until drainCtx ends. wait returns false if drainCtx has ended.
func (b *backoff) wait(ctx, drainCtx context.Context, requested time.Duration) bool {
	b.last = min(max(2*b.last, minBackoff), maxBackoff)
	t := time.NewTimer(max(b.last/2+rand.N(b.last/2), min(requested, maxRetryAfter)))
	defer t.Stop()
	stopping := ctx.Done()
	if ctx.Err() != nil { // the sink was stopped before: only drainCtx interrupts this delay
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

// retryLaterError is the error of a try after which the receiver asks for a delay.
type retryLaterError struct {
	error
	after time.Duration
}

func (e *retryLaterError) Unwrap() error { return e.error }

// retryDelay returns the delay that err asks for, or 0.
func retryDelay(err error) time.Duration {
	if l, ok := errors.AsType[*retryLaterError](err); ok {
		return l.after
	}
	return 0
}

// retryAfter returns the delay that the header Retry-After asks for, as a number of seconds or as a
// time. It returns 0 if there is no such header.
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
