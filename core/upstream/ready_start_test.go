package upstream_test

import (
	"context"
	"errors"
	"testing"

	"gatekit/core/conn"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// TestReadyKnowsThatTheServerCannotStart has a command that cannot be started. Clients are refused,
// so the server is down, although no client is connected.
func TestReadyKnowsThatTheServerCannotStart(t *testing.T) {
	u := upstream.New(upstream.Options{Name: "files", Era: "modern", Dial: upstream.Dial{
		Pipe: func(context.Context) (conn.PipeCloser, error) {
			return nil, errors.New("no such program")
		}}})
	defer u.Close()
	if state, err := u.Ready(t.Context()); state != "idle" || err != nil {
		t.Fatalf("before any start, Ready returns %s, %v, want idle", state, err)
	}
	s, err := u.Open(t.Context(), proxy.OpenOptions{Session: "s", Revision: "2026-07-28"},
		&upstreamtest.Client{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Call(t.Context(), upstreamtest.Pass(t, upstreamtest.ModernRequest(`1`, "tools/list",
		``, ``)), &upstreamtest.Client{})
	if err == nil {
		t.Fatal("the call succeeded, want an error")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if state, err := u.Ready(t.Context()); state != "down" || err == nil {
		t.Errorf("after a start that failed, Ready returns %s, %v, want down with the reason",
			state, err)
	}
}
