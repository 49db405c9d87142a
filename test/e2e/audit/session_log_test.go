package audit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gatekit/audit"
	"gatekit/audit/query"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// TestLogDescribesASessionWithoutItsContent runs clients and servers of both eras. A message is
// modified, a plugin and a policy deny calls, a call is parked, another call is cancelled, a plugin
// is killed, and the configuration changes. The audit log names the client, the server, the time,
// the deciding stage and the modified places of each call. It does not contain message content.
func TestLogDescribesASessionWithoutItsContent(t *testing.T) {
	const rego = `deny contains "the tool log is not allowed" if { input.method == "tools/call"; input.kind == "request"; input.name == "log" }`
	servers := harness.ScriptedServer("old") + harness.ScriptedServer("new",
		"-revisions", mcptest.Modern)
	g := harness.StartHTTP(t, servers+
		harness.Builtin("tools", `tools = { hide = ["die"] }`)+
		harness.Builtin("secrets", `action = "redact"`)+
		harness.PolicyFile(t, rego))
	listen := fmt.Sprintf("[listen]\nhttp = %q\n",
		strings.TrimSuffix(strings.TrimPrefix(g.URL, "http://"), "/mcp"))

	legacy, modern := g.Client("2025-11-25"), g.Client(mcptest.Modern)
	harness.Request(t, legacy, "tools/list", `{}`)
	harness.CallTool(t, legacy, "new__echo", `{"tag":"key `+harness.PlantedKey+` ."}`)
	harness.CallTool(t, modern, "old__ask",
		`{"method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object","properties":{}}}}`)
	harness.Request(t, legacy, "tools/call", `{"name":"old__die"}`)
	harness.Request(t, modern, "tools/call", `{"name":"new__log"}`)
	harness.StartWaitingCall(t, legacy, "old", `"w"`, "w")
	legacy.Notify("notifications/cancelled",
		`{"requestId":"w","reason":"the user has changed their mind"}`)
	harness.CallTool(t, legacy, "old__cancelled", `{"tag":"w"}`)

	pids := g.PluginPIDs()
	syscall.Kill(pids[0], syscall.SIGKILL)
	harness.WaitUntilAtMost(t, "plugin processes to restart", 0, func() int {
		if slices.ContainsFunc(g.PluginPIDs(), func(pid int) bool { return pid != pids[0] }) {
			return 0
		}
		return 1
	})
	harness.CallTool(t, modern, "new__echo", ``)
	g.Configure(listen + servers)
	g.WaitForLog("configuration reloaded", 1)   // logged when the reload has its record
	harness.CallTool(t, modern, "new__log", ``) // no longer denied
	g.Stop()

	file := filepath.Join(g.Dir, "audit.jsonl")
	var calls []*query.Call
	for c, err := range query.Calls(t.Context(), &audit.Reader{File: file}, &query.Filter{},
		query.Options{KeepRecords: true}) {
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	find := func(what string, match func(c *query.Call) bool) *query.Call {
		t.Helper()
		for _, c := range calls {
			if match(c) {
				return c
			}
		}
		t.Errorf("the log does not contain the %s", what)
		return &query.Call{}
	}
	findEvent := func(action, reason string) *query.Call {
		t.Helper()
		return find(fmt.Sprintf("event %s %q", action, reason), func(c *query.Call) bool {
			return c.Kind == "event" && c.Action == action && strings.Contains(c.Reason, reason)
		})
	}
	sessions := map[string]string{
		"legacy": findEvent("connect", "mcptest 1, 2025-11-25").Session,
		"modern": findEvent("connect", "mcptest 1, 2026-07-28").Session,
	}
	if sessions["legacy"] == "" || sessions["legacy"] == sessions["modern"] {
		t.Errorf("the sessions are %q, want two different sessions", sessions)
	}
	previous := findEvent("start", "version")
	// findCall finds a call. It must be called in the order in which the calls were made.
	findCall := func(client, server, name, action string, status query.Status) *query.Call {
		t.Helper()
		what := fmt.Sprintf("call of %s of %s by the %s client: %s, %s", name, server, client,
			action, status)
		c := find(what, func(c *query.Call) bool {
			return c.Session == sessions[client] && !c.FromServer &&
				slices.Equal(c.Servers, []string{server}) && c.Method == "tools/call" &&
				c.Name == name && c.Action == action && c.Status == status
		})
		if c.Start.Before(previous.Start) || c.Exchange == "" {
			t.Errorf("%s: exchange %q began at %s, want an exchange after the previous one at %s",
				what, c.Exchange, c.Start, previous.Start)
		}
		previous = c
		return c
	}
	wantDecision := func(c *query.Call, stage, reason string) {
		t.Helper()
		if c.DecidingStage() != stage || c.Reason != reason {
			t.Errorf("%s of %q: got stage %q and reason %q, want %q and %q", c.Action, c.Name,
				c.DecidingStage(), c.Reason, stage, reason)
		}
	}

	modified := findCall("legacy", "new", "echo", "modify", query.StatusAnswered)
	wantDecision(modified, "secrets", "redacted aws-access-token")
	if got := modified.ChangedPointers(); !slices.Equal(got, []string{"/arguments/tag"}) {
		t.Errorf("the modified places are %q, want /arguments/tag", got)
	}
	if d := modified.Decision; d == nil || d.Direction != "to_server" || d.Before == nil ||
		d.After == nil || d.Before.Size == d.After.Size {
		t.Errorf("the modification is recorded as %+v, want to_server and two sizes", d)
	}
	parked := findCall("modern", "old", "ask", "pass", query.StatusAnswered)
	var actions []string
	for _, r := range parked.Records {
		actions = append(actions, r.Action)
	}
	if want := []string{"pass", "park", "resume", "pass"}; !parked.Parked ||
		!slices.Equal(actions, want) {
		t.Errorf("the parked call has the actions %q, want %q", actions, want)
	}
	elicitation := find("elicitation of the server", func(c *query.Call) bool {
		return c.FromServer && c.Method == "elicitation/create"
	})
	if elicitation.Session != sessions["modern"] || elicitation.Exchange != parked.Exchange ||
		!slices.Equal(elicitation.Servers, []string{"old"}) ||
		elicitation.Status != query.StatusAnswered {
		t.Errorf("the elicitation is %+v, want the exchange and session of the parked call",
			elicitation)
	}
	wantDecision(findCall("legacy", "old", "die", "deny", query.StatusRefused),
		"tools", "the tool is hidden from this client")
	wantDecision(findCall("modern", "new", "log", "deny", query.StatusRefused),
		"policy", "mine: the tool log is not allowed")
	findCall("legacy", "old", "wait", "pass", query.StatusCancelled)
	findCall("legacy", "old", "cancelled", "pass", query.StatusAnswered)
	lost := findEvent("plugin_lost", `plugin "tools"`)
	restarted := findEvent("plugin_restarted", `plugin "tools"`)
	if lost.Error == "" || lost.FirstSeq > restarted.FirstSeq {
		t.Errorf("the plugin was lost in record %d with the error %q, and restarted in record %d; "+
			"want an error, and the restart after the loss", lost.FirstSeq, lost.Error,
			restarted.FirstSeq)
	}
	findCall("modern", "new", "echo", "pass", query.StatusAnswered)
	previous = findEvent("reload", "gatekit.toml")
	findCall("modern", "new", "log", "pass", query.StatusAnswered)
	findEvent("stop", "")

	for _, c := range calls {
		if c.Status == query.StatusOpen {
			t.Errorf("the log contains no end of the call %s %s %s", c.Servers, c.Method, c.Name)
		}
	}
	b, err := os.ReadFile(file)
	for _, content := range []string{harness.PlantedKey, harness.PlantedKey[4:],
		"changed their mind", "who?"} {
		if err != nil || strings.Contains(string(b), content) {
			t.Errorf("the log contains the content %q (error: %v), want no content", content, err)
		}
	}
}

// TestAuditShowFollowsTheLogAcrossSegments starts `gatekit audit show --follow` before the log
// exists. The command prints each call when the call has ended. It follows the log from segment to
// segment.
func TestAuditShowFollowsTheLogAcrossSegments(t *testing.T) {
	dir := t.TempDir()
	out := &harness.Output{}
	show := exec.Command(peers.Gatekit(t), "audit", "show", "--follow", "--tool", "echo",
		filepath.Join(dir, "audit.jsonl"))
	show.Stdout, show.Stderr = out, out
	if err := show.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- show.Wait() }()
	t.Cleanup(func() { show.Process.Kill() })

	const calls = 60
	g := harness.StartHTTPIn(t, dir, harness.ScriptedServer("box")+harness.AuditTable+
		"segment_bytes = 65536\n")
	c := g.Client(mcptest.Modern)
	for range calls {
		harness.CallTool(t, c, "box__echo", `{"tag":"`+strings.Repeat("x", 1<<10)+`"}`)
		harness.Request(t, c, "tools/call", `{"name":"box__nothing"}`)
	}
	harness.WaitUntilAtMost(t, "calls that are not shown", 0, func() int {
		return calls - strings.Count(out.String(), "tools/call echo")
	})
	g.Stop()
	show.Process.Signal(os.Interrupt)
	if err := <-done; err != nil {
		t.Errorf("gatekit audit show ended with %v, want no error", err)
	}
	if n := strings.Count(out.String(), "\n"); n != calls ||
		strings.Contains(out.String(), "nothing") {
		t.Errorf("gatekit audit show printed %d lines, want %d lines, all of echo: %s", n, calls,
			out)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "audit-*.jsonl")); len(files) == 0 {
		t.Error("the log has one segment, want more")
	}
}
