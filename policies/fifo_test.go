package policies_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gatekit/policies"
)

// TestNamedPipeIsRefused checks that policies, data and bundles must be regular files, because
// opening a named pipe waits for a writer.
func TestNamedPipeIsRefused(t *testing.T) {
	dir := t.TempDir()
	for name, options := range map[string]func(file string) policies.Options{
		"p.rego":   func(f string) policies.Options { return policies.Options{Files: []string{f}} },
		"p.tar.gz": func(f string) policies.Options { return policies.Options{Files: []string{f}} },
		"sub/p.rego": func(string) policies.Options {
			return policies.Options{Files: []string{filepath.Join(dir, "sub")}}
		},
		"p.json": func(f string) policies.Options { return policies.Options{Data: []string{f}} },
	} {
		file := filepath.Join(dir, name)
		_ = syscall.Mkdir(filepath.Dir(file), 0o700)
		if err := syscall.Mkfifo(file, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := policies.Load(options(file))
		if err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s is a named pipe: error %v, want \"not a regular file\"", name, err)
		}
	}
}
