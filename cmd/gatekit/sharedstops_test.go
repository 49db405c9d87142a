package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
	"gatekit/core/stop"
)

// A stop reaches the others also if it is the first to notice a loss.
func TestStopThatNoticesALoss(t *testing.T) {
	store := sharedtest.NewFaulty(&shared.Memory{})
	store.Lose()
	box := stop.Stop{Scope: stop.Scope{Server: "box"}}
	if err := publishStop(t.Context(), store, box); err != nil {
		t.Error(err)
	}
	l, err := store.List(t.Context(), stopKind, 0)
	if err != nil || len(l.Entries) != 1 {
		t.Errorf("%d stops are shared (%v), want 1", len(l.Entries), err)
	}
}

// fullStore takes no values while it is full, and can be read.
type fullStore struct {
	shared.Store
	full atomic.Bool
}

func (s *fullStore) Swap(ctx context.Context, k shared.Key, was uint64, value []byte,
	ttl time.Duration) (uint64, error) {
	if s.full.Load() {
		return 0, shared.ErrUnavailable
	}
	return s.Store.Swap(ctx, k, was, value, ttl)
}

// A stop that cannot be shared, because the server is full, stops what it covers and nothing else.
// It is shared as soon as this is possible.
func TestStopThatCannotBeShared(t *testing.T) {
	events := pipeline.New(&actionRecorder{}, pipeline.Options{})
	p, err := proxy.New(proxy.Options{Pipeline: events, Servers: []proxy.ServerConfig{
		{Name: "box"}, {Name: "other"}}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		store := &fullStore{Store: &shared.Memory{}}
		g := &gateway{log: slog.New(slog.NewTextHandler(&log, nil)), stops: stop.Open(""),
			recording: &recording{events: events}, proxy: p}
		g.sharedStops = &sharedStops{gateway: g,
			sharedListing: sharedListing{store: store, kind: stopKind}}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { g.sharedStops.follow(ctx) })
		isStopped := func(server string) bool {
			return g.stops.Gate.Refuses(&mcp.Message{Server: server}) != nil
		}
		store.full.Store(true)
		_, err := g.stopTraffic(stop.Stop{Scope: stop.Scope{Server: "box"}, At: time.Now(),
			By: "operator", Reason: "an incident"})
		if err == nil || !strings.Contains(err.Error(), "not yet in the others") {
			t.Errorf("the stop has the error %v", err)
		}
		time.Sleep(3 * stopsKnownFor)
		if !isStopped("box") || isStopped("other") {
			t.Errorf("box is stopped: %t, other: %t; want only box", isStopped("box"),
				isStopped("other"))
		}
		store.full.Store(false)
		time.Sleep(4 * shared.WatchInterval)
		l, err := store.List(t.Context(), stopKind, 0)
		if err != nil || len(l.Entries) != 1 {
			t.Errorf("%d stops are shared (%v), want 1", len(l.Entries), err)
		}
		cancel()
		running.Wait()
		for _, text := range []string{"a stop of this replica is not shared",
			"all stops of this replica are shared again"} {
			if n := strings.Count(log.String(), text); n != 1 {
				t.Errorf("%q is logged %d times, want once", text, n)
			}
		}
	})
}
