// Package published tests the gatekit binary with servers of many makers, as published on npm.
package published

import (
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
