package policies

import (
	"os/exec"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

func TestPoliciesJudgeBothErasAlike(t *testing.T) {
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
				if list := string(harness.Request(t, c,
					"tools/list", `{}`).Raw); strings.Contains(list,
					"box__die") || !strings.Contains(list, "box__echo") {
					t.Errorf("the list is %s", list)
				}
				if m := harness.Request(t, c,
					"tools/call", `{"name":"box__die"}`); string(mcptest.At(m.Error,
					"code")) != "-31000" {
					t.Errorf("what is hidden answered %s", m.Raw)
				}
				if m := harness.CallTool(t, c,
					"box__echo", `{"tag":1}`); string(mcptest.At(m.Result,
					"structuredContent", "tag")) != `"set"` {
					t.Errorf("the server saw %s", m.Raw)
				}
				if m := harness.Request(t, c, "prompts/get",
					`{"name":"box__greet","arguments":{"who":"x"}}`); !strings.Contains(
					string(m.Raw), "[greeting] x") {
					t.Errorf("the prompt is %s", m.Raw)
				}
				m := harness.Request(t, c, "tools/call",
					`{"name":"box__ask","arguments":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}}`)
				if strings.Contains(string(m.Raw), "sampled") {
					t.Errorf("a sampling request that is refused answered %s", m.Raw)
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

func TestAHumanApprovesACall(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	config := harness.ScriptedServer("box") + harness.PolicyFile(t,
		`ask contains "it says something" if { input.method == "tools/call"; input.kind == "request"; input.name == "echo" }`)
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				asked := ""
				approve := "true"
				c.Answer["elicitation/create"] = func(m mcptest.Message) string {
					asked = mcptest.Text(m.Params, "message")
					return `{"action":"accept","content":{"approve":` + approve + `}}`
				}
				harness.Handshake(t, c)
				harness.CallTool(t, c, "box__echo", `{"tag":1}`)
				if !strings.Contains(asked, "it says something") {
					t.Errorf("the user was asked %q", asked)
				}
				approve = "false"
				if m := harness.Request(t, c,
					"tools/call", `{"name":"box__echo"}`); string(mcptest.At(m.Error,
					"code")) != "-31000" {
					t.Errorf("what the user did not approve answered %s", m.Raw)
				}
				g.WantRecords("to_server request tools/call box echo ask",
					"to_client request elicitation/create box - answer",
					"to_server request tools/call box echo approve",
					"to_server request tools/call box echo pass",
					"to_server request tools/call box echo reject")
			})
			t.Run("outside", func(t *testing.T) {
				g, c := harness.SpawnStdio(t, config, revision)
				c.Capabilities = `{}`
				harness.Handshake(t, c)
				const message = `{"name":"box__echo","arguments":{"tag":2}}`
				m := harness.Request(t, c, "tools/call", message)
				_, rest, _ := strings.Cut(mcptest.Text(m.Error, "message"), "`gatekit approve ")
				id, _, ok := strings.Cut(rest, "`")
				if !ok {
					t.Fatalf("it answered %s", m.Raw)
				}
				if out, err := exec.Command(peers.Gatekit(t),
					"approve", id).CombinedOutput(); err != nil || !strings.Contains(string(out),
					"approved once") {
					t.Fatalf("%v: %s", err, out)
				}
				if m := harness.Request(t, c, "tools/call", message); m.Error != nil {
					t.Errorf("what was approved answered %s", m.Raw)
				}
				if m := harness.Request(t, c, "tools/call", message); m.Error == nil {
					t.Errorf("the second time it answered %s", m.Raw)
				}
				g.WantRecords("to_server request tools/call box echo ask",
					"to_server request tools/call box echo approve",
					"to_server request tools/call box echo pass")
			})
		})
	}
}
