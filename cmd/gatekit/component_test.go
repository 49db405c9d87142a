package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/core/config"
)

// recordingComponent returns a component that appends each of its starts and stops to calls.
func recordingComponent(name string, calls *[]string, startErr, stopErr error) component {
	return &funcComponent{
		onStart: func(context.Context) error {
			*calls = append(*calls, "start "+name)
			return startErr
		},
		onStop: func() error {
			*calls = append(*calls, "stop "+name)
			return stopErr
		},
	}
}

func TestComponentsStopInReverseOrder(t *testing.T) {
	var calls []string
	stuck := errors.New("b is stuck")
	list := []component{
		recordingComponent("a", &calls, nil, nil),
		recordingComponent("b", &calls, nil, stuck),
		&funcComponent{},
		recordingComponent("c", &calls, nil, nil),
	}
	if err := startAll(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if err := stopAll(list); !errors.Is(err, stuck) {
		t.Errorf("got error %v, want %v", err, stuck)
	}
	want := "start a, start b, start c, stop c, stop b, stop a"
	if got := strings.Join(calls, ", "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFailedStartStopsStartedComponents(t *testing.T) {
	var calls []string
	broken := errors.New("c is broken")
	err := startAll(t.Context(), []component{
		recordingComponent("a", &calls, nil, nil),
		recordingComponent("b", &calls, nil, nil),
		recordingComponent("c", &calls, broken, nil),
		recordingComponent("d", &calls, nil, nil),
	})
	if !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
	want := "start a, start b, start c, stop b, stop a"
	if got := strings.Join(calls, ", "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestReloadKeepsServersWithEqualSettings(t *testing.T) {
	running := []component{
		&server{config: config.Server{Name: "files", Command: "x", Timeout: time.Second}},
		&server{config: config.Server{Name: "notes", Command: "x"}},
	}
	// Only the proxy reads Timeout and Methods, so the running server is kept.
	files := kept(running, &server{config: config.Server{Name: "files", Command: "x",
		Timeout: time.Minute, Methods: []string{"acme/*"}}})
	notes := kept(running, &server{config: config.Server{Name: "notes", Command: "y"}})
	mail := kept(running, &server{config: config.Server{Name: "mail", Command: "x"}})
	next := []component{files, notes, mail}
	if got, want := without(next, running), []component{notes, mail}; !slices.Equal(got, want) {
		t.Errorf("components to start: got %v, want notes and mail", got)
	}
	if got, want := without(running, next), running[1:]; !slices.Equal(got, want) {
		t.Errorf("components to stop: got %v, want the running notes", got)
	}
}
