package shared_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
)

func TestMemory(t *testing.T) {
	sharedtest.Run(t, func(t *testing.T, test func(*testing.T, sharedtest.Replicas)) {
		synctest.Test(t, func(t *testing.T) {
			var m shared.Memory
			test(t, sharedtest.Replicas{Open: func(*testing.T) shared.Store { return &m },
				Wait: time.Sleep})
		})
	})
}

func TestFaultyMemory(t *testing.T) {
	sharedtest.Run(t, func(t *testing.T, test func(*testing.T, sharedtest.Replicas)) {
		synctest.Test(t, func(t *testing.T) {
			f := sharedtest.NewFaulty(&shared.Memory{})
			test(t, sharedtest.Replicas{Open: func(*testing.T) shared.Store { return f },
				Wait: time.Sleep})
		})
	})
}

// A full Memory refuses what is new, keeps what it has, and has room again when something expires.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		fill := map[string]func(m *shared.Memory, i int, ttl time.Duration) error{
			"values": func(m *shared.Memory, i int, ttl time.Duration) error {
				_, err := m.Swap(ctx, shared.Key{Kind: "v", Name: strconv.Itoa(i)}, 0,
					make([]byte, 100), ttl)
				return err
			},
			"limits": func(m *shared.Memory, i int, ttl time.Duration) error {
				_, err := m.Admit(ctx, shared.Admission{Limits: []shared.Limit{{Key: shared.Key{
					Kind: "l", Name: strconv.Itoa(i)}, Rate: 1, Per: ttl, Burst: 1}}})
				return err
			},
			"leases": func(m *shared.Memory, i int, ttl time.Duration) error {
				_, err := m.Admit(ctx, shared.Admission{Limits: []shared.Limit{{Key: shared.Key{
					Kind: "l"}, Concurrent: 1000}}, Lease: strconv.Itoa(i), TTL: ttl})
				return err
			},
			"counts": func(m *shared.Memory, i int, ttl time.Duration) error {
				_, err := m.Track(ctx, shared.Key{Kind: "t", Name: strconv.Itoa(i)}, shared.Change{
					Counts: map[string]int{"x": 1}, Labels: []string{"y"}, TTL: ttl, Minute: true})
				return err
			},
		}
		for name, add := range fill {
			m := &shared.Memory{MaxBytes: 100_000}
			n := 0
			var err error
			for ; err == nil && n < 10_000; n++ {
				err = add(m, n, time.Minute)
			}
			if !errors.Is(err, shared.ErrUnavailable) || n < 100 || n > 600 {
				t.Errorf("%s: after %d, got the error %v, want ErrUnavailable", name, n, err)
			}
			time.Sleep(time.Minute + time.Second)
			for i := range n - 1 {
				if err := add(m, i, time.Minute); err != nil {
					t.Fatalf("%s: after all have expired, %d: %v", name, i, err)
				}
			}
		}
	})
}

// Watch goes on after errors, and lists again what it may have missed.
func TestWatchGoesOnAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := sharedtest.NewFaulty(&shared.Memory{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		key := shared.Key{Kind: "stop", Listed: true}
		began, step := time.Now(), 0
		var steps []string
		for l, err := range shared.Watch(ctx, f, "stop") {
			steps = append(steps, map[bool]string{true: "changed", false: "same"}[l.Changed])
			if err != nil {
				steps[step] = err.Error()
			}
			switch step++; step {
			case 2:
				f.Fail(shared.ErrUnavailable)
			case 4:
				f.Fail(nil)
				if _, err := f.Swap(ctx, key, 0, []byte("x"), 0); err != nil {
					t.Fatal(err)
				}
			case 6:
				f.Lose()
			case 8:
				cancel()
			}
		}
		want := []string{"changed", "same", shared.ErrUnavailable.Error(),
			shared.ErrUnavailable.Error(), "changed", "same", shared.ErrLost.Error(), "changed"}
		for i := range want {
			if i >= len(steps) || steps[i] != want[i] {
				t.Fatalf("the watch yielded %q, want %q", steps, want)
			}
		}
		if took := time.Since(began); took < 7*shared.WatchInterval ||
			took > 8*shared.WatchInterval {
			t.Errorf("eight listings took %v", took)
		}
	})
}
