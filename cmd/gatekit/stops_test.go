package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/stop"
)

// actionRecorder keeps the actions of its records.
type actionRecorder struct {
	mu      sync.Mutex
	actions []string
}

func (r *actionRecorder) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.actions = append(r.actions, o.Action)
	return uint64(len(r.actions)), nil
}

// The file stops everything within a second. Its removal does not end the stop, however long the
// file is away. While the stop is in force, the file is not recorded again.
func TestRemovalOfTheStopFileDoesNotResume(t *testing.T) {
	file := filepath.Join(t.TempDir(), "STOP")
	record := &actionRecorder{}
	events := pipeline.New(record, pipeline.Options{})
	p, err := proxy.New(proxy.Options{Pipeline: events,
		Servers: []proxy.ServerConfig{{Name: "box"}}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{log: slog.New(slog.DiscardHandler), stops: stop.Open(""), stopFile: file,
			recording: &recording{events: events}, proxy: p}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { g.watchStopTriggers(ctx, nil) })
		isStopped := func() bool { return g.stops.Gate.Refuses(&mcp.Message{}) != nil }
		time.Sleep(7 * stopFileInterval / 2) // between two looks
		if isStopped() {
			t.Error("everything is stopped without the file")
		}
		if err := os.WriteFile(file, []byte("pager 17"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * stopFileInterval)
		if !isStopped() || g.stops.List()[0].Reason != "pager 17" {
			t.Errorf("with the file, the stops are %v", g.stops.List())
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if !isStopped() {
			t.Error("the removal of the file ended the stop")
		}
		cancel()
		running.Wait()
		if want := []string{"stop_traffic"}; !slices.Equal(record.actions, want) {
			t.Errorf("the log has the actions %q, want %q", record.actions, want)
		}
	})
}
