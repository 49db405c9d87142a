package policies

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"gatekit/policies/library"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// request is a client's request.
type request struct{ method, params string }

// toolCall returns a call of one of the server's tools.
func toolCall(name, arguments string) request {
	return request{"tools/call", fmt.Sprintf(`{"name":"s__%s","arguments":%s}`, name, arguments)}
}

// serverResult returns a call that the server answers with the given result.
func serverResult(result string) request {
	return toolCall("result", `{"result":`+mcptest.Quote(result)+`}`)
}

// serverRequest returns a call during which the server sends the given request to the client.
func serverRequest(method, params string) request {
	return toolCall("ask", fmt.Sprintf(`{"method":%q,"params":%s}`, method, params))
}

// elicitForm returns a call during which the server asks for a form with the given properties.
func elicitForm(properties string) request {
	return serverRequest("elicitation/create",
		`{"mode":"form","message":"who?","requestedSchema":{"type":"object","properties":{`+
			properties+`}}}`)
}

// elicitURL returns a call during which the server asks the user to open a URL.
func elicitURL(url string) request {
	return serverRequest("elicitation/create",
		`{"mode":"url","elicitationId":"e","message":"go there","url":"`+url+`"}`)
}

// sampling returns a call during which the server sends a sampling request. members is JSON text
// that is added to the params of that request.
func sampling(members string) request {
	return serverRequest("sampling/createMessage",
		`{"messages":[{"role":"user","content":{"type":"text","text":"say it"}}]`+members+`}`)
}

// readResource returns a request that reads one of the server's resources.
func readResource(uri string) request { return withURI("resources/read", uri) }

// withURI returns a request about one of the server's resources.
func withURI(method, uri string) request { return request{method, `{"uri":"s+` + uri + `"}`} }

// allRules has every rule of the library. With these settings, each rule denies some requests that
// all other rules allow.
var allRules = map[string]string{
	"tools/allowlist":  `tools = ["get", "put", "run", "fetch", "result", "ask", "mail", "web", "send", "seldom", "update", "admin"]`,
	"principal/allow":  `grants = [{ principals = ["*"], servers = ["s"], tools = ["[!a]*", "ask"], prompts = ["*"], resources = ["*"] }]`,
	"skills/allowlist": `skills = ["good"]`,
	"tools/readonly":   `except = ["[!p]*"]`,
	"tools/arguments":  `rules = [{ tools = ["run"], argument = "ref", pattern = "[a-z/-]+", max_length = 20, no_leading_dash = true }, { tools = ["fetch"], argument = "from", hosts = ["*.example.com"] }]`,
	"roots/traversal":  "roots = [\"/data\"]\nexcept = [{ argument = \"of\" }]",
	"resources/uris":   `schemes = ["file", "note", "https", "skill"]`,
	"resources/redact": `rules = [{ uris = ["note://keys/*"], pattern = "KEY=[^ ]+", with = "KEY=[gone]" }]`,
	"sampling/gate":    "servers = [\"s\"]\nmodels = [\"m\"]\nmax_tokens = 10",
	"elicitation/gate": ``,
	"flow/exfiltration": "private = { tools = [\"mail\"] }\nuntrusted = { tools = [\"web\"] " +
		"}\negress = { tools = [\"send\"] }",
	"limits/rate":    `tools = [{ tools = ["seldom"], per_session = 2 }]`,
	"tasks/gate":     ``,
	"vendor/methods": `methods = ["acme/known"]`,
	"tools/schema":   "arguments = \"deny\"\nresults = \"deny\"",
}

