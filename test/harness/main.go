// Package harness drives the real gatekit binary in tests: scripted clients in front, scripted and
// real servers behind. It checks the audit log of every gatekit that it started: a decision that
// was not recorded did not happen.
//
//   - gatekit.go: start and stop the binary; clients of it
//   - config.go, wrap.go: configurations to start it with
//   - calls.go, load.go: what clients do
//   - audit.go: what must be recorded
//   - servers.go, diff.go: real servers, and comparison with what they answer directly
package harness

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// Long skips the test when go test -short is given. reason says what it needs or does.
func Long(t testing.TB, reason string) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: " + reason)
	}
}

// Main runs a package's tests; its TestMain calls it. The test binary is the scripted servers, too:
// with MCPTEST_SERVE=1 in its environment, and as the command mcptest in test scripts.
func Main(m *testing.M) {
	if os.Getenv("MCPTEST_SERVE") == "1" {
		mcptest.Main()
		return
	}
	testscript.Main(peers.M{M: m}, map[string]func(){"mcptest": mcptest.Main})
}
