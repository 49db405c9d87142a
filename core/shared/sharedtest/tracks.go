package sharedtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gatekit/core/shared"
)

var aSession = shared.Key{Kind: "session", Principal: "p", Name: "s"}

// track calls Track, which must return no error.
func track(t *testing.T, s shared.Store, k shared.Key, c shared.Change) shared.Tracked {
	t.Helper()
	known, err := s.Track(t.Context(), k, c)
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// requireTracked checks what is known.
func requireTracked(t *testing.T, got shared.Tracked, labels []string, counts map[string]int) {
	t.Helper()
	if !slices.Equal(got.Labels, labels) || !maps.Equal(got.Counts, counts) {
		t.Fatalf("labels %q and counts %v, want %q and %v", got.Labels, got.Counts, labels, counts)
	}
}

func testTrack(t *testing.T, r Replicas) {
	a, b := r.Open(t), r.Open(t)
	requireTracked(t, track(t, a, aSession, shared.Change{}), nil, nil)
	requireTracked(t, track(t, a, aSession, shared.Change{Labels: []string{"z", "b", "z"},
		Counts: map[string]int{"": 1, "files read": 2}}), []string{"z", "b"},
		map[string]int{"": 1, "files read": 2})
	requireTracked(t, track(t, b, aSession, shared.Change{Labels: []string{"b", "a", ""},
		Counts: map[string]int{"": 1, "files read": -2, "x": -1}}), []string{"z", "b", "a", ""},
		map[string]int{"": 2})
	other := aSession
	other.Name = "other"
	requireTracked(t, track(t, b, other, shared.Change{}), nil, nil)

	c := shared.Change{Labels: []string{"l"}, TTL: ttl}
	track(t, a, other, c)
	requireTracked(t, track(t, b, other, shared.Change{}), []string{"l"}, nil)
	renewed := other
	renewed.Name = "renewed"
	track(t, a, renewed, c)
	track(t, a, renewed, shared.Change{TTL: time.Hour})
	track(t, a, renewed, shared.Change{Counts: map[string]int{"n": 1}}) // leaves the time
	r.Wait(ttl + ttl/10)
	requireTracked(t, track(t, b, other, shared.Change{}), nil, nil)
	requireTracked(t, track(t, b, renewed, shared.Change{}), []string{"l"}, map[string]int{"n": 1})
	requireTracked(t, track(t, b, aSession, shared.Change{}), []string{"z", "b", "a", ""},
		map[string]int{"": 2})
}

func testTrackRace(t *testing.T, r Replicas) {
	const n = 500
	stores := r.three(t)
	inParallel(t, stores, n, func(ctx context.Context, s shared.Store, i, _ int) error {
		label := strconv.Itoa(i % 10)
		known, err := s.Track(ctx, aSession, shared.Change{Labels: []string{label},
			Counts: map[string]int{"": 1, label: 1}, Minute: true})
		if err == nil && !slices.Contains(known.Labels, label) {
			return fmt.Errorf("the label %s is missing in the answer", label)
		}
		if err == nil && i%5 == 0 { // such as a call that was denied
			_, err = s.Track(ctx, aSession, shared.Change{Minute: true, At: known.At,
				Counts: map[string]int{"": -1, label: -1}})
		}
		return err
	})
	known := track(t, stores[0], aSession, shared.Change{Minute: true})
	want := map[string]int{"": 3 * n * 4 / 5}
	for i := range 10 {
		if i%5 != 0 {
			want[strconv.Itoa(i)] = 3 * n / 10
		}
	}
	if !maps.Equal(known.Counts, want) || len(known.Labels) != 10 {
		t.Errorf("labels %q and counts %v, want ten and %v", known.Labels, known.Counts, want)
	}
}

func testMinute(t *testing.T, r Replicas) {
	a, b := r.Open(t), r.Open(t)
	count := func(s shared.Store, n int, at int64) shared.Tracked {
		t.Helper()
		return track(t, s, aSession, shared.Change{Counts: map[string]int{"x": n}, Minute: true,
			At: at})
	}
	first := count(a, 3, 0)
	if first.At == 0 || first.Minute["x"] != 3 {
		t.Fatalf("after the first: %+v", first)
	}
	r.Wait(2 * time.Second)
	if got := count(b, 2, 0); got.Minute["x"] != 5 || got.At <= first.At {
		t.Errorf("after the second: %+v, want 5 at a later time than %d", got, first.At)
	}
	if got := count(b, -1, first.At); got.Minute["x"] != 4 || got.Counts["x"] != 4 {
		t.Errorf("after one was taken back: %+v, want 4", got)
	}
	if got := track(t, a, aSession, shared.Change{Minute: true}); got.Minute["x"] != 4 {
		t.Errorf("what is known: %+v, want 4", got)
	}
	if got := track(t, a, aSession, shared.Change{}); len(got.Minute) != 0 || got.Counts["x"] != 4 {
		t.Errorf("without the minute: %+v", got)
	}
	if got := count(b, 0, 0); got.Minute["x"] != 4 {
		t.Errorf("a count of 0: %+v, want 4", got)
	}
	// instead of waiting for a minute, count in seconds that have passed
	if got := count(b, 10, first.At-50); got.Minute["x"] != 14 || got.Counts["x"] != 14 {
		t.Errorf("50 seconds ago: %+v, want 14", got)
	}
	count(b, 100, first.At-61)
	if got := track(t, a, aSession, shared.Change{Minute: true}); got.Minute["x"] != 14 ||
		got.Counts["x"] != 114 {
		t.Errorf("more than a minute ago: %+v, want 14 in the last minute, and 114 in all", got)
	}
	if got := track(t, b, aSession, shared.Change{Minute: true}); got.Minute["x"] != 14 {
		t.Errorf("what another replica knows: %+v, want 14", got)
	}
}

func testBounds(t *testing.T, r Replicas) {
	s := r.Open(t)
	requireFull := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, shared.ErrFull) {
			t.Errorf("%s: got the error %v, want ErrFull", what, err)
		}
	}
	swapOf := func(k shared.Key, bytes int) error {
		_, err := s.Swap(t.Context(), k, 0, make([]byte, bytes), 0)
		return err
	}
	requireFull("a large value", swapOf(aKey, shared.MaxValue+1))
	listed := shared.Key{Kind: "list", Listed: true}
	requireFull("a large listed value", swapOf(listed, shared.MaxListedValue+1))
	requireFull("a long name", swapOf(shared.Key{Kind: "k",
		Name: strings.Repeat("x", shared.MaxName+1)}, 1))
	for i := range shared.MaxListed {
		listed.Name = strconv.Itoa(i)
		if err := swapOf(listed, 1); err != nil {
			t.Fatal(err)
		}
	}
	listed.Name = "one more"
	requireFull("too many listed values", swapOf(listed, 1))
	listed.Name = "0"
	if _, _, err := s.Take(t.Context(), listed); err != nil {
		t.Fatal(err)
	}
	listed.Name = "one more"
	if err := swapOf(listed, 1); err != nil {
		t.Errorf("after one was taken: %v", err)
	}

	var labels []string
	counts := map[string]int{}
	for i := range shared.MaxCounts {
		counts[strconv.Itoa(i)] = 1
		if i < shared.MaxLabels {
			labels = append(labels, strconv.Itoa(i))
		}
	}
	track(t, s, aSession, shared.Change{Labels: labels, Counts: counts})
	track(t, s, aSession, shared.Change{Labels: labels[:1], Counts: map[string]int{"0": 1}})
	_, err := s.Track(t.Context(), aSession, shared.Change{Labels: []string{"one more"},
		Counts: map[string]int{"0": 1}})
	requireFull("too many labels", err)
	_, err = s.Track(t.Context(), aSession, shared.Change{Counts: map[string]int{"0": 1,
		"one more": 1}})
	requireFull("too many counts", err)
	got := track(t, s, aSession, shared.Change{})
	if len(got.Labels) != shared.MaxLabels || len(got.Counts) != shared.MaxCounts ||
		got.Counts["0"] != 2 {
		t.Errorf("%d labels, %d counts, and the first is %d; refused changes changed them",
			len(got.Labels), len(got.Counts), got.Counts["0"])
	}
}

