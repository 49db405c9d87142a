// Package credentials tests the gatekit binary with a certified authorization server: before
// servers that want tokens, and behind clients that log in at its listener.
package credentials

import (
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) {
	harness.Parallel(4)
	harness.Main(m)
}
