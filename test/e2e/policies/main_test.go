// Package policies tests the gatekit binary with policies: the rule library, policy files and their
// reload, bundles, approvals, and the default rules of gatekit wrap.
package policies

import (
	"context"
	"os"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestMain runs the tests. Gatekit also starts the test binary as a statefulServer over stdio.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "stateful-server" {
		statefulServer(os.Args[2]).Serve(context.Background(), mcptest.Lines(os.Stdin, os.Stdout),
			func() { os.Exit(3) })
		return
	}
	harness.Main(m)
}
