package policies

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestPoliciesAreReloadedWithoutLosingACall replaces the policies several times by valid and by
// invalid policies, while clients make calls. No call is lost, and the active policies decide every
// call. An invalid file leaves the previous policies active, and sessions keep their labels.
func TestPoliciesAreReloadedWithoutLosingACall(t *testing.T) {
	harness.Long(t, "waits for reloads")
	const (
		first = "package gatekit.mine\n\ndeny contains \"no\" if input.name == " +
			"\"log\"\n\nlabel contains \"seen\" if input.name == \"echo\"\n"
		second = "package gatekit.mine\n\ndeny contains \"no\" if input.name == \"log\"\n\ndeny " +
			"contains \"was seen\" if {\n\tinput.name == \"cancelled\"\n\t\"seen\" in " +
			"input.session.labels\n}\n"
		typeError   = "package gatekit.mine\n\ndeny contains \"no\" if input.nmae == \"log\"\n"
		syntaxError = "package gatekit.mine\n\ndeny contains \"no\" if {\n"
	)
	file := filepath.Join(t.TempDir(), "mine.rego")
	write := func(rego string) { harness.ReplaceFile(t, file, []byte(rego)) }
	write(first)
	g := harness.StartHTTP(t, harness.ScriptedServer("box")+
		fmt.Sprintf("[policy]\nfiles = [%q]\n", filepath.Dir(file)))
	g.WaitForLog("policies active", 1)
	var calls atomic.Int64
	defer g.CallRepeatedly(4, harness.EchoAndDeniedLog(t, &calls))()
	c := g.Client("2025-11-25")
	wantDenied := func(when, params string) {
		t.Helper()
		if m := harness.Request(t, c, "tools/call", params); !harness.IsDenied(m) {
			t.Errorf("%s, a call got %s, want a denial", when, m.Raw)
		}
	}
	harness.CallTool(t, c, "box__echo", ``) // the first policy labels the session
	harness.StartWaitingCall(t, c, "box", `"w"`, "w")
	for round := 1; round <= 2; round++ {
		write(typeError)
		g.WaitForLog(`mine.rego:3:23: undefined ref: input.nmae`, round)
		harness.CallTool(t, c, "box__echo", ``)
		wantDenied("with a policy that does not type-check", `{"name":"box__log"}`)

		write(second)
		g.WaitForLog("configuration reloaded", 2*round-1)
		wantDenied("with the changed policy and the session's label",
			`{"name":"box__cancelled","arguments":{"tag":"none"}}`)

		write(syntaxError)
		g.WaitForLog(`mine.rego:4`, round)
		wantDenied("with a policy that does not parse",
			`{"name":"box__cancelled","arguments":{"tag":"none"}}`)

		write(first)
		g.WaitForLog("configuration reloaded", 2*round)
	}
	// The waiting call has been in flight during all the reloads.
	c.Notify("notifications/cancelled", `{"requestId":"w"}`)
	harness.CallTool(t, c, "box__cancelled", `{"tag":"w"}`)
	harness.WaitUntilAtMost(t, "missing calls of 100", 0, func() int {
		return int(max(0, 100-calls.Load()))
	})
	g.WantRecords("- - - - - reload", "to_server request tools/call box log deny",
		"to_server request tools/call box cancelled deny",
		"to_server request tools/call box cancelled pass")
}

// TestReloadIsRefusedWhoseTestsFail changes a policy so that its test fails. With policy.tests, the
// previous policy stays in force, the log names the line of the test, and the refusal is recorded.
// A start with such a policy is refused as well.
func TestReloadIsRefusedWhoseTestsFail(t *testing.T) {
	harness.Long(t, "waits for reloads")
	const (
		good = "package gatekit.mine\n\ndeny contains \"no\" if input.name == \"log\"\n"
		bad  = "package gatekit.mine\n\ndeny contains \"no\" if input.name == \"lag\"\n"
		test = "package gatekit.mine_test\n\nimport data.gatekit.mine\n\ntest_log_is_denied if " +
			"{\n\tcount(mine.deny) == 1 with input as {\"name\": \"log\"}\n}\n"
	)
	file := filepath.Join(t.TempDir(), "mine.rego")
	harness.ReplaceFile(t, file, []byte(good))
	tests := strings.TrimSuffix(file, ".rego") + "_test.rego"
	harness.ReplaceFile(t, tests, []byte(test))
	config := harness.ScriptedServer("box") +
		fmt.Sprintf("[policy]\nfiles = [%q]\ntests = true\n", filepath.Dir(file))
	g := harness.StartHTTP(t, config)
	g.WaitForLog("policies active", 1)
	c := g.Client("2025-11-25")
	wantDenied := func(when string) {
		t.Helper()
		if m := harness.Request(t, c, "tools/call", `{"name":"box__log"}`); !harness.IsDenied(m) {
			t.Errorf("%s, a call got %s, want a denial", when, m.Raw)
		}
	}
	harness.ReplaceFile(t, file, []byte(bad))
	const failure = "mine_test.rego:5: the test gatekit.mine_test.test_log_is_denied fails"
	g.WaitForLog(failure, 1)
	wantDenied("with a policy whose test fails")
	harness.WaitUntilAtMost(t, "missing records of the refused reload", 0, func() int {
		if slices.ContainsFunc(g.Records(), func(r harness.Record) bool {
			return r.Action == "reload" && r.Reason == "refused" &&
				strings.Contains(r.Error, failure)
		}) {
			return 0
		}
		return 1
	})
	starting := harness.Prepare(t, config)
	starting.Cmd.Stdin = strings.NewReader("")
	if err := starting.Cmd.Run(); err == nil ||
		!strings.Contains(starting.Stderr.String(), failure) {
		t.Errorf("the start ended with %v: %s, want an error with %q", err, starting.Stderr,
			failure)
	}

	// A corrected test is enough for the reload.
	harness.ReplaceFile(t, tests, []byte(strings.Replace(test, `"log"}`, `"lag"}`, 1)))
	g.WaitForLog("configuration reloaded", 1)
	harness.CallTool(t, c, "box__log", ``)
	g.WantRecords("- - - - - reload", "to_server request tools/call box log deny",
		"to_server request tools/call box log pass")
}

