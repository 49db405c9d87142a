// Package plugins tests the gatekit binary with plugins: a built-in plugin, its restart and its
// reconfiguration, and the plugin that a reader of examples/README.md builds.
package plugins

import (
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
