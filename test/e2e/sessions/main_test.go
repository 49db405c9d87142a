// Package sessions tests the gatekit binary between scripted clients and servers. It covers every
// protocol revision and transport, malformed messages, failures, and clients and servers of
// different eras.
package sessions

import (
	"testing"

	"gatekit/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
