package sessions

import (
	"strings"
	"testing"
	"time"

	"gatekit/test/harness"
)

// TestHungServerDelaysNoList uses a server that never answers. In an older version, each list of a
// modern client took 20 seconds, and initialize of a legacy client took 15 seconds.
func TestHungServerDelaysNoList(t *testing.T) {
	harness.Long(t, "waits for a server that hangs")
	g := harness.StartHTTP(t, harness.ScriptedServer("box")+
		harness.StdioServer("hung", []string{"sleep", "600"}))
	for _, revision := range harness.Revisions {
		for i := range 3 {
			c := g.Connect(revision)
			began := time.Now()
			harness.Handshake(t, c)
			shook := time.Since(began)
			for range 3 {
				began = time.Now()
				m := harness.Request(t, c, "tools/list", `{}`)
				took := time.Since(began)
				t.Logf("%s, client %d: handshake %s, list %s", revision, i, shook, took)
				if !strings.Contains(string(m.Raw), `"box__echo"`) ||
					!strings.Contains(string(m.Raw), `"gatekit/partial":[{"server":"hung"`) {
					t.Fatalf("got %s, want the tools of box, and hung in gatekit/partial", m.Raw)
				}
				// The first client waits, because Gatekit does not know yet that the server
				// hangs. The limits leave room for a busy machine.
				if limit := 9 * time.Second; shook > limit || took > limit {
					t.Errorf("the handshake took %s and the list %s, want at most %s", shook, took,
						limit)
				}
				if limit := 3 * time.Second; i > 0 && (shook > limit || took > limit) {
					t.Errorf("later client: the handshake took %s and the list %s, want at most %s",
						shook, took, limit)
				}
			}
		}
	}
}
