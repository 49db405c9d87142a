package sharedtest

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"gatekit/core/shared"
)

// rateOf returns a limit with a rate. It is so low that no event is regained during a test.
func rateOf(name string, burst int) shared.Limit {
	return shared.Limit{Key: shared.Key{Kind: "rate", Principal: "p", Name: name}, Rate: 1,
		Per: time.Hour, Burst: burst}
}

func leasesOf(name string, n int) shared.Limit {
	return shared.Limit{Key: shared.Key{Kind: "open", Principal: "p", Name: name}, Concurrent: n}
}

// admit calls Admit, which must return no error.
func admit(t *testing.T, s shared.Store, a shared.Admission) shared.Admitted {
	t.Helper()
	r, err := s.Admit(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func testRates(t *testing.T, r Replicas) {
	a, b := r.Open(t), r.Open(t)
	// one event in the time ttl, so that waiting for one is short
	limit := shared.Limit{Key: shared.Key{Kind: "rate"}, Rate: 20, Per: 20 * ttl, Burst: 2}
	all := shared.Admission{Limits: []shared.Limit{limit}}
	for _, s := range []shared.Store{a, b} {
		if got := admit(t, s, all); !got.OK() {
			t.Fatalf("within the burst: %+v", got)
		}
	}
	got := admit(t, a, all)
	if got.OK() || got.Refused != 0 || got.TooMany || got.RetryAfter <= 0 || got.RetryAfter > ttl {
		t.Fatalf("after the burst: %+v, want a refusal for at most %v", got, ttl)
	}
	r.Wait(got.RetryAfter + 10*time.Millisecond)
	if got := admit(t, b, all); !got.OK() {
		t.Errorf("after the wait: %+v", got)
	}
	if got := admit(t, a, all); got.OK() {
		t.Error("after one wait, a second event is admitted")
	}
	other := limit
	other.Key.Name = "other"
	if got := admit(t, a, shared.Admission{Limits: []shared.Limit{other}}); !got.OK() {
		t.Errorf("another limit: %+v", got)
	}
	if got := admit(t, a, shared.Admission{}); !got.OK() {
		t.Errorf("no limits: %+v", got)
	}
}

func testRateRace(t *testing.T, r Replicas) {
	const burst = 57
	var admitted atomic.Int64
	inParallel(t, r.three(t), 200, func(ctx context.Context, s shared.Store, _, _ int) error {
		got, err := s.Admit(ctx, shared.Admission{Limits: []shared.Limit{rateOf("race", burst)}})
		if err == nil && got.OK() {
			admitted.Add(1)
		}
		return err
	})
	if n := admitted.Load(); n != burst {
		t.Errorf("three replicas admitted %d, want %d", n, burst)
	}
}

func testAllOrNone(t *testing.T, r Replicas) {
	s := r.Open(t)
	wide, narrow, open := rateOf("wide", 3), rateOf("narrow", 1), leasesOf("open", 9)
	all := shared.Admission{Limits: []shared.Limit{wide, open, narrow}, Lease: "1", TTL: time.Hour}
	if got := admit(t, s, all); !got.OK() {
		t.Fatalf("the first: %+v", got)
	}
	all.Lease = "2"
	for range 5 {
		if got := admit(t, s, all); got.Refused != 2 || got.TooMany {
			t.Fatalf("after the burst of the last limit: %+v, want a refusal of limit 2", got)
		}
	}
	for i := range 2 { // the refused ones did not count
		if got := admit(t, s, shared.Admission{Limits: []shared.Limit{wide}}); !got.OK() {
			t.Errorf("wide, %d: %+v", i, got)
		}
	}
	open.Concurrent = 2
	one := shared.Admission{Limits: []shared.Limit{open}, Lease: "3", TTL: time.Hour}
	if got := admit(t, s, one); !got.OK() {
		t.Errorf("the lease of a refused admission counts: %+v", got)
	}
}

func testLeases(t *testing.T, r Replicas) {
	a, b := r.Open(t), r.Open(t)
	limit, second := leasesOf("one", 2), leasesOf("two", 9)
	open := func(s shared.Store, lease string, ttl time.Duration) shared.Admitted {
		t.Helper()
		return admit(t, s, shared.Admission{Limits: []shared.Limit{second, limit}, Lease: lease,
			TTL: ttl})
	}
	lease := func(name string) shared.Lease {
		return shared.Lease{Name: name, Keys: []shared.Key{second.Key, limit.Key}}
	}
	for i, s := range []shared.Store{a, b, a} { // the third has the name of the first
		if got := open(s, strconv.Itoa(i%2), time.Hour); !got.OK() {
			t.Fatalf("lease %d: %+v", i, got)
		}
	}
	if got := open(b, "x", time.Hour); got.Refused != 1 || !got.TooMany || got.RetryAfter != 0 {
		t.Fatalf("a third lease: %+v", got)
	}
	if err := a.Release(t.Context(), lease("1")); err != nil { // b opened it
		t.Fatal(err)
	}
	if err := a.Release(t.Context(), lease("1")); err != nil {
		t.Errorf("a lease is released again: %v", err)
	}
	if got := open(b, "x", ttl); !got.OK() {
		t.Fatalf("after a release: %+v", got)
	}
	if err := a.Renew(t.Context(), lease("1"), time.Hour); err != nil { // not held any more
		t.Fatal(err)
	}
	if err := a.Renew(t.Context(), lease("0"), ttl); err != nil {
		t.Fatal(err)
	}
	r.Wait(ttl / 2)
	if err := b.Renew(t.Context(), lease("0"), 3*ttl); err != nil {
		t.Fatal(err)
	}
	if got := open(b, "y", time.Hour); got.OK() {
		t.Error("before a lease expires, another one is admitted")
	}
	r.Wait(ttl/2 + ttl/10) // x expires
	if got := open(b, "y", time.Hour); !got.OK() {
		t.Errorf("after a lease expired: %+v", got)
	}
	if got := open(b, "z", time.Hour); got.OK() {
		t.Error("a lease that was renewed does not count")
	}
}

func testLeaseRace(t *testing.T, r Replicas) {
	const open = 19
	var now atomic.Int64
	inParallel(t, r.three(t), 300, func(ctx context.Context, s shared.Store, i, store int) error {
		limit := leasesOf("race", open)
		name := fmt.Sprint(store, i)
		got, err := s.Admit(ctx, shared.Admission{Limits: []shared.Limit{limit}, Lease: name,
			TTL: time.Hour})
		if err != nil || !got.OK() {
			return err
		}
		if n := now.Add(1); n > open {
			return fmt.Errorf("%d leases are held at once, want at most %d", n, open)
		}
		if i%3 == 0 {
			now.Add(-1)
			return s.Release(ctx, shared.Lease{Name: name, Keys: []shared.Key{limit.Key}})
		}
		return nil
	})
	// The last to act may have released a lease that nobody asked for any more.
	held, s := int(now.Load()), r.Open(t)
	for i := range open - held + 1 {
		got, err := s.Admit(t.Context(), shared.Admission{Limits: []shared.Limit{
			leasesOf("race", open)}, Lease: fmt.Sprint("more ", i), TTL: time.Hour})
		if err != nil || got.OK() != (held+i < open) {
			t.Errorf("with %d leases held, another one: %+v, %v; want at most %d", held+i, got, err,
				open)
		}
	}
}
