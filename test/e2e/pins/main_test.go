// Package pins tests the gatekit binary with a lock file: servers that change what they declare
// while Gatekit runs, approvals, and lock files that cannot be used.
package pins

import (
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
