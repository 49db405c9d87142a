package config_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gatekit/core/config"
)

// event is one call of Watch's function.
type event struct {
	c   *config.Config
	err error
}

// watch loads dir/gatekit.toml and watches it until the test ends.
func watch(t *testing.T, path string) <-chan event {
	t.Helper()
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan event, 10), make(chan struct{})
	go func() {
		defer close(done)
		config.Watch(ctx, c, func(c *config.Config, err error) { events <- event{c, err} })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return events
}

// next waits for a change. Files are the system's business, so time cannot be faked here.
func next(t *testing.T, events <-chan event) event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(10 * time.Second):
		t.Fatal("the change was not noticed within 10s")
		return event{}
	}
}

func TestWatchTellsOfChangesAndOnlyOfThem(t *testing.T) {
	dir := t.TempDir()
	path, secret := filepath.Join(dir, "gatekit.toml"), filepath.Join(dir, "secrets", "token")
	doc := "[server.a]\ncommand = \"a\"\nenv = { T = \"${file:secrets/token}\" }\n"
	write(t, secret, "one")
	write(t, path, doc)
	events := watch(t, path)

	// Each step is noticed as one change; what is between them must not be noticed, or it would come in the next one's place.
	write(t, path, doc) // written, not changed
	write(t, filepath.Join(dir, "other"), "x")

	write(t, path, doc+"era = \"modern\"\n")
	if e := next(t, events); e.err != nil || e.c.Servers[0].Era != "modern" {
		t.Fatalf("a changed file: got %v, %v, want era modern", e.c, e.err)
	}

	write(t, filepath.Join(dir, "new.toml"), doc+"era = \"legacy\"\n") // as editors do
	if err := os.Rename(filepath.Join(dir, "new.toml"), path); err != nil {
		t.Fatal(err)
	}
	if e := next(t, events); e.err != nil || e.c.Servers[0].Era != "legacy" {
		t.Fatalf("a replaced file: got %v, %v, want era legacy", e.c, e.err)
	}

	write(t, secret, "two")
	if e := next(t, events); e.err != nil || string(e.c.Servers[0].Env["T"]) != "two" {
		t.Fatalf("a changed secret: got %v, %v, want two", e.c, e.err)
	}

	write(t, path, doc+"era = \"new\"\n")
	if e := next(t, events); e.c != nil || len(mistakes(t, e.err)) != 1 {
		t.Fatalf("a mistake: got %v, %v, want no config and one mistake", e.c, e.err)
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if e := next(t, events); e.c != nil || !os.IsNotExist(unwrap(e.err)) {
		t.Fatalf("a removed file: got %v, %v, want an error that says so", e.c, e.err)
	}

	write(t, path, doc)
	if e := next(t, events); e.err != nil || string(e.c.Servers[0].Env["T"]) != "two" {
		t.Fatalf("the file back: got %v, %v, want it read", e.c, e.err)
	}
	select {
	case e := <-events:
		t.Errorf("one change too many was told: %v, %v", e.c, e.err)
	default:
	}
}

func TestWatchFollowsASymbolicLink(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gatekit.toml")
	write(t, filepath.Join(dir, "v1", "gatekit.toml"), "[server.a]\ncommand = \"a\"\n")
	write(t, filepath.Join(dir, "v2", "gatekit.toml"), "[server.b]\ncommand = \"b\"\n")
	// As Kubernetes mounts a ConfigMap: the file is a link through ..data, which is swapped.
	for link, to := range map[string]string{filepath.Join(dir, "..data"): "v1", path: "..data/gatekit.toml"} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	events := watch(t, path)
	if err := os.Symlink("v2", filepath.Join(dir, "..tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if e := next(t, events); e.err != nil || e.c.Servers[0].Name != "b" {
		t.Errorf("got %v, %v, want server b", e.c, e.err)
	}
}
