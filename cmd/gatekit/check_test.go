package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCheckPrintsEachResultWhenItIsKnown checks that a server that does not answer does not delay
// the other results.
func TestCheckPrintsEachResultWhenItIsKnown(t *testing.T) {
	dir := t.TempDir()
	config := "[server.slow]\ncommand = \"sleep\"\nargs = [\"1000\"]\n" +
		"[server.files]\ncommand = \"gatekit\"\nargs = [\"demo-server\", \"files\"]\n" +
		"[[plugin]]\nname = \"mark\"\nuse = \"trace\"\n"
	if err := os.WriteFile(filepath.Join(dir, "gatekit.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second) // less than checkTimeout
	defer cancel()
	cmd := exec.CommandContext(ctx, "gatekit", "check")
	cmd.Dir = dir
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wanted := map[string]bool{"configuration " + dir: true, "ok    files    2026-07-28": true,
		"ok    mark ": true}
	for lines := bufio.NewScanner(stdout); len(wanted) > 0 && lines.Scan(); {
		for prefix := range wanted {
			if strings.HasPrefix(lines.Text(), prefix) {
				delete(wanted, prefix)
			}
		}
	}
	if ctx.Err() != nil || len(wanted) > 0 {
		t.Errorf("gatekit check did not print %v while a server did not answer", wanted)
	}
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err == nil {
		t.Error("gatekit check exited with 0, want 1: a server did not answer")
	}
}
