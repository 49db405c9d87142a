package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"gatekit/audit"
	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
)

// A replica that starts while the others notice a loss of shared state is entered.
func TestRosterAfterALoss(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	g := &gateway{log: slog.New(slog.DiscardHandler), recording: &recording{audit: &audit.Log{}}}
	s := &sharedRoster{gateway: g, store: state, name: "a", others: map[string]replicaEntry{}}
	for _, when := range []string{"before the first look", "after it"} {
		state.Lose()
		if err := s.look(t.Context()); err != nil {
			t.Fatalf("a loss %s: got the error %v, want none", when, err)
		}
		all, err := replicaEntries(t.Context(), state)
		if err != nil || len(all) != 1 || all[0].Name != "a" {
			t.Errorf("a loss %s: the roster has %v (%v), want this replica", when, all, err)
		}
	}
}

// A replica enters the roster again also if something else in its process noticed the loss. When it
// ends, it tells the others so in spite of a loss.
func TestRosterAfterALossThatWasNoticed(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	g := &gateway{log: slog.New(slog.DiscardHandler), recording: &recording{audit: &audit.Log{}}}
	s := &sharedRoster{gateway: g, store: state, name: "a", others: map[string]replicaEntry{}}
	if err := s.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	state.Lose()
	if _, err := state.List(t.Context(), stopKind, 0); !errors.Is(err, shared.ErrLost) {
		t.Fatalf("got %v, want shared.ErrLost", err)
	}
	for range 2 {
		if err := s.look(t.Context()); err != nil {
			t.Error(err)
		}
	}
	all, err := replicaEntries(t.Context(), state)
	if err != nil || len(all) != 1 || all[0].Ended {
		t.Errorf("the roster has %v (%v), want this replica", all, err)
	}
	state.Lose()
	g.roster.Store(s)
	s.following = startBackground(t.Context(), func(context.Context) {})
	if err := g.closeSharedRoster(); err != nil {
		t.Error(err)
	}
	all, err = replicaEntries(t.Context(), state)
	if err != nil || len(all) != 1 || !all[0].Ended {
		t.Errorf("the roster has %v (%v), want that this replica has ended", all, err)
	}
}

// unanswered is a store whose Swap is carried out, while the answer is lost.
type unanswered struct{ shared.Store }

func (u unanswered) Swap(ctx context.Context, k shared.Key, was uint64, value []byte,
	ttl time.Duration) (uint64, error) {
	if _, err := u.Store.Swap(ctx, k, was, value, ttl); err != nil {
		return 0, err
	}
	return 0, shared.ErrUnavailable
}

// A replica does not take its own entry for that of another process if it did not learn that it is
// entered. It notices another process all the same.
func TestRosterEntryWithoutAnAnswer(t *testing.T) {
	state := &shared.Memory{}
	var log bytes.Buffer
	g := &gateway{log: slog.New(slog.NewTextHandler(&log, nil)),
		recording: &recording{audit: &audit.Log{}}}
	newRoster := func() *sharedRoster {
		return &sharedRoster{gateway: g, store: state, name: "a",
			others: map[string]replicaEntry{}}
	}
	const other = "another process has entered the name of this replica"
	s := newRoster()
	s.store = unanswered{state}
	if err := s.look(t.Context()); !errors.Is(err, errNotEntered) {
		t.Errorf("a look without an answer has the error %v, want errNotEntered", err)
	}
	s.store = state
	if err := s.look(t.Context()); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), other) {
		t.Errorf("the replica takes its own entry for another one:\n%s", &log)
	}
	if err := newRoster().look(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.look(t.Context()); err != nil || !strings.Contains(log.String(), other) {
		t.Errorf("another process is not noticed (%v):\n%s", err, &log)
	}
}
