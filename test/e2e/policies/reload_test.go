package policies

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// Policies are changed under load, again and again, to good ones and to broken ones: no call is
// lost, none passes that the policies in force refuse, a broken one leaves the one before it in
// force, and what was known of a session stays known.
func TestPoliciesAreSwappedWithoutLosingACall(t *testing.T) {
	harness.Long(t, "waits for reloads")
	const (
		before = "package gatekit.mine\n\ndeny contains \"no\" if input.name == " +
			"\"log\"\n\nlabel contains \"seen\" if input.name == \"echo\"\n"
		after = "package gatekit.mine\n\ndeny contains \"no\" if input.name == \"log\"\n\ndeny " +
			"contains \"was seen\" if {\n\tinput.name == \"cancelled\"\n\t\"seen\" in " +
			"input.session.labels\n}\n"
		broken = "package gatekit.mine\n\ndeny contains \"no\" if input.nmae == \"log\"\n"
		torn   = "package gatekit.mine\n\ndeny contains \"no\" if {\n"
	)
	file := filepath.Join(t.TempDir(), "mine.rego")
	write := func(text string) { harness.ReplaceFile(t, file, []byte(text)) }
	write(before)
	g := harness.StartHTTP(t, harness.ScriptedServer("box")+fmt.Sprintf("[policy]\nfiles = [%q]\n",
		filepath.Dir(file)))
	g.WaitForLog("policies active", 1)
	var calls atomic.Int64
	defer g.CallRepeatedly(4, harness.EchoAndDeniedLog(t, &calls))()
	c := g.Client("2025-11-25")
	harness.CallTool(t, c, "box__echo", ``) // which labels the session
	harness.StartWaitingCall(t, c, "box", `"w"`, "w")
	for round := 1; round <= 2; round++ {
		write(broken)
		g.WaitForLog(`mine.rego:3:23: undefined ref: input.nmae`, round)
		harness.CallTool(t, c, "box__echo", ``)
		if m := harness.Request(t, c, "tools/call", `{"name":"box__log"}`); !harness.IsDenied(m) {
			t.Errorf("with a broken policy, what was refused answered %s", m.Raw)
		}
		write(after)
		g.WaitForLog("configuration reloaded", 2*round-1)
		if m := harness.Request(t, c, "tools/call",
			`{"name":"box__cancelled","arguments":{"tag":"none"}}`); !harness.IsDenied(m) {
			t.Errorf("the changed policy is not in force, or the session's label was forgotten: %s",
				m.Raw)
		}
		write(torn)
		g.WaitForLog(`mine.rego:4`, round)
		if m := harness.Request(t, c, "tools/call",
			`{"name":"box__cancelled","arguments":{"tag":"none"}}`); !harness.IsDenied(m) {
			t.Errorf("with a policy that is no Rego, what was refused answered %s", m.Raw)
		}
		write(before)
		g.WaitForLog("configuration reloaded", 2*round)
	}
	// the call that was under way all the time
	c.Notify("notifications/cancelled", `{"requestId":"w"}`)
	harness.CallTool(t, c, "box__cancelled", `{"tag":"w"}`)
	harness.WaitUntilAtMost(t, "calls are not made yet", 0, func() int {
		return int(max(0, 100-calls.Load()))
	})
	g.WantRecords("- - - - - reload", "to_server request tools/call box log deny",
		"to_server request tools/call box cancelled deny",
		"to_server request tools/call box cancelled pass")
}

// A policy can be well written and fail all the same: it is too slow, takes too much, gives another
// type. While it is in force every call is refused, none is lost, and the record says why; with the
// one that comes after it, calls pass again.
func TestAFailingPolicyRefusesEveryCallUntilItIsReplaced(t *testing.T) {
	harness.Long(t, "waits for reloads")
	const good = "deny contains \"no\" if input.name == \"log\"\n"
	failing := []struct{ name, rego, want string }{
		{"slow", `deny contains "no" if { input.method == "tools/call"; some a in numbers.range(1, 5000); some b in numbers.range(1, 5000); some c in numbers.range(1, 5000); a * b * c < 0 }`, "no verdict within 1s"},
		{"large", `deny contains "no" if { input.method == "tools/call"; count(net.cidr_expand("10.0.0.0/8")) == 0 }`, "no verdict within 1s"},
		{"of another type", `deny contains 7 if input.method == "tools/call"`,
			"mine: deny contains an element of type number, want reasons"},
		{"wrong", `deny contains "no" if { input.method == "tools/call"; to_number(input.name) > 1 }`, "mine.rego:3: eval_builtin_error: to_number"},
	}
	file := filepath.Join(t.TempDir(), "mine.rego")
	write := func(rego string) {
		harness.ReplaceFile(t, file,
			[]byte("package gatekit.mine\n\n"+rego))
	}
	write(good)
	g := harness.StartHTTP(t, harness.ScriptedServer("box")+fmt.Sprintf("[policy]\nfiles = [%q]\n",
		filepath.Dir(file)))
	var passed, denials atomic.Int64
	defer g.CallRepeatedly(3, func(c *mcptest.Client) bool {
		m, err := c.Call(t.Context(), "tools/call", `{"name":"box__echo"}`)
		switch {
		case err != nil:
			t.Errorf("a call was lost: %v", err)
			return false
		case m.Error == nil:
			passed.Add(1)
		case harness.IsDenied(m):
			denials.Add(1)
		default:
			t.Errorf("a call answered %s", m.Raw)
			return false
		}
		return true
	})()
	c := g.Client("2025-11-25")
	reloads := 0
	swap := func(rego string) {
		t.Helper()
		write(rego)
		reloads++
		g.WaitForLog("configuration reloaded", reloads)
	}
	for _, f := range failing {
		swap(f.rego + "\n")
		before := denials.Load()
		harness.WantDenied(t, c, "tools/call", `{"name":"box__echo"}`)
		harness.WantDenied(t, c, "tools/call", `{"name":"box__log"}`)
		harness.WaitUntilAtMost(t, "refusals of the others' calls missing", 0, func() int {
			return int(max(0, 3-(denials.Load()-before)))
		})
		swap(good)
		harness.CallTool(t, c, "box__echo", ``)
		harness.WantDenied(t, c, "tools/call", `{"name":"box__log"}`)
		said := false
		for _, r := range g.Records() {
			said = said || r.Action == "deny" && r.Name == "echo" && strings.Contains(r.Error,
				f.want)
		}
		if !said {
			t.Errorf("no record says why a policy that is %s refuses: %q", f.name, f.want)
		}
	}
	harness.WaitUntilAtMost(t, "calls have not passed yet", 0, func() int {
		return int(max(0, 100-passed.Load()))
	})
}

func TestShadowedPoliciesAreSaidToBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.rego")
	if err := os.WriteFile(file,
		[]byte("package gatekit.mine\n\ndeny contains \"no\" if input.name == \"echo\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	harness.EachTransport(t, harness.ScriptedServer("box")+fmt.Sprintf("[policy]\nmode = "+
		"\"shadow\"\nfiles = [%q]\n", file),
		"2025-11-25", func(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
			harness.Handshake(t, c)
			harness.CallTool(t, c, "box__echo", ``)
			g.WaitForLog("mode=shadow", 1)
			g.WaitForLog("policies not enforced", 1)
			g.WantRecords("to_server request tools/call box echo pass")
			b, err := os.ReadFile(filepath.Join(g.Dir, "audit.jsonl"))
			if err != nil || !strings.Contains(string(b), "would deny: mine") {
				t.Errorf("the record does not say what would have been: %v", err)
			}
		})
}
