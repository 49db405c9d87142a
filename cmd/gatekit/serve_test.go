package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// hookedHandler is a slog.Handler that calls hook when it gets a record with the message.
type hookedHandler struct {
	slog.Handler
	message string
	hook    func()
}

// Handle implements slog.Handler.
func (h *hookedHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.hook()
	}
	return h.Handler.Handle(ctx, r)
}

// TestShutdownIsLoggedWhenCallsAreRefused makes a call while the line "shutting down" is being
// logged. Whoever reads the line may rely on it, so this call must be refused already.
func TestShutdownIsLoggedWhenCallsAreRefused(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	log := filepath.Join(dir, "audit.jsonl")
	file := filepath.Join(dir, "gatekit.toml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%s[audit]\nfile = %q\n", onHTTP+files, log),
		0o600); err != nil {
		t.Fatal(err)
	}
	c, err := loadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	h := &hookedHandler{Handler: slog.NewTextHandler(io.Discard, nil), message: "shutting down"}
	logger := slog.New(h)
	g, err := openGateway(t.Context(), c, logger, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &listeners{gateway: g, config: c,
		control: &controlServer{gateway: g, config: c, log: logger}}
	if err := startAll(t.Context(), l.components()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- l.serve(ctx) }()

	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: fmt.Sprintf("http://%s%s", l.clients.Addr(), c.Listen.Path)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	call := func() error {
		_, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "files__read_file",
			Arguments: map[string]any{"path": "welcome.txt"}})
		return err
	}
	if err := call(); err != nil {
		t.Fatalf("a call before the shutdown failed: %v", err)
	}
	var refused error
	logged := false
	h.hook = func() { logged, refused = true, call() }
	stop()
	if err := <-served; err != nil {
		t.Errorf("serve ended with %v", err)
	}
	if err := errors.Join(l.control.stop(), g.close()); err != nil {
		t.Error(err)
	}
	if !logged {
		t.Fatal("the shutdown was not logged")
	}
	if refused == nil || !strings.Contains(refused.Error(), "gatekit is shutting down") {
		t.Errorf("a call while the shutdown is logged got the error %v, want that Gatekit is "+
			"shutting down", refused)
	}
	records, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	refusals := 0
	for line := range strings.Lines(string(records)) {
		if strings.Contains(line, `"method":"tools/call"`) &&
			strings.Contains(line, "gatekit is shutting down") {
			refusals++
		}
	}
	if refusals != 1 {
		t.Errorf("the log has %d refused calls, want 1:\n%s", refusals, records)
	}
}
