package policies

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

func TestRulesApplyToListsAndCalls(t *testing.T) {
	config := harness.ScriptedServer("box") + harness.LibraryRules(map[string]string{
		"tools/allowlist": `tools = ["box__e*"]` + "\n" + `servers = { box = ["scenario"] }`,
		"roots/traversal": `roots = ["/data"]`,
		"resources/uris":  `schemes = ["file", "ui"]`,
		"tools/arguments": `rules = [{ tools = ["echo"], argument = "ref", no_leading_dash = true }]`,
	})
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				harness.Handshake(t, c)
				list := string(harness.Request(t, c, "tools/list", `{}`).Raw)
				for name, shown := range map[string]bool{"echo": true, "scenario": true,
					"raw": false,
					"die": false, "odd name/ü.": false} {
					if strings.Contains(list, `"name":"box__`+name+`"`) != shown {
						t.Errorf("tool %s is listed: got %v, want %v", name, !shown, shown)
					}
				}
				harness.WantDenied(t, c, "tools/call", `{"name":"box__raw","arguments":{}}`)
				harness.CallTool(t, c, "box__echo",
					`{"path":"/data/x","ref":"a-b","text":"../../etc"}`)
				for _, path := range []string{"/database/x", "/data/%2e%2e/etc",
					`/data/..\\..\\etc`, "file:///etc/passwd", "etc/passwd", `\\\\host\\share`} {
					harness.WantDenied(t, c, "tools/call",
						`{"name":"box__echo","arguments":{"path":"`+path+`"}}`)
				}
				harness.WantDenied(t, c, "tools/call",
					`{"name":"box__echo","arguments":{"ref":"--upload-pack=x"}}`)

				resources := string(harness.Request(t, c, "resources/list", `{}`).Raw)
				if strings.Contains(resources, "test://box/a") ||
					!strings.Contains(resources, "file:///data/b%20c.txt") ||
					!strings.Contains(resources, "ui://") {
					t.Errorf("the resource list is %s, want the file and ui URIs only", resources)
				}
				harness.WantDenied(t, c, "resources/read", `{"uri":"box+test://box/a"}`)
				harness.WantDenied(t, c, "resources/read",
					`{"uri":"box+file:///data/%2e%2e/etc/passwd"}`)
				if m := harness.Request(t, c, "resources/read",
					`{"uri":"box+file:///data/b%20c.txt"}`); m.Error != nil {
					t.Errorf("reading a file within the roots got %s, want a result", m.Raw)
				}
				g.WantRecords("to_client response tools/list box - hide",
					"to_server request tools/call box raw deny",
					"to_server request tools/call box echo pass",
					"to_server request tools/call box echo deny",
					"to_client response resources/list box - hide",
					"to_server request resources/read box test://box/a deny",
					"to_server request resources/read box file:///data/%2e%2e/etc/passwd deny",
					"to_server request resources/read box file:///data/b%20c.txt pass")
				g.WantReasons("roots/traversal: argument path: the path leaves the allowed folders",
					"tools/allowlist: the tool is not in the allowlist",
					"resources/uris: URI refused: the scheme test is not allowed")
			})
		})
	}
}

