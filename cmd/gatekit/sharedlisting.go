package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"gatekit/core/shared"
)

// sharedListing has the listed values of a kind, which each replica also keeps for itself. After a
// loss of shared state, the replicas share them again.
type sharedListing struct {
	store shared.Store
	kind  string

	known time.Time // when the values of the others were known last
	seen  uint64    // the version of the listing that was applied last
	// republish is set after a loss: values that are missing have not been ended, and are shared
	// again
	republish bool
	lost      time.Time // the last loss that republish was set for
	unshared  error     // why the others do not know a value of this replica, as it was logged last
}

// openSharedListing returns the listing of a kind. hasOlder reports whether this replica keeps a
// value from before a time: after a loss, it may not have been shared again since. The time of a
// value is by the clock of the replica that made it, which may be ahead.
func openSharedListing(store shared.Store, kind string,
	hasOlder func(lost time.Time) bool) sharedListing {
	lost := store.Lost()
	return sharedListing{store: store, kind: kind, lost: lost,
		republish: !lost.IsZero() && hasOlder(lost.Add(clockSkew))}
}

// putAttempts is how often put tries to write a value while others write it, too.
const putAttempts = 5

// put writes a value in place of the one that is there.
func put(ctx context.Context, v shared.Values, k shared.Key, value []byte,
	ttl time.Duration) (err error) {
	for range putAttempts {
		var was uint64
		_, was, err = v.Get(ctx, k)
		if err == nil {
			_, err = v.Swap(ctx, k, was, value, ttl)
		}
		if !errors.Is(err, shared.ErrChanged) && !errors.Is(err, shared.ErrLost) {
			break
		}
	}
	return err
}

// update gets the listing, and calls apply if it has changed. apply returns unshared if the others
// do not know all values of this replica: then the next update calls it again. These values are in
// force here all the same, so update returns no error.
func (s *sharedListing) update(ctx context.Context, log *slog.Logger,
	apply func(context.Context, []shared.Entry) (unshared, err error)) error {
	l, err := s.list(ctx)
	if errors.Is(err, shared.ErrLost) { // the next call uses the store as it is now
		l, err = s.list(ctx)
	}
	if err != nil {
		return err
	}
	seen := l.Version
	if l.Changed {
		unshared, err := apply(ctx, l.Entries)
		if err != nil {
			return err
		}
		s.noteUnshared(log, unshared)
		if s.republish = s.republish && unshared != nil; unshared != nil {
			seen = 0
		}
	}
	s.seen, s.known = seen, time.Now()
	return nil
}

// list gets the listing, and notices whether the store has lost it.
func (s *sharedListing) list(ctx context.Context) (shared.Listing, error) {
	l, err := s.store.List(ctx, s.kind, s.seen)
	// Another user of the store may have got shared.ErrLost instead of List.
	if lost := s.store.Lost(); errors.Is(err, shared.ErrLost) || lost.After(s.lost) {
		s.republish, s.seen, s.lost = true, 0, lost
	}
	return l, err
}

// noteUnshared logs whether the other replicas know all values of this one.
func (s *sharedListing) noteUnshared(log *slog.Logger, err error) {
	switch {
	case err != nil && s.unshared == nil:
		log.Error("a "+s.kind+" of this replica is not shared", "error", err, "hint",
			"until it is, run the same command beside each of the other replicas")
	case err == nil && s.unshared != nil:
		log.Info("all " + s.kind + "s of this replica are shared again")
	}
	s.unshared = err
}
