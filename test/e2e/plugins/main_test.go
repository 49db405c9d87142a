// Package plugins tests the gatekit binary with plugins: built-in ones, killed ones, reconfigured
// ones, and one that is written as examples/README.md says.
package plugins

import (
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
