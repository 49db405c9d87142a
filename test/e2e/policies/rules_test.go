package policies

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

func TestRulesHoldForListsAndCallsAlike(t *testing.T) {
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
				for name, shown := range map[string]bool{"echo": true, "scenario": true, "raw": false,
					"die": false, "odd name/ü.": false} {
					if strings.Contains(list, `"name":"box__`+name+`"`) != shown {
						t.Errorf("%s is listed: %v", name, !shown)
					}
				}
				harness.WantDenied(t, c, "tools/call", `{"name":"box__raw","arguments":{}}`)
				harness.CallTool(t, c, "box__echo",
					`{"path":"/data/x","ref":"a-b","text":"../../etc"}`)
				for _, path := range []string{"/database/x", "/data/%2e%2e/etc",
					`/data/..\\..\\etc`, "file:///etc/passwd", "etc/passwd", `\\\\host\\share`} {
					harness.WantDenied(
						t, c, "tools/call", `{"name":"box__echo","arguments":{"path":"`+path+
							`"}}`)
				}
				harness.WantDenied(t, c, "tools/call",
					`{"name":"box__echo","arguments":{"ref":"--upload-pack=x"}}`)

				resources := string(harness.Request(t, c, "resources/list", `{}`).Raw)
				if strings.Contains(resources, "test://box/a") || !strings.Contains(resources,
					"file:///data/b%20c.txt") || !strings.Contains(resources, "ui://") {
					t.Errorf("the resources are %s", resources)
				}
				harness.WantDenied(t, c, "resources/read", `{"uri":"box+test://box/a"}`)
				harness.WantDenied(t, c, "resources/read",
					`{"uri":"box+file:///data/%2e%2e/etc/passwd"}`)
				if m := harness.Request(t, c, "resources/read",
					`{"uri":"box+file:///data/b%20c.txt"}`); m.Error != nil {
					t.Errorf("a file within the roots answered %s", m.Raw)
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

func TestServersAskOnlyWhatTheyMay(t *testing.T) {
	question := func(method, params string) string {
		return fmt.Sprintf(`{"method":%q,"params":%s}`, method, params)
	}
	sampling := question("sampling/createMessage",
		`{"messages":[{"role":"user","content":{"type":"text","text":"say it"}}],"maxTokens":9}`)
	greedy := question("sampling/createMessage",
		`{"messages":[{"role":"user","content":{"type":"text","text":"say it"}}],"maxTokens":900}`)
	form := func(field string) string {
		return question("elicitation/create",
			`{"mode":"form","message":"who?","requestedSchema":{"type":"object","properties":{"`+
				field+`":{"type":"string"}}}}`)
	}
	page := func(url string) string {
		return question("elicitation/create",
			`{"mode":"url","elicitationId":"e","message":"go there","url":"`+url+`"}`)
	}
	for name, c := range map[string]struct {
		settings       map[string]string
		pass, refusals []string
	}{
		"by default": {map[string]string{"sampling/gate": "", "elicitation/gate": ""},
			[]string{form("name"), page("https://example.com/x")},
			[]string{sampling, form("apiKey"), page("http://example.com/"),
				page("https://bank.example@evil.example/"), page("https://169.254.169.254/")}},
		"one server, few tokens": {map[string]string{"sampling/gate": "servers = [\"box\"]\nmax_tokens = 10", "elicitation/gate": "forms = false"}, []string{sampling, page("https://example.com/x")}, []string{greedy, form("name")}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, revision := range harness.Revisions {
				t.Run(revision, func(t *testing.T) {
					harness.EachTransport(t, harness.ScriptedServer(
						"box")+harness.LibraryRules(c.settings), revision, func(t *testing.T,
						g *harness.Gatekit,
						client *mcptest.Client) {
						harness.Handshake(t, client)
						client.Capabilities = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}`
						asked := func() (n int) {
							for _, f := range client.Frames() {
								if !f.Sent && (strings.Contains(string(f.Raw),
									`"method":"sampling/createMessage"`) ||
									strings.Contains(string(f.Raw),
										`"method":"elicitation/create"`)) {
									n++
								}
							}
							return n
						}
						for _, q := range c.pass {
							before := asked()
							if m := harness.CallTool(t, client, "box__ask", q); asked() == before {
								t.Errorf("%s did not reach the client: %s", q, m.Raw)
							}
						}
						before := asked()
						for _, q := range c.refusals {
							if _, err := client.Tool(harness.Context(t),
								"box__ask", q); err != nil {
								t.Error(err)
							}
							if asked() != before {
								t.Fatalf("%s reached the client", q)
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

func TestPrivateDataDoesNotLeaveWithAStrangersWords(t *testing.T) {
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
		harness.CallTool(t, c, "box__log", `{}`)
		harness.CallTool(t, c, "box__echo", `{}`)
		harness.CallTool(t, c, "box__self", `{}`)
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

// However a call is put, it is judged by what it is: in a batch, with escapes in its names. What
// can be read in two ways is not read.
func TestRulesHoldHoweverACallIsPut(t *testing.T) {
	config := harness.ScriptedServer("box") +
		harness.LibraryRules(map[string]string{"tools/allowlist": `tools = ["echo"]`,
			"roots/traversal": `roots = ["/data"]`})
	harness.EachTransport(t, config, "2025-03-26", func(t *testing.T, g *harness.Gatekit,
		c *mcptest.Client) {
		harness.Handshake(t, c)
		for id, call := range map[string]string{
			"refused-1": `"method":"tools/call","params":{"name":"box__log"}`,
			"refused-2": `"method":"tools/call","params":{"name":"box__\u006cog"}`,
			"refused-3": `"method":"tools\/call","params":{"\u006eame":"box__log"}`,
			"refused-4": `"\u006dethod":"\u0074ools/call","params":{"name":"box__log"}`,
			"refused-5": `"method":"tools/call","params":{"name":"box__echo","arguments":{"p\u0061th":"\/data\/\u002e\u002e\/etc"}}`,
			"refused-6": `"method":"tools/call","params":{"arguments":{"path":["/data/x",{"file":"/etc/passwd"}]},"name":"box__echo"}`,
			"invalid-1": `"method":"tools/call","params":{"name":"box__echo","name":"box__log"}`,
			"invalid-2": `"method":"ping","params":{"name":"box__log"},"method":"tools/call"`,
			"invalid-3": `"method":"tools/call","params":{"name":"box__echo","arguments":{"path":"/data/x","\u0070ath":"/etc/passwd"}}`,
			"invalid-4": `"Method":"tools/call","method":"x/y","params":{"name":"box__log"}`,
			"unknown-1": `"method":"TOOLS/CALL","params":{"name":"box__log"}`,
			"passing-1": `"method":"tools/call","params":{"name":"box__\u0065cho","arguments":{"path":"\/data\/x"}}`,
		} {
			for _, form := range []string{`{"jsonrpc":"2.0","id":%q,%s}`,
				`[{"jsonrpc":"2.0","id":%q,%s},{"jsonrpc":"2.0","id":"ping","method":"ping"}]`} {
				mark := c.Mark()
				c.Send(fmt.Sprintf(form, id, call))
				seen := harness.AwaitMessages(t, c, mark, func(seen string) bool {
					return slices.ContainsFunc([]string{`"id":"` + id + `"`, `"id":null`, "-32700",
						"-32600"}, func(s string) bool { return strings.Contains(seen, s) })
				})
				kind, _, _ := strings.Cut(id, "-")
				want := map[string]string{"refused": `"code":-31000`, "invalid": `"code":-32`,
					"unknown": `"code":-32601`, "passing": `"structuredContent"`}[kind]
				if !strings.Contains(seen, want) || strings.Contains(seen,
					"structuredContent") != (kind == "passing") {
					t.Errorf("%s %s answered %s", id, call, seen)
				}
			}
		}
		for _, r := range g.Records() {
			if r.Name == "log" && r.Action != "deny" {
				t.Errorf("the record %s", r)
			}
		}
		g.WantRecords("to_server request tools/call box log deny",
			"to_server request tools/call box echo deny",
			"to_server request tools/call box echo pass")
	})
}