// ruleCases has, for each rule, attacks that the rule denies and similar requests that it allows.
var ruleCases = []struct {
	rule            string
	denied, allowed []request
}{
	{"tools/allowlist",
		// The last name has a Cyrillic е.
		[]request{
			toolCall("wipe", `{}`),
			toolCall("GET", `{}`),
			toolCall("get.", `{}`),
			toolCall("get__x", `{}`),
			toolCall("gеt", `{}`),
		},
		[]request{toolCall("get", `{}`)}},
	{"principal/allow",
		[]request{toolCall("admin", `{}`)},
		[]request{toolCall("get", `{}`)}},
	{"skills/allowlist",
		[]request{
			withURI("skills/get", "skill://evil/SKILL.md"),
			readResource("skill://evil/SKILL.md"),
			readResource("skill://good/../evil/SKILL.md"),
			withURI("resources/directory/read", "skill://evil/scripts"),
		},
		[]request{readResource("skill://good/scripts/a"), readResource("file:///data/a")}},
	{"tools/readonly",
		[]request{toolCall("put", `{}`)},
		[]request{toolCall("get", `{}`)}},
	{"tools/schema",
		[]request{
			toolCall("get", `{"what":["/data/a"]}`),
			toolCall("get", `{"what":7}`),
			serverResult(`{"content":[],"structuredContent":{"n":"1"}}`),
		},
		[]request{
			toolCall("get", `{"what":null,"more":7}`),
			serverResult(`{"content":[],"structuredContent":{"n":1}}`),
		}},
	{"tools/arguments",
		[]request{
			toolCall("run", `{"ref":"--upload-pack=x"}`),
			toolCall("run", `{"ref":["main","-x"]}`),
			toolCall("run", `{"in":{"ref":"main;id"}}`),
			toolCall("run", `{"\u0072ef":"A"}`),
			toolCall("run", `{"ref":{"x":1}}`),
			toolCall("run", `{"ref":7}`),
			toolCall("run", `{"ref":"aaaaaaaaaaaaaaaaaaaaaaaaaaa"}`),
			toolCall("fetch", `{"from":"https://evil.example/"}`),
			toolCall("fetch", `{"from":"https://a.example.com@evil.example/"}`),
			toolCall("fetch", `{"from":"https://a.example.com.evil.example/"}`),
			toolCall("fetch", `{"from":"http://127.1/"}`),
		},
		[]request{
			toolCall("run", `{"ref":"feature/a-b","other":"--x"}`),
			toolCall("run", `{"ref":["main","dev"]}`),
			toolCall("fetch", `{"from":"https://A.example.com/x?y"}`),
			toolCall("get", `{"ref":"--x"}`),
		}},
	{"roots/traversal",
		[]request{
			toolCall("get", `{"path":"/database/x"}`),
			toolCall("get", `{"path":"/data/%2e%2e/etc"}`),
			toolCall("get", `{"outputFile":"/data/..\\..\\etc"}`),
			toolCall("get", `{"edits":[{"file_path":"\\\\host\\share"}]}`),
			toolCall("get", `{"paths":["/data/a","/data/\u0000"]}`),
			toolCall("get", `{"what":"/etc/passwd"}`),
			toolCall("get", `{"saveTo":"/elsewhere/x"}`),
			toolCall("get", `{"attachments":["simplecache::/etc/passwd"]}`),
			toolCall("get", `{"anything":"netdoc:/etc/passwd"}`),
			readResource("file:///etc/passwd"),
			readResource("file:///data/%252e%252e/etc"),
			readResource("file://host/data/x"),
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"s+file:///data/{name}"},"argument":{"name":"name","value":"../../etc/"}}`},
		},
		[]request{
			toolCall("get", `{"path":"/data/database","text":"../../etc/passwd"}`),
			toolCall("get", `{"path":"/data/a..b/100%"}`),
			toolCall("get", `{"output":"json","repo":"owner/name","image":"nginx:latest"}`),
			readResource("file:///data/b%20c.txt"),
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"s+file:///data/{name}"},"argument":{"name":"name","value":"a.."}}`},
		}},
	{"resources/uris",
		[]request{
			readResource("javascript:alert(1)"),
			readResource("https://169.254.169.254/latest"),
			readResource("https://0x7f.1/"),
			readResource("https://bank.example@evil.example/"),
			readResource("ftp://example.com/x"),
			serverResult(`{"content":[{"type":"resource_link","uri":"http://127.0.0.1/","name":"x"}]}`),
		},
		[]request{
			readResource("note://a"),
			readResource("https://example.com/169.254.169.254"),
			serverResult(`{"content":[{"type":"resource_link","uri":"https://example.com/x","name":"x"},{"type":"text","text":"http://127.0.0.1/"}]}`),
		}},
	{"resources/redact",
		[]request{
			serverResult(`{"content":[{"type":"resource","resource":{"uri":"NOTE://keys/%61","blob":"S0VZ"}}]}`),
		},
		[]request{
			serverResult(`{"content":[{"type":"resource","resource":{"uri":"note://a","blob":"S0VZ"}}]}`),
		}},
	{"sampling/gate",
		[]request{
			sampling(`,"maxTokens":11`),
			sampling(``),
			sampling(`,"maxTokens":"5"`),
			sampling(`,"maxTokens":5,"includeContext":"allServers"`),
			sampling(`,"maxTokens":5,"modelPreferences":{"hints":[{"name":"other"}]}`),
		},
		[]request{
			sampling(`,"maxTokens":10,"includeContext":"none"`),
			sampling(`,"maxTokens":5,"modelPreferences":{"hints":[{"name":"m"}]}`),
		}},
	{"elicitation/gate",
		[]request{
			elicitForm(`"api_key":{"type":"string"}`),
			elicitForm(`"x":{"type":"string","title":"Your p a s s w o r d"}`),
			elicitForm(`"enum":{"type":"string","title":"Mot de passe"}`),
			elicitForm(`"x":{"type":"string","description":"see https://evil.example"}`),
			elicitURL("http://example.com/"),
			elicitURL("https://bank.example@evil.example/"),
			elicitURL("https://xn--pypal-4ve.com/"),
			elicitURL("https://paypaI.com/"),
			elicitURL("https://192.168.1.1/"),
			elicitURL("https://example.com/?access_token=x"),
		},
		[]request{
			elicitForm(`"name":{"type":"string"},"max_tokens":{"type":"integer"}`),
			elicitForm(`"city":{"type":"string","enum":["Paris","Password"]}`),
			elicitForm(`"token_name":{"type":"string","title":"Token name"}`),
			elicitURL("https://example.com/sign?in=1"),
			elicitURL("https://xn--mnchen-3ya.de/"),
		}},
	{"tasks/gate",
		[]request{
			{"tasks/get", `{"taskId":"s+1"}`},
			{"tasks/cancel", `{"taskId":"s+1"}`},
			{"tools/call", `{"name":"s__get","task":{"ttl":1}}`},
			serverResult(`{"task":{"taskId":"1","status":"working"}}`),
			serverResult(`{"resultType":"task","taskId":"1","status":"working"}`),
		},
		[]request{toolCall("get", `{"task":{"ttl":1}}`)}},
	{"vendor/methods",
		[]request{{"acme/other", `{}`}, {"ACME/known", `{}`}},
		[]request{{"acme/known", `{}`}}},
	{"limits/rate", // after two calls, which are the limit
		[]request{toolCall("seldom", `{}`), toolCall("seldom", `{"n":2}`)},
		[]request{toolCall("get", `{}`)}},
	{"flow/exfiltration", // after calls that returned private and untrusted data
		[]request{toolCall("send", `{}`), toolCall("send", `{"_meta":{"x":1}}`)},
		[]request{toolCall("get", `{}`)}},
}

