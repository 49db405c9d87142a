package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gatekit/audit"
	"gatekit/audit/telemetry"
	"gatekit/core/shared"
	"gatekit/transport/cluster"
)

const (
	// replicaKind is the kind of the shared values that describe replicas.
	replicaKind = "replica"
	// rosterInterval is how often a replica describes itself if nothing has changed.
	rosterInterval = time.Minute
	// rosterSilent is the age of a description after which the replica may have ended.
	rosterSilent = 3 * rosterInterval
	// rosterTTL is how long the last description of a replica that has ended is kept. The logs of
	// the others name its log for ever.
	rosterTTL = 24 * time.Hour
	// rosterLook is how often a replica looks at the descriptions of the others.
	rosterLook = time.Second
)

// replicaEntry is how a replica describes itself to the others.
type replicaEntry struct {
	Name          string             `json:"name"`
	Log           *audit.RosterEntry `json:"log,omitempty"`
	Configuration string             `json:"configuration"` // digests
	Policies      string             `json:"policies,omitempty"`
	At            time.Time          `json:"at"`
	Ended         bool               `json:"ended,omitempty"`
}

func (e *replicaEntry) state() replicaState { return replicaState{e.Configuration, e.Policies} }

// isAlive reports whether the replica runs, as far as the others know.
func (e *replicaEntry) isAlive(now time.Time) bool {
	return !e.Ended && now.Sub(e.At) < rosterSilent
}

// sharedRoster enters this replica into the state that replicas share, and learns of the others
// there. So replicas know each other that forward each other nothing, as with modern clients. The
// nil *sharedRoster knows nobody.
type sharedRoster struct {
	gateway   *gateway
	store     shared.Values
	name      string
	following *background

	// only one goroutine uses these
	published  replicaEntry
	generation uint64
	seen       uint64
	failing    bool

	mu     sync.Mutex
	others map[string]replicaEntry // by name
}

func replicaKey(name string) shared.Key {
	return shared.Key{Kind: replicaKind, Name: name, Listed: true}
}

// errNotEntered means that the other replicas do not learn of this one. A full server causes it.
var errNotEntered = errors.New("this replica is not entered")

// openSharedRoster enters this replica and learns of the others, before it serves clients, and goes
// on with both. If it can only learn of the others, it tries again to enter while clients are
// served. It does nothing without [cluster] and [shared].
func (g *gateway) openSharedRoster(ctx context.Context) error {
	store, c := g.sharedStore(), g.active.config.Cluster
	if store == nil || c == nil {
		return nil
	}
	s := &sharedRoster{gateway: g, store: store, name: c.Name,
		others: map[string]replicaEntry{}}
	if err := s.look(ctx); errors.Is(err, errNotEntered) {
		s.noteFailure(err)
	} else if err != nil {
		return fmt.Errorf("enter the roster of replicas: %w", err)
	}
	g.roster.Store(s)
	s.following = startBackground(ctx, s.follow)
	return nil
}

// closeSharedRoster tells the other replicas that this one ends.
func (g *gateway) closeSharedRoster() error {
	s := g.roster.Load()
	if s == nil {
		return nil
	}
	s.following.stop()
	e := s.own()
	e.Ended = true
	if err := s.publish(context.Background(), e); err != nil {
		g.log.Warn("the other replicas are not told that this one ends", "error", err)
	}
	return nil
}

// follow enters changes, and looks at the others, until ctx ends.
func (s *sharedRoster) follow(ctx context.Context) {
	repeat(ctx, rosterLook, func() {
		if err := s.look(ctx); ctx.Err() == nil {
			s.noteFailure(err)
		}
	})
}

// noteFailure logs the first error of several.
func (s *sharedRoster) noteFailure(err error) {
	if err != nil && !s.failing {
		s.gateway.log.Warn("the roster of replicas is not available", "error", err)
	}
	s.failing = err != nil
}

// own returns the entry of this replica.
func (s *sharedRoster) own() replicaEntry {
	state := s.gateway.currentState()
	e := replicaEntry{Name: s.name, Configuration: state.configuration, Policies: state.policies,
		At: time.Now().UTC()}
	if log, ok := s.gateway.recording.audit.RosterEntry(); ok {
		e.Log = &log
	}
	return e
}