func testMistakes(t *testing.T, r Replicas) {
	s, ctx := r.Open(t), t.Context()
	for name, call := range map[string]func() error{
		"a key without a kind": func() error { _, _, err := s.Get(ctx, shared.Key{}); return err },
		"a negative time": func() error {
			_, err := s.Swap(ctx, aKey, 0, []byte("x"), -1)
			return err
		},
		"a list without a kind": func() error { _, err := s.List(ctx, "", 0); return err },
		"a rate without a burst": func() error {
			_, err := s.Admit(ctx, shared.Admission{Limits: []shared.Limit{rateOf("x", 0)}})
			return err
		},
		"open requests without a lease": func() error {
			_, err := s.Admit(ctx, shared.Admission{Limits: []shared.Limit{leasesOf("x", 1)}})
			return err
		},
		"one key twice": func() error {
			_, err := s.Admit(ctx, shared.Admission{Limits: []shared.Limit{rateOf("x", 1),
				rateOf("x", 1)}})
			return err
		},
		"a lease without a name": func() error { return s.Release(ctx, shared.Lease{}) },
		"a lease without a time": func() error {
			return s.Renew(ctx, shared.Lease{Name: "x"}, 0)
		},
	} {
		err := call()
		if err == nil || errors.Is(err, shared.ErrUnavailable) || errors.Is(err, shared.ErrLost) {
			t.Errorf("%s: got the error %v, want one that says so", name, err)
		}
	}
	requireValue(t, s, aKey, "", 0)
}

