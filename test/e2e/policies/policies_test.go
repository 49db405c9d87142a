package policies

import (
	"os/exec"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

func TestPolicyEffectsApplyInBothEras(t *testing.T) {
	config := harness.ScriptedServer("box") + harness.PolicyFile(t, `
hide contains item.name if { input.method == "tools/list"; some item in input.items; item.name == "die" }
deny contains "it ends the server" if { input.method == "tools/call"; input.name == "die" }
set contains {"path": "/arguments/tag", "value": "set"} if { input.method == "tools/call"; input.name == "echo" }
redact contains {"pattern": "Hello", "with": "[greeting]"} if input.method == "prompts/get"
deny contains "no sampling" if input.method == "sampling/createMessage"
`)
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				harness.Handshake(t, c)
				list := string(harness.Request(t, c, "tools/list", `{}`).Raw)
				if strings.Contains(list, "box__die") || !strings.Contains(list, "box__echo") {
					t.Errorf("the tool list is %s, want box__echo without box__die", list)
				}
				m := harness.Request(t, c, "tools/call", `{"name":"box__die"}`)
				if !harness.IsDenied(m) {
					t.Errorf("a call of the hidden tool got %s, want a denial", m.Raw)
				}
				m = harness.CallTool(t, c, "box__echo", `{"tag":1}`)
				if string(mcptest.At(m.Result, "structuredContent", "tag")) != `"set"` {
					t.Errorf("the server received %s, want the tag \"set\"", m.Raw)
				}
				m = harness.Request(t, c, "prompts/get",
					`{"name":"box__greet","arguments":{"who":"x"}}`)
				if !strings.Contains(string(m.Raw), "[greeting] x") {
					t.Errorf("the prompt is %s, want \"[greeting] x\"", m.Raw)
				}
				m = harness.Request(t, c, "tools/call",
					`{"name":"box__ask","arguments":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}}`)
				if strings.Contains(string(m.Raw), "sampled") {
					t.Errorf("a denied sampling request got %s, want no sampling", m.Raw)
				}
				g.WantRecords("to_client response tools/list box - hide",
					"to_server request tools/call box die deny",
					"to_server request tools/call box echo modify",
					"to_client response prompts/get box greet modify",
					"to_client request sampling/createMessage box - deny")
			})
		})
	}
}

// TestCallIsApprovedByAHuman approves and rejects calls by elicitation. It also approves a call
// with `gatekit approve` for a client that cannot show elicitations.
func TestCallIsApprovedByAHuman(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	config := harness.ScriptedServer("box") + harness.PolicyFile(t,
		`ask contains "calls of echo need approval" if { input.method == "tools/call"; input.kind == "request"; input.name == "echo" }`)
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				question := ""
				approve := "true"
				c.Answer["elicitation/create"] = func(m mcptest.Message) string {
					question = mcptest.Text(m.Params, "message")
					return `{"action":"accept","content":{"approve":` + approve + `}}`
				}
				harness.Handshake(t, c)
				harness.CallTool(t, c, "box__echo", `{"tag":1}`)
				if !strings.Contains(question, "calls of echo need approval") {
					t.Errorf("the elicitation's message is %q, want the policy's reason", question)
				}
				approve = "false"
				m := harness.Request(t, c, "tools/call", `{"name":"box__echo"}`)
				if !harness.IsDenied(m) {
					t.Errorf("a rejected call got %s, want a denial", m.Raw)
				}
				g.WantRecords("to_server request tools/call box echo ask",
					"to_client request elicitation/create box - answer",
					"to_server request tools/call box echo approve",
					"to_server request tools/call box echo pass",
					"to_server request tools/call box echo reject")
			})
			t.Run("gatekit approve", func(t *testing.T) {
				g, c := harness.SpawnStdio(t, config, revision)
				c.Capabilities = `{}`
				harness.Handshake(t, c)
				const params = `{"name":"box__echo","arguments":{"tag":2}}`
				m := harness.Request(t, c, "tools/call", params)
				_, rest, _ := strings.Cut(mcptest.Text(m.Error, "message"), "`gatekit approve ")
				id, _, ok := strings.Cut(rest, "`")
				if !ok {
					t.Fatalf("the call got %s, want the command that approves it", m.Raw)
				}
				out, err := exec.Command(peers.Gatekit(t), "approve", id).CombinedOutput()
				if err != nil || !strings.Contains(string(out), "approved once") {
					t.Fatalf("gatekit approve: %v: %s", err, out)
				}
				if m := harness.Request(t, c, "tools/call", params); m.Error != nil {
					t.Errorf("the approved call got %s, want a result", m.Raw)
				}
				if m := harness.Request(t, c, "tools/call", params); m.Error == nil {
					t.Errorf("the call got %s when it was repeated, want an error", m.Raw)
				}
				g.WantRecords("to_server request tools/call box echo ask",
					"to_server request tools/call box echo approve",
					"to_server request tools/call box echo pass")
			})
		})
	}
}
