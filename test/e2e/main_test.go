// Package e2e drives the real gatekit binary: scripted clients in front, scripted and real servers
// behind. Every case also holds the audit log against what happened: a decision that was not
// recorded did not happen.
package e2e

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// The test binary is the scripted servers, too: as the command mcptest in scripts, and with
// MCPTEST_SERVE=1 in its environment.
func TestMain(m *testing.M) {
	if os.Getenv("MCPTEST_SERVE") == "1" {
		mcptest.Main()
		return
	}
	testscript.Main(peers.M{M: m}, map[string]func(){"mcptest": mcptest.Main})
}
