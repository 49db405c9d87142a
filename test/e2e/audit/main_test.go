// Package audit tests what the gatekit binary records and reports: the audit log, its sinks,
// metrics, traces and the admin endpoint. It also tests that no secret reaches any of these.
package audit

import (
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
