// Package clients tests the gatekit binary with real clients (TypeScript, Go and Python SDKs, the
// Inspector) and the reference servers of the specification's authors.
package clients

import (
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
