// Package published tests the gatekit binary with servers that many makers have published on npm.
package published

import (
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