// TestRulesLimitServerRequests makes the server send sampling and elicitation requests. Requests
// that the rules deny must not reach the client.
func TestRulesLimitServerRequests(t *testing.T) {
	// request returns arguments for the tool "ask". The tool sends the given request to the client.
	request := func(method, params string) string {
		return fmt.Sprintf(`{"method":%q,"params":%s}`, method, params)
	}
	sampling := request("sampling/createMessage",
		`{"messages":[{"role":"user","content":{"type":"text","text":"say it"}}],"maxTokens":9}`)
	samplingManyTokens := request("sampling/createMessage",
		`{"messages":[{"role":"user","content":{"type":"text","text":"say it"}}],"maxTokens":900}`)
	form := func(field string) string {
		return request("elicitation/create",
			`{"mode":"form","message":"who?","requestedSchema":{"type":"object","properties":{"`+
				field+`":{"type":"string"}}}}`)
	}
	page := func(url string) string {
		return request("elicitation/create",
			`{"mode":"url","elicitationId":"e","message":"go there","url":"`+url+`"}`)
	}
	for name, c := range map[string]struct {
		settings        map[string]string
		allowed, denied []string
	}{
		"by default": {map[string]string{"sampling/gate": "", "elicitation/gate": ""},
			[]string{form("name"), page("https://example.com/x")},
			[]string{sampling, form("apiKey"), page("http://example.com/"),
				page("https://bank.example@evil.example/"), page("https://169.254.169.254/")}},
		"one server, few tokens, no forms": {
			map[string]string{"sampling/gate": "servers = [\"box\"]\nmax_tokens = 10",
				"elicitation/gate": "forms = false"},
			[]string{sampling, page("https://example.com/x")},
			[]string{samplingManyTokens, form("name")}},
	} {
		t.Run(name, func(t *testing.T) {
			config := harness.ScriptedServer("box") + harness.LibraryRules(c.settings)
			for _, revision := range harness.Revisions {
				t.Run(revision, func(t *testing.T) {
					harness.EachTransport(t, config, revision, func(t *testing.T,
						g *harness.Gatekit, client *mcptest.Client) {
						harness.Handshake(t, client)
						client.Capabilities = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}`
						// received counts sampling and elicitation requests at the client.
						received := func() (n int) {
							for _, f := range client.Frames() {
								raw := string(f.Raw)
								if !f.Sent &&
									(strings.Contains(raw, `"method":"sampling/createMessage"`) ||
										strings.Contains(raw, `"method":"elicitation/create"`)) {
									n++
								}
							}
							return n
						}
						for _, r := range c.allowed {
							before := received()
							m := harness.CallTool(t, client, "box__ask", r)
							if received() == before {
								t.Errorf("%s did not reach the client: %s", r, m.Raw)
							}
						}
						before := received()
						for _, r := range c.denied {
							if _, err := client.Tool(harness.Context(t),
								"box__ask", r); err != nil {
								t.Error(err)
							}
							if received() != before {
								t.Fatalf("%s reached the client, want a denial", r)
							}
						}
						g.WantRecords("to_client request sampling/createMessage box - deny",
							"to_client request elicitation/create box - deny",
							"to_client request elicitation/create box - pass")
					})
				})
			}
		})
	}
}

// TestFlowRateAndTaskRulesDenyCalls reads untrusted and private data. After that, calls of the
// egress tool are denied. Calls that exceed a rate, and a call that asks to run as a task, are
// denied, too.
func TestFlowRateAndTaskRulesDenyCalls(t *testing.T) {
	config := harness.ScriptedServer("box") + harness.LibraryRules(map[string]string{
		"flow/exfiltration": "private = { tools = [\"self\"] }\nuntrusted = { tools = [\"log\"] " +
			"}\negress = { tools = [\"echo\"] }",
		"limits/rate":    `tools = [{ tools = ["progress"], per_minute = 2 }, { tools = ["result"], per_session = 0 }]`,
		"tasks/gate":     "",
		"vendor/methods": "",
	})
	harness.EachTransport(t, config, "2025-11-25", func(t *testing.T, g *harness.Gatekit,
		c *mcptest.Client) {
		harness.Handshake(t, c)
		harness.CallTool(t, c, "box__echo", `{}`)
		harness.CallTool(t, c, "box__log", `{}`) // untrusted
		harness.CallTool(t, c, "box__echo", `{}`)
		harness.CallTool(t, c, "box__self", `{}`) // private
		harness.WantDenied(t, c, "tools/call", `{"name":"box__echo"}`)
		for range 2 {
			harness.CallTool(t, c, "box__progress", `{}`)
		}
		harness.WantDenied(t, c, "tools/call", `{"name":"box__progress"}`)
		harness.WantDenied(t, c, "tools/call", `{"name":"box__result"}`)
		harness.WantDenied(t, c, "tools/call", `{"name":"box__log","task":{"ttl":1}}`)
		g.WantRecords("to_server request tools/call box echo pass",
			"to_server request tools/call box echo deny",
			"to_server request tools/call box progress deny",
			"to_server request tools/call box result deny")
		g.WantReasons("flow/exfiltration: this message could send out private data",
			"limits/rate: too many calls of this tool within a minute",
			"tasks/gate: the request asks to run as a task")
	})
}

// TestRulesApplyToEveryEncodingOfACall sends calls in batches and with escapes in their names. The
// rules apply to the decoded names, and ambiguous messages are invalid.
func TestRulesApplyToEveryEncodingOfACall(t *testing.T) {
	config := harness.ScriptedServer("box") +
		harness.LibraryRules(map[string]string{"tools/allowlist": `tools = ["echo"]`,
			"roots/traversal": `roots = ["/data"]`})
	harness.EachTransport(t, config, "2025-03-26", func(t *testing.T, g *harness.Gatekit,
		c *mcptest.Client) {
		harness.Handshake(t, c)
		for id, call := range map[string]string{
			"denied-1":  `"method":"tools/call","params":{"name":"box__log"}`,
			"denied-2":  `"method":"tools/call","params":{"name":"box__\u006cog"}`,
			"denied-3":  `"method":"tools\/call","params":{"\u006eame":"box__log"}`,
			"denied-4":  `"\u006dethod":"\u0074ools/call","params":{"name":"box__log"}`,
			"denied-5":  `"method":"tools/call","params":{"name":"box__echo","arguments":{"p\u0061th":"\/data\/\u002e\u002e\/etc"}}`,
			"denied-6":  `"method":"tools/call","params":{"arguments":{"path":["/data/x",{"file":"/etc/passwd"}]},"name":"box__echo"}`,
			"invalid-1": `"method":"tools/call","params":{"name":"box__echo","name":"box__log"}`,
			"invalid-2": `"method":"ping","params":{"name":"box__log"},"method":"tools/call"`,
			"invalid-3": `"method":"tools/call","params":{"name":"box__echo","arguments":{"path":"/data/x","\u0070ath":"/etc/passwd"}}`,
			"invalid-4": `"Method":"tools/call","method":"x/y","params":{"name":"box__log"}`,
			"unknown-1": `"method":"TOOLS/CALL","params":{"name":"box__log"}`,
			"passing-1": `"method":"tools/call","params":{"name":"box__\u0065cho","arguments":{"path":"\/data\/x"}}`,
		} {
			for _, frame := range []string{`{"jsonrpc":"2.0","id":%q,%s}`,
				`[{"jsonrpc":"2.0","id":%q,%s},{"jsonrpc":"2.0","id":"ping","method":"ping"}]`} {
				mark := c.Mark()
				c.Send(fmt.Sprintf(frame, id, call))
				answer := harness.AwaitMessages(t, c, mark, func(received string) bool {
					return slices.ContainsFunc([]string{`"id":"` + id + `"`, `"id":null`, "-32700",
						"-32600"}, func(s string) bool { return strings.Contains(received, s) })
				})
				outcome, _, _ := strings.Cut(id, "-")
				want := map[string]string{"denied": `"code":-31000`, "invalid": `"code":-32`,
					"unknown": `"code":-32601`, "passing": `"structuredContent"`}[outcome]
				if !strings.Contains(answer, want) ||
					strings.Contains(answer, "structuredContent") != (outcome == "passing") {
					t.Errorf("%s: %s got %s, want %s", id, call, answer, want)
				}
			}
		}
		for _, r := range g.Records() {
			if r.Name == "log" && r.Action != "deny" {
				t.Errorf("a call of the denied tool has the record %s, want deny", r)
			}
		}
		g.WantRecords("to_server request tools/call box log deny",
			"to_server request tools/call box echo deny",
			"to_server request tools/call box echo pass")
	})
}
