//go:build amd64 || arm64

package transport_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/transport"
	"gatekit/transport/sandbox"
)

// The rules are made while the process starts. If some cannot be made, the program does not run.
func TestServerWithTooManyRulesDoesNotStart(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 20,001 folders")
	}
	if _, err := sandbox.Support(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	many := filepath.Join(dir, "many")
	if err := os.Mkdir(many, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 20001 {
		if err := os.Mkdir(fmt.Sprintf("%s/%d", many, i), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	trace := filepath.Join(dir, "trace")
	for _, hidden := range [][]string{nil, {filepath.Join(many, "audit.jsonl")}} {
		child, err := transport.Spawn(t.Context(), transport.Command{Name: "a", Path: "/bin/sh",
			Args: []string{"-c", "echo > trace; cat"}, Dir: dir,
			Sandbox: &transport.Sandbox{Settings: sandbox.Settings{Level: sandbox.Guard},
				Hidden: hidden}})
		if hidden == nil {
			if err != nil {
				t.Fatal(err)
			}
			child.Close()
			if err := os.Remove(trace); err != nil {
				t.Errorf("the program did not run: %v", err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "must be granted one by one") {
			t.Errorf("got %v, want too many rules", err)
		}
		if _, err := os.Stat(trace); err == nil {
			t.Error("the program ran without all rules")
		}
	}
}
