package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gatekit/core/config"
)

// Opening a named pipe would wait for a writer. So Load refuses a configuration or a ${file:…} that
// is not a regular file. Load also refuses a configuration that is too large.
func TestNamedPipeIsRefused(t *testing.T) {
	dir := t.TempDir()
	pipe, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "gatekit.toml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("[server.a]\ncommand = \"a\"\n"+
		"env = { TOKEN = \"${file:pipe}\" }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(dir, "large.toml")
	if err := os.WriteFile(large, make([]byte, 1<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(large); err == nil || !strings.Contains(err.Error(),
		"it is larger than 1048576 bytes") {
		t.Errorf("a file that is too large: error %v, want it refused", err)
	}
	for name, path := range map[string]string{"the configuration": pipe, "${file:…}": file} {
		_, err := config.Load(path)
		if err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s is a named pipe: error %v, want it refused", name, err)
		}
	}
}
