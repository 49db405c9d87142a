package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gatekit/core/config"
	"gatekit/core/pipeline"
	"gatekit/core/shared"
	"gatekit/transport/auth"
)

const (
	// revocationKind is the kind of the shared values that are revocations.
	revocationKind = "revocation"
	// revocationsKnownFor is how long a replica accepts clients without knowing the revocations of
	// the others.
	revocationsKnownFor = 10 * time.Second
)

// sharedRevocations shares the revocations of a gateway with the other replicas, as sharedStops
// does with stops. The nil *sharedRevocations shares nothing.
type sharedRevocations struct {
	revocations *auth.Revocations
	events      *pipeline.Pipeline
	// revoked ends what a principal has open, after another replica has revoked it; may be nil
	revoked func(principal string)
	log     *slog.Logger

	mu sync.Mutex // held while a revocation begins or ends
	sharedListing
	failure error // of the last look at the revocations of the others
}

// openSharedRevocations gets the revocations of the other replicas. state may be nil.
func openSharedRevocations(ctx context.Context, state shared.Store, own *auth.Revocations,
	events *pipeline.Pipeline, log *slog.Logger) (*sharedRevocations, error) {
	if state == nil {
		return nil, nil
	}
	s := &sharedRevocations{revocations: own, events: events, log: log,
		sharedListing: openSharedListing(state, revocationKind, func(lost time.Time) bool {
			return slices.ContainsFunc(own.All(), func(r auth.Revocation) bool {
				return r.At.Before(lost)
			})
		})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.update(ctx, s.log, s.apply); err != nil {
		return nil, fmt.Errorf("get the revocations of the other replicas: %w", err)
	}
	return s, nil
}

// follow looks at the revocations of the other replicas until ctx ends.
func (s *sharedRevocations) follow(ctx context.Context) {
	repeat(ctx, shared.WatchInterval, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.update(ctx, s.log, s.apply); ctx.Err() == nil {
			s.note(err)
		}
	})
}

// note takes the result of a look at the revocations of the others. If they have not been known for
// too long, no client is accepted.
func (s *sharedRevocations) note(err error) {
	switch {
	case err == nil && s.failure != nil:
		s.log.Info("the revocations of the other replicas are known again")
	case err != nil && s.failure == nil:
		s.log.Error("the revocations of the other replicas are not known", "error", err,
			"refuses clients in", revocationsKnownFor)
	}
	s.failure = err
	if err != nil && time.Since(s.known) < revocationsKnownFor {
		return
	}
	s.revocations.SetUnknown(err)
}

// apply makes the revocations of this replica those of the listing. It returns unshared if the
// others do not know all of them.
func (s *sharedRevocations) apply(ctx context.Context, entries []shared.Entry) (unshared,
	err error) {
	listed := map[string]bool{}
	var errs, notPublished []error
	for _, e := range entries {
		x, err := decodeRevocation(e)
		if err != nil {
			return nil, err
		}
		own, isKnown := s.revocations.Get(x.Principal)
		switch {
		case isKnown && !own.Shared && own.At.After(x.At): // a newer one, not shared yet
			continue
		case !isKnown || !own.Shared || own.At.Before(x.At):
			errs = append(errs, s.begin(x))
		}
		listed[x.Principal] = true
	}
	for _, own := range s.revocations.All() {
		switch {
		case listed[own.Principal]:
		case own.Shared && !s.republish:
			errs = append(errs, s.end(own.Principal))
		default:
			notPublished = append(notPublished, s.publish(ctx, own))
		}
	}
	return errors.Join(notPublished...), errors.Join(errs...)
}

func decodeRevocation(e shared.Entry) (x auth.Revocation, err error) {
	if err = json.Unmarshal(e.Value, &x); err != nil {
		err = fmt.Errorf("read a shared revocation: %w", err)
	}
	x.Shared = true
	return x, err
}

// begin puts a revocation of another replica in force, whether or not it can be recorded.
func (s *sharedRevocations) begin(x auth.Revocation) error {
	reason := fmt.Sprintf("in another replica, user id %d: %s", x.User, x.Reason)
	err := recordRevocation(s.events, x.Principal, "revoke", reason, nil)
	if err != nil {
		s.log.Error("the revocation of another replica is in force, but not recorded",
			"principal", x.Principal, "error", err)
	}
	if err := s.revocations.Add(x); err != nil {
		return err
	}
	if s.revoked != nil {
		s.revoked(x.Principal)
	}
	return nil
}

// end ends a revocation that another replica has ended.
func (s *sharedRevocations) end(principal string) error {
	if err := recordRevocation(s.events, principal, "readmit", "in another replica",
		nil); err != nil {
		return fmt.Errorf("record the removal: %w", err)
	}
	return s.revocations.Remove(principal)
}

func revocationKey(principal string) shared.Key {
	return shared.Key{Kind: revocationKind, Principal: principal, Listed: true}
}

// publish tells the other replicas of a revocation. If it fails, follow tries again. s.mu is held.
func (s *sharedRevocations) publish(ctx context.Context, x auth.Revocation) error {
	x.Shared = true
	value, err := json.Marshal(x)
	if err == nil {
		err = put(ctx, s.store, revocationKey(x.Principal), value, 0)
	}
	if err != nil {
		s.seen = 0 // so that the next update applies, and tries again
		return fmt.Errorf("the revocation is in force in this replica, and not yet in the others: "+
			"%w", err)
	}
	return s.revocations.Add(x)
}

// revoke makes a revocation with add, and tells the other replicas.
func (s *sharedRevocations) revoke(ctx context.Context, principal string,
	add func() error) error {
	if s == nil {
		return add()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := add()
	if x, ok := s.revocations.Get(principal); ok && !x.Shared {
		err = errors.Join(err, s.publish(ctx, x))
	}
	return err
}

// readmit tells the other replicas that a revocation has ended, and ends it with remove.
func (s *sharedRevocations) readmit(ctx context.Context, principal string,
	remove func() error) error {
	if s == nil {
		return remove()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, _, err := s.store.Take(ctx, revocationKey(principal)); err != nil {
		return fmt.Errorf("the revocation stays in force, because the other replicas could not be "+
			"told: %w", err)
	}
	err := remove()
	if errors.Is(err, fs.ErrNotExist) { // another replica has ended it, too
		return nil
	}
	return err
}

// revocationsOf returns the revoked principals of a configuration: those of all replicas, or else
// those of the Gatekit that writes its log. They must not be changed.
func revocationsOf(ctx context.Context, c *config.Config) (*auth.Revocations, error) {
	if c.Shared == nil {
		return openRevocations(c.Audit.File)
	}
	state, closeState, err := dialShared(ctx, c)
	if err != nil {
		return nil, err
	}
	defer closeState()
	l, err := state.List(ctx, revocationKind, 0)
	if err != nil {
		return nil, fmt.Errorf("get the revocations of the replicas: %w", err)
	}
	var all []auth.Revocation
	for _, e := range l.Entries {
		x, err := decodeRevocation(e)
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return auth.NewRevocations(all), nil
}
