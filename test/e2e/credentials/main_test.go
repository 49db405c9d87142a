// Package credentials tests the gatekit binary before servers that want tokens, with a server of
// the go-sdk.
package credentials

import (
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
