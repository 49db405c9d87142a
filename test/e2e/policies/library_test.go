package policies

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// try is one message of a client,.
type try struct{ method, params string }

func tool(name, arguments string) try {
	return try{"tools/call", fmt.Sprintf(`{"name":"s__%s","arguments":%s}`, name, arguments)}
}

// answers has the server answer with a result.
func answers(result string) try { return tool("result", `{"result":`+mcptest.Quote(result)+`}`) }

// asks has the server put a question to the client, while it is called.
func asks(method, params string) try {
	return tool("ask", fmt.Sprintf(`{"method":%q,"params":%s}`, method, params))
}

func form(fields string) try {
	return asks("elicitation/create",
		`{"mode":"form","message":"who?","requestedSchema":{"type":"object","properties":{`+fields+
			`}}}`)
}

func page(url string) try {
	return asks("elicitation/create",
		`{"mode":"url","elicitationId":"e","message":"go there","url":"`+url+`"}`)
}

func sample(more string) try {
	return asks("sampling/createMessage",
		`{"messages":[{"role":"user","content":{"type":"text","text":"say it"}}]`+more+`}`)
}

func uri(method, uri string) try { return try{method, `{"uri":"s+` + uri + `"}`} }

// allRules are settings of all of them that leave each something to refuse.
var allRules = map[string]string{
	"tools/allowlist":  `tools = ["get", "put", "run", "fetch", "result", "ask", "mail", "web", "send", "seldom", "update"]`,
	"tools/readonly":   `except = ["[!p]*"]`,
	"tools/arguments":  `rules = [{ tools = ["run"], argument = "ref", pattern = "[a-z/-]+", max_length = 20, no_leading_dash = true }, { tools = ["fetch"], argument = "from", hosts = ["*.example.com"] }]`,
	"roots/traversal":  `roots = ["/data"]`,
	"resources/uris":   `schemes = ["file", "note", "https"]`,
	"resources/redact": `rules = [{ uris = ["note://keys/*"], pattern = "KEY=[^ ]+", with = "KEY=[gone]" }]`,
	"sampling/gate":    "servers = [\"s\"]\nmodels = [\"m\"]\nmax_tokens = 10",
	"elicitation/gate": ``,
	"flow/exfiltration": "private = { tools = [\"mail\"] }\nuntrusted = { tools = [\"web\"] " +
		"}\negress = { tools = [\"send\"] }",
	"limits/rate":    `tools = [{ tools = ["seldom"], per_session = 2 }]`,
	"tasks/gate":     ``,
	"vendor/methods": `methods = ["acme/known"]`,
}

