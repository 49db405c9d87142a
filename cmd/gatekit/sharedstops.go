package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"gatekit/core/shared"
	"gatekit/core/stop"
)

const (
	// byGatekit names Gatekit in a stop of its own, as package stop does.
	byGatekit = "Gatekit"
	// stopKind is the kind of the shared values that are stops.
	stopKind = "stop"
	// stopsKnownFor is how long a replica serves clients without knowing the stops of the others.
	stopsKnownFor = 10 * time.Second
)

// sharedStops shares the stops of a gateway with the other replicas. A stop is a listed value. The
// nil *sharedStops shares nothing.
//
// The stops of this replica's Keeper are those of all replicas. A stop that is not among the shared
// values was ended by another replica if it was there before, and is shared otherwise: it was made
// while the server was away, or while this replica did not run.
type sharedStops struct {
	gateway   *gateway
	following *background

	// the following is guarded by gateway.stopping

	sharedListing
	failure   error // of the last look at the stops of the others
	isUnknown bool  // everything is stopped because of failure
}

// openSharedStops gets the stops of the other replicas, and follows them from then on.
func (g *gateway) openSharedStops(ctx context.Context) error {
	store := g.sharedStore()
	if store == nil {
		return nil
	}
	s := &sharedStops{gateway: g,
		sharedListing: openSharedListing(store, stopKind, func(lost time.Time) bool {
			return slices.ContainsFunc(g.stops.List(), func(x stop.Stop) bool {
				return x.At.Before(lost)
			})
		})}
	g.stopping.Lock()
	err := s.sync(ctx)
	g.sharedStops = s
	g.stopping.Unlock()
	if err != nil {
		g.sharedStops = nil
		return fmt.Errorf("get the stops of the other replicas: %w", err)
	}
	s.following = startBackground(ctx, s.follow)
	return nil
}

func (g *gateway) closeSharedStops() error {
	if s := g.sharedStops; s != nil {
		s.following.stop()
	}
	return nil
}

// follow looks at the stops of the other replicas until ctx ends.
func (s *sharedStops) follow(ctx context.Context) {
	repeat(ctx, shared.WatchInterval, func() {
		s.gateway.stopping.Lock()
		defer s.gateway.stopping.Unlock()
		if err := s.sync(ctx); err != nil && ctx.Err() == nil {
			s.failed(err)
		}
	})
}

// failed stops everything if the stops of the others have not been known for too long.
func (s *sharedStops) failed(err error) {
	g := s.gateway
	if s.failure == nil {
		g.log.Error("the stops of the other replicas are not known", "error", err,
			"stops everything in", stopsKnownFor)
	}
	s.failure = err
	if s.isUnknown || time.Since(s.known) < stopsKnownFor {
		return
	}
	s.isUnknown = true
	x := stop.Stop{By: byGatekit, At: time.Now(), Reason: "the stops of the other replicas are " +
		"not known, because shared state is not available"}
	if _, err := g.enforceStop(x, g.stops.SetUnknown(&x)); err != nil {
		g.log.Error("stop not recorded", "error", err)
	}
}

// sync applies the stops of the other replicas to this one. gateway.stopping must be held.
func (s *sharedStops) sync(ctx context.Context) error {
	if err := s.update(ctx, s.gateway.log, s.apply); err != nil {
		return err
	}
	if s.failure != nil {
		s.gateway.log.Info("the stops of the other replicas are known again")
		s.failure = nil
	}
	if s.isUnknown {
		return s.endUnknown()
	}
	return nil
}

// endUnknown ends the stop of everything that failed has begun.
func (s *sharedStops) endUnknown() error {
	g := s.gateway
	x := stop.Stop{By: byGatekit, At: s.known, Reason: "the stops of the other replicas were not " +
		"known"}
	if err := recordResume(g.recording.events, []stop.Stop{x}, byGatekit); err != nil {
		return err
	}
	s.isUnknown = false
	g.stops.SetUnknown(nil)
	g.proxy.Resumed(x)
	return nil
}