// countingServer counts the requests that reach it. The rules hide some of its tools, resources and
// templates.
type countingServer struct {
	*mcptest.Server
	requests atomic.Int64
}

func newCountingServer(revision string) *countingServer {
	s := &countingServer{Server: mcptest.Toolbox("s", revision)}
	toolbox := s.Handle
	s.Capabilities = `{"tools":{},"resources":{"subscribe":true},"prompts":{},"completions":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/skills":{"directoryRead":true}}}`
	schema := `"inputSchema":{"type":"object","properties":{"what":{"anyOf":[{"type":"string","format":"path"},{"type":"null"}]}}},"outputSchema":{"type":"object","properties":{"n":{"type":"number"}}}`
	list := func(member, items string) func(*mcptest.Call) {
		return func(c *mcptest.Call) {
			c.Result(fmt.Sprintf(`{%q:[%s],"ttlMs":0,"cacheScope":"private"}`, member, items))
		}
	}
	var tools []string
	for _, name := range []string{"get", "put", "wipe", "run", "fetch", "result", "ask", "mail",
		"web", "send", "seldom", "update"} {
		tools = append(tools, fmt.Sprintf(`{"name":%q,%s,"annotations":{"readOnlyHint":%v}}`, name,
			schema, name == "get"))
	}
	done := func(c *mcptest.Call) { c.Result(`{"content":[{"type":"text","text":"done"}]}`) }
	s.Handle = map[string]func(*mcptest.Call){
		"tools/list":   list("tools", strings.Join(tools, ",")),
		"prompts/list": list("prompts", ``),
		"resources/list": list("resources",
			`{"uri":"file:///data/a","name":"a"},{"uri":"file:///database/a","name":"b"},{"uri":"test://x","name":"c"},{"uri":"note://keys/a","name":"d"}`),
		"resources/templates/list": list("resourceTemplates",
			`{"uriTemplate":"file:///data/{name}","name":"a"},{"uriTemplate":"file:///etc/{name}","name":"b"},{"uriTemplate":"javascript:{x}","name":"c"}`),
		"skills/list": list("skills",
			`{"uri":"skill://good/SKILL.md","resources":[]},{"uri":"skill://evil/SKILL.md","resources":[]}`),
		"completion/complete": toolbox["completion/complete"],
		"resources/subscribe": toolbox["resources/subscribe"],
		"tools/call": func(c *mcptest.Call) {
			switch mcptest.Text(c.Params, "name") {
			case "result", "ask":
				toolbox["tools/call"](c)
			case "update":
				c.Feed("notifications/resources/updated", fmt.Sprintf(`{"uri":%s}`,
					mcptest.At(c.Params, "arguments", "of")))
				done(c)
			default:
				done(c)
			}
		},
		"resources/read": func(c *mcptest.Call) {
			c.Result(fmt.Sprintf(
				`{"contents":[{"uri":%s,"text":"ID=1 KEY=2 B=3"}],"ttlMs":0,"cacheScope":"private"}`, mcptest.Quote(mcptest.Text(c.Params, "uri"))))
		},
		"acme/known": done, "acme/other": done, "ACME/known": done, "tasks/get": done,
		"tasks/cancel": done,
	}
	for method, handle := range s.Handle {
		s.Handle[method] = func(c *mcptest.Call) {
			s.requests.Add(1)
			handle(c)
		}
	}
	return s
}