// ruleCases are the attacks that each rule refuses, and what looks like them and passes, in this
// order.
var ruleCases = []struct {
	rule          string
	attacks, pass []try
}{
	{"tools/allowlist",
		// the last has a Cyrillic е
		[]try{tool("wipe", `{}`), tool("GET", `{}`), tool("get.", `{}`), tool("get__x", `{}`),
			tool("gеt", `{}`)},
		[]try{tool("get", `{}`)}},
	{"tools/readonly",
		[]try{tool("put", `{}`)},
		[]try{tool("get", `{}`)}},
	{"tools/arguments",
		[]try{tool("run", `{"ref":"--upload-pack=x"}`), tool("run", `{"ref":["main","-x"]}`),
			tool("run", `{"in":{"ref":"main;id"}}`), tool("run", `{"\u0072ef":"A"}`),
			tool("run", `{"ref":{"x":1}}`), tool("run", `{"ref":7}`),
			tool("run", `{"ref":"aaaaaaaaaaaaaaaaaaaaaaaaaaa"}`),
			tool("fetch", `{"from":"https://evil.example/"}`),
			tool("fetch", `{"from":"https://a.example.com@evil.example/"}`),
			tool("fetch", `{"from":"https://a.example.com.evil.example/"}`),
			tool("fetch", `{"from":"http://127.1/"}`)},
		[]try{tool("run", `{"ref":"feature/a-b","other":"--x"}`),
			tool("run", `{"ref":["main","dev"]}`),
			tool("fetch", `{"from":"https://A.example.com/x?y"}`), tool("get", `{"ref":"--x"}`)}},
	{"roots/traversal",
		[]try{tool("get", `{"path":"/database/x"}`), tool("get", `{"path":"/data/%2e%2e/etc"}`),
			tool("get", `{"outputFile":"/data/..\\..\\etc"}`),
			tool("get", `{"edits":[{"file_path":"\\\\host\\share"}]}`),
			tool("get", `{"paths":["/data/a","/data/\u0000"]}`),
			tool("get", `{"what":"/etc/passwd"}`),
			uri("resources/read", "file:///etc/passwd"), uri("resources/read",
				"file:///data/%252e%252e/etc"), uri("resources/read", "file://host/data/x"),
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"s+file:///data/{name}"},"argument":{"name":"name","value":"../../etc/"}}`}},
		[]try{tool("get", `{"path":"/data/database","text":"../../etc/passwd"}`),
			tool("get", `{"path":"/data/a..b/100%"}`), uri("resources/read",
				"file:///data/b%20c.txt"), {"completion/complete",
				`{"ref":{"type":"ref/resource","uri":"s+file:///data/{name}"},"argument":{"name":"name","value":"a.."}}`}}},
	{"resources/uris",
		[]try{uri("resources/read", "javascript:alert(1)"), uri("resources/read",
			"https://169.254.169.254/latest"), uri("resources/read", "https://0x7f.1/"),
			uri("resources/read", "https://bank.example@evil.example/"), uri("resources/read",
				"ftp://example.com/x"),
			answers(`{"content":[{"type":"resource_link","uri":"http://127.0.0.1/","name":"x"}]}`)},
		[]try{uri("resources/read", "note://a"), uri("resources/read",
			"https://example.com/169.254.169.254"),
			answers(`{"content":[{"type":"resource_link","uri":"https://example.com/x","name":"x"},{"type":"text","text":"http://127.0.0.1/"}]}`)}},
	{"resources/redact",
		[]try{answers(`{"content":[{"type":"resource","resource":{"uri":"NOTE://keys/%61","blob":"S0VZ"}}]}`)},
		[]try{answers(`{"content":[{"type":"resource","resource":{"uri":"note://a","blob":"S0VZ"}}]}`)}},
	{"sampling/gate",
		[]try{sample(`,"maxTokens":11`), sample(``), sample(`,"maxTokens":"5"`),
			sample(`,"maxTokens":5,"includeContext":"allServers"`),
			sample(`,"maxTokens":5,"modelPreferences":{"hints":[{"name":"other"}]}`)},
		[]try{sample(`,"maxTokens":10,"includeContext":"none"`),
			sample(`,"maxTokens":5,"modelPreferences":{"hints":[{"name":"m"}]}`)}},
	{"elicitation/gate",
		[]try{form(`"api_key":{"type":"string"}`),
			form(`"x":{"type":"string","title":"Your p a s s w o r d"}`),
			form(`"enum":{"type":"string","title":"Mot de passe"}`),
			form(`"x":{"type":"string","description":"see https://evil.example"}`),
			page("http://example.com/"), page("https://bank.example@evil.example/"),
			page("https://xn--pypal-4ve.com/"), page("https://192.168.1.1/"),
			page("https://example.com/?access_token=x")},
		[]try{form(`"name":{"type":"string"},"max_tokens":{"type":"integer"}`),
			form(`"city":{"type":"string","enum":["Paris","Password"]}`),
			page("https://example.com/sign?in=1")}},
	{"tasks/gate",
		[]try{{"tasks/get", `{"taskId":"s+1"}`}, {"tasks/cancel", `{"taskId":"s+1"}`},
			{"tools/call", `{"name":"s__get","task":{"ttl":1}}`},
			answers(`{"task":{"taskId":"1","status":"working"}}`),
			answers(`{"resultType":"task","taskId":"1","status":"working"}`)},
		[]try{tool("get", `{"task":{"ttl":1}}`)}},
	{"vendor/methods",
		[]try{{"acme/other", `{}`}, {"ACME/known", `{}`}},
		[]try{{"acme/known", `{}`}}},
	{"limits/rate", // the two before were within
		[]try{tool("seldom", `{}`), tool("seldom", `{"n":2}`)},
		[]try{tool("get", `{}`)}},
	{"flow/exfiltration", // after private data and a stranger's words
		[]try{tool("send", `{}`), tool("send", `{"_meta":{"x":1}}`)},
		[]try{tool("get", `{}`)}},
}

// ruledServer has tools, resources and templates of which the rules show some, and notes what
// reaches it.
type ruledServer struct {
	*mcptest.Server
	mu      sync.Mutex
	reached []string
}

func (s *ruledServer) seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.reached)
}

func newRuledServer(revision string) *ruledServer {
	s := &ruledServer{Server: mcptest.Toolbox("s", revision)}
	box := s.Handle
	s.Capabilities = `{"tools":{},"resources":{"subscribe":true},"prompts":{},"completions":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	schema := `"inputSchema":{"type":"object","properties":{"what":{"anyOf":[{"type":"string","format":"path"},{"type":"null"}]}}}`
	list := func(what, items string) func(*mcptest.Call) {
		return func(c *mcptest.Call) {
			c.Result(fmt.Sprintf(`{%q:[%s],"ttlMs":0,"cacheScope":"private"}`, what, items))
		}
	}
	var tools []string
	for _, name := range []string{"get", "put", "wipe", "run", "fetch", "result", "ask", "mail",
		"web", "send", "seldom", "update"} {
		tools = append(tools, fmt.Sprintf(`{"name":%q,%s,"annotations":{"readOnlyHint":%v}}`, name,
			schema, name == "get"))
	}
	text := func(c *mcptest.Call) { c.Result(`{"content":[{"type":"text","text":"done"}]}`) }
	s.Handle = map[string]func(*mcptest.Call){
		"tools/list":   list("tools", strings.Join(tools, ",")),
		"prompts/list": list("prompts", ``),
		"resources/list": list("resources",
			`{"uri":"file:///data/a","name":"a"},{"uri":"file:///database/a","name":"b"},{"uri":"test://x","name":"c"},{"uri":"note://keys/a","name":"d"}`),
		"resources/templates/list": list("resourceTemplates",
			`{"uriTemplate":"file:///data/{name}","name":"a"},{"uriTemplate":"file:///etc/{name}","name":"b"},{"uriTemplate":"javascript:{x}","name":"c"}`),
		"completion/complete": box["completion/complete"],
		"resources/subscribe": box["resources/subscribe"],
		"tools/call": func(c *mcptest.Call) {
			switch mcptest.Text(c.Params, "name") {
			case "result", "ask":
				box["tools/call"](c)
			case "update":
				c.Feed("notifications/resources/updated", fmt.Sprintf(`{"uri":%s}`,
					mcptest.At(c.Params, "arguments", "of")))
				text(c)
			default:
				text(c)
			}
		},
		"resources/read": func(c *mcptest.Call) {
			c.Result(fmt.Sprintf(
				`{"contents":[{"uri":%s,"text":"ID=1 KEY=2 B=3"}],"ttlMs":0,"cacheScope":"private"}`, mcptest.Quote(mcptest.Text(c.Params, "uri"))))
		},
		"acme/known": text, "acme/other": text, "ACME/known": text, "tasks/get": text,
		"tasks/cancel": text,
	}
	for method, handle := range s.Handle {
		s.Handle[method] = func(c *mcptest.Call) {
			s.mu.Lock()
			s.reached = append(s.reached, method+" "+string(c.Params))
			s.mu.Unlock()
			handle(c)
		}
	}
	return s
}

// Each rule of the library refuses its attacks and passes what looks like them, all of them in
// force at once, in both eras, over both transports.
func TestEachRuleRefusesItsAttacksAndPassesTheirLookAlikes(t *testing.T) {
	harness.Long(t, "every rule over both eras and transports")
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			s := newRuledServer(revision)
			at := httptest.NewServer(s)
			defer at.Close()
			config := harness.HTTPServer("s", at.URL) + "methods = [\"acme/*\", \"ACME/known\"]\n" +
				harness.LibraryRules(allRules)
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				harness.Handshake(t, c)
				c.Capabilities = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
				shows(g, c, "tools/list", `"name":"s__`, map[string]bool{"get": true, "run": true,
					"put": false, "wipe": false})
				shows(g, c, "resources/list", `"uri":"s+`, map[string]bool{"file:///data/a": true,
					"note://keys/a": true, "file:///database/a": false, "test://x": false})
				shows(g, c, "resources/templates/list", `"uriTemplate":"s+`,
					map[string]bool{"file:///data/{name}": true, "file:///etc/{name}": false,
						"javascript:{x}": false})
				g.WantRecords("to_client response tools/list s - hide",
					"to_client response resources/list s - hide",
					"to_client response resources/templates/list s - hide")

				feeds(g, t, c, s)

				m := harness.Request(t, c, "resources/read", `{"uri":"s+note://keys/%61"}`)
				if !strings.Contains(string(m.Result), `"text":"ID=1 KEY=[gone] B=3"`) {
					t.Errorf("a resource that is redacted: %s", m.Raw)
				}
				g.WantRecords("to_client response resources/read s note://keys/%61 modify")

				for root, told := range map[string]bool{"file:///data/x": true,
					"file:///data/a%20b": true, "file:///database": false,
					"file:///data/%2e%2e/etc": false, "file://host/data": false,
					"https://example.com/data": false} {
					c.Answer["roots/list"] = func(mcptest.Message) string {
						return `{"roots":[{"uri":"` + root + `"}]}`
					}
					asked := asks("roots/list", `{}`)
					if m := harness.Request(t, c, asked.method,
						asked.params); strings.Contains(string(m.Raw),
						root) != told {
						t.Errorf("a client whose root is %s: %s", root, m.Raw)
					}
				}
				g.WantRecords("to_server response roots/list s - pass",
					"to_server response roots/list s - deny")

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
						for _, x := range rule.attacks {
							refuses(g, t, c, s, rule.rule, x)
						}
						for _, x := range rule.pass {
							lets(g, t, c, s, x)
						}
					})
				}
			})
		})
	}
}