// apply makes the stops of this replica those of the listing. It returns unshared if the others do
// not know all of them.
func (s *sharedStops) apply(ctx context.Context, entries []shared.Entry) (unshared, err error) {
	g := s.gateway
	stops, err := decodeStops(entries)
	if err != nil {
		return nil, err
	}
	listed := map[stop.Scope]bool{}
	for _, x := range stops {
		listed[x.Scope] = true
		i := slices.IndexFunc(g.stops.List(), func(o stop.Stop) bool {
			return o.Scope == x.Scope && o.Shared
		})
		if i >= 0 {
			continue
		}
		if err := s.begin(x); err != nil {
			return nil, err
		}
	}
	var errs, notPublished []error
	for _, x := range g.stops.List() {
		switch {
		case listed[x.Scope] || x.By == byGatekit: // a fault of this replica alone
		case x.Shared && !s.republish:
			errs = append(errs, s.end(x))
		default:
			notPublished = append(notPublished, s.publish(ctx, x))
		}
	}
	return errors.Join(notPublished...), errors.Join(errs...)
}

// decodeStops returns the shared stops of a listing.
func decodeStops(entries []shared.Entry) (all []stop.Stop, err error) {
	for _, e := range entries {
		var x stop.Stop
		if err := json.Unmarshal(e.Value, &x); err != nil {
			return nil, fmt.Errorf("read a shared stop: %w", err)
		}
		x.Shared = true
		all = append(all, x)
	}
	return all, nil
}

// begin puts a stop of another replica in force.
func (s *sharedStops) begin(x stop.Stop) error {
	drained, err := s.gateway.stops.Stop(x)
	if drained == nil {
		return err
	}
	_, enforceErr := s.gateway.enforceStop(x, drained)
	if err = errors.Join(err, enforceErr); err != nil { // it is in force all the same
		s.gateway.log.Error("the stop of another replica is in force, but not stored or recorded",
			"scope", x.Scope.String(), "error", err)
	}
	return nil
}

// end ends a stop that another replica has ended.
func (s *sharedStops) end(x stop.Stop) error {
	g := s.gateway
	err := g.stops.Resume(x.Scope, false, func(stops []stop.Stop) error {
		return recordResume(g.recording.events, stops, "another replica")
	})
	if err != nil {
		return err
	}
	g.proxy.Resumed(x)
	g.log.Info("traffic resumed", "scope", x.Scope.String(), "by", "another replica")
	return nil
}

// stopKey returns the key of a stop.
func stopKey(s stop.Scope) shared.Key {
	return shared.Key{Kind: stopKind, Name: shared.Join(s.Server, s.Principal, s.Session),
		Listed: true}
}

// publish tells the other replicas of a stop. If it fails, follow tries again. gateway.stopping
// must be held.
func (s *sharedStops) publish(ctx context.Context, x stop.Stop) error {
	if s == nil {
		return nil
	}
	if err := publishStop(ctx, s.store, x); err != nil {
		s.seen = 0 // so that the next sync applies, and tries again
		return fmt.Errorf("the stop is in force in this replica, and not yet in the others: %w",
			err)
	}
	x.Shared = true
	if _, err := s.gateway.stops.Stop(x); err != nil {
		return fmt.Errorf("store that the stop is shared: %w", err)
	}
	return nil
}

// publishStop stores a stop for all replicas.
func publishStop(ctx context.Context, v shared.Values, x stop.Stop) error {
	x.Shared = true
	value, err := json.Marshal(x)
	if err != nil {
		return err
	}
	_, err = v.Swap(ctx, stopKey(x.Scope), 0, value, 0)
	if errors.Is(err, shared.ErrLost) { // the next call uses the store as it is now
		_, err = v.Swap(ctx, stopKey(x.Scope), 0, value, 0)
	}
	if errors.Is(err, shared.ErrChanged) { // another replica has stopped the same
		err = nil
	}
	return err
}

// withdraw tells the other replicas that stops have ended. gateway.stopping must be held.
func (s *sharedStops) withdraw(ctx context.Context, stops []stop.Stop) error {
	if s == nil {
		return nil
	}
	return withdrawStops(ctx, s.store, stops)
}

// withdrawStops removes stops for all replicas.
func withdrawStops(ctx context.Context, v shared.Values, stops []stop.Stop) error {
	for _, x := range stops {
		if _, _, err := v.Take(ctx, stopKey(x.Scope)); err != nil {
			return fmt.Errorf("the stop stays in force, because the other replicas could not be "+
				"told: %w", err)
		}
	}
	return nil
}