// TestEachRuleDeniesAttacksAndAllowsSimilarRequests activates all rules of the library at once, in
// both eras and over both transports.
func TestEachRuleDeniesAttacksAndAllowsSimilarRequests(t *testing.T) {
	var withCases []string
	for _, c := range ruleCases {
		withCases = append(withCases, c.rule)
	}
	for _, rule := range library.Names() {
		if _, ok := allRules[rule]; !ok || !slices.Contains(withCases, rule) {
			t.Errorf("the rule %s needs settings in allRules and a case in ruleCases; see "+
				"docs/CONTRIBUTING.md", rule)
		}
	}
	harness.Long(t, "tests every rule in both eras over both transports")
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			s := newCountingServer(revision)
			h := httptest.NewServer(s)
			defer h.Close()
			config := harness.HTTPServer("s", h.URL) + "methods = [\"acme/*\", \"ACME/known\"]\n" +
				harness.LibraryRules(allRules)
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				harness.Handshake(t, c)
				c.Capabilities = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
				wantListed(g, c, "tools/list", `"name":"s__`,
					map[string]bool{"get": true, "run": true, "put": false, "wipe": false})
				wantListed(g, c, "resources/list", `"uri":"s+`,
					map[string]bool{"file:///data/a": true, "note://keys/a": true,
						"file:///database/a": false, "test://x": false})
				wantListed(g, c, "resources/templates/list", `"uriTemplate":"s+`,
					map[string]bool{"file:///data/{name}": true, "file:///etc/{name}": false,
						"javascript:{x}": false})
				wantListed(g, c, "skills/list", `"uri":"s+`,
					map[string]bool{"skill://good/SKILL.md": true, "skill://evil/SKILL.md": false})
				g.WantRecords("to_client response tools/list s - hide",
					"to_client response skills/list s - hide",
					"to_client response resources/list s - hide",
					"to_client response resources/templates/list s - hide")

				checkSubscriptions(g, t, c, s)

				m := harness.Request(t, c, "resources/read", `{"uri":"s+note://keys/%61"}`)
				if !strings.Contains(string(m.Result), `"text":"ID=1 KEY=[gone] B=3"`) {
					t.Errorf("the resource is %s, want a redacted text", m.Raw)
				}
				g.WantRecords("to_client response resources/read s note://keys/%61 modify")

				for root, forwarded := range map[string]bool{"file:///data/x": true,
					"file:///data/a%20b": true, "file:///database": false,
					"file:///data/%2e%2e/etc": false, "file://host/data": false,
					"https://example.com/data": false} {
					c.Answer["roots/list"] = func(mcptest.Message) string {
						return `{"roots":[{"uri":"` + root + `"}]}`
					}
					r := serverRequest("roots/list", `{}`)
					m := harness.Request(t, c, r.method, r.params)
					if strings.Contains(string(m.Raw), root) != forwarded {
						t.Errorf("root %s reached the server: got %v, want %v: %s", root,
							!forwarded, forwarded, m.Raw)
					}
				}
				g.WantRecords("to_server response roots/list s - pass",
					"to_server response roots/list s - hide")

				for _, rule := range ruleCases {
					t.Run(rule.rule, func(t *testing.T) {
						switch rule.rule {
						case "limits/rate":
							harness.CallTool(t, c, "s__seldom", `{}`)
							harness.CallTool(t, c, "s__seldom", `{}`)
						case "flow/exfiltration":
							harness.CallTool(t, c, "s__mail", `{}`)
							harness.CallTool(t, c, "s__send", `{}`)
							harness.CallTool(t, c, "s__web", `{}`)
						}
						for _, r := range rule.denied {
							wantDeniedBy(g, t, c, s, rule.rule, r)
						}
						for _, r := range rule.allowed {
							wantAllowed(g, t, c, s, r)
						}
					})
				}
			})
		})
	}
}

