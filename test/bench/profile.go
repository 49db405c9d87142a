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

// profiler is a file that is laid over cmd/gatekit at build time (go build -overlay), so that the
// product holds no profiler.
//
//go:embed testdata/profiler.go.txt
var profiler string

// profiled answers an overlay under which gatekit writes profiles to folder when it ends.
func profiled(dir, root, folder string) (overlay string, err error) {
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

// profile has the process write its profiles, and waits for them.
func (p *process) profile() error {
	p.cmd.Process.Signal(syscall.SIGUSR1)
	for range 100 {
		if strings.Contains(p.log(), "profiled") {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("gatekit wrote no profile within 5s\n%s", p.log())
}
