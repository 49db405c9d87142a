package proxy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// failOnPrefixedNames returns a stage that fails the test if a message has one of the names. All
// these names have a prefix, and stages must get the servers' own names, which have none.
func failOnPrefixedNames(t *testing.T, names ...string) pipeline.StageConfig {
	return pipeline.StageConfig{Name: "fail-on-prefixed-names",
		Stage: stage(func(m *mcp.Message) pipeline.Verdict {
			for _, name := range names {
				if slices.Contains([]string{"tools/call", "prompts/get", "resources/read"},
					m.Method) &&
					m.Name == name {
					t.Errorf("a stage got %s with the name %s, want the name without its prefix",
						m.Method, m.Name)
				}
			}
			return pipeline.Verdict{Action: pipeline.Allow}
		})}
}

// The cases cover every group of the catalogue in core/mcp/nameplaces.go. Each case has the body of
// a message as the server sees it, and as the client sees it.
func TestNamesAreRewrittenInAllPlacesOfTheCatalogue(t *testing.T) {
	const (
		content         = `[{"type":"text","text":"f:///x"},{"type":"resource_link","uri":"f:///x","name":"x"},{"type":"resource","resource":{"uri":"ui://w","text":"f:///x"}},{"type":"new","uri":"f:///x"}]`
		prefixedContent = `[{"type":"text","text":"f:///x"},{"type":"resource_link","uri":"a+f:///x","name":"x"},{"type":"resource","resource":{"uri":"ui://a+w","text":"f:///x"}},{"type":"new","uri":"f:///x"}]`
		relatedTask     = `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}`
		prefixedTask    = `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"a+t"}}`
	)
	type row struct {
		kind   string // one of kinds
		method string
		params string // of the client's request, if kind is result or error
		// the body that the server sends or receives; for an error, its code and data
		server string
		// the same body, as the client receives or sends it; for an error, only its data
		client string
	}
	kinds := map[string]struct {
		kind      mcp.Kind
		direction mcp.Direction
	}{
		"request":             {mcp.Request, mcp.ToServer},
		"result":              {mcp.Response, mcp.ToClient},
		"error":               {mcp.Error, mcp.ToClient},
		"notification":        {mcp.Notification, mcp.ToClient},
		"server request":      {mcp.Request, mcp.ToClient},
		"client response":     {mcp.Response, mcp.ToServer},
		"client notification": {mcp.Notification, mcp.ToServer},
	}
	var covered []string
	for _, c := range []row{
		{"result", "tools/list", `{}`, `{"tools":[{"name":"x","title":"x"}]}`,
			`{"tools":[{"name":"a__x","title":"x"}]}`},
		{"result", "prompts/list", `{}`,
			`{"prompts":[{"name":"x","arguments":[{"name":"x"}]}]}`,
			`{"prompts":[{"name":"a__x","arguments":[{"name":"x"}]}]}`},
		{"request", "tools/call", "",
			`{"name":"x","arguments":{"name":"a__x","uri":"a+f:///x"}}`,
			`{"name":"a__x","arguments":{"name":"a__x","uri":"a+f:///x"}}`},
		{"request", "prompts/get", "", `{"name":"x"}`, `{"name":"a__x"}`},
		{"request", "completion/complete", "",
			`{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a__x"}}`,
			`{"ref":{"type":"ref/prompt","name":"a__x"},"argument":{"name":"a__x"}}`},
		{"request", "completion/complete", "",
			`{"ref":{"type":"ref/resource","uri":"f:///{x}"}}`,
			`{"ref":{"type":"ref/resource","uri":"a+f:///{x}"}}`},
		{"result", "resources/list", `{}`,
			`{"resources":[{"uri":"f:///x","icons":[{"src":"f:///x"}]}]}`,
			`{"resources":[{"uri":"a+f:///x","icons":[{"src":"f:///x"}]}]}`},
		{"result", "skills/list", `{}`,
			`{"skills":[{"uri":"skill://x/SKILL.md","frontmatter":{"uri":"skill://x/a"},"resources":[{"uri":"skill://x/a"}]},{"uri":"skill://y/SKILL.md","resources":"dynamic"}]}`,
			`{"skills":[{"uri":"a+skill://x/SKILL.md","frontmatter":{"uri":"skill://x/a"},"resources":[{"uri":"a+skill://x/a"}]},{"uri":"a+skill://y/SKILL.md","resources":"dynamic"}]}`},
		{"request", "skills/get", "", `{"uri":"skill://x/SKILL.md"}`,
			`{"uri":"a+skill://x/SKILL.md"}`},
		{"result", "skills/get", `{"uri":"a+skill://x/SKILL.md"}`,
			`{"skill":{"uri":"skill://x/SKILL.md","resources":[{"uri":"skill://x/a"}]}}`,
			`{"skill":{"uri":"a+skill://x/SKILL.md","resources":[{"uri":"a+skill://x/a"}]}}`},
		{"error", "skills/get", `{"uri":"a+skill://x/SKILL.md"}`,
			`-32602 {"uri":"skill://x/SKILL.md"}`, `{"uri":"a+skill://x/SKILL.md"}`},
		{"request", "resources/directory/read", "", `{"uri":"skill://x"}`,
			`{"uri":"a+skill://x"}`},
		{"result", "resources/directory/read", `{"uri":"a+skill://x"}`,
			`{"resources":[{"uri":"skill://x/a","name":"a"}]}`,
			`{"resources":[{"uri":"a+skill://x/a","name":"a"}]}`},
		{"result", "resources/templates/list", `{}`,
			`{"resourceTemplates":[{"uriTemplate":"{s}://x"}]}`,
			`{"resourceTemplates":[{"uriTemplate":"a+{s}://x"}]}`},
		{"request", "resources/read", "", `{"uri":"f:///x"}`, `{"uri":"a+f:///x"}`},
		{"request", "resources/subscribe", "", `{"uri":"ui://w"}`, `{"uri":"ui://a+w"}`},
		{"request", "resources/unsubscribe", "", `{"uri":"f:///x"}`,
			`{"uri":"a__f:///x"}`},
		{"result", "resources/read", `{"uri":"a+f:///x"}`,
			`{"contents":[{"uri":"f:///x","text":"f:///x"}]}`,
			`{"contents":[{"uri":"a+f:///x","text":"f:///x"}]}`},
		{"notification", "notifications/resources/updated", "", `{"uri":"f:///x/below"}`,
			`{"uri":"a+f:///x/below"}`},
		{"result", "tools/call", `{"name":"a__x"}`,
			`{"content":` + content + `,"structuredContent":{"uri":"f:///x"}}`,
			`{"content":` + prefixedContent + `,"structuredContent":{"uri":"f:///x"}}`},
		{"result", "tasks/result", `{"taskId":"a+t"}`,
			`{"content":` + content + `,` + relatedTask + `}`,
			`{"content":` + prefixedContent + `,` + prefixedTask + `}`},
		{"result", "tasks/get", `{"taskId":"a+t"}`,
			`{"taskId":"t","result":{"content":` + content + `}}`,
			`{"taskId":"a+t","result":{"content":` + prefixedContent + `}}`},
		{"notification", "notifications/tasks", "",
			`{"taskId":"t","result":{"content":` + content + `}}`,
			`{"taskId":"a+t","result":{"content":` + prefixedContent + `}}`},
		{"result", "prompts/get", `{"name":"a__x"}`,
			`{"messages":[{"role":"user","content":` + content +
				`},{"role":"user","content":{"type":"resource_link","uri":"f:///x"}}]}`,
			`{"messages":[{"role":"user","content":` + prefixedContent +
				`},{"role":"user","content":{"type":"resource_link","uri":"a+f:///x"}}]}`},
		{"server request", "sampling/createMessage",
			"", `{"messages":[{"role":"user","content":[{"type":"tool_result","content":` +
				content + `}]}],"tools":[{"name":"x"}],"_meta":{}}`,
			`{"messages":[{"role":"user","content":[{"type":"tool_result","content":` +
				prefixedContent +
				`}]}],"tools":[{"name":"x"}],"_meta":{"gatekit/server":"a"}}`},
		{"client response", "sampling/createMessage",
			"", `{"role":"assistant","content":[{"type":"resource_link","uri":"f:///x"},{"type":"resource_link","uri":"b+f:///x"}]}`,
			`{"role":"assistant","content":[{"type":"resource_link","uri":"a+f:///x"},{"type":"resource_link","uri":"b+f:///x"}]}`},
		{"result", "tools/list", `{}`,
			`{"tools":[{"name":"x","_meta":{"ui":{"resourceUri":"ui://w"},"ui/resourceUri":"ui://w"}}]}`,
			`{"tools":[{"name":"a__x","_meta":{"ui":{"resourceUri":"ui://a+w"},"ui/resourceUri":"ui://a+w"}}]}`},
		{"request", "subscriptions/listen", "",
			`{"notifications":{"resourceSubscriptions":["f:///x"],"taskIds":["t"]}}`,
			`{"notifications":{"resourceSubscriptions":["a+f:///x","nobody:///x"],"taskIds":["a+t"]}}`},
		{"request", "tasks/update", "", `{"taskId":"t"}`, `{"taskId":"a+t"}`},
		{"request", "tasks/cancel", "", `{"taskId":"t"}`, `{"taskId":"a+t"}`},
		{"result", "tasks/cancel", `{"taskId":"a+t"}`,
			`{"taskId":"t","status":"cancelled"}`, `{"taskId":"a+t","status":"cancelled"}`},
		{"result", "tools/call", `{"name":"a__x","task":{}}`, `{"task":{"taskId":"t"}}`,
			`{"task":{"taskId":"a+t"}}`},
		{"result", "tools/call", `{"name":"a__x"}`, `{"resultType":"task","taskId":"t"}`,
			`{"resultType":"task","taskId":"a+t"}`},
		{"result", "tools/call", `{"name":"a__x"}`, `{"content":[],"taskId":"t"}`,
			`{"content":[],"taskId":"t"}`},
		{"result", "tasks/list", `{}`, `{"tasks":[{"taskId":"t"}]}`,
			`{"tasks":[{"taskId":"a+t"}]}`},
		{"notification", "notifications/tasks/status", "", `{"taskId":"t"}`,
			`{"taskId":"a+t"}`},
		{"request", "tools/call", "", `{"name":"x",` + relatedTask + `}`,
			`{"name":"a__x",` + prefixedTask + `}`},
		{"notification", "notifications/message", "", `{"logger":"l","data":"l",` +
			relatedTask + `}`, `{"logger":"a/l","data":"l",` + prefixedTask + `}`},
		{"server request", "elicitation/create", "",
			`{"message":"m","mode":"url","url":"f:///x","elicitationId":"e",` + relatedTask + `}`,
			`{"message":"[a] m","mode":"url","url":"f:///x","elicitationId":"a+e",` + prefixedTask +
				`}`},
		{"client response", "elicitation/create", "", `{"action":"accept",` + relatedTask + `}`,
			`{"action":"accept",` + prefixedTask + `}`},
		{"client notification", "notifications/cancelled", "", `{"requestId":8,` + relatedTask +
			`}`,
			`{"requestId":8,` + prefixedTask + `}`},
		{"client notification", "notifications/progress", "", `{"progressToken":1,` + relatedTask +
			`}`,
			`{"progressToken":1,` + prefixedTask + `}`},
		{"notification", "notifications/elicitation/complete",
			"", `{"elicitationId":"e"}`, `{"elicitationId":"a+e"}`},
		{"error", "tools/call", `{"name":"a__x"}`,
			`-32042 {"elicitations":[{"elicitationId":"e","url":"f:///x"},{"elicitationId":"e2"}]}`,
			`{"elicitations":[{"elicitationId":"a+e","url":"f:///x"},{"elicitationId":"a+e2"}]}`},
		{"error", "resources/read", `{"uri":"a+f:///x"}`,
			`-32002 {"uri":"f:///x","k":1.0}`, `{"uri":"a+f:///x","k":1.0}`},
		{"notification", "notifications/message", "", `{"data":1}`, `{"data":1}`},
	} {
		k := kinds[c.kind]
		for _, p := range mcp.NamePlaces(c.method, k.kind, k.direction) {
			covered = append(covered, p.Group)
		}
		t.Run(fmt.Sprint(c.kind, " ", c.method), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fakeServer{}
				a.answer = func(ctx context.Context, m *mcp.Message, caller proxy.Handler) string {
					if m.Method == c.method {
						switch c.kind {
						case "result":
							return c.server
						case "error":
							return "!!" + c.server
						}
					}
					switch c.kind {
					case "notification":
						caller.HandleNotification(ctx, mcp.NewNotification(c.method,
							[]byte(c.server)))
					case "server request":
						caller.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", c.method,
							[]byte(c.server))})
					case "client response":
						answers := caller.HandleRequests(ctx,
							[]*mcp.Message{mcp.NewRequest("1", c.method,
								[]byte(`{"message":""}`))})
						return `{"structuredContent":` + string(answers[0].Message().Body()) + `}`
					case "client notification":
						if m.Method == "tools/call" && m.Name == "wait" {
							return ""
						}
					}
					return `{}`
				}
				w := open(t, map[string]*fakeServer{"a": a, "b": serverAnswering("!-32601 no")},
					nil, failOnPrefixedNames(t, "a__x", "a+f:///x"))
				w.client.answer = func(m *mcp.Message) *mcp.Message {
					return mcp.NewResponse(m.ID(), []byte(c.client))
				}
				switch c.kind {
				case "request":
					ctx, cancel := context.WithCancel(t.Context())
					if c.method != "subscriptions/listen" {
						w.call(t, c.method, c.client)
					} else {
						a.answer = func(ctx context.Context, m *mcp.Message,
							_ proxy.Handler) string {
							if m.Method != c.method {
								return "!-32601 no"
							}
							cancel()
							return ""
						}
						w.session.Call(ctx, request(t, "7", c.method, c.client), w.client)
					}
					cancel()
					// Gatekit looks for the owner of "nobody:///x" in lists, which are left out.
					got := slices.DeleteFunc(a.seen(), func(s string) bool {
						return strings.Contains(s, "/list {}")
					})
					equal(t, "the server got", got, []string{c.method + " " + c.server})
				case "result":
					equal(t, "the client got", w.call(t, c.method, c.params), c.client)
				case "error":
					m := w.session.Call(t.Context(), request(t, "7", c.method, c.params),
						w.client).Message()
					data, _ := m.Get("/data")
					equal(t, "the client got", string(data), c.client)
				case "notification":
					w.call(t, "tools/call", `{"name":"a__y"}`)
					equal(t, "the client got", w.client.received(),
						[]string{c.method + " " + c.client})
				case "server request":
					w.call(t, "tools/call", `{"name":"a__y"}`)
					equal(t, "the client got", w.client.asked,
						[]string{c.method + " " + c.client})
				case "client response":
					equal(t, "the server got", w.call(t, "tools/call", `{"name":"a__y"}`),
						`{"structuredContent":`+c.server+`}`)
				case "client notification":
					done := make(chan struct{})
					call := w.session.Begin(request(t, "8", "tools/call", `{"name":"a__wait"}`),
						w.client)
					go func() { defer close(done); call.Run(t.Context()) }()
					synctest.Wait()
					n := notification(t, c.method, c.client)
					n.Server = "a"
					w.session.Notify(t.Context(), n)
					if c.method == "notifications/cancelled" {
						<-done
						equal(t, "the server got", cancelledWith(a), c.server)
						return
					}
					equal(t, "the server got", a.seen()[1:], []string{c.method + " " + c.server})
					w.session.Close()
					<-done
				}
			})
		})
	}
	for _, group := range mcp.NamePlaceGroups() {
		if !slices.Contains(covered, group) {
			t.Errorf("no case tests the group %q of the catalogue", group)
		}
	}
}
