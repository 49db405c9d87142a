package allowances_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/allowances"
	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
)

// observer notes what a replica is told. It fails while failing is set.
type observer struct {
	mu      sync.Mutex
	failing bool
	events  []string
}

func (o *observer) note(format string, a ...any) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing {
		return errors.New("the log is full")
	}
	o.events = append(o.events, fmt.Sprintf(format, a...))
	return nil
}

func (o *observer) Began(a allowances.Allowance) error { return o.note("began %s", a.Reason) }
func (o *observer) Ended(a allowances.Allowance, expired bool) {
	_ = o.note("ended %s, expired %t", a.Reason, expired)
}
func (o *observer) Unavailable(err error, known int) error {
	return o.note("unavailable %t, %d known", err != nil, known)
}

func (o *observer) want(t *testing.T, want ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.events, want) {
		t.Errorf("the observer was told %q, want %q", o.events, want)
	}
	o.events = nil
}

// replicas are two stores of one shared state.
type replicas struct {
	faulty *sharedtest.Faulty
	a, b   *allowances.Store
	ofA    *observer
	ofB    *observer
}

func newReplicas() *replicas {
	r := &replicas{faulty: sharedtest.NewFaulty(&shared.Memory{}), ofA: &observer{},
		ofB: &observer{}}
	store := func(o *observer) *allowances.Store {
		return &allowances.Store{Key: []byte("secret"), Shared: &allowances.Shared{
			Values: r.faulty, Observer: o}}
	}
	r.a, r.b = store(r.ofA), store(r.ofB)
	return r
}

// new returns an allowance that holds for an hour. Its reason is the text.
func (r *replicas) new(text string) allowances.Allowance {
	now := time.Now()
	return allowances.Allowance{ID: r.a.ID("files", []byte(text)), Reason: text, Made: now,
		Until: now.Add(time.Hour), Log: "/audit.jsonl"}
}

// wait waits until a replica asks the store again.
func wait() { time.Sleep(shared.WatchInterval) }

func TestReplicasShareAllowances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas()
		x := r.new("x")
		if r.b.Holds(x.ID) {
			t.Error("an allowance holds before it was added")
		}
		if err := r.a.Add(x); err != nil {
			t.Fatal(err)
		}
		if !r.a.Holds(x.ID) || r.b.Holds(x.ID) {
			t.Error("it does not hold at its own replica, or the other one asks too often")
		}
		wait()
		for range 2 {
			if !r.b.Holds(x.ID) || !r.b.Use(x.ID) {
				t.Error("it does not hold at the other replica")
			}
		}
		if valid := r.b.Shared.Look(); len(valid) != 1 || valid[0].ID != x.ID {
			t.Errorf("the other replica knows %v", valid)
		}
		if got, err := r.b.Get(x.ID); err != nil || got.Reason != "x" {
			t.Errorf("the other replica gets %v (%v)", got, err)
		}
		// the same decision again, with another reason
		again := x
		again.Reason = "again"
		if err := r.b.Add(again); err != nil {
			t.Fatal(err)
		}
		wait()
		if !r.a.Holds(x.ID) {
			t.Error("the replaced allowance does not hold")
		}
		if err := r.a.Remove(x.ID); err != nil {
			t.Fatal(err)
		}
		if r.a.Holds(x.ID) {
			t.Error("the removed allowance holds at its own replica")
		}
		wait()
		if r.b.Holds(x.ID) {
			t.Error("the removed allowance holds at the other replica")
		}
		r.ofA.want(t, "began again")
		r.ofB.want(t, "began x", "ended again, expired false")
		if err := r.b.Remove(x.ID); !errors.Is(err, allowances.ErrNone) {
			t.Errorf("removed twice: %v", err)
		}
	})
}

func TestSharedAllowanceExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas()
		x, y := r.new("x"), r.new("y")
		y.Until = y.Until.Add(-time.Minute)
		for _, a := range []allowances.Allowance{x, y} {
			if err := r.a.Add(a); err != nil {
				t.Fatal(err)
			}
		}
		wait()
		if valid := r.b.Shared.Look(); len(valid) != 2 || valid[0].ID != y.ID {
			t.Errorf("the allowances are %v, want both in the order of expiry", valid)
		}
		time.Sleep(time.Until(x.Until) - time.Millisecond)
		r.b.Shared.Look()
		time.Sleep(time.Millisecond)
		// the store is not asked again yet
		for _, s := range []*allowances.Store{r.a, r.b} {
			if s.Holds(x.ID) || s.Use(x.ID) || s.Holds(y.ID) {
				t.Error("an allowance holds after its end")
			}
		}
		r.ofB.mu.Lock()
		slices.Sort(r.ofB.events[:2])
		r.ofB.mu.Unlock()
		r.ofB.want(t, "began x", "began y", "ended y, expired true", "ended x, expired true")
		if valid, expired, err := r.b.List(); err != nil || len(valid)+len(expired) > 0 {
			t.Errorf("the list is %v and %v (%v), want none", valid, expired, err)
		}
	})
}

