package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/core/conn"
)

// The server of wrap starts before the client has sent a message, and ends with Gatekit.
func TestWrapStartsTheServerBeforeTheFirstMessage(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "gatekit", "wrap", "--audit",
		filepath.Join(t.TempDir(), "audit.jsonl"), "sh", "-c",
		"echo server-started >&2; cat; echo server-ended >&2")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	lines := bufio.NewScanner(stderr)
	for !strings.Contains(seen.String(), "server-started") && lines.Scan() {
		seen.WriteString(lines.Text() + "\n")
	}
	if !strings.Contains(seen.String(), "server-started") {
		t.Errorf("the server did not start before a message came; stderr:\n%s", &seen)
	}
	stdin.Close()
	rest, err := io.ReadAll(stderr)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("gatekit wrap ended with %v, want success", err)
	}
	if !strings.Contains(string(rest), "server-ended") {
		t.Errorf("gatekit wrap ended before its server did; stderr:\n%s%s", &seen, rest)
	}
}

// If Gatekit cannot start, it ends the server that it has already started, and exits with 1.
func TestWrapEndsTheServerWhenGatekitCannotStart(t *testing.T) {
	for _, test := range []struct {
		name  string
		flags []string
	}{
		{"the audit log is a folder", []string{"--audit", t.TempDir()}},
		{"a policy does not exist", []string{"--audit", filepath.Join(t.TempDir(), "a.jsonl"),
			"--policy", "no-such.rego"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "gatekit", append(append([]string{"wrap"},
				test.flags...), "sh", "-c", "cat; echo server-ended >&2")...)
			out, err := cmd.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
				t.Errorf("gatekit wrap ended with %v, want exit status 1", err)
			}
			if !strings.Contains(string(out), "server-ended") {
				t.Errorf("the server was not ended; output:\n%s", out)
			}
		})
	}
}

// Exactly one session gets the early process. close ends the process only if no session got it.
func TestEarlyServerHasOneOwner(t *testing.T) {
	early := &fakePipe{}
	s := newEarlyServer(func(context.Context) (conn.PipeCloser, error) { return early, nil })
	other := &fakePipe{}
	dial := s.dial(func(context.Context) (conn.PipeCloser, error) { return other, nil })
	for i, want := range []*fakePipe{early, other, other} {
		if got, err := dial(t.Context()); got != want || err != nil {
			t.Errorf("call %d of dial returned %p, %v; want %p", i, got, err, want)
		}
	}
	if s.close(); early.closed {
		t.Error("close ended the process of a session")
	}

	s = newEarlyServer(func(context.Context) (conn.PipeCloser, error) { return early, nil })
	if s.close(); !early.closed {
		t.Error("close did not end the process, which no session has")
	}
}

// A call of dial that gives up leaves the process to the next call.
func TestEarlyServerCanBeTakenAfterACancelledCall(t *testing.T) {
	start := make(chan struct{})
	early := &fakePipe{}
	s := newEarlyServer(func(context.Context) (conn.PipeCloser, error) {
		<-start
		return early, nil
	})
	dial := s.dial(func(context.Context) (conn.PipeCloser, error) {
		return nil, errors.New("a second process was started")
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client is gone")
	cancel(gone)
	if _, err := dial(ctx); !errors.Is(err, gone) {
		t.Errorf("dial with a cancelled context returned %v, want %v", err, gone)
	}
	close(start)
	if got, err := dial(t.Context()); got != early || err != nil {
		t.Errorf("the next call of dial returned %p, %v; want %p", got, err, early)
	}
}

type fakePipe struct {
	conn.PipeCloser
	closed bool
}

func (p *fakePipe) Close() error {
	p.closed = true
	return nil
}
