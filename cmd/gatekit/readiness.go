package main

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// canServe returns nil if this process can serve clients at all. While it returns an error, every
// message would be denied here, and another replica may do better. Servers and plugins do not
// count: the other replicas have the same ones, and without all replicas nothing would be served.
// Shared state that is away does not count at first: calls that need nothing of it go on, and all
// replicas lose it when its server fails over. When the stops have not been known for too long,
// nothing goes on.
func (g *gateway) canServe(ctx context.Context) error {
	var results []healthResult
	if unknown := g.stops.Unknown(); unknown != nil {
		results = append(results, healthResult{err: errors.New(unknown.Reason)})
	}
	if g.recording.telemetry == nil { // it remembers whether the last record was written
		results = append(results, healthResult{err: g.recording.audit.Health()})
	} else {
		results = append(results, g.healthy(ctx)...)
	}
	var errs []error
	for _, r := range results {
		errs = append(errs, r.err)
	}
	return errors.Join(errs...)
}

// readiness remembers the result of a check. At most one check runs at a time, and at most one in
// healthInterval, however often somebody asks.
type readiness struct {
	check func(context.Context) error

	mu   sync.Mutex // held during a check
	last time.Time
	// result is that of the last check; nil before the first one has ended
	result atomic.Pointer[error]
}

func newReadiness(check func(context.Context) error) *readiness {
	return &readiness{check: check}
}

// current returns the result of a check. It does not wait for a check that another caller has
// begun, and returns the result before that one.
func (r *readiness) current() error {
	if r.mu.TryLock() {
		defer r.mu.Unlock()
		if r.last.IsZero() || time.Since(r.last) >= healthInterval {
			err := r.check(context.Background())
			r.last = time.Now()
			r.result.Store(&err)
		}
	}
	return *cmp.Or(r.result.Load(), &errNotChecked)
}

// errNotChecked is the result before the first check has ended.
var errNotChecked = errors.New("not checked yet")
