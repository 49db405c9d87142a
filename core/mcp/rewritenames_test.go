package mcp_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"gatekit/core/mcp"
)

// In each body, the marks ‹ and › enclose the names that must be rewritten. All other text of the
// body must stay the same.
func TestRewriteNamesRewritesOnlyPlacesOfTheCatalogue(t *testing.T) {
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
		{"a list of tools", "tools/list", mcp.Response, mcp.ToClient,
			`{"nextCursor":"no","tools":[{"name":"‹a›","title":"no","_meta":{"ui":{"resourceUri":"‹ui://x›","name":"no"},"ui/resourceUri":"‹ui://y›"},"inputSchema":{"name":"no"}},{"description":"no","n\u0061me":"‹b›"},{},1,{"name":7},{"name":"\ud800"}],"name":"no"}`},
		{"a list of prompts", "prompts/list", mcp.Response, mcp.ToClient,
			`{"prompts":[{"name":"‹a›","arguments":[{"name":"no"}]}]}`},
		{"a call", "tools/call", mcp.Request, mcp.ToServer,
			`{"arguments":{"name":"no","uri":"no"},"name":"‹a›"}`},
		{"a request for a prompt", "prompts/get", mcp.Request, mcp.ToServer,
			`{"name":"‹a›","arguments":{"name":"no"}}`},
		{"completion for a prompt", "completion/complete", mcp.Request, mcp.ToServer,
			`{"ref":{"name":"‹a›","uri":"no","type":"ref/prompt"},"argument":{"name":"no"}}`},
		{"completion for a resource", "completion/complete", mcp.Request, mcp.ToServer,
			`{"ref":{"type":"ref/resource","uri":"‹a:{b}›","name":"no"}}`},
		{"completion for a new type of reference", "completion/complete", mcp.Request, mcp.ToServer,
			`{"ref":{"type":"ref/new","uri":"no","name":"no"}}`},
		{"a list of resources", "resources/list", mcp.Response, mcp.ToClient,
			`{"resources":[{"uri":"‹a:b›","name":"no","icons":[{"src":"no"}]}]}`},
		{"a list of skills", "skills/list", mcp.Response, mcp.ToClient,
			`{"skills":[{"uri":"‹s:x/SKILL.md›","frontmatter":{"name":"no","uri":"no"},"resources":[{"uri":"‹s:x/a›","digest":"no"},7]},{"uri":"‹s:y/SKILL.md›","resources":"dynamic"}],"uri":"no"}`},
		{"a skill", "skills/get", mcp.Response, mcp.ToClient,
			`{"skill":{"resources":[{"uri":"‹s:x/a›"}],"uri":"‹s:x/SKILL.md›"},"uri":"no"}`},
		{"a directory", "resources/directory/read", mcp.Response, mcp.ToClient,
			`{"resources":[{"uri":"‹s:x/a›","name":"no"}]}`},
		{"a list of templates", "resources/templates/list", mcp.Response, mcp.ToClient,
			`{"resourceTemplates":[{"uriTemplate":"‹a:{b}›","name":"no"}]}`},
		{"a request for a resource", "resources/read", mcp.Request, mcp.ToServer,
			`{"uri":"‹a:b›"}`},
		{"a legacy subscription", "resources/subscribe", mcp.Request, mcp.ToServer,
			`{"uri":"‹a:b›"}`},
		{"the end of a legacy subscription", "resources/unsubscribe", mcp.Request, mcp.ToServer,
			`{"uri":"‹a:b›"}`},
		{"the contents of a resource", "resources/read", mcp.Response, mcp.ToClient,
			`{"contents":[{"uri":"‹a:b›","text":"uri"},{"uri":"‹c:d›","blob":"aa"}]}`},
		{"an updated resource", "notifications/resources/updated", mcp.Notification, mcp.ToClient,
			`{"uri":"‹a:b›"}`},
		{"content of a call", "tools/call", mcp.Response, mcp.ToClient,
			`{"content":` + blocks + `,"structuredContent":{"content":` +
				`[{"type":"resource_link","uri":"no"}]` + `}}`},
		{"content of a legacy task", "tasks/result", mcp.Response, mcp.ToClient,
			`{"content":` + blocks + `,` + related + `}`},
		{"content of a modern task", "tasks/get", mcp.Response, mcp.ToClient,
			`{"taskId":"‹t›","result":{"content":` + blocks + `}}`},
		{"content of a modern task in a notification", "notifications/tasks", mcp.Notification,
			mcp.ToClient, `{"result":{"content":` + blocks + `},"taskId":"‹t›"}`},
		{"a prompt's messages", "prompts/get", mcp.Response, mcp.ToClient,
			`{"messages":[{"role":"user","content":{"type":"resource_link","uri":"‹a:b›"}},{"content":` + blocks + `},{"content":"no"}]}`},
		{"a request for sampling", "sampling/createMessage", mcp.Request, mcp.ToClient,
			`{"messages":[{"content":` + blocks +
				`}],"tools":[{"name":"no"}],"toolChoice":{"name":"no"}}`},
		{"the answer to sampling", "sampling/createMessage", mcp.Response, mcp.ToServer,
			`{"content":` + blocks + `}`},
		{"a modern subscription", "subscriptions/listen", mcp.Request, mcp.ToServer,
			`{"notifications":{"resourceSubscriptions":["‹a:b›","‹c:d›",1],"taskIds":["‹t›"],"toolsListChanged":true}}`},
		{"the acknowledgement of a modern subscription",
			"notifications/subscriptions/acknowledged", mcp.Notification, mcp.ToClient,
			`{"notifications":{"resourceSubscriptions":["‹a:b›"],"taskIds":["‹t›"]}}`},
		{"a legacy task", "tools/call", mcp.Response, mcp.ToClient,
			`{"task":{"taskId":"‹t›","status":"working"},` + related + `}`},
		{"a modern task", "tools/call", mcp.Response, mcp.ToClient,
			`{"taskId":"‹t›","resultType":"task"}`},
		{"a taskId in a result that creates no task", "tools/call", mcp.Response, mcp.ToClient,
			`{"taskId":"no","resultType":"complete"}`},
		{"a request for a task", "tasks/get", mcp.Request, mcp.ToServer, `{"taskId":"‹t›"}`},
		{"a request for a client's task", "tasks/get", mcp.Request, mcp.ToClient,
			`{"taskId":"no"}`},
		{"a list of tasks", "tasks/list", mcp.Response, mcp.ToClient,
			`{"tasks":[{"taskId":"‹t›"}]}`},
		{"a task's status", "notifications/tasks/status", mcp.Notification, mcp.ToClient,
			`{"taskId":"‹t›"}`},
		{"a vendor's request", "vendor/x", mcp.Request, mcp.ToServer,
			`{"name":"no",` + related + `}`},
		{"a vendor's answer", "vendor/x", mcp.Response, mcp.ToClient,
			`{"name":"no",` + related + `}`},
		{"an elicitation", "elicitation/create", mcp.Request, mcp.ToClient,
			`{"elicitationId":"‹e›","url":"no","message":"no",` + related + `}`},
		{"the answer to an elicitation", "elicitation/create", mcp.Response, mcp.ToServer,
			`{"action":"accept",` + related + `}`},
		{"the end of an elicitation", "notifications/elicitation/complete", mcp.Notification,
			mcp.ToClient, `{"elicitationId":"‹e›"}`},
		{"an error that requires elicitations", "tools/call", mcp.Error, mcp.ToClient,
			`{"code":-32042,"message":"no","data":{"elicitations":[{"elicitationId":"‹e›","url":"no"}]}}`},
		{"the error for a missing resource", "resources/read", mcp.Error, mcp.ToClient,
			`{"code":-32002,"message":"no","data":{"uri":"‹a:b›"}}`},
		{"a log message", "notifications/message", mcp.Notification, mcp.ToClient,
			`{"level":"info","logger":"‹l›","data":{"logger":"no"}}`},
		{"a result that is no object", "tools/list", mcp.Response, mcp.ToClient, `[1]`},
		{"a list that is no array", "tools/list", mcp.Response, mcp.ToClient,
			`{"tools":{"name":"no"}}`},
		{"a name that is no string", "tools/call", mcp.Request, mcp.ToServer, `{"name":["no"]}`},
		{"a request in the other direction", "tools/call", mcp.Request, mcp.ToClient, `{"name":"no"}`},
	}
	covered := map[string]bool{}
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
					t.Errorf("replace was called with the place %+v, want a place of the "+
						"catalogue", p)
				}
				seen = append(seen, s)
				covered[p.Group] = true
				return "s__" + s, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(seen, names) {
				t.Errorf("replace was called with %q\nwant                    %q", seen, names)
			}
			if string(n.Body()) != string(want) {
				t.Errorf("got  %s\nwant %s", n.Body(), want)
			}
			if len(names) == 0 && n != m {
				t.Error("RewriteNames found no name and returned another message, want the " +
					"message itself")
			}
			parse(t, n.Append(nil))
			agrees(t, n)
		})
	}
	for _, group := range mcp.NamePlaceGroups() {
		if !covered[group] {
			t.Errorf("no case tests the group %q of the catalogue", group)
		}
	}
}

