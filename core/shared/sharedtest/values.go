package sharedtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gatekit/core/shared"
)

var aKey = shared.Key{Kind: "task", Principal: "token:ci", Name: "a"}

// swap calls Swap, which must succeed.
func swap(t *testing.T, s shared.Store, k shared.Key, was uint64, value string) uint64 {
	t.Helper()
	g, err := s.Swap(t.Context(), k, was, []byte(value), 0)
	if err != nil || g == 0 {
		t.Fatalf("Swap(%v, %d, %q) = %d, %v", k, was, value, g, err)
	}
	return g
}

// requireValue checks the value of a key; "" with generation 0 means none.
func requireValue(t *testing.T, s shared.Store, k shared.Key, value string, generation uint64) {
	t.Helper()
	v, g, err := s.Get(t.Context(), k)
	if err != nil || string(v) != value || g != generation {
		t.Fatalf("Get(%v) = %q, %d, %v; want %q, %d", k, v, g, err, value, generation)
	}
}

func testValues(t *testing.T, r Replicas) {
	a, b := r.Open(t), r.Open(t)
	requireValue(t, a, aKey, "", 0)
	first := swap(t, a, aKey, 0, "one")
	requireValue(t, b, aKey, "one", first)
	for _, was := range []uint64{0, first + 1, first + 1000} {
		if _, err := b.Swap(t.Context(), aKey, was, []byte("x"), 0); !errors.Is(err,
			shared.ErrChanged) {
			t.Errorf("a swap with the generation %d: got the error %v, want ErrChanged", was, err)
		}
	}
	second := swap(t, b, aKey, first, "")
	requireValue(t, a, aKey, "", second)
	if second <= first {
		t.Errorf("the generation %d follows %d", second, first)
	}
	if g, err := a.Swap(t.Context(), aKey, second, nil, 0); g != 0 || err != nil {
		t.Errorf("a removal returns %d, %v", g, err)
	}
	requireValue(t, b, aKey, "", 0)
	if _, err := b.Swap(t.Context(), aKey, second, []byte("x"), 0); !errors.Is(err,
		shared.ErrChanged) {
		t.Errorf("a swap of a removed value: got the error %v, want ErrChanged", err)
	}
	if third := swap(t, b, aKey, 0, "three"); third <= second {
		t.Errorf("after a removal, the generation %d follows %d", third, second)
	}
	large := strings.Repeat("x", shared.MaxValue)
	big := shared.Key{Kind: "large"}
	requireValue(t, b, big, large, swap(t, a, big, 0, large))
}

// Keys that differ in one member, or only in where one member ends, name different values.
func testKeys(t *testing.T, r Replicas) {
	a, b := r.Open(t), r.Open(t)
	keys := []shared.Key{{Kind: "k"}, {Kind: "k", Name: "k"}, {Kind: "k", Principal: "k"},
		{Kind: "kk"}, {Kind: "k", Listed: true}, {Kind: "k", Name: "k", Listed: true},
		{Kind: "k", Principal: "ab", Name: "c"}, {Kind: "k", Principal: "a", Name: "bc"},
		{Kind: "k", Name: shared.Join("a", "b")}, {Kind: "k", Name: shared.Join("ab")},
		{Kind: "k", Name: shared.Join("ab", "")}, {Kind: "k", Name: "a\x00b"}}
	generations := make([]uint64, len(keys))
	for i, k := range keys {
		generations[i] = swap(t, a, k, 0, strconv.Itoa(i))
	}
	for i, k := range keys {
		requireValue(t, b, k, strconv.Itoa(i), generations[i])
	}
}

func testExpiry(t *testing.T, r Replicas) {
	a, b := r.Open(t), r.Open(t)
	kept := shared.Key{Kind: "task", Name: "kept"}
	listed := shared.Key{Kind: "list", Listed: true}
	for _, k := range []shared.Key{aKey, kept, listed} {
		if _, err := a.Swap(t.Context(), k, 0, []byte("x"), ttl); err != nil {
			t.Fatal(err)
		}
	}
	_, g, err := b.Get(t.Context(), kept)
	if err != nil || g == 0 {
		t.Fatalf("before it expires, the value has the generation %d (%v)", g, err)
	}
	g = swap(t, b, kept, g, "y") // without ttl
	before, err := b.List(t.Context(), "list", 0)
	if err != nil || len(before.Entries) != 1 {
		t.Fatalf("before it expires, the listing is %v, %v", before, err)
	}
	r.Wait(ttl + ttl/10)
	requireValue(t, b, aKey, "", 0)
	requireValue(t, b, listed, "", 0)
	requireValue(t, a, kept, "y", g)
	if _, ok, err := a.Take(t.Context(), aKey); ok || err != nil {
		t.Errorf("an expired value is taken (%v)", err)
	}
	after, err := b.List(t.Context(), "list", before.Version)
	if err != nil || !after.Changed || len(after.Entries) != 0 {
		t.Errorf("after it expired, the listing is %v, %v", after, err)
	}
	swap(t, a, aKey, 0, "again")
}

func testTake(t *testing.T, r Replicas) {
	const values = 10_000
	stores := r.three(t)
	key := func(i int) shared.Key {
		return shared.Key{Kind: "approval", Principal: strconv.Itoa(i % 7), Name: strconv.Itoa(i)}
	}
	inParallel(t, stores, values, func(ctx context.Context, s shared.Store, i, store int) error {
		if store != i%3 {
			return nil
		}
		_, err := s.Swap(ctx, key(i), 0, []byte(strconv.Itoa(i)), 0)
		return err
	})
	var taken [values]atomic.Int32
	inParallel(t, stores, values, func(ctx context.Context, s shared.Store, i, _ int) error {
		v, ok, err := s.Take(ctx, key(i))
		if ok {
			taken[i].Add(1)
			if string(v) != strconv.Itoa(i) {
				return fmt.Errorf("value %d is %q", i, v)
			}
		}
		return err
	})
	for i := range taken {
		if n := taken[i].Load(); n != 1 {
			t.Fatalf("value %d was taken %d times, want once", i, n)
		}
	}
	requireValue(t, stores[0], key(0), "", 0)
}

// inParallel calls f for each store and each number below n, with 50 calls of each store at a time.
func inParallel(t *testing.T, stores [3]shared.Store, n int,
	f func(ctx context.Context, s shared.Store, i, store int) error) {
	t.Helper()
	var all sync.WaitGroup
	for store, s := range stores {
		var next atomic.Int64
		for range 50 {
			all.Go(func() {
				for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
					if err := f(t.Context(), s, i, store); err != nil {
						t.Errorf("store %d, call %d: %v", store, i, err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func testSwapRace(t *testing.T, r Replicas) {
	const perStore = 100
	stores := r.three(t)
	inParallel(t, stores, perStore, func(ctx context.Context, s shared.Store, _, _ int) error {
		for {
			v, g, err := s.Get(ctx, aKey)
			if err != nil {
				return err
			}
			n, _ := strconv.Atoi(string(v))
			_, err = s.Swap(ctx, aKey, g, []byte(strconv.Itoa(n+1)), 0)
			if !errors.Is(err, shared.ErrChanged) {
				return err
			}
		}
	})
	v, _, err := stores[0].Get(t.Context(), aKey)
	if want := strconv.Itoa(3 * perStore); err != nil || string(v) != want {
		t.Errorf("after the swaps, the value is %q (%v), want %q", v, err, want)
	}
}