// look enters this replica if that is due, and takes in what the others have entered. If only the
// first fails, the error is errNotEntered.
func (s *sharedRoster) look(ctx context.Context) error {
	err := s.lookOnce(ctx)
	if errors.Is(err, shared.ErrLost) { // the next call uses the store as it is now
		err = s.lookOnce(ctx)
	}
	return err
}

func (s *sharedRoster) lookOnce(ctx context.Context) error {
	own := s.gateway.currentState()
	var notEntered error
	if time.Since(s.published.At) >= rosterInterval || s.published.state() != own {
		if err := s.publish(ctx, s.own()); err != nil {
			notEntered = fmt.Errorf("%w: %w", errNotEntered, err)
		}
	}
	l, err := s.store.List(ctx, replicaKind, s.seen)
	if err != nil {
		s.seen = 0
		if errors.Is(err, shared.ErrLost) {
			s.published.At = time.Time{} // enter again
		}
		return err
	}
	if l.Changed {
		if !slices.ContainsFunc(l.Entries, func(e shared.Entry) bool {
			return e.Key.Name == s.name
		}) {
			s.published.At = time.Time{} // another user of the store noticed a loss: enter again
		}
		for _, e := range l.Entries {
			if notEntered != nil && e.Key.Name == s.name {
				continue // it may be of an earlier process, or the one that seemed to fail
			}
			if err := s.meet(e); err != nil {
				return err
			}
		}
	}
	s.seen = l.Version
	return notEntered
}

// publish enters this replica. An entry of the same name is that of an earlier process.
func (s *sharedRoster) publish(ctx context.Context, e replicaEntry) error {
	value, err := json.Marshal(e)
	if err != nil {
		return err
	}
	key := replicaKey(s.name)
	for range 2 {
		var generation uint64
		generation, err = s.store.Swap(ctx, key, s.generation, value, rosterTTL)
		if err == nil {
			s.generation, s.published = generation, e
			return nil
		}
		if !errors.Is(err, shared.ErrChanged) && !errors.Is(err, shared.ErrLost) {
			return err
		}
		if _, s.generation, err = s.store.Get(ctx, key); err != nil {
			return err
		}
		err = shared.ErrChanged
	}
	return err
}

// meet takes in the entry of a replica.
func (s *sharedRoster) meet(entry shared.Entry) error {
	var e replicaEntry
	if err := json.Unmarshal(entry.Value, &e); err != nil || e.Name != entry.Key.Name {
		return fmt.Errorf("%w: read the entry of replica %q", shared.ErrUnavailable,
			entry.Key.Name)
	}
	if entry.Generation == s.generation {
		return nil
	}
	log := s.gateway.log
	if e.Name == s.name {
		log.Error("another process has entered the name of this replica", "replica", s.name,
			"hint", "each replica needs its own name in [cluster]")
		return nil
	}
	s.mu.Lock()
	was, known := s.others[e.Name]
	s.others[e.Name] = e
	s.mu.Unlock()
	if known && was.At.Equal(e.At) {
		return nil
	}
	if e.Log != nil {
		s.gateway.recording.meet(*e.Log)
	}
	if isNew := !known || was.state() != e.state(); isNew && e.isAlive(time.Now()) {
		cluster.LogState(log, e.Name, e.state().String(), s.gateway.currentState().String(), known)
	}
	return nil
}

// states returns the other replicas that run, for telemetry.
func (s *sharedRoster) states() (all []telemetry.ReplicaState) {
	own := s.gateway.currentState()
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.others {
		if e.isAlive(now) {
			all = append(all, telemetry.ReplicaState{Name: e.Name, Differs: e.state() != own})
		}
	}
	return all
}

// replicaEntries returns the entries of all replicas, in the order of their names.
func replicaEntries(ctx context.Context, store shared.Values) (all []replicaEntry, err error) {
	l, err := store.List(ctx, replicaKind, 0)
	if err != nil {
		return nil, err
	}
	for _, entry := range l.Entries {
		var e replicaEntry
		if err := json.Unmarshal(entry.Value, &e); err != nil {
			return nil, fmt.Errorf("read the entry of replica %q: %w", entry.Key.Name, err)
		}
		all = append(all, e)
	}
	return all, nil
}
