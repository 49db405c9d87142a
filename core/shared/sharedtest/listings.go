package sharedtest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"gatekit/core/shared"
)

func testList(t *testing.T, r Replicas) {
	a, b := r.Open(t), r.Open(t)
	list := func(s shared.Store, seen uint64) shared.Listing {
		t.Helper()
		l, err := s.List(t.Context(), "stop", seen)
		if err != nil || l.Version == 0 || l.Changed != (l.Version != seen) {
			t.Fatalf("List(%d) = %+v, %v", seen, l, err)
		}
		return l
	}
	empty := list(a, 0)
	if len(empty.Entries) != 0 || list(b, empty.Version).Changed {
		t.Errorf("the empty listing is %+v, and changes", empty)
	}
	one := shared.Key{Kind: "stop", Principal: "p", Name: "one", Listed: true}
	two := shared.Key{Kind: "stop", Name: "two", Listed: true}
	g1 := swap(t, a, one, 0, "1")
	swap(t, b, two, 0, "2")
	swap(t, b, shared.Key{Kind: "stop", Name: "unlisted"}, 0, "x")
	swap(t, b, shared.Key{Kind: "other", Name: "one", Listed: true}, 0, "x")
	g1 = swap(t, b, one, g1, "1b")
	l := list(a, empty.Version)
	names := func(l shared.Listing) (all []string) {
		for _, e := range l.Entries {
			all = append(all, e.Key.Kind+"/"+e.Key.Principal+"/"+e.Key.Name+"="+string(e.Value))
			if !e.Key.Listed {
				t.Errorf("the key of %s is not listed", e.Value)
			}
		}
		return all
	}
	if got, want := names(l), []string{"stop//two=2", "stop/p/one=1b"}; !slices.Equal(got, want) {
		t.Fatalf("the listing is %q, want %q", got, want)
	}
	if l.Entries[1].Generation != g1 {
		t.Errorf("the generation of an entry is %d, want %d", l.Entries[1].Generation, g1)
	}
	if again := list(b, l.Version); again.Changed || len(again.Entries) != 0 {
		t.Errorf("without a change, the listing is %+v", again)
	}
	if _, err := a.Swap(t.Context(), one, g1, nil, 0); err != nil {
		t.Fatal(err)
	}
	l = list(b, l.Version)
	if got, want := names(l), []string{"stop//two=2"}; !slices.Equal(got, want) {
		t.Errorf("after a removal, the listing is %q, want %q", got, want)
	}
	if _, ok, err := b.Take(t.Context(), two); !ok || err != nil {
		t.Fatal(err)
	}
	if l = list(a, l.Version); !l.Changed || len(l.Entries) != 0 {
		t.Errorf("after the last was taken, the listing is %+v", l)
	}
}

func testWatch(t *testing.T, r Replicas) {
	a, b := r.Open(t), r.Open(t)
	key := shared.Key{Kind: "stop", Name: "one", Listed: true}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	for l, err := range shared.Watch(ctx, a, "stop") {
		if err != nil {
			t.Fatal(err)
		}
		if !l.Changed {
			continue
		}
		text := ""
		for _, e := range l.Entries {
			text += string(e.Value)
		}
		switch got = append(got, text); len(got) {
		case 1:
			swap(t, b, key, 0, "x")
		case 2:
			if _, _, err := b.Take(ctx, key); err != nil {
				t.Fatal(err)
			}
		case 3:
			cancel()
		}
	}
	if want := []string{"", "x", ""}; !slices.Equal(got, want) {
		t.Errorf("the watch saw %q, want %q", got, want)
	}
}

func testLock(t *testing.T, r Replicas) {
	a, b := r.Open(t), r.Open(t)
	key := shared.Key{Kind: "refresh", Principal: "p"}
	first, err := shared.Lock(t.Context(), a, key, ttl)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := shared.Lock(short, b, key, ttl); !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, shared.ErrUnavailable) {
		t.Errorf("a second holder gets the error %v, want that of the context", err)
	}
	r.Wait(ttl + ttl/10)
	second, err := shared.Lock(t.Context(), b, key, time.Hour) // the first has expired
	if err != nil {
		t.Fatal(err)
	}
	if second.Fence <= first.Fence {
		t.Errorf("the fence %d follows %d", second.Fence, first.Fence)
	}
	if err := first.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if _, g, err := a.Get(t.Context(), key); err != nil || g != second.Fence {
		t.Errorf("the first holder has ended the lock of the second one (%v)", err)
	}
	if err := second.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	third, err := shared.Lock(t.Context(), a, key, ttl)
	if err != nil {
		t.Fatal(err)
	}
	if third.Fence <= second.Fence {
		t.Errorf("the fence %d follows %d", third.Fence, second.Fence)
	}
}
