// Package receivers tests Gatekit with programs that operators run. rsyslog receives syslog
// messages, Prometheus scrapes metrics, and an OpenTelemetry collector receives records, metrics
// and traces. rsyslog and Prometheus come from Debian's packages rsyslog, rsyslog-gnutls and
// prometheus. Without these packages, the tests of rsyslog and Prometheus are skipped. The
// collector is built from test/collector, and a witness of checkpoints from test/witness.
package receivers

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/peers"
)

func TestMain(m *testing.M) { harness.Main(m) }

// eventually calls done until it returns "". done returns a text that says what is still missing.
// After harness.Patience, the test fails with that text.
func eventually(t *testing.T, done func() string) {
	t.Helper()
	missing := ""
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); {
		if missing = done(); missing == "" {
			return
		}
		time.Sleep(100 * time.Millisecond) // another program's state is polled
	}
	t.Fatal(missing)
}

// startProgram starts a program, and waits until the program listens on the address. out gets the
// program's output. stop ends the program with SIGTERM, and may be called twice.
func startProgram(t *testing.T, address string, out *harness.Output,
	command ...string) (stop func()) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
	isAlive := func() bool {
		select {
		case <-ended:
			return false
		default:
			return true
		}
	}
	stop = func() {
		cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	}
	t.Cleanup(stop)
	if !peers.Listening(address, isAlive) {
		t.Fatalf("%s does not listen on %s:\n%s", command[0], address, out)
	}
	return stop
}

// getPage returns the body of a page.
func getPage(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s, %v", url, r.Status, b, err)
	}
	return string(b)
}

// writeFile writes lines to a file and returns its path.
func writeFile(t *testing.T, path string, lines ...string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// callEcho calls the tool echo n times.
func callEcho(t *testing.T, g *harness.Gatekit, n int) {
	t.Helper()
	c := g.Client("2025-11-25")
	for i := range n {
		harness.CallTool(t, c, "box__echo", fmt.Sprintf(`{"tag":"%d äöü €"}`, i))
	}
	c.Close()
}
