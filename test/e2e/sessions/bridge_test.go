package sessions

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// bridgedPairs are pairs of a client and a server of different eras. client and server are their
// revisions. back is the transport between Gatekit and the server. The name "modern before legacy
// http" stands for a modern client and a legacy server over HTTP.
var bridgedPairs = []struct{ name, client, server, back string }{
	{"modern before legacy stdio", mcptest.Modern, "2025-11-25", "stdio"},
	{"modern before legacy http", mcptest.Modern, "2025-11-25", "http"},
	{"legacy before modern stdio", "2025-11-25", mcptest.Modern, "stdio"},
	{"legacy before modern http", "2025-11-25", mcptest.Modern, "http"},
	{"2025-06-18 before modern stdio", "2025-06-18", mcptest.Modern, "stdio"},
}

// TestClientUsesServerOfTheOtherEra uses every feature of a server with a client of the other era.
func TestClientUsesServerOfTheOtherEra(t *testing.T) {
	harness.Long(t, "starts a server of each era for each transport")
	for _, pair := range bridgedPairs {
		t.Run(pair.name, func(t *testing.T) {
			harness.EachTransport(t, harness.ScriptedServerOver(t, "box", pair.server, pair.back),
				pair.client, func(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
					handshake := harness.Handshake(t, c)
					for _, capability := range []string{"tools", "prompts", "resources",
						"completions", "logging"} {
						if mcptest.At(handshake.Result, "capabilities", capability) == nil {
							t.Errorf("the capability %s is missing: %s", capability, handshake.Raw)
						}
					}
					if text := mcptest.Text(handshake.Result,
						"instructions"); !strings.Contains(text,
						"Use box gently.") {
						t.Errorf("got the instructions %q, want the instructions of box", text)
					}
					listAndUseAll(t, c)
					answerAllServerRequests(t, c)
					g.CheckChain()
					g.WantRecords("to_server request tools/call box ask pass",
						"to_client request elicitation/create box - pass",
						"to_server response elicitation/create box - pass",
						"to_client request sampling/createMessage box - pass",
						"to_server response sampling/createMessage box - pass",
						"to_client request roots/list box - pass",
						"to_server response roots/list box - pass",
						"to_client response tools/call box ask pass")
				})
		})
	}
}

// listAndUseAll makes every kind of request for which the server does not ask the client for input.
func listAndUseAll(t *testing.T, c *mcptest.Client) {
	for method, what := range map[string]string{"tools/list": "tools", "prompts/list": "prompts",
		"resources/list": "resources", "resources/templates/list": "resourceTemplates"} {
		if n := len(harness.ListAll(t, c, method, what)); n < 2 {
			t.Errorf("%s: got %d items, want 2 or more", method, n)
		}
	}
	for _, step := range []struct{ method, params, want string }{
		{"tools/call", `{"name":"box__echo","arguments":{"tag":12345678901234567890}}`,
			`"tag":12345678901234567890`},
		{"prompts/get", `{"name":"box__greet","arguments":{"who":"x"}}`, `Hello x`},
		{"resources/read", `{"uri":"box+test://box/a"}`, `of box`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"box__greet"},"argument":{"name":"who","value":"x"}}`, `"hasMore":false`},
	} {
		m := harness.Request(t, c, step.method, step.params)
		if m.Error != nil || !strings.Contains(string(m.Raw), step.want) {
			t.Errorf("%s: got %s, want an answer with %s", step.method, m.Raw, step.want)
		}
		resultType := mcptest.Text(m.Result, "resultType")
		if (resultType == "complete") != (c.Revision == mcptest.Modern) {
			t.Errorf("%s: a client of revision %s got the resultType %q, want \"complete\" only "+
				"for a modern client", step.method, c.Revision, resultType)
		}
	}
	m := harness.Request(t, c, "tools/call", `{"name":"box__nothing"}`)
	if string(mcptest.At(m.Error, "code")) != "-32602" {
		t.Errorf("an unknown tool: got %s, want -32602", m.Raw)
	}
	code := map[bool]string{true: "-32602", false: "-32002"}[c.Revision == mcptest.Modern]
	m = harness.Request(t, c, "resources/read", `{"uri":"box+test://other/a"}`)
	if string(mcptest.At(m.Error, "code")) != code {
		t.Errorf("an unknown resource: got %s, want %s", m.Raw, code)
	}
}

// answerAllServerRequests makes the server send every kind of request to the client. It checks the
// answers that the server gets.
func answerAllServerRequests(t *testing.T, c *mcptest.Client) {
	for _, q := range []struct{ method, params, want string }{
		{"elicitation/create", `{"message":"who?","requestedSchema":{"type":"object","properties":{}}}`, `{"action":"accept","content":{"name":"a","n":1.0}}`},
		{"sampling/createMessage",
			`{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":9}`,
			`{"role":"assistant","content":{"type":"text","text":"sampled"},"model":"m"}`},
		{"roots/list", `{}`, `{"roots":[{"uri":"file:///work","name":"work"}]}`},
	} {
		m := harness.CallTool(t, c, "box__ask", fmt.Sprintf(`{"method":%q,"params":%s}`, q.method,
			q.params))
		if got := string(mcptest.At(m.Result, "structuredContent", "result")); got != q.want {
			t.Errorf("%s: the server got %s, want %s", q.method, m.Raw, q.want)
		}
	}
}

