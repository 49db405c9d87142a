package clustertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/peers"
)

// ExampleBalancers are the balancers of examples/06-replicas.
func ExampleBalancers() []string { return []string{"haproxy", "nginx"} }

// exampleReplicas are the addresses of the replicas in the configurations of examples/06-replicas,
// and exampleBalancer is the address of the balancer.
var (
	exampleReplicas = []string{"127.0.0.1:7781", "127.0.0.1:7782", "127.0.0.1:7783"}
	exampleBalancer = "127.0.0.1:7777"
)

// StartExampleBalancer starts a balancer with its configuration of examples/06-replicas in front of
// three replicas, of whose URLs only the hosts count, and returns its address. Each request goes to
// another replica than the last, in turn. The balancer ends with the test.
func StartExampleBalancer(t testing.TB, name string, urls ...string) (address string) {
	t.Helper()
	if len(urls) != len(exampleReplicas) {
		t.Fatalf("the example has %d replicas, got %d URLs", len(exampleReplicas), len(urls))
	}
	file, command := "haproxy.cfg", []string{"haproxy", "-db", "-f"}
	dir := t.TempDir()
	if name == "nginx" {
		file, command = "nginx.conf", []string{"nginx", "-g", "daemon off; master_process off;",
			"-e", "stderr", "-p", dir, "-c"}
		if err := os.MkdirAll(filepath.Join(dir, "run", "nginx"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(peers.Top(), "examples", "06-replicas", file))
	if err != nil {
		t.Fatal(err)
	}
	address = peers.FreeAddress(t)
	config := replaceOnce(t, string(b), exampleBalancer, address)
	for i, host := range hosts(t, urls) {
		config = replaceOnce(t, config, exampleReplicas[i], host)
	}
	startBalancer(t, address, config, command...)
	return address
}

// replaceOnce replaces a text that must be there once.
func replaceOnce(t testing.TB, text, old, replacement string) string {
	t.Helper()
	if n := strings.Count(text, old); n != 1 {
		t.Fatalf("a configuration of examples/06-replicas has %s %d times, want once", old, n)
	}
	return strings.Replace(text, old, replacement, 1)
}