func TestSharedOnceIsUsedByOneReplica(t *testing.T) {
	r := newReplicas()
	x := r.new("x")
	x.Once = true
	if err := r.a.Add(x); err != nil {
		t.Fatal(err)
	}
	used := make(chan bool, 40)
	var wg sync.WaitGroup
	for i := range cap(used) {
		s := []*allowances.Store{r.a, r.b}[i%2]
		wg.Go(func() { used <- s.Use(x.ID) })
	}
	wg.Wait()
	close(used)
	n := 0
	for ok := range used {
		if ok {
			n++
		}
	}
	if n != 1 || r.a.Holds(x.ID) {
		t.Errorf("used %d times, want once", n)
	}
}

// A replica whose use comes too late learns at once that the allowance does not hold any more.
func TestSharedOnceIsUsedElsewhere(t *testing.T) {
	for name, end := range map[string]func(r *replicas, id string){
		"used": func(r *replicas, id string) { r.b.Use(id) },
		"lost": func(r *replicas, _ string) { r.faulty.Lose() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplicas()
			x := r.new("x")
			x.Once = true
			if err := r.a.Add(x); err != nil {
				t.Fatal(err)
			}
			if !r.a.Holds(x.ID) {
				t.Error("the allowance does not hold")
			}
			end(r, x.ID)
			if r.a.Use(x.ID) || r.a.Holds(x.ID) {
				t.Error("the allowance holds still")
			}
			r.ofA.want(t, "ended x, expired false")
		})
	}
}

// Without the store, nothing is allowed; what was allowed holds again when it is back, but not what
// was removed meanwhile.
func TestNothingIsAllowedWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas()
		x, y := r.new("x"), r.new("y")
		y.Once = true
		for _, a := range []allowances.Allowance{x, y} {
			if err := r.a.Add(a); err != nil {
				t.Fatal(err)
			}
		}
		r.faulty.Fail(shared.ErrUnavailable)
		if r.a.Use(y.ID) {
			t.Error("an allowance for one message is used without the store")
		}
		for range 2 {
			wait()
			if r.a.Holds(x.ID) || r.a.Use(x.ID) || len(r.a.Shared.Look()) > 0 {
				t.Error("an allowance holds without the store")
			}
		}
		for name, err := range map[string]error{"add": r.a.Add(r.new("z")),
			"remove": r.a.Remove(x.ID)} {
			if !errors.Is(err, shared.ErrUnavailable) {
				t.Errorf("%s without the store: %v", name, err)
			}
		}
		if _, _, err := r.a.List(); !errors.Is(err, shared.ErrUnavailable) {
			t.Errorf("list without the store: %v", err)
		}
		if r.b.Holds(x.ID) { // b knows nothing yet
			t.Error("an allowance holds at a replica that never saw the store")
		}
		r.ofA.want(t, "unavailable true, 2 known")
		r.faulty.Fail(nil)
		wait()
		if err := r.b.Remove(x.ID); err != nil {
			t.Fatal(err)
		}
		if r.a.Holds(x.ID) || !r.a.Holds(y.ID) || !r.a.Use(y.ID) {
			t.Error("after the failure, the allowances of the store do not hold")
		}
		r.ofA.want(t, "ended x, expired false", "unavailable false, 1 known")
	})
}

func TestLostAllowancesDoNotHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas()
		x := r.new("x")
		if err := r.a.Add(x); err != nil {
			t.Fatal(err)
		}
		r.faulty.Lose()
		for range 2 {
			wait()
			if r.a.Holds(x.ID) {
				t.Error("an allowance holds that the store has lost")
			}
		}
		r.ofA.want(t, "unavailable true, 1 known", "ended x, expired false")
	})
}

// What cannot be recorded has no effect, until it can be.
func TestUnrecordedAllowanceDoesNotHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas()
		x, y := r.new("x"), r.new("y")
		r.ofB.failing = true
		if err := r.a.Add(x); err != nil {
			t.Fatal(err)
		}
		if r.b.Holds(x.ID) || r.b.Use(x.ID) {
			t.Error("an allowance holds that was not recorded")
		}
		r.ofB.failing = false
		wait()
		if !r.b.Holds(x.ID) {
			t.Error("the allowance does not hold when it is recorded")
		}
		r.faulty.Fail(shared.ErrUnavailable)
		wait()
		r.b.Holds(x.ID)
		r.faulty.Fail(nil)
		r.ofB.failing = true
		wait()
		if r.b.Holds(x.ID) {
			t.Error("an allowance holds again, and that was not recorded")
		}
		r.ofB.failing = false
		if err := r.a.Add(y); err != nil {
			t.Fatal(err)
		}
		wait()
		if !r.b.Holds(x.ID) || !r.b.Holds(y.ID) {
			t.Error("the allowances do not hold when they are recorded")
		}
	})
}

func TestSharedAllowancesAreBounded(t *testing.T) {
	r := newReplicas()
	for i := range shared.MaxListed {
		a := r.new(fmt.Sprint(i))
		value, err := json.Marshal(a)
		if err == nil { // Add would list all of them each time
			_, err = r.faulty.Swap(t.Context(), shared.Key{Kind: "allowance", Name: a.ID,
				Listed: true}, 0, value, time.Hour)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.a.CanAdd(r.new("more")); err == nil || !strings.Contains(err.Error(), "stored") {
		t.Errorf("one more: %v", err)
	}
	again := r.new("7")
	again.Name = strings.Repeat("n", 1<<20)
	if err := r.a.Add(again); err != nil {
		t.Errorf("one again, with a long name: %v", err)
	}
}
