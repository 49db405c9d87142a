// Package audit tests what the gatekit binary records and reports: the audit log, sinks, metrics,
// traces, and that a secret reaches none of them.
package audit

import (
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
