package sdktest

import (
	"fmt"
	"strings"

	"gatekit/core/mcp"
)

// OrdinaryMessages returns messages that clients and servers send every day: one of each method,
// kind and direction. Their server is "everything" and their tool "echo".
func OrdinaryMessages() []*mcp.Message {
	var all []*mcp.Message
	for _, o := range ordinary {
		request := parse(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`,
			len(all)+1, o.method, o.params))
		if o.result == "" {
			request = parse(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, o.method,
				o.params))
		}
		request.Direction, request.Session, request.Exchange, request.Server = o.to,
			"sdktest", fmt.Sprint(len(all)+1), "everything"
		switch method, _ := mcp.LookupMethod(o.method); {
		case method.NamePointer != "":
			request.Name, _ = request.Text(method.NamePointer)
		case o.method == "completion/complete":
			request.Name = "greeting"
		}
		all = append(all, request)
		if o.result == "" {
			continue
		}
		for _, body := range []string{`"result":` + o.result,
			`"error":{"code":-32602,"message":"it did not work","data":{"hint":"try again"}}`} {
			answer := parse(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, request.ID(), body))
			a := withFields(answer, request)
			a.Request, a.Direction = request, mcp.ToServer+mcp.ToClient-request.Direction
			all = append(all, &a)
		}
	}
	return all
}

const text = `"It is sunny in Oslo, 21 °C.\nTomorrow: 19."`

// digits is a SHA-256 digest in hexadecimal.
const digits = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

var ordinary = []struct {
	to             mcp.Direction
	method, params string
	result         string // "" for a notification
}{
	{mcp.ToServer, "initialize",
		`{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"client","version":"1.0"}}`,
		`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"everything","version":"1.0"},"instructions":"Echo what you like."}`},
	{mcp.ToServer, "server/discover", `{}`,
		`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"everything","version":"1.0"}}`},
	{mcp.ToServer, "ping", `{}`, `{}`},
	{mcp.ToClient, "ping", `{}`, `{}`},
	{mcp.ToServer, "tools/list", `{"cursor":"2"}`,
		`{"tools":[{"name":"echo","description":"Says what you say.","inputSchema":{"type":"object","properties":{"message":{"type":"string","description":"what to say"}},"required":["message"]}}],"nextCursor":"3"}`},
	{mcp.ToServer, "tools/call", `{"name":"echo","arguments":{"message":` + text +
		`,"times":3,"ratio":0.50,"tags":["a","b"],"more":null},"_meta":{"progressToken":7}}`,
		`{"content":[{"type":"text","text":` + text +
			`},{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="},{"type":"resource_link","uri":"file:///srv/a.txt","name":"a.txt"}],"structuredContent":{"said":` + text + `},"isError":false}`},
	{mcp.ToServer, "resources/list", `{}`,
		`{"resources":[{"uri":"file:///srv/a.txt","name":"a.txt","mimeType":"text/plain","size":20}]}`},
	{mcp.ToServer, "resources/templates/list", `{}`,
		`{"resourceTemplates":[{"uriTemplate":"file:///srv/{name}","name":"files"}]}`},
	{mcp.ToServer, "resources/read", `{"uri":"file:///srv/a.txt"}`,
		`{"contents":[{"uri":"file:///srv/a.txt","mimeType":"text/plain","text":` + text + `}]}`},
	{mcp.ToServer, "resources/subscribe", `{"uri":"file:///srv/a.txt"}`, `{}`},
	{mcp.ToServer, "resources/unsubscribe", `{"uri":"file:///srv/a.txt"}`, `{}`},
	{mcp.ToServer, "prompts/list", `{}`,
		`{"prompts":[{"name":"greeting","description":"Greets somebody.","arguments":[{"name":"who","required":true}]}]}`},
	{mcp.ToServer, "prompts/get", `{"name":"greeting","arguments":{"who":"Ada"}}`,
		`{"messages":[{"role":"user","content":{"type":"text","text":"Say hello to Ada."}}]}`},
	{mcp.ToServer, "skills/list", `{}`,
		`{"skills":[{"uri":"skill://notes/SKILL.md","frontmatter":{"name":"notes","description":"Keeps notes of a meeting."},"resources":[{"uri":"skill://notes/SKILL.md","digest":"sha256:` +
			digits + `","size":120},{"uri":"skill://notes/scripts/sort.py","digest":"sha256:` +
			digits + `","size":80}]}]}`},
	{mcp.ToServer, "skills/get", `{"uri":"skill://notes/SKILL.md"}`,
		`{"skill":{"uri":"skill://notes/SKILL.md","frontmatter":{"name":"notes","description":"Keeps notes of a meeting."},"resources":[{"uri":"skill://notes/SKILL.md","digest":"sha256:` +
			digits + `","size":120}]}}`},
	{mcp.ToServer, "resources/directory/read", `{"uri":"skill://notes/scripts"}`,
		`{"resources":[{"uri":"skill://notes/scripts/sort.py","name":"sort.py","size":80}]}`},
	{mcp.ToServer, "completion/complete",
		`{"ref":{"type":"ref/prompt","name":"greeting"},"argument":{"name":"who","value":"A"}}`,
		`{"completion":{"values":["Ada","Alan"],"total":2,"hasMore":false}}`},
	{mcp.ToServer, "logging/setLevel", `{"level":"info"}`, `{}`},
	{mcp.ToServer, "subscriptions/listen",
		`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///srv/a.txt"]}}`,
		`{}`},
	{mcp.ToServer, "tasks/get", `{"taskId":"t-1"}`,
		`{"taskId":"t-1","status":"completed","result":{"content":[{"type":"text","text":` + text +
			`}]}}`},
	{mcp.ToClient, "tasks/get", `{"taskId":"t-1"}`, `{"taskId":"t-1","status":"working"}`},
	{mcp.ToServer, "tasks/result", `{"taskId":"t-1"}`, `{"content":[{"type":"text","text":` + text +
		`}]}`},
	{mcp.ToServer, "tasks/list", `{}`, `{"tasks":[{"taskId":"t-1","status":"working"}]}`},
	{mcp.ToServer, "tasks/cancel", `{"taskId":"t-1"}`, `{"taskId":"t-1","status":"cancelled"}`},
	{mcp.ToServer, "tasks/update",
		`{"taskId":"t-1","inputResponses":{"who":{"action":"accept","content":{"who":"Ada"}}}}`,
		`{}`},
	{mcp.ToClient, "sampling/createMessage",
		`{"messages":[{"role":"user","content":{"type":"text","text":"Is it sunny?"}}],"systemPrompt":"Be short.","maxTokens":100}`,
		`{"role":"assistant","content":{"type":"text","text":"Yes."},"model":"a-model","stopReason":"endTurn"}`},
	{mcp.ToClient, "elicitation/create",
		`{"message":"Which town?","requestedSchema":{"type":"object","properties":{"town":{"type":"string"}}}}`, `{"action":"accept","content":{"town":"Oslo"}}`},
	{mcp.ToClient, "roots/list", `{}`, `{"roots":[{"uri":"file:///srv","name":"srv"}]}`},
	{mcp.ToServer, "notifications/initialized", `{}`, ""},
	{mcp.ToServer, "notifications/cancelled", `{"requestId":6,"reason":"the user went away"}`, ""},
	{mcp.ToServer, "notifications/progress", `{"progressToken":8,"progress":0.5}`, ""},
	{mcp.ToClient, "notifications/progress",
		`{"progressToken":7,"progress":1,"total":3,"message":"one of three"}`, ""},
	{mcp.ToClient, "notifications/message", `{"level":"info","logger":"weather","data":` + text +
		`}`, ""},
	{mcp.ToClient, "notifications/tools/list_changed", `{}`, ""},
	{mcp.ToClient, "notifications/prompts/list_changed", `{}`, ""},
	{mcp.ToClient, "notifications/resources/list_changed", `{}`, ""},
	{mcp.ToClient, "notifications/resources/updated", `{"uri":"file:///srv/a.txt"}`, ""},
	{mcp.ToServer, "notifications/roots/list_changed", `{}`, ""},
	{mcp.ToClient, "notifications/elicitation/complete", `{"elicitationId":"e-1"}`, ""},
	{mcp.ToClient, "notifications/tasks/status", `{"taskId":"t-1","status":"completed"}`, ""},
	{mcp.ToClient, "notifications/tasks",
		`{"taskId":"t-1","status":"completed","result":{"content":[{"type":"text","text":` + text +
			`}]}}`, ""},
	{mcp.ToClient, "notifications/subscriptions/acknowledged",
		`{"notifications":{"toolsListChanged":true}}`, ""},
	{mcp.ToServer, "acme/inventory", `{"shelf":"B"}`, `{"count":3}`}, // in no revision of MCP
}

// largeText returns 5 MiB of ordinary lines.
func largeText() string {
	const line = "The quick brown fox reads /srv/data/report.txt, counts 1024 words and writes " +
		"them down again.\n"
	return strings.Repeat(line, 5<<20/len(line)+1)
}

// messagesWith returns a call, a result, an error and a notification. Each contains the JSON value.
func messagesWith(value string) []*mcp.Message {
	call := parse(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":` + value + `}}}`)
	call.Direction, call.Session, call.Exchange, call.Server, call.Name = mcp.ToServer,
		"sdktest", "1", "everything", "echo"
	var all = []*mcp.Message{call}
	for _, raw := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":` + value +
			`}],"structuredContent":{"said":` + value + `}}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no","data":` + value + `}}`,
	} {
		a := withFields(parse(raw), call)
		a.Direction, a.Request = mcp.ToClient, call
		all = append(all, &a)
	}
	n := parse(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":` + value + `}}`)
	n.Direction, n.Session, n.Server = mcp.ToClient, "sdktest", "everything"
	return append(all, n)
}

// unusualValues returns JSON values that a stage may not expect, by name.
func unusualValues() map[string]string {
	const deep = 180 // levels; messages may have more
	return map[string]string{
		"null":                `null`,
		"an empty object":     `{}`,
		"an empty string":     `""`,
		"empty names":         `{"":{"":""}}`,
		"names like pointers": `{"/":1,"~":2,"~1":3,"a/b":{"~0":4},"0":5,"-":6}`,
		"a lone surrogate":    `"before \ud83d after \udc00"`,
		"surrogates in names": `{"\ud83d":1,"cut \uD83D":{"\udc00 x":"text"}}`,
		"escaped characters":  `"\u0000\u001f\u007f\u0041\n\t\\\/\""`,
		"control characters":  `{"a":"x\u0000y\u0007z"}`,
		"a huge number": `[1e999999,-1E-999999,` + strings.Repeat("9",
			4000) + `,0.` + strings.Repeat("0", 4000) + `1,-0,1E+2]`,
		"deep arrays": strings.Repeat("[", deep) + strings.Repeat("]", deep),
		"deep objects": strings.Repeat(`{"a":`, deep) + `"b"` + strings.Repeat("}",
			deep),
		"100,000 elements":     "[" + strings.Repeat(`"a",`, 100_000) + `"a"]`,
		"10,000 members":       manyMembers(10_000),
		"a name of 64 KiB":     `{"` + strings.Repeat("n", 64<<10) + `":1}`,
		"base64 within base64": `"WVdKalpHVm1aMmhwYW10c2JXNXZjSEZ5YzNSMWRuZDRlWG89Cg=="`,
		"invisible characters": `"\u202eabc\u200b\u2066\ufeff\ue0041\ufffd\uffff"`,
		"white space":          " [ 1 ,\t2 ,\r\n{ \"a\" : [ ] } ] ",
		"booleans":             `[true,false,{"a":true}]`,
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"member%d":"value %d"`, i, i)
	}
	return "{" + b.String()[1:] + "}"
}

// messagesWithoutValidBody returns messages whose body is absent, null, or invalid for their
// method.
func messagesWithoutValidBody() []*mcp.Message {
	var all []*mcp.Message
	for _, method := range []string{"tools/call", "resources/read", "prompts/get",
		"completion/complete", "sampling/createMessage", "tasks/get", "initialize",
		"acme/inventory"} {
		for _, raw := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`,
			`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":null}`,
			`{"jsonrpc":"2.0","id":1,"method":"` + method +
				`","params":{"name":7,"uri":[],"arguments":"text","ref":null,"messages":{},"_meta":3}}`,
			`{"jsonrpc":"2.0","id":1,"result":null}`,
			`{"jsonrpc":"2.0","id":1,"result":{"content":"text","contents":{},"messages":7,"tools":null,"structuredContent":[],"_meta":[]}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}`,
		} {
			for _, to := range []mcp.Direction{mcp.ToServer, mcp.ToClient} {
				m, err := mcp.Parse([]byte(raw))
				if err != nil {
					continue // Gatekit rejects this message, too
				}
				m.Direction, m.Method, m.Session, m.Exchange, m.Server = to, method,
					"sdktest", "1", "everything"
				all = append(all, m)
			}
		}
	}
	unknown := parse(`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`)
	unknown.Direction = mcp.ToClient // the message has neither a method nor a server
	return append(all, unknown)
}

// parse parses a message of this package. It panics if the message is invalid.
func parse(raw string) *mcp.Message {
	m, err := mcp.Parse([]byte(raw))
	if err != nil {
		panic(fmt.Sprintf("sdktest: %.200s: %v", raw, err))
	}
	return m
}
