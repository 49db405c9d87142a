// Package harness runs the real gatekit binary in tests, between scripted clients and scripted or
// real servers. It verifies the audit log of every gatekit that it has started. Tests also check
// the records, because a decision must have a record.
//
//   - gatekit.go: starts and stops the binary, and connects clients
//   - config.go, wrap.go: configurations to start it with
//   - calls.go, load.go: requests of clients
//   - audit.go: assertions about records
//   - servers.go, diff.go: real servers, and comparison with their direct answers
package harness

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// Long skips the test if go test runs with -short. reason tells why the test takes long.
func Long(t testing.TB, reason string) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: " + reason)
	}
}

// Parallel lets n parallel tests of the package run at the same time. Without it, as many run as
// there are processors. It is for packages whose parallel tests mostly wait. TestMain calls it
// before Main. The flag -parallel of go test stands over it.
func Parallel(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}

// Main runs a package's tests. TestMain of the package calls Main. The test binary also runs as a
// scripted server: with MCPTEST_SERVE=1 in its environment, or as the command mcptest in test
// scripts.
func Main(m *testing.M) {
	if os.Getenv("MCPTEST_SERVE") == "1" {
		mcptest.Main()
		return
	}
	testscript.Main(peers.M{M: m}, map[string]func(){"mcptest": mcptest.Main})
}
