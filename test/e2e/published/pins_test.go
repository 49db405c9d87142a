package published

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// TestPublishedServersAreAsApprovedLater pins 14 real servers, and starts them again with another
// home folder and a clock that is 40 days ahead. Nothing may be held back. go run ./test/corpus
// pins does the same with many more servers.
func TestPublishedServersAreAsApprovedLater(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	r, dir := allServers(t), t.TempDir()
	config := func(days int) string {
		later := r
		later.Env = map[string][]string{}
		home := t.TempDir()
		for name, env := range r.Env {
			later.Env[name] = append(replaced(env, "HOME", home), "CLOCK_DAYS", fmt.Sprint(days),
				"NODE_OPTIONS", "-r "+filepath.Join(peers.Top(), "test", "servers", "clock.cjs"))
		}
		return later.Config() + "[pins]\n" + harness.AuditTable
	}
	harness.ReplaceFile(t, filepath.Join(dir, "gatekit.toml"), []byte(config(0)))
	pin := exec.CommandContext(t.Context(), peers.Gatekit(t), "pin", "--yes")
	pin.Dir = dir
	if out, err := pin.CombinedOutput(); err != nil {
		t.Fatalf("gatekit pin: %v: %s", err, out)
	}
	g := harness.StartHTTPIn(t, dir, config(40))
	c := g.Client("2025-11-25")
	servers := map[string]bool{}
	// A list lacks the items of servers that do not answer within 20 s, so the test lists again.
	harness.WaitUntilAtMost(t, "servers without tools", 0, func() int {
		for _, tool := range harness.ListAll(t, c, "tools/list", "tools") {
			server, _, _ := strings.Cut(mcptest.Text(tool, "name"), "__")
			servers[server] = true
		}
		return len(r.Names) - len(servers)
	})
	harness.ListAll(t, c, "prompts/list", "prompts")
	harness.ListAll(t, c, "resources/templates/list", "resourceTemplates")
	passed := map[string]bool{}
	for _, record := range g.Records() {
		switch {
		case record.Action == "hide" || record.Action == "modify":
			t.Errorf("%s: %s", record, record.Reason)
		case record.Method == "tools/list" && record.Direction == "to_client" && record.Server !=
			"":
			passed[record.Server] = true
		}
	}
	if len(passed) != len(r.Names) {
		t.Errorf("the audit log has lists of tools of the servers %v, want %q", passed, r.Names)
	}
}

// replaced returns the names and values of env with another value of one variable.
func replaced(env []string, name, value string) (all []string) {
	for i := 0; i+1 < len(env); i += 2 {
		if env[i] == name {
			all = append(all, name, value)
		} else {
			all = append(all, env[i], env[i+1])
		}
	}
	return all
}
