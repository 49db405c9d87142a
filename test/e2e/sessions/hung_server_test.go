package sessions

import (
	"strings"
	"testing"
	"time"

	"gatekit/test/harness"
)

// TestHungServerDelaysNoList has a server that never answers. Each list of a modern client took 20
// seconds, and initialize of a legacy client 15.
func TestHungServerDelaysNoList(t *testing.T) {
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
					t.Fatalf("got %s, want the tools of box, and that hung is missing", m.Raw)
				}
				// at first nothing is known of the server; the rest is for a busy machine
				if limit := 9 * time.Second; shook > limit || took > limit {
					t.Errorf("handshake %s, list %s: want less than %s", shook, took, limit)
				}
				if limit := 3 * time.Second; i > 0 && (shook > limit || took > limit) {
					t.Errorf("handshake %s, list %s: want less than %s once the server is known",
						shook, took, limit)
				}
			}
		}
	}
}
