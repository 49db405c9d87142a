package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"gatekit/test/mcptest"
)

// Policies are changed under load, again and again, to good ones and to broken ones: no call is
// lost, none passes that the policies in force refuse, a broken one leaves the one before it in
// force, and what was known of a session stays known.
func TestPoliciesAreSwappedWithoutLosingACall(t *testing.T) {
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
	write := func(text string) { replace(t, file, []byte(text)) }
	write(before)
	g := overHTTP(t, box("box")+fmt.Sprintf("[policy]\nfiles = [%q]\n", filepath.Dir(file)))
	g.says("policies are in force", 1)
	var calls atomic.Int64
	defer g.meanwhile(4, echoAndLog(t, &calls))()
	c := g.client("2025-11-25")
	call(t, c, "box__echo", ``) // which labels the session
	waiting(t, c, "box", `"w"`, "w")
	for round := 1; round <= 2; round++ {
		write(broken)
		g.says(`mine.rego:3:23: undefined ref: input.nmae`, round)
		call(t, c, "box__echo", ``)
		if m := ask(t, c, "tools/call", `{"name":"box__log"}`); !wasDenied(m) {
			t.Errorf("with a broken policy, what was refused answered %s", m.Raw)
		}
		write(after)
		g.says("configuration is in force", 2*round-1)
		if m := ask(t, c, "tools/call",
			`{"name":"box__cancelled","arguments":{"tag":"none"}}`); !wasDenied(m) {
			t.Errorf("the changed policy is not in force, or the session's label was forgotten: %s",
				m.Raw)
		}
		write(torn)
		g.says(`mine.rego:4`, round)
		if m := ask(t, c, "tools/call",
			`{"name":"box__cancelled","arguments":{"tag":"none"}}`); !wasDenied(m) {
			t.Errorf("with a policy that is no Rego, what was refused answered %s", m.Raw)
		}
		write(before)
		g.says("configuration is in force", 2*round)
	}
	// the call that was under way all the time
	c.Notify("notifications/cancelled", `{"requestId":"w"}`)
	call(t, c, "box__cancelled", `{"tag":"w"}`)
	settled(t, "calls are not made yet", 0, func() int { return int(max(0, 100-calls.Load())) })
	g.recorded("- - - - - reload", "to_server request tools/call box log deny",
		"to_server request tools/call box cancelled deny",
		"to_server request tools/call box cancelled pass")
}

// A policy can be well written and fail all the same: it is too slow, takes too much, gives another
// type. While it is in force every call is refused, none is lost, and the record says why; with the
// one that comes after it, calls pass again.
func TestAFailingPolicyRefusesEveryCallUntilItIsReplaced(t *testing.T) {
	const good = "deny contains \"no\" if input.name == \"log\"\n"
	failing := []struct{ name, rego, want string }{
		{"slow", `deny contains "no" if { input.method == "tools/call"; some a in numbers.range(1, 5000); some b in numbers.range(1, 5000); some c in numbers.range(1, 5000); a * b * c < 0 }`, "no verdict within 1s"},
		{"large", `deny contains "no" if { input.method == "tools/call"; count(net.cidr_expand("10.0.0.0/8")) == 0 }`, "no verdict within 1s"},
		{"of another type", `deny contains 7 if input.method == "tools/call"`,
			"mine: deny contains an element of type number, want reasons"},
		{"wrong", `deny contains "no" if { input.method == "tools/call"; to_number(input.name) > 1 }`, "mine.rego:3: eval_builtin_error: to_number"},
	}
	file := filepath.Join(t.TempDir(), "mine.rego")
	write := func(rego string) { replace(t, file, []byte("package gatekit.mine\n\n"+rego)) }
	write(good)
	g := overHTTP(t, box("box")+fmt.Sprintf("[policy]\nfiles = [%q]\n", filepath.Dir(file)))
	var passed, denials atomic.Int64
	defer g.meanwhile(3, func(c *mcptest.Client) bool {
		m, err := c.Call(t.Context(), "tools/call", `{"name":"box__echo"}`)
		switch {
		case err != nil:
			t.Errorf("a call was lost: %v", err)
			return false
		case m.Error == nil:
			passed.Add(1)
		case wasDenied(m):
			denials.Add(1)
		default:
			t.Errorf("a call answered %s", m.Raw)
			return false
		}
		return true
	})()
	c := g.client("2025-11-25")
	reloads := 0
	swap := func(rego string) {
		t.Helper()
		write(rego)
		reloads++
		g.says("configuration is in force", reloads)
	}
	for _, f := range failing {
		swap(f.rego + "\n")
		before := denials.Load()
		denied(t, c, "tools/call", `{"name":"box__echo"}`)
		denied(t, c, "tools/call", `{"name":"box__log"}`)
		settled(t, "refusals of the others' calls missing", 0, func() int {
			return int(max(0, 3-(denials.Load()-before)))
		})
		swap(good)
		call(t, c, "box__echo", ``)
		denied(t, c, "tools/call", `{"name":"box__log"}`)
		said := false
		for _, r := range g.records() {
			said = said || r.Action == "deny" && r.Name == "echo" && strings.Contains(r.Error,
				f.want)
		}
		if !said {
			t.Errorf("no record says why a policy that is %s refuses: %q", f.name, f.want)
		}
	}
	settled(t, "calls have not passed yet", 0, func() int { return int(max(0, 100-passed.Load())) })
}

func TestShadowedPoliciesAreSaidToBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.rego")
	if err := os.WriteFile(file,
		[]byte("package gatekit.mine\n\ndeny contains \"no\" if input.name == \"echo\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	front(t, box("box")+fmt.Sprintf("[policy]\nmode = \"shadow\"\nfiles = [%q]\n", file),
		"2025-11-25", func(t *testing.T, g *gatekit, c *mcptest.Client) {
			open(t, c)
			call(t, c, "box__echo", ``)
			g.says("mode=shadow", 1)
			g.says("the policies refuse and change nothing", 1)
			g.recorded("to_server request tools/call box echo pass")
			b, err := os.ReadFile(filepath.Join(g.dir, "audit.jsonl"))
			if err != nil || !strings.Contains(string(b), "would deny: mine") {
				t.Errorf("the record does not say what would have been: %v", err)
			}
		})
}
