// Package sessions tests the gatekit binary between scripted clients and servers. It covers every
// protocol revision and transport, malformed messages, failures, and clients and servers of
// different eras.
package sessions

import (
	"context"
	"os"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestMain runs the tests. Gatekit also starts the test binary as an inquisitiveServer over stdio.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "inquisitive-server" {
		inquisitiveServer().Serve(context.Background(), mcptest.Lines(os.Stdin, os.Stdout),
			func() { os.Exit(3) })
		return
	}
	harness.Parallel(4)
	harness.Main(m)
}
