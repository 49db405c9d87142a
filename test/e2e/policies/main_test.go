// Package policies tests the gatekit binary with policies: the rule library, policy files and their
// reload, bundles, approvals, and the default rules of gatekit wrap.
package policies

import (
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
