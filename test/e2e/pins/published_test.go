package pins

import (
	"fmt"
	"path/filepath"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// TestToolsForSomeClientsArePinned has a published server that declares some tools only to clients
// that can answer its questions. All of them are approved at once.
func TestToolsForSomeClientsArePinned(t *testing.T) {
	index := peers.Node(t).Path("@modelcontextprotocol", "server-everything", "dist", "index.js")
	config := fmt.Sprintf("[server.everything]\ncommand = \"node\"\nargs = [%q]\n[pins]\n%s", index,
		harness.AuditTable)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	dir := t.TempDir()
	harness.ReplaceFile(t, filepath.Join(dir, "gatekit.toml"), []byte(config))
	if out, err := run(t, dir, "pin", "--yes"); err != nil {
		t.Fatalf("gatekit pin: %v: %s", err, out)
	}
	g := harness.StartHTTPIn(t, dir, config)
	counts := map[string]int{}
	for _, capabilities := range []string{`{}`, `{"roots":{}}`, `{"sampling":{},"elicitation":{}}`} {
		c := g.Connect("2025-11-25")
		c.Capabilities = capabilities
		harness.Handshake(t, c)
		for _, tool := range harness.ListAll(t, c, "tools/list", "tools") {
			counts[mcptest.Text(tool, "name")]++
		}
	}
	for tool, want := range map[string]int{"everything__echo": 3, "everything__get-roots-list": 1,
		"everything__trigger-sampling-request": 1} {
		if counts[tool] != want {
			t.Errorf("%d of the clients can use %s, want %d", counts[tool], tool, want)
		}
	}
	for _, r := range g.Records() {
		if r.Action == "hide" {
			t.Errorf("the record of %s hides items: %s", r.Method, r.Reason)
		}
	}
}
