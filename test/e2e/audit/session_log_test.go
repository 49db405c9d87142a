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

// A session of both eras in which a message is changed, a plugin and a policy refuse, a call is
// parked and another given up, a plugin is killed and the file changed: the log says who did what
// through which server when, what was refused and by whom, and what changed in the message, but not
// what was there.
func TestTheLogOfAMixedSessionAnswers(t *testing.T) {
	const rego = `deny contains "nobody logs" if { input.method == "tools/call"; input.kind == "request"; input.name == "log" }`
	servers := harness.ScriptedServer("old") + harness.ScriptedServer("new",
		"-revisions", mcptest.Modern)
	g := harness.StartHTTP(t, servers+harness.Builtin("tools", `tools = { hide = ["die"] }`)+
		harness.Builtin("secrets",
			`action = "redact"`)+harness.PolicyFile(t, rego))
	listen := fmt.Sprintf("[listen]\nhttp = %q\n", strings.TrimSuffix(strings.TrimPrefix(g.URL,
		"http://"), "/mcp"))

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
	harness.WaitUntilAtMost(t, "plugin processes that are not another", 0, func() int {
		if others := slices.DeleteFunc(g.PluginPIDs(), func(pid int) bool {
			return pid == pids[0]
		}); len(others) > 0 {
			return 0
		}
		return 1
	})
	harness.CallTool(t, modern, "new__echo", ``)
	g.Configure(listen + servers)
	g.WaitForLog("configuration reloaded", 1)   // it is recorded before it is
	harness.CallTool(t, modern, "new__log", ``) // what was refused is not, now
	g.Stop()

	file := filepath.Join(g.Dir, "audit.jsonl")
	var all []*query.Call
	for c, err := range query.Calls(t.Context(), &audit.Reader{File: file}, &query.Filter{},
		query.Options{KeepRecords: true}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	find := func(what string, is func(c *query.Call) bool) *query.Call {
		t.Helper()
		for _, c := range all {
			if is(c) {
				return c
			}
		}
		t.Errorf("the log does not say %s", what)
		return &query.Call{}
	}
	event := func(action, reason string) *query.Call {
		t.Helper()
		return find(action+" "+reason, func(c *query.Call) bool {
			return c.Kind == "event" && c.Action == action && strings.Contains(c.Reason, reason)
		})
	}
	who := map[string]string{
		"legacy": event("connect", "mcptest 1, 2025-11-25").Session,
		"modern": event("connect", "mcptest 1, 2026-07-28").Session,
	}
	if who["legacy"] == "" || who["legacy"] == who["modern"] {
		t.Errorf("two clients are one: %q", who)
	}
	last := event("start", "version")
	called := func(client, server, name, action string, end query.Status) *query.Call {
		t.Helper()
		c := find(fmt.Sprintf("that the %s client called %s of %s: %s, %s", client, name, server,
			action, end), func(c *query.Call) bool {
			return c.Session == who[client] && !c.FromServer && slices.Equal(c.Servers,
				[]string{server}) && c.Method == "tools/call" && c.Name == name &&
				c.Action == action && c.Status == end
		})
		if c.Start.Before(last.Start) || c.Exchange == "" {
			t.Errorf("%s of %s in exchange %q was at %s, and what was before it at %s", name,
				server, c.Exchange, c.Start, last.Start)
		}
		last = c
		return c
	}
	decided := func(c *query.Call, stage, reason string) {
		t.Helper()
		if c.DecidingStage() != stage || c.Reason != reason {
			t.Errorf("%s of %q was decided by %q: %q, want %q: %q", c.Action, c.Name,
				c.DecidingStage(),
				c.Reason, stage, reason)
		}
	}

	changed := called("legacy", "new", "echo", "modify", query.StatusAnswered)
	decided(changed, "secrets", "redacted aws-access-token")
	if at := changed.ChangedPointers(); !slices.Equal(at, []string{"/arguments/tag"}) {
		t.Errorf("what was changed is %q", at)
	}
	if d := changed.Decision; d == nil || d.Direction != "to_server" || d.Before == nil ||
		d.After == nil || d.Before.Size == d.After.Size {
		t.Errorf("the change is recorded as %+v", d)
	}
	parked := called("modern", "old", "ask", "pass", query.StatusAnswered)
	var actions []string
	for _, r := range parked.Records {
		actions = append(actions, r.Action)
	}
	if !parked.Parked || !slices.Equal(actions, []string{"pass", "park", "resume", "pass"}) {
		t.Errorf("the parked call is %q", actions)
	}
	question := find("what the server asked", func(c *query.Call) bool {
		return c.FromServer && c.Method == "elicitation/create"
	})
	if question.Session != who["modern"] || question.Exchange != parked.Exchange ||
		!slices.Equal(question.Servers, []string{"old"}) ||
		question.Status != query.StatusAnswered {
		t.Errorf("the question is %+v", question)
	}
	decided(called("legacy", "old", "die", "deny", query.StatusRefused),
		"tools", "the tool is hidden from this client")
	decided(called("modern", "new", "log", "deny", query.StatusRefused),
		"policy", "mine: nobody logs")
	called("legacy", "old", "wait", "pass", query.StatusCancelled)
	called("legacy", "old", "cancelled", "pass", query.StatusAnswered)
	lost, back := event("plugin_lost", `plugin "tools"`), event("plugin_restarted",
		`plugin "tools"`)
	if lost.Error == "" || lost.FirstSeq > back.FirstSeq {
		t.Errorf("the plugin was lost: %q, record %d, and back: record %d", lost.Error,
			lost.FirstSeq,
			back.FirstSeq)
	}
	called("modern", "new", "echo", "pass", query.StatusAnswered)
	last = event("reload", "gatekit.toml")
	called("modern", "new", "log", "pass", query.StatusAnswered)
	event("stop", "")

	for _, c := range all { // none is without an end
		if c.Status == query.StatusOpen {
			t.Errorf("%s %s %s is open", c.Servers, c.Method, c.Name)
		}
	}
	b, err := os.ReadFile(file)
	for _, content := range []string{harness.PlantedKey, harness.PlantedKey[4:],
		"changed their mind", "who?"} {
		if err != nil || strings.Contains(string(b), content) {
			t.Errorf("%q is in the log, %v", content, err)
		}
	}
}

// Who follows the log sees each call once it has ended, from before there is a log, and through the
// files that follow each other.
func TestTheLogIsShownAsItGrowsThroughItsFiles(t *testing.T) {
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
	harness.WaitUntilAtMost(t, "calls not shown", 0, func() int {
		return calls - strings.Count(out.String(), "tools/call echo")
	})
	g.Stop()
	show.Process.Signal(os.Interrupt)
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if n := strings.Count(out.String(), "\n"); n != calls || strings.Contains(out.String(),
		"nothing") {
		t.Errorf("it shows %d lines, want %d: %s", n, calls, out)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "audit-*.jsonl")); len(files) == 0 {
		t.Error("the log is in one file")
	}
}
