// Package scripts runs the test scripts in testdata and the scripts of the examples.
package scripts

import (
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
