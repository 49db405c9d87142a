package shared

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/redistest"
)

const sharedPolicy = `label contains "private" if { input.name == "self"; input.kind != "request" }
deny contains "private data" if { input.name == "log"; "private" in input.session.labels }
deny contains "two calls" if {
	input.kind == "request"
	input.name == "progress"
	input.session.calls["box progress"] >= 2
}
ask contains "are you sure" if {
	input.method == "tools/call"
	input.kind == "request"
	input.name == "echo"
}
`

// startSharing starts replicas of one configuration, which share a redis-server.
func startSharing(t *testing.T, n int) (server *redistest.Server, all []*harness.Gatekit) {
	t.Helper()
	server = redistest.Start(t)
	policy := harness.PolicyFile(t, sharedPolicy)
	for range n {
		all = append(all, harness.StartHTTP(t, sharedTable(server.Addr, `timeout = "5s"`)+policy+
			harness.ScriptedServer("box")))
	}
	return server, all
}

// modern returns a client of a replica. All clients are one principal, whose session is the same on
// all replicas.
func modern(t *testing.T, g *harness.Gatekit) *mcptest.Client {
	t.Helper()
	c := g.Connect(mcptest.Modern)
	c.Capabilities = `{}`
	return c
}

// A label that a call gets on one replica denies a call on another one, and a limit counts the
// calls of both. Each replica has the denial in its log.
func TestReplicasShareLabelsAndCounts(t *testing.T) {
	server, all := startSharing(t, 2)
	a, b := modern(t, all[0]), modern(t, all[1])
	call := func(c *mcptest.Client, tool string) mcptest.Message {
		return harness.Request(t, c, "tools/call", fmt.Sprintf(`{"name":"box__%s","arguments":{}}`,
			tool))
	}
	if m := call(b, "log"); m.Error != nil {
		t.Fatalf("before the label: %s", m.Raw)
	}
	call(a, "self")
	if m := call(b, "log"); !harness.IsDenied(m) {
		t.Errorf("the other replica does not know the label: %s", m.Raw)
	}
	for i, c := range []*mcptest.Client{a, b} {
		if m := call(c, "progress"); harness.IsDenied(m) {
			t.Errorf("call %d is denied: %s", i+1, m.Raw)
		}
	}
	for _, c := range []*mcptest.Client{a, b} {
		if m := call(c, "progress"); !harness.IsDenied(m) {
			t.Errorf("a third call passes: %s", m.Raw)
		}
	}
	if keys := server.Do(t, "KEYS", "*"); strings.Contains(keys, "private") ||
		strings.Contains(keys, "progress") || strings.Contains(keys, "anonymous") {
		t.Errorf("the keys tell what they are for: %s", keys)
	}
	all[0].WantRecords("to_server request tools/call box progress deny")
	all[1].WantRecords("to_server request tools/call box log deny",
		"to_server request tools/call box progress deny")
	sessions := map[string]bool{}
	for _, g := range all {
		for _, r := range g.Records() {
			if r.Method == "tools/call" {
				sessions[r.Session] = true
			}
		}
	}
	if len(sessions) != 1 {
		t.Errorf("the logs have the sessions %v, want one", sessions)
	}

	away := kill(t, server)
	if m := call(a, "log"); !harness.IsDenied(m) {
		t.Errorf("without the server, a call whose rule reads labels got %s", m.Raw)
	}
	if m := harness.Request(t, a, "prompts/get", `{"name":"box__plain"}`); m.Error != nil &&
		away.isShort() {
		t.Errorf("without the server, a request that needs no state got %s", m.Raw)
	}
	all[0].WantReasons("shared state is not available")
}

// A request that one replica denied is approved beside another one, and retried at a third.
func TestReplicasShareApprovals(t *testing.T) {
	_, all := startSharing(t, 3)
	echo := func(g *harness.Gatekit) mcptest.Message {
		return harness.Request(t, modern(t, g), "tools/call",
			`{"name":"box__echo","arguments":{"tag":2}}`)
	}
	m := echo(all[0])
	_, rest, _ := strings.Cut(mcptest.Text(m.Error, "message"), "`gatekit approve ")
	id, _, ok := strings.Cut(rest, "`")
	if !ok {
		t.Fatalf("the call got %s, want the command that approves it", m.Raw)
	}
	if out, ok := run(t, all[1], "approve"); !ok || !strings.Contains(out, id) {
		t.Fatalf("gatekit approve beside another replica lists %q, want %s", out, id)
	}
	if out, ok := run(t, all[1], "approve", id); !ok || !strings.Contains(out, "approved once") {
		t.Fatalf("gatekit approve: %s", out)
	}
	if m := echo(all[2]); m.Error != nil {
		t.Errorf("the approved call got %s, want a result", m.Raw)
	}
	for i, g := range all {
		if m := echo(g); m.Error == nil {
			t.Errorf("replica %d: the approval is used twice: %s", i, m.Raw)
		}
	}
	all[1].WantRecords("- - - box - approve")
	all[2].WantRecords("to_server request tools/call box echo approve",
		"to_server request tools/call box echo pass")
}

// After a session has read private data, its client cannot send the data to another server as its
// own name, on a replica that has not seen the client before. Under its old name, it may go on.
func TestReplicasShareTheKnownClients(t *testing.T) {
	server := redistest.Start(t)
	config := sharedTable(server.Addr, `timeout = "5s"`) + harness.LibraryRules(map[string]string{
		"flow/exfiltration": `private = { tools = ["self"] }` + "\n" +
			`untrusted = { tools = ["log"] }` + "\n" + `egress = { servers = ["web"] }`,
	}) + harness.ScriptedServer("box") + harness.ScriptedServer("web")
	var all []*harness.Gatekit
	for range 2 {
		all = append(all, harness.StartHTTP(t, config))
	}
	client := modern(t, all[0])
	harness.Request(t, client, "tools/list", `{}`)
	harness.CallTool(t, client, "box__self", `{}`)
	harness.CallTool(t, client, "box__log", `{}`)
	for _, tt := range []struct {
		name string
		want string // action of the request to the server web
	}{{"the private data", "deny"}, {client.Name, "pass"}, {"more private data", "deny"}} {
		other := modern(t, all[1])
		other.Name = tt.name
		before := len(all[1].Records())
		harness.Request(t, other, "tools/list", `{}`)
		got := ""
		for _, r := range all[1].Records()[before:] {
			// a request for a further page has a text of the server, and is always denied
			if got == "" && r.Method == "tools/list" && r.Server == "web" &&
				r.Direction == "to_server" {
				got = r.Action
			}
		}
		if got != tt.want {
			t.Errorf("tools/list of the client %q to the server web has the action %q, want %q",
				tt.name, got, tt.want)
		}
	}
	all[1].WantReasons("this message could send out private data")
}