// Each store learns of the loss by its next call, whatever it calls, and goes on afterwards. A
// store that is opened after the loss knows of it, too, even if no other one noticed it before.
func testLost(t *testing.T, r Replicas) {
	if r.Wipe == nil {
		if !r.Open(t).Lost().IsZero() {
			t.Error("a store that loses nothing was lost")
		}
		return
	}
	calls := map[string]func(s shared.Store) error{
		"Get": func(s shared.Store) error { _, _, err := s.Get(t.Context(), aKey); return err },
		"Swap": func(s shared.Store) error {
			_, err := s.Swap(t.Context(), aKey, 0, []byte("x"), 0)
			return err
		},
		"Take": func(s shared.Store) error { _, _, err := s.Take(t.Context(), aKey); return err },
		"List": func(s shared.Store) error { _, err := s.List(t.Context(), "k", 0); return err },
		"Admit": func(s shared.Store) error {
			_, err := s.Admit(t.Context(), shared.Admission{Limits: []shared.Limit{rateOf("l", 1)}})
			return err
		},
		"Renew": func(s shared.Store) error {
			return s.Renew(t.Context(), shared.Lease{Name: "x", Keys: []shared.Key{aKey}}, ttl)
		},
		"Release": func(s shared.Store) error {
			return s.Release(t.Context(), shared.Lease{Name: "x", Keys: []shared.Key{aKey}})
		},
		"Track": func(s shared.Store) error {
			_, err := s.Track(t.Context(), aSession, shared.Change{Labels: []string{"l"}})
			return err
		},
	}
	stores := map[string]shared.Store{}
	for name := range calls {
		stores[name] = r.Open(t)
		if !stores[name].Lost().IsZero() {
			t.Fatal("a new store was lost")
		}
	}
	before := swap(t, stores["Get"], aKey, 0, "x")
	r.Wipe(t)
	late := r.Open(t) // before another one has noticed
	for name, call := range calls {
		if err := call(stores[name]); !errors.Is(err, shared.ErrLost) {
			t.Errorf("%s after the loss: got the error %v, want ErrLost", name, err)
		}
		if stores[name].Lost().IsZero() {
			t.Errorf("after %s returned ErrLost, Lost returns no time", name)
		}
	}
	requireValue(t, stores["Get"], aKey, "", 0)
	requireTracked(t, track(t, stores["Track"], aSession, shared.Change{}), nil, nil)
	if after := swap(t, stores["Swap"], aKey, 0, "x"); after <= before {
		t.Errorf("after the loss, the generation %d follows %d", after, before)
	}
	// the late store may have begun before the loss was known, and then learns of it here
	if _, _, err := late.Get(t.Context(), aKey); err != nil && !errors.Is(err, shared.ErrLost) {
		t.Error(err)
	}
	if late.Lost().IsZero() {
		t.Error("a store that was opened after the loss does not know of it")
	}
	if r.Open(t).Lost().IsZero() {
		t.Error("a new store does not know of the loss")
	}
	for name, call := range calls {
		if err := call(stores[name]); errors.Is(err, shared.ErrLost) {
			t.Errorf("%s returns ErrLost twice for one loss", name)
		}
	}
}