func TestOneEndpointServesServersOfBothEras(t *testing.T) {
	config := harness.ScriptedServer("old") + harness.ScriptedServer("new",
		"-revisions", mcptest.Modern)
	for _, revision := range []string{"2024-11-05", "2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				harness.Handshake(t, c)
				m := harness.Request(t, c, "tools/list", `{}`)
				if partial := mcptest.At(m.Result, "_meta", "gatekit/partial"); partial != nil ||
					strings.Count(string(m.Raw), `"name":"old__`) != 14 ||
					strings.Count(string(m.Raw), `"name":"new__`) != 14 {
					t.Errorf("got the list %s, want 14 tools of each server", harness.Clip(m.Raw))
				}
				for _, server := range []string{"old", "new"} {
					harness.CallTool(t, c, server+"__echo", ``)
					m := harness.CallTool(t, c, server+"__ask",
						`{"method":"roots/list","params":{}}`)
					if !strings.Contains(string(m.Raw), "file:///work") {
						t.Errorf("the server %q got %s, want the client's roots", server, m.Raw)
					}
					g.WantRecords(fmt.Sprintf("to_client response tools/call %s echo pass", server),
						fmt.Sprintf("to_server response roots/list %s - pass", server))
				}
			})
		})
	}
}

func TestSubscriptionsCrossTheBridge(t *testing.T) {
	for _, pair := range bridgedPairs {
		t.Run(pair.name, func(t *testing.T) {
			harness.EachTransport(t, harness.ScriptedServerOver(t, "box", pair.server, pair.back),
				pair.client, func(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
					harness.Handshake(t, c)
					mark := c.Mark()
					if pair.client == mcptest.Modern {
						c.Send(c.Request(`"l"`, "subscriptions/listen",
							`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["box+test://box/a"]}}`))
						ack, err := c.AwaitMethod(harness.Context(t), mark,
							"notifications/subscriptions/acknowledged")
						if err != nil || string(mcptest.At(ack.Params, "notifications",
							"resourceSubscriptions")) != `["box+test://box/a"]` {
							t.Fatalf("got the acknowledgement %s, %v; want box+test://box/a in it",
								ack.Raw, err)
						}
					} else if m := harness.Request(t, c, "resources/subscribe",
						`{"uri":"box+test://box/a"}`); m.Error != nil {
						t.Fatalf("resources/subscribe: got %s, want no error", m.Raw)
					}
					if pair.server != mcptest.Modern {
						g.WantRecords("to_server request resources/subscribe box test://box/a own",
							"to_client response resources/subscribe box test://box/a own")
					}
					mark = c.Mark()
					harness.CallTool(t, c, "box__update", `{"uri":"test://box/a"}`)
					updated, err := c.AwaitMethod(harness.Context(t), mark,
						"notifications/resources/updated")
					if err != nil || mcptest.Text(updated.Params, "uri") != "box+test://box/a" {
						t.Fatalf("got the update %s, %v; want the URI box+test://box/a",
							updated.Raw, err)
					}
					harness.CallTool(t, c, "box__change", ``)
					changed, err := c.AwaitMethod(harness.Context(t), mark,
						"notifications/tools/list_changed")
					if err != nil {
						t.Fatal(err)
					}
					id := mcptest.At(changed.Params,
						"_meta", "io.modelcontextprotocol/subscriptionId")
					if want := map[bool]string{true: `"l"`}[pair.client == mcptest.Modern]; string(id) != want {
						t.Errorf("list_changed has the subscription id %s, want %s: %s", id, want,
							changed.Raw)
					}
					var names []string
					for _, tool := range harness.ListAll(t, c, "tools/list", "tools") {
						names = append(names, mcptest.Text(json.RawMessage(tool), "name"))
					}
					if !strings.Contains(strings.Join(names, " "), "box__added-14") {
						t.Errorf("got the tools %s, want box__added-14 among them", names)
					}
				})
		})
	}
}

// TestServerExitFailsParkedCall ends a legacy server while a modern client's call is parked, which
// means that the call waits for the client's input.
func TestServerExitFailsParkedCall(t *testing.T) {
	harness.EachTransport(t, harness.ScriptedServerOver(t, "box", "2025-11-25", "stdio"),
		mcptest.Modern, func(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
			harness.Handshake(t, c)
			const params = `{"name":"box__ask","arguments":{"method":"roots/list","params":{}}`
			asked, err := c.Do(harness.Context(t), `"a"`, "tools/call", params+`}`)
			if err != nil || mcptest.Text(asked.Result, "resultType") != "input_required" {
				t.Fatalf("the call got %s, %v; want input_required", asked.Raw, err)
			}
			servers := harness.ProcessesWith(g.Mark)
			if len(servers) == 0 {
				t.Skip("needs /proc")
			}
			for _, pid := range servers {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			g.WaitForLog("server lost", 1)
			// g0 is the key of Gatekit's input request.
			retry := fmt.Sprintf(`%s,"inputResponses":{"g0":{"roots":[]}},"requestState":%s}`,
				params,
				mcptest.At(asked.Result, "requestState"))
			m, err := c.Do(harness.Context(t), `"b"`, "tools/call", retry)
			if err != nil || string(mcptest.At(m.Error, "code")) != "-32603" ||
				!strings.Contains(mcptest.Text(m.Error, "message"), `server "box"`) {
				t.Errorf("the parked call got %s, %v; want -32603 and the server's name", m.Raw,
					err)
			}
			if m, err = c.Do(harness.Context(t), `"c"`, "tools/call", retry); err != nil ||
				string(mcptest.At(m.Error, "code")) != "-32602" {
				t.Errorf("the repeated retry got %s, %v; want -32602", m.Raw, err)
			}
			harness.CallTool(t, c, "box__echo", ``) // the server has been restarted
			awaitRestarted(t, g, "box")
			g.WantRecords("- - - box - lost",
				"to_server request tools/call box - resume",
				"to_server request tools/call box echo pass")
		})
}
