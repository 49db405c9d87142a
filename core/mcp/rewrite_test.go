package mcp_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"gatekit/core/mcp"
)

// Each row of the catalogue: ‹x› marks what is rewritten; everything else stays.
func TestRewriteFindsTheCataloguesPlacesOnly(t *testing.T) {
	const blocks = `[{"type":"resource_link","uri":"‹a:b›","name":"n"}, {"uri":"‹c:d›","type":"resource_link"},` +
		`{"type":"resource","resource":{"uri":"‹e:f›","text":"g:h"},"uri":"no"},{"type":"resource","resource":"no"},{"type":"text","text":"i:j","uri":"no"},` +
		`{"type":"resource_l\u0069nk","uri":"‹k:l›"},{"type":"new","uri":"no"},{"uri":"no"},"no",{"type":"tool_use","name":"no","input":{"type":"resource_link","uri":"no"}},` +
		`{"type":"tool_result","toolUseId":"no","content":[{"type":"resource_link","uri":"‹m:n›"},{"type":"tool_result","content":{"type":"resource_link","uri":"‹o:p›"}}],"structuredContent":{"type":"resource_link","uri":"no"}}]`
	const related = `"_meta":{"x":1,"io.modelcontextprotocol/related-task":{"taskId":"‹t›"}}`
	tests := []struct {
		name   string
		method string
		kind   mcp.Kind
		to     mcp.Direction
		body   string
	}{
		{"1, 14: tools", "tools/list", mcp.Response, mcp.ToClient,
			`{"nextCursor":"no","tools":[{"name":"‹a›","title":"no","_meta":{"ui":{"resourceUri":"‹ui://x›","name":"no"},"ui/resourceUri":"‹ui://y›"},"inputSchema":{"name":"no"}},{"description":"no","n\u0061me":"‹b›"},{},1,{"name":7},{"name":"\ud800"}],"name":"no"}`},
		{"1: prompts", "prompts/list", mcp.Response, mcp.ToClient,
			`{"prompts":[{"name":"‹a›","arguments":[{"name":"no"}]}]}`},
		{"2: a call", "tools/call", mcp.Request, mcp.ToServer,
			`{"arguments":{"name":"no","uri":"no"},"name":"‹a›"}`},
		{"2: a prompt", "prompts/get", mcp.Request, mcp.ToServer,
			`{"name":"‹a›","arguments":{"name":"no"}}`},
		{"4: completion for a prompt", "completion/complete", mcp.Request, mcp.ToServer,
			`{"ref":{"name":"‹a›","uri":"no","type":"ref/prompt"},"argument":{"name":"no"}}`},
		{"5: completion for a resource", "completion/complete", mcp.Request, mcp.ToServer,
			`{"ref":{"type":"ref/resource","uri":"‹a:{b}›","name":"no"}}`},
		{"4, 5: completion for something new", "completion/complete", mcp.Request, mcp.ToServer,
			`{"ref":{"type":"ref/new","uri":"no","name":"no"}}`},
		{"6: resources", "resources/list", mcp.Response, mcp.ToClient,
			`{"resources":[{"uri":"‹a:b›","name":"no","icons":[{"src":"no"}]}]}`},
		{"6: templates", "resources/templates/list", mcp.Response, mcp.ToClient,
			`{"resourceTemplates":[{"uriTemplate":"‹a:{b}›","name":"no"}]}`},
		{"7: a read", "resources/read", mcp.Request, mcp.ToServer, `{"uri":"‹a:b›"}`},
		{"7: a subscription", "resources/subscribe", mcp.Request, mcp.ToServer, `{"uri":"‹a:b›"}`},
		{"7: the end of a subscription", "resources/unsubscribe", mcp.Request, mcp.ToServer,
			`{"uri":"‹a:b›"}`},
		{"8: contents", "resources/read", mcp.Response, mcp.ToClient,
			`{"contents":[{"uri":"‹a:b›","text":"uri"},{"uri":"‹c:d›","blob":"aa"}]}`},
		{"9: an update", "notifications/resources/updated", mcp.Notification, mcp.ToClient,
			`{"uri":"‹a:b›"}`},
		{"10: content of a call", "tools/call", mcp.Response, mcp.ToClient,
			`{"content":` + blocks + `,"structuredContent":{"content":` +
				`[{"type":"resource_link","uri":"no"}]` + `}}`},
		{"10: content of a legacy task", "tasks/result", mcp.Response, mcp.ToClient,
			`{"content":` + blocks + `,` + related + `}`},
		{"10, 21: content of a modern task", "tasks/get", mcp.Response, mcp.ToClient,
			`{"taskId":"‹t›","result":{"content":` + blocks + `}}`},
		{"10, 21: content of a task told of", "notifications/tasks", mcp.Notification, mcp.ToClient,
			`{"result":{"content":` + blocks + `},"taskId":"‹t›"}`},
		{"11: a prompt's messages", "prompts/get", mcp.Response, mcp.ToClient,
			`{"messages":[{"role":"user","content":{"type":"resource_link","uri":"‹a:b›"}},{"content":` + blocks + `},{"content":"no"}]}`},
		{"12: sampling", "sampling/createMessage", mcp.Request, mcp.ToClient,
			`{"messages":[{"content":` + blocks +
				`}],"tools":[{"name":"no"}],"toolChoice":{"name":"no"}}`},
		{"13: what was sampled", "sampling/createMessage", mcp.Response, mcp.ToServer,
			`{"content":` + blocks + `}`},
		{"15, 16: listening", "subscriptions/listen", mcp.Request, mcp.ToServer,
			`{"notifications":{"resourceSubscriptions":["‹a:b›","‹c:d›",1],"taskIds":["‹t›"],"toolsListChanged":true}}`},
		{"15, 16: acknowledged", "notifications/subscriptions/acknowledged", mcp.Notification,
			mcp.ToClient, `{"notifications":{"resourceSubscriptions":["‹a:b›"],"taskIds":["‹t›"]}}`},
		{"21: a legacy task", "tools/call", mcp.Response, mcp.ToClient,
			`{"task":{"taskId":"‹t›","status":"working"},` + related + `}`},
		{"21: a modern task", "tools/call", mcp.Response, mcp.ToClient,
			`{"taskId":"‹t›","resultType":"task"}`},
		{"21: no task", "tools/call", mcp.Response, mcp.ToClient,
			`{"taskId":"no","resultType":"complete"}`},
		{"21: a task asked for", "tasks/get", mcp.Request, mcp.ToServer, `{"taskId":"‹t›"}`},
		{"21: a client's task asked for", "tasks/get", mcp.Request, mcp.ToClient,
			`{"taskId":"no"}`},
		{"21: tasks", "tasks/list", mcp.Response, mcp.ToClient, `{"tasks":[{"taskId":"‹t›"}]}`},
		{"21: a task's status", "notifications/tasks/status", mcp.Notification, mcp.ToClient,
			`{"taskId":"‹t›"}`},
		{"22: a vendor's request", "vendor/x", mcp.Request, mcp.ToServer,
			`{"name":"no",` + related + `}`},
		{"22: a vendor's answer", "vendor/x", mcp.Response, mcp.ToClient,
			`{"name":"no",` + related + `}`},
		{"22, 23: an elicitation", "elicitation/create", mcp.Request, mcp.ToClient,
			`{"elicitationId":"‹e›","url":"no","message":"no",` + related + `}`},
		{"22: what was elicited", "elicitation/create", mcp.Response, mcp.ToServer,
			`{"action":"accept",` + related + `}`},
		{"23: an elicitation done", "notifications/elicitation/complete", mcp.Notification,
			mcp.ToClient, `{"elicitationId":"‹e›"}`},
		{"23: elicitations wanted", "tools/call", mcp.Error, mcp.ToClient,
			`{"code":-32042,"message":"no","data":{"elicitations":[{"elicitationId":"‹e›","url":"no"}]}}`},
		{"25: no such resource", "resources/read", mcp.Error, mcp.ToClient,
			`{"code":-32002,"message":"no","data":{"uri":"‹a:b›"}}`},
		{"26: a log", "notifications/message", mcp.Notification, mcp.ToClient,
			`{"level":"info","logger":"‹l›","data":{"logger":"no"}}`},
		{"a result that is no object", "tools/list", mcp.Response, mcp.ToClient, `[1]`},
		{"a list that is no array", "tools/list", mcp.Response, mcp.ToClient,
			`{"tools":{"name":"no"}}`},
		{"a name that is no string", "tools/call", mcp.Request, mcp.ToServer, `{"name":["no"]}`},
		{"the other way", "tools/call", mcp.Request, mcp.ToClient, `{"name":"no"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var clean, want []byte
			var names []string
			for in := []byte(tt.body); len(in) > 0; {
				before, rest, marked := bytes.Cut(in, []byte("‹"))
				clean, want = append(clean, before...), append(want, before...)
				if marked {
					var name []byte
					name, rest, _ = bytes.Cut(rest, []byte("›"))
					names = append(names, string(name))
					clean, want = append(clean, name...), append(append(want, "s__"...), name...)
				}
				in = rest
			}
			var m *mcp.Message
			switch tt.kind {
			case mcp.Request:
				m = mcp.NewRequest("1", tt.method, clean)
			case mcp.Notification:
				m = mcp.NewNotification(tt.method, clean)
			case mcp.Response:
				m = mcp.NewResponse("1", clean)
			case mcp.Error:
				m = parse(t, slices.Concat([]byte(`{"jsonrpc":"2.0","id":1,"error":`), clean,
					[]byte(`}`)))
			}
			m.Method, m.Direction = tt.method, tt.to
			var seen []string
			n, err := mcp.RewriteNames(m, func(p mcp.NamePlace, s string) (string, error) {
				if !slices.Contains(mcp.NamePlaces(tt.method, tt.kind, tt.to), p) {
					t.Errorf("%+v is not in the catalogue", p)
				}
				seen = append(seen, s)
				return "s__" + s, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(seen, names) {
				t.Errorf("saw  %q\nwant %q", seen, names)
			}
			if string(n.Body()) != string(want) {
				t.Errorf("got  %s\nwant %s", n.Body(), want)
			}
			if len(names) == 0 && n != m {
				t.Error("another message, though nothing changed")
			}
			parse(t, n.Append(nil))
			agrees(t, n)
		})
	}
}

func TestRewriteEndsAtAnError(t *testing.T) {
	m := mcp.NewResponse("1", []byte(`{"tools":[{"name":"a"},{"name":"b"}]}`))
	m.Method, m.Direction = "tools/list", mcp.ToClient
	stop := errors.New("stop")
	calls := 0
	n, err := mcp.RewriteNames(m, func(mcp.NamePlace, string) (string, error) {
		calls++
		return "x",
			stop
	})
	if n != nil || !errors.Is(err, stop) || calls != 1 {
		t.Errorf("got %v, %v after %d calls", n, err, calls)
	}
}

func TestRewriteReadsBodiesOfMoreMembersThanTheIndexHolds(t *testing.T) {
	m := parse(t, fmt.Appendf(nil,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%s,"name":"a"}}`, many(100)))
	m.Direction = mcp.ToServer
	n, err := mcp.RewriteNames(m, func(_ mcp.NamePlace, s string) (string, error) {
		return s + "b", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if name, _ := n.Text("/name"); name != "ab" {
		t.Errorf("got the name %q", name)
	}
	agrees(t, n)
}