// shows wants some of a list's items in it, and others not.
func shows(g *harness.Gatekit, c *mcptest.Client, method, before string, items map[string]bool) {
	g.T.Helper()
	list := string(harness.Request(g.T, c, method, `{}`).Raw)
	for name, shown := range items {
		if strings.Contains(list, before+name+`"`) != shown {
			g.T.Errorf("%s shows %s: %v", method, name, !shown)
		}
	}
}

// refuses wants a try refused by the rule alone, and recorded. What the client sends does not reach
// the server, what the server sends does not reach the client.
func refuses(g *harness.Gatekit, t *testing.T, c *mcptest.Client, s *ruledServer, rule string,
	x try) {
	t.Helper()
	records, reached, mark := len(g.Records()), s.seen(), c.Mark()
	m := harness.Request(t, c, x.method, x.params)
	var reasons []string
	from := ""
	for _, r := range g.Records()[records:] {
		if r.Action == "deny" {
			reasons, from = append(reasons, r.Reason), r.Direction+" "+r.Kind
		}
	}
	by := rule + ": "
	for other := range allRules {
		if len(reasons) == 1 && other != rule && strings.Contains(reasons[0],
			other+": ") {
			t.Errorf("%s %s is refused for %s, want one reason of %s", x.method, x.params,
				reasons[0], by)
		}
	}
	if len(reasons) != 1 || !strings.HasPrefix(reasons[0], by) {
		t.Errorf("%s %s is refused for %q, want one reason of %s\nit answered %s", x.method,
			x.params, reasons, by, m.Raw)
		return
	}
	if from != "to_client request" && (string(mcptest.At(m.Error, "code")) != "-31000" ||
		mcptest.Text(m.Error, "message") != "refused by policy") {
		t.Errorf("%s %s answered %s", x.method, x.params, m.Raw)
	}
	if from == "to_server request" && s.seen() != reached {
		t.Errorf("%s %s was refused, and reached the server", x.method, x.params)
	}
	if from == "to_client request" && asked(c, mark) > 0 {
		t.Errorf("%s %s was refused, and reached the client", x.method, x.params)
	}
}

