// Package balancertest starts the load balancers of examples/06-replicas for tests, with the
// configurations of the example.
package balancertest

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gatekit/test/peers"
)

// Names of the balancers.
const (
	HAProxy = "haproxy"
	Nginx   = "nginx"
)

// replicas are the addresses of the replicas in the configurations of the example, and balancer is
// that of the balancer.
var (
	replicas = []string{"127.0.0.1:7781", "127.0.0.1:7782", "127.0.0.1:7783"}
	balancer = "127.0.0.1:7777"
)

// Start starts a balancer in front of three replicas, of whose URLs only the hosts count, and
// returns its URL, with the path /mcp. Each request goes to another replica than the last, in turn.
// The balancer ends with the test. If it is not installed, the test is skipped; with
// GATEKIT_TEST_REQUIRE=1 it fails.
func Start(t testing.TB, name string, urls ...string) string {
	t.Helper()
	if len(urls) != len(replicas) {
		t.Fatalf("the example has %d replicas, got %d URLs", len(replicas), len(urls))
	}
	file, args := "haproxy.cfg", []string{"-db", "-f", "haproxy.cfg"}
	if name == Nginx {
		me, err := user.Current()
		if err != nil {
			t.Fatal(err)
		}
		file, args = "nginx.conf", []string{"-p", ".", "-e", "stderr", "-c", "nginx.conf", "-g",
			"daemon off; user " + me.Username + ";"}
	}
	b, err := os.ReadFile(filepath.Join(peers.Top(), "examples", "06-replicas", file))
	if err != nil {
		t.Fatal(err)
	}
	address := peers.FreeAddress(t)
	text := replace(t, string(b), balancer, address)
	for i, to := range urls {
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		text = replace(t, text, replicas[i], u.Host)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "run", "nginx"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program(t, name), args...)
	cmd.Dir = dir
	run(t, cmd, address)
	return fmt.Sprintf("http://%s/mcp", address)
}

// replace replaces a text that must be there once.
func replace(t testing.TB, text, old, replacement string) string {
	t.Helper()
	if n := strings.Count(text, old); n != 1 {
		t.Fatalf("a configuration of examples/06-replicas has %s %d times, want once", old, n)
	}
	return strings.Replace(text, old, replacement, 1)
}

// program returns the path of a balancer. Debian has them in /usr/sbin, which is not in the PATH of
// every user.
func program(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(filepath.Join("/usr/sbin", name)); err == nil {
		return path
	}
	peers.Installed(t, name)
	return name
}

// run starts a command, waits until it listens, and ends it with the test.
func run(t testing.TB, cmd *exec.Cmd, address string) {
	t.Helper()
	var output bytes.Buffer // read it after exited is closed
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-exited
		if t.Failed() {
			t.Logf("%s printed\n%s", cmd, &output)
		}
	})
	alive := func() bool {
		select {
		case <-exited:
			return false
		default:
			return true
		}
	}
	if !peers.Listening(address, alive) {
		t.Fatalf("%s does not listen on %s", cmd, address)
	}
}