// wantListed fails the test unless the list that method returns has each name that is true in
// items, and none that is false. prefix is the text before each name.
func wantListed(g *harness.Gatekit, c *mcptest.Client, method, prefix string,
	items map[string]bool) {
	g.T.Helper()
	list := string(harness.Request(g.T, c, method, `{}`).Raw)
	for name, want := range items {
		if got := strings.Contains(list, prefix+name+`"`); got != want {
			g.T.Errorf("%s lists %s: got %v, want %v", method, name, got, want)
		}
	}
}

// wantDeniedBy fails the test unless this rule, and no other, denies one message of the exchange:
// the request, its result, or a request that the server sends meanwhile. The denial must be
// recorded, and a denied request must not be forwarded.
func wantDeniedBy(g *harness.Gatekit, t *testing.T, c *mcptest.Client, s *countingServer,
	rule string, r request) {
	t.Helper()
	records, requests, mark := len(g.Records()), s.requests.Load(), c.Mark()
	m := harness.Request(t, c, r.method, r.params)
	var reasons []string
	denied := "" // direction and kind of the denied message
	for _, record := range g.Records()[records:] {
		if record.Action == "deny" {
			reasons = append(reasons, record.Reason)
			denied = record.Direction + " " + record.Kind
		}
	}
	prefix := rule + ": "
	for other := range allRules {
		if len(reasons) == 1 && other != rule && strings.Contains(reasons[0], other+": ") {
			t.Errorf("%s %s: the reason is %q, want a reason of %s only", r.method, r.params,
				reasons[0], rule)
		}
	}
	if len(reasons) != 1 || !strings.HasPrefix(reasons[0], prefix) {
		t.Errorf("%s %s: the reasons are %q, want one reason of %s\nthe answer is %s", r.method,
			r.params, reasons, rule, m.Raw)
		return
	}
	if denied != "to_client request" && (!harness.IsDenied(m) ||
		mcptest.Text(m.Error, "message") != "refused by policy") {
		t.Errorf("%s %s got %s, want a denial", r.method, r.params, m.Raw)
	}
	if denied == "to_server request" && s.requests.Load() != requests {
		t.Errorf("%s %s was denied but reached the server", r.method, r.params)
	}
	if denied == "to_client request" && requestsToClient(c, mark) > 0 {
		t.Errorf("%s %s: the server's request was denied but reached the client", r.method,
			r.params)
	}
}

// requestsToClient returns the number of requests that the client has got since mark, as messages
// or as input requests in results.
func requestsToClient(c *mcptest.Client, mark int) (n int) {
	for _, f := range c.Frames()[mark:] {
		var inputs map[string]json.RawMessage
		json.Unmarshal(mcptest.At(f.Result, "inputRequests"), &inputs)
		if n += len(inputs); !f.Sent && f.IsRequest() {
			n++
		}
	}
	return n
}

