package main

import (
	"log/slog"
	"slices"
	"testing"

	"gatekit/core/config"
	"gatekit/core/pins"
	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
)

// A server of which it was not known what the replicas approve is held back only until the next
// look, also if the state answers again while the start is recorded.
func TestAServerThatWasNotReadIsNewAtTheNextLook(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	c := &config.Config{Servers: []config.Server{{Name: "box"}}}
	g := &gateway{log: slog.New(slog.DiscardHandler), sharedPins: &pins.Shared{Values: state}}
	state.Fail(shared.ErrUnavailable)
	if unread := g.loadSharedPins(t.Context(), c); !unread["box"] {
		t.Error("the server is not held back, although nothing is known of it")
	}
	state.Fail(nil)
	if text := g.describeSharedPins(c); text != "" {
		t.Errorf("the record says %q of what is not in force", text)
	}
	changed, err := g.sharedPins.Look(t.Context(), []string{"box"})
	if err != nil || !slices.Equal(changed, []string{"box"}) {
		t.Errorf("the look finds %q and the error %v, want the server", changed, err)
	}
	if unread := g.loadSharedPins(t.Context(), c); len(unread) > 0 {
		t.Errorf("the servers %v are held back after the look", unread)
	}
}

// A loss of shared state during the start holds no server back: what is asked then is known.
func TestPinsAreReadAgainAfterALoss(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	g := &gateway{log: slog.New(slog.DiscardHandler), sharedPins: &pins.Shared{Values: state}}
	state.Lose()
	c := &config.Config{Servers: []config.Server{{Name: "box"}}}
	if unread := g.loadSharedPins(t.Context(), c); len(unread) > 0 {
		t.Errorf("the servers %v are held back", unread)
	}
}