// asked is how many questions the client was put since mark.
func asked(c *mcptest.Client, mark int) (n int) {
	for _, f := range c.Frames()[mark:] {
		var questions map[string]json.RawMessage
		json.Unmarshal(mcptest.At(f.Result, "inputRequests"), &questions)
		if n += len(questions); !f.Sent && f.IsRequest() {
			n++
		}
	}
	return n
}

// lets wants a try to pass: to the server, its question to the client, and its answer back.
func lets(g *harness.Gatekit, t *testing.T, c *mcptest.Client, s *ruledServer, x try) {
	t.Helper()
	records, reached, mark := len(g.Records()), s.seen(), c.Mark()
	m := harness.Request(t, c, x.method, x.params)
	if m.Error != nil || s.seen() == reached {
		t.Errorf("%s %s answered %s", x.method, x.params, m.Raw)
	}
	if strings.Contains(x.params, `"method":"`) && asked(c, mark) == 0 {
		t.Errorf("%s %s did not reach the client: %s", x.method, x.params, m.Raw)
	}
	for _, r := range g.Records()[records:] {
		if r.Action == "deny" || r.Method == x.method && r.Action == "" {
			t.Errorf("%s %s has the record %s: %s", x.method, x.params, r, r.Reason)
		}
	}
}

// feeds wants a client that has subscribed to what the rules show, and to what they hide, told of
// the one alone.
func feeds(g *harness.Gatekit, t *testing.T, c *mcptest.Client, s *ruledServer) {
	t.Helper()
	mark, hidden, shown := c.Mark(), "file:///database/a", "file:///data/a"
	if c.Revision == mcptest.Modern {
		c.Send(c.Request(`"l"`, "subscriptions/listen",
			fmt.Sprintf(`{"notifications":{"resourceSubscriptions":["s+%s","s+%s"]}}`, hidden,
				shown)))
		ack, err := c.AwaitMethod(harness.Context(t), mark,
			"notifications/subscriptions/acknowledged")
		if err != nil || string(mcptest.At(ack.Params, "notifications",
			"resourceSubscriptions")) != `["s+`+shown+`"]` {
			t.Fatalf("acknowledged %s, %v", ack.Raw, err)
		}
		g.WantRecords("to_server request subscriptions/listen s - hide")
	} else {
		refuses(g, t, c, s, "roots/traversal", uri("resources/subscribe", hidden))
		lets(g, t, c, s, uri("resources/subscribe", shown))
	}
	harness.CallTool(t, c, "s__update", `{"of":"`+hidden+`"}`)
	harness.CallTool(t, c, "s__update", `{"of":"`+shown+`"}`)
	told, err := c.AwaitMethod(harness.Context(t), mark, "notifications/resources/updated")
	if err != nil || mcptest.Text(told.Params, "uri") != "s+"+shown {
		t.Errorf("the client was told first of %s, %v", told.Raw, err)
	}
	g.WantRecords("to_client notification notifications/resources/updated s file:///data/a pass")
	if c.Revision != mcptest.Modern { // a modern server was not asked for the other
		g.WantRecords("to_client notification notifications/resources/updated s file:///database/a " +
			"deny")
	}
}