// wantAllowed fails the test unless the request reaches the server, the server's request, if any,
// reaches the client, and nothing is denied.
func wantAllowed(g *harness.Gatekit, t *testing.T, c *mcptest.Client, s *countingServer,
	r request) {
	t.Helper()
	records, requests, mark := len(g.Records()), s.requests.Load(), c.Mark()
	m := harness.Request(t, c, r.method, r.params)
	if m.Error != nil || s.requests.Load() == requests {
		t.Errorf("%s %s got %s, want a result of the server", r.method, r.params, m.Raw)
	}
	if strings.Contains(r.params, `"method":"`) && requestsToClient(c, mark) == 0 {
		t.Errorf("%s %s: the server's request did not reach the client: %s", r.method, r.params,
			m.Raw)
	}
	for _, record := range g.Records()[records:] {
		if record.Action == "deny" || record.Method == r.method && record.Action == "" {
			t.Errorf("%s %s has the record %s (%s), want it allowed", r.method, r.params, record,
				record.Reason)
		}
	}
}

// checkSubscriptions subscribes to a hidden and to an allowed resource. Only updates of the allowed
// resource must reach the client.
func checkSubscriptions(g *harness.Gatekit, t *testing.T, c *mcptest.Client, s *countingServer) {
	t.Helper()
	mark, hidden, allowed := c.Mark(), "file:///database/a", "file:///data/a"
	if c.Revision == mcptest.Modern {
		c.Send(c.Request(`"l"`, "subscriptions/listen",
			fmt.Sprintf(`{"notifications":{"resourceSubscriptions":["s+%s","s+%s"]}}`, hidden,
				allowed)))
		ack, err := c.AwaitMethod(harness.Context(t), mark,
			"notifications/subscriptions/acknowledged")
		if err != nil || string(mcptest.At(ack.Params, "notifications",
			"resourceSubscriptions")) != `["s+`+allowed+`"]` {
			t.Fatalf("the acknowledged subscriptions are %s, %v, want s+%s", ack.Raw, err, allowed)
		}
		g.WantRecords("to_server request subscriptions/listen s - hide")
	} else {
		wantDeniedBy(g, t, c, s, "roots/traversal", withURI("resources/subscribe", hidden))
		wantAllowed(g, t, c, s, withURI("resources/subscribe", allowed))
	}
	harness.CallTool(t, c, "s__update", `{"of":"`+hidden+`"}`)
	harness.CallTool(t, c, "s__update", `{"of":"`+allowed+`"}`)
	update, err := c.AwaitMethod(harness.Context(t), mark, "notifications/resources/updated")
	if err != nil || mcptest.Text(update.Params, "uri") != "s+"+allowed {
		t.Errorf("the first update is %s, %v, want one of s+%s", update.Raw, err, allowed)
	}
	g.WantRecords("to_client notification notifications/resources/updated s file:///data/a pass")
	// For a modern client, gatekit does not subscribe to the hidden resource, so no update comes.
	if c.Revision != mcptest.Modern {
		g.WantRecords("to_client notification notifications/resources/updated s " +
			"file:///database/a deny")
	}
}

// TestSchemaRuleAddsNotes calls a tool before and after it is listed, with arguments and results
// that do not match its schemas. With the default settings, the calls pass, and their records have
// notes.
func TestSchemaRuleAddsNotes(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			s := newCountingServer(revision)
			h := httptest.NewServer(s)
			defer h.Close()
			config := harness.HTTPServer("s", h.URL) +
				harness.LibraryRules(map[string]string{"tools/schema": ""})
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				harness.Handshake(t, c)
				wantNote := func(r request, note string) {
					t.Helper()
					before := len(g.LogLines())
					if m := harness.Request(t, c, r.method, r.params); m.Result == nil {
						t.Errorf("%s got %s, want a result", r.params, m.Raw)
					}
					log := strings.Join(g.LogLines()[before:], "\n")
					found := strings.Count(log, `"type":"tools/schema: `)
					if note == "" && found != 0 || note != "" && (found != 1 ||
						!strings.Contains(log, note)) {
						t.Errorf("%s: the records are\n%s\nwant the note %q", r.params, log, note)
					}
				}
				wantNote(toolCall("get", `{"what":7}`), "the tool was not listed in this session")
				wantNote(toolCall("get", `{"what":7}`), "")
				harness.ListAll(t, c, "tools/list", "tools")
				wantNote(toolCall("get", `{"what":["/data/a"]}`),
					"argument /what matches none of the allowed forms")
				wantNote(toolCall("get", `{"what":"a"}`), "")
				wantNote(serverResult(`{"content":[],"structuredContent":{"n":"1"}}`),
					"structuredContent /n is of type string, not number")
				wantNote(serverResult(`{"content":[],"structuredContent":{"n":1}}`), "")
			})
		})
	}
}
