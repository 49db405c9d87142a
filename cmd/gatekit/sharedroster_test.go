package main

import (
	"log/slog"
	"testing"

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