// TestFailingPolicyDeniesEveryCallUntilReplaced activates policies that compile but fail when they
// are evaluated. While such a policy is active, every call is denied, no call is lost, and the
// audit log has the error. When a valid policy has replaced it, calls pass again.
func TestFailingPolicyDeniesEveryCallUntilReplaced(t *testing.T) {
	harness.Long(t, "waits for reloads")
	const valid = "deny contains \"no\" if input.name == \"log\"\n"
	failing := []struct{ name, rego, wantError string }{
		{"a slow policy", `deny contains "no" if { input.method == "tools/call"; some a in numbers.range(1, 5000); some b in numbers.range(1, 5000); some c in numbers.range(1, 5000); a * b * c < 0 }`, "no verdict within 1s"},
		{"a policy with a large value", `deny contains "no" if { input.method == "tools/call"; count(net.cidr_expand("10.0.0.0/8")) == 0 }`, "no verdict within 1s"},
		{"a reason that is not a string", `deny contains count(input.name) if input.method == "tools/call"`,
			"mine: deny contains an element of type number, want reasons"},
		{"a policy with a runtime error", `deny contains "no" if { input.method == "tools/call"; to_number(input.name) > 1 }`, "mine.rego:3: eval_builtin_error: to_number"},
	}
	file := filepath.Join(t.TempDir(), "mine.rego")
	write := func(rego string) {
		harness.ReplaceFile(t, file, []byte("package gatekit.mine\n\n"+rego))
	}
	write(valid)
	g := harness.StartHTTP(t, harness.ScriptedServer("box")+
		fmt.Sprintf("[policy]\nfiles = [%q]\n", filepath.Dir(file)))
	var passed, denied atomic.Int64
	defer g.CallRepeatedly(3, func(c *mcptest.Client) bool {
		m, err := c.Call(t.Context(), "tools/call", `{"name":"box__echo"}`)
		switch {
		case err != nil:
			t.Errorf("a call was lost: %v", err)
			return false
		case m.Error == nil:
			passed.Add(1)
		case harness.IsDenied(m):
			denied.Add(1)
		default:
			t.Errorf("a call got %s, want a result or a denial", m.Raw)
			return false
		}
		return true
	})()
	c := g.Client("2025-11-25")
	reloads := 0
	reload := func(rego string) {
		t.Helper()
		write(rego)
		reloads++
		g.WaitForLog("configuration reloaded", reloads)
	}
	for _, f := range failing {
		reload(f.rego + "\n")
		before := denied.Load()
		harness.WantDenied(t, c, "tools/call", `{"name":"box__echo"}`)
		harness.WantDenied(t, c, "tools/call", `{"name":"box__log"}`)
		harness.WaitUntilAtMost(t, "missing denials for the other clients, of 3", 0, func() int {
			return int(max(0, 3-(denied.Load()-before)))
		})
		reload(valid)
		harness.CallTool(t, c, "box__echo", ``)
		harness.WantDenied(t, c, "tools/call", `{"name":"box__log"}`)
		recorded := false
		for _, r := range g.Records() {
			recorded = recorded || r.Action == "deny" && r.Name == "echo" &&
				strings.Contains(r.Error, f.wantError)
		}
		if !recorded {
			t.Errorf("%s: the audit log has no denial with the error %q", f.name, f.wantError)
		}
	}
	harness.WaitUntilAtMost(t, "missing calls of 100 that pass", 0, func() int {
		return int(max(0, 100-passed.Load()))
	})
}

func TestShadowModeIsLoggedAndRecorded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.rego")
	if err := os.WriteFile(file,
		[]byte("package gatekit.mine\n\ndeny contains \"no\" if input.name == \"echo\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	config := harness.ScriptedServer("box") +
		fmt.Sprintf("[policy]\nmode = \"shadow\"\nfiles = [%q]\n", file)
	harness.EachTransport(t, config, "2025-11-25", func(t *testing.T, g *harness.Gatekit,
		c *mcptest.Client) {
		harness.Handshake(t, c)
		harness.CallTool(t, c, "box__echo", ``)
		g.WaitForLog("mode=shadow", 1)
		g.WaitForLog("policies not enforced", 1)
		g.WantRecords("to_server request tools/call box echo would_deny")
		b, err := os.ReadFile(filepath.Join(g.Dir, "audit.jsonl"))
		if err != nil || !strings.Contains(string(b), "would deny: mine") {
			t.Errorf("the audit log has no \"would deny: mine\": %v", err)
		}
	})
}
