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
	firstPause = time.Second
	maxPause   = time.Minute
	maxAsked   = 15 * time.Minute // of what a receiver asks for
)

// pause is the time between tries: it doubles, and a random part of it keeps several Gatekits from
// trying at the same moments.
type pause struct{ last time.Duration }

// wait waits, for what the receiver asked for if that is longer. It says whether hard goes on. When
// ctx ends meanwhile it is over at once, for a try before the end.
func (p *pause) wait(ctx, hard context.Context, asked time.Duration) bool {
	p.last = min(max(2*p.last, firstPause), maxPause)
	t := time.NewTimer(max(p.last/2+rand.N(p.last/2), min(asked, maxAsked)))
	defer t.Stop()
	ended := ctx.Done()
	if ctx.Err() != nil {
		ended = nil
	}
	select {
	case <-t.C:
	case <-ended:
		p.last = 0
	case <-hard.Done():
	}
	return hard.Err() == nil
}

// later is an error of a receiver that wants to be left alone for a while.
type later struct {
	error
	after time.Duration
}

func (l *later) Unwrap() error { return l.error }

func askedFor(err error) time.Duration {
	if l, ok := errors.AsType[*later](err); ok {
		return l.after
	}
	return 0
}

// retryAfter is what an answer asks for: seconds, or a time.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(min(max(seconds, 0), int(maxAsked/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
