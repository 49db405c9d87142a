package harness

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// Main runs a package's tests; its TestMain calls it. The test binary is the scripted servers, too:
// with MCPTEST_SERVE=1 in its environment, and as the command mcptest in test scripts.
func Main(m *testing.M) {
	if os.Getenv("MCPTEST_SERVE") == "1" {
		mcptest.Main()
		return
	}
	testscript.Main(peers.M{M: m}, map[string]func(){"mcptest": mcptest.Main})
}
