package credentials

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestPinAsAPrincipal pins a server to which only one principal is logged in: gatekit pin needs its
// login. What it pins, the principal can use.
func TestPinAsAPrincipal(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			a := startProvider(t, 3600)
			p := protectedBy(t, a, era == "legacy")
			token, table := staticToken(t, "ann")
			g := start(t, table+oauth(p, pinned(a), preRegistered)+"[pins]\n")
			a.logIn(t, g.Dir, "ann-there", "box", "--principal", "token:ann")
			for _, args := range [][]string{nil, {"--as", "token:bob"}} {
				out, code := gatekit(t, g.Dir, append([]string{"pin", "--yes"}, args...)...)
				if code != 1 {
					t.Errorf("gatekit pin %q: exit code %d: %s, want a failure", args, code, out)
				}
			}
			if out, code := gatekit(t, g.Dir, "pin", "--yes", "--as", "token:ann"); code != 0 {
				t.Fatalf("gatekit pin: exit code %d: %s", code, out)
			}
			lock, err := os.ReadFile(filepath.Join(g.Dir, "gatekit.lock"))
			if err != nil || !strings.Contains(string(lock), `"whoami": {`) {
				t.Errorf("the lock file is %s, %v, want the tool whoami", lock, err)
			}
			if out, code := gatekit(t, g.Dir, "pin", "verify", "--as", "token:ann"); code != 0 {
				t.Errorf("gatekit pin verify: exit code %d: %s", code, out)
			}
			g.WaitForLog("configuration reloaded", 1)
			connection := mcptest.NewHTTP(g.URL)
			connection.Header.Set("Authorization", "Bearer "+token)
			c := mcptest.NewClient(connection, "2025-11-25")
			t.Cleanup(func() { c.Close() })
			harness.Handshake(t, c)
			wantUser(t, c, "ann-there")
			g.WantRecords("to_server request tools/call box whoami pass")
		})
	}
}
