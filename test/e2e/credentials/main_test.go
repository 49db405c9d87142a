// Package credentials tests the gatekit binary with a certified authorization server: before
// servers that want tokens, and behind clients that log in at its listener.
package credentials

import (
	"flag"
	"testing"

	"gatekit/test/harness"
)

// TestMain lets more tests run at the same time than there are processors: those that are parallel
// mostly wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	harness.Main(m)
}
