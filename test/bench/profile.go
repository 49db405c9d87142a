//go:build linux

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// profiler is a source file that go build -overlay adds to cmd/gatekit for a measurement. The
// product has no profiler.
//
//go:embed testdata/profiler.go.txt
var profiler string

// profilerOverlay writes an overlay file for go build and returns its path. A gatekit that is built
// with this overlay writes profiles to folder.
func profilerOverlay(dir, root, folder string) (overlay string, err error) {
	if folder, err = filepath.Abs(folder); err != nil {
		return "", err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	source := filepath.Join(dir, "profiler.go")
	if err := os.WriteFile(source, []byte(strings.ReplaceAll(profiler, "FOLDER", folder)),
		0o600); err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root,
		"cmd/gatekit/profiler.go"): source}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, b, 0o600)
}

// writeProfiles lets the process write its profiles and waits until it has done so.
func (p *process) writeProfiles() error {
	p.cmd.Process.Signal(syscall.SIGUSR1)
	for range 100 {
		if strings.Contains(p.stderrText(), "profiled") {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("gatekit wrote no profile within 5s\n%s", p.stderrText())
}
