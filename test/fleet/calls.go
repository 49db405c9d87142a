package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"text/tabwriter"
	"time"

	"gatekit/core/shared"
	"gatekit/transport/valkey"
)

// How many calls have one label, and one approval.
const (
	callsPerLabel    = 20
	callsPerApproval = 200
)

const (
	sessionIdle          = 30 * time.Minute
	sessionsPerPrincipal = 10
	tools                = 5
)

func principal(session int) string {
	return fmt.Sprintf("token:agent-%d", session/sessionsPerPrincipal)
}

func sessionKey(session int) shared.Key {
	return shared.Key{Kind: "session", Principal: principal(session),
		Name: fmt.Sprintf("%026d", session)}
}

// makeSessions makes all sessions, and prints what one takes.
func (f *fleet) makeSessions(ctx context.Context, w *tabwriter.Writer) error {
	before, err := f.admin.usage()
	if err != nil {
		return err
	}
	var making sync.WaitGroup
	errs := make([]error, len(f.stores))
	for i, s := range f.stores {
		making.Go(func() {
			for n := i; n < f.sessions && errs[i] == nil; n += len(f.stores) {
				c := shared.Change{Labels: []string{"private", "untrusted"},
					Counts: map[string]int{"": 1}, TTL: sessionIdle}
				for tool := range tools - 1 {
					c.Counts[fmt.Sprintf("files tool-%d", tool)] = 1
				}
				_, errs[i] = s.Track(ctx, sessionKey(n), c)
			}
		})
	}
	making.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	after, err := f.admin.usage()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d replicas, %d connections, %d kinds watched by each, server %s\n",
		f.replicas, after.clients-1, f.kinds, after.version)
	fmt.Fprintf(w, "%d sessions: %d bytes of the server's memory for each\n\n", f.sessions,
		(after.memory-before.memory)/int64(f.sessions))
	return w.Flush()
}

// repeat sends requests from each replica without end, so many at a time.
func (f *fleet) repeat(ctx context.Context, atOnce int, send func(*valkey.Store)) {
	var calling sync.WaitGroup
	for _, s := range f.stores {
		for range atOnce {
			calling.Go(func() {
				for ctx.Err() == nil {
					send(s)
				}
			})
		}
	}
	calling.Wait()
}

// request is a kind of request that a call makes.
type request struct {
	name string
	send func(*valkey.Store)
}

// requests returns the requests whose cost is measured for each alone.
func (f *fleet) requests() []request {
	return []request{
		{"unchanged lists", func(s *valkey.Store) {
			s.List(context.Background(), "kind", 1) // the version of an empty listing
		}},
		{"counts", func(s *valkey.Store) { f.count(s, rand.IntN(f.sessions)) }},
		{"labels", func(s *valkey.Store) { f.label(s, rand.IntN(f.sessions)) }},
		{"two limits", func(s *valkey.Store) { f.admit(s, rand.IntN(f.sessions)) }},
	}
}

// count counts a call of a session.
func (f *fleet) count(s *valkey.Store, session int) {
	tool := fmt.Sprintf("files tool-%d", rand.IntN(tools-1))
	s.Track(context.Background(), sessionKey(session), shared.Change{TTL: sessionIdle,
		Counts: map[string]int{"": 1, tool: 1}})
}

// label adds a label to a session, which it has already.
func (f *fleet) label(s *valkey.Store, session int) {
	s.Track(context.Background(), sessionKey(session), shared.Change{TTL: sessionIdle,
		Labels: []string{"private"}})
}

// admit counts a call of a session in two limits, and returns its lease.
func (f *fleet) admit(s *valkey.Store, session int) shared.Lease {
	who := principal(session)
	open := shared.Key{Kind: "open", Principal: who}
	lease := shared.Lease{Name: fmt.Sprintf("%026x", rand.Uint64()), Keys: []shared.Key{open}}
	s.Admit(context.Background(), shared.Admission{Limits: []shared.Limit{
		{Key: shared.Key{Kind: "rate", Principal: who, Name: "files"}, Rate: 1e6,
			Per: time.Second, Burst: 1e6},
		{Key: open, Concurrent: shared.MaxLeases},
	}, Lease: lease.Name, TTL: time.Second})
	return lease
}

// callAt makes calls at a rate.
func (f *fleet) callAt(ctx context.Context, rate float64) {
	var calling sync.WaitGroup
	defer calling.Wait()
	for began, n := time.Now(), 0; ; {
		for due := int(rate * time.Since(began).Seconds()); n < due; n++ {
			s := f.stores[n%len(f.stores)]
			calling.Go(func() { f.call(s) })
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// call makes the requests of one call at a replica. Errors are counted where they are observed.
func (f *fleet) call(s *valkey.Store) {
	session := rand.IntN(f.sessions)
	f.count(s, session)
	if rand.IntN(callsPerApproval) == 0 {
		approve(s)
	}
	lease := f.admit(s, session)
	if rand.IntN(callsPerLabel) == 0 {
		f.label(s, session)
	}
	s.Release(context.Background(), lease)
}

// approve makes the requests of a call that is denied, approved and repeated.
func approve(s *valkey.Store) {
	ctx := context.Background()
	const kind = "approval"
	k := shared.Key{Kind: kind, Name: fmt.Sprintf("%026x", rand.Uint64()), Listed: true}
	value := make([]byte, 400)
	s.List(ctx, kind, 0)
	was, err := s.Swap(ctx, k, 0, value, 10*time.Minute)
	if err == nil {
		was, err = s.Swap(ctx, k, was, value, 10*time.Minute)
	}
	if err == nil {
		_, _, err = s.Get(ctx, k)
	}
	if err == nil {
		s.Swap(ctx, k, was, nil, 0)
	}
}