func TestRewriteNamesEndsAtAnError(t *testing.T) {
	m := mcp.NewResponse("1", []byte(`{"tools":[{"name":"a"},{"name":"b"}]}`))
	m.Method, m.Direction = "tools/list", mcp.ToClient
	stop := errors.New("stop")
	calls := 0
	n, err := mcp.RewriteNames(m, func(mcp.NamePlace, string) (string, error) {
		calls++
		return "x", stop
	})
	if n != nil || !errors.Is(err, stop) || calls != 1 {
		t.Errorf("got %v, %v after %d calls; want no message and the error stop after one call",
			n, err, calls)
	}
}

func TestRewriteNamesLeavesResultsThatAreNoObjects(t *testing.T) {
	for _, result := range []string{`["tools",[{"name":"a"}]]`, `"tools"`, `null`, `[]`} {
		m := mcp.NewResponse("1", []byte(result))
		m.Method, m.Direction = "tools/list", mcp.ToClient
		n, err := mcp.RewriteNames(m, func(mcp.NamePlace, string) (string, error) {
			return "x", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(n.Body()); got != result {
			t.Errorf("the result %s was rewritten to %s, want no change", result, got)
		}
	}
}

func TestRewriteNamesFindsNamesThatAreNotIndexed(t *testing.T) {
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
		t.Errorf("the name is %q, want ab", name)
	}
	agrees(t, n)
}

// Elements that are no objects do not hide the names after them.
func TestRewriteNamesPassesOverOtherElements(t *testing.T) {
	m := mcp.NewResponse("1", []byte(`{"tools":["x",5,["name","y"],{"name":"t"}]}`))
	m.Method, m.Direction = "tools/list", mcp.ToClient
	rewritten, err := mcp.RewriteNames(m, func(_ mcp.NamePlace, name string) (string, error) {
		return "s__" + name, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"tools":["x",5,["name","y"],{"name":"s__t"}]}`
	if got := string(rewritten.Body()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
