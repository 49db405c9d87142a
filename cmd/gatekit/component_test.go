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

// recordedPart returns a component that appends what is done with it to calls.
func recordedPart(name string, calls *[]string, startErr, stopErr error) component {
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
	list := []component{recordedPart("a", &calls, nil, nil), recordedPart("b", &calls, nil, stuck),
		&funcComponent{}, recordedPart("c", &calls, nil, nil)}
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

func TestComponentsBeforeOneThatCannotStartAreStopped(t *testing.T) {
	var calls []string
	broken := errors.New("c is broken")
	err := startAll(t.Context(), []component{recordedPart("a", &calls, nil, nil),
		recordedPart("b", &calls, nil, nil), recordedPart("c", &calls, broken, nil),
		recordedPart("d", &calls, nil, nil)})
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
	files := kept(running, &server{config: config.Server{Name: "files", Command: "x",
		Timeout: time.Minute, Methods: []string{"acme/*"}}}) // only the proxy reads these
	notes := kept(running, &server{config: config.Server{Name: "notes", Command: "y"}})
	mail := kept(running, &server{config: config.Server{Name: "mail", Command: "x"}})
	next := []component{files, notes, mail}
	if got, want := without(next, running), []component{notes, mail}; !slices.Equal(got, want) {
		t.Errorf("to start: got %v, want notes and mail", got)
	}
	if got, want := without(running, next), running[1:]; !slices.Equal(got, want) {
		t.Errorf("to stop: got %v, want the old notes", got)
	}
}
