package proxy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// relayClientAnswers returns the answer function of a fakeServer that sends one request to the
// client during each call. The server's result contains the client's answer as structuredContent,
// in which Gatekit prefixes no names.
func relayClientAnswers(method,
	params string) func(context.Context, *mcp.Message, proxy.Handler) string {
	return func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		if m.Method == "initialize" {
			return `{"capabilities":{"tools":{}}}`
		}
		answer := c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest(`"s-1"`, method,
			[]byte(params))})[0].Message()
		if answer == nil {
			return `{"none":true}`
		}
		if answer.ID() != `"s-1"` {
			return `{"id":` + string(mcp.Quote(string(answer.ID()))) + `}`
		}
		return `{"structuredContent":` + string(answer.Body()) + `}`
	}
}

func TestServerRequestsAreInspectedAndAttributed(t *testing.T) {
	for _, c := range []struct{ name, method, params, answer, asked, want string }{
		{"the message of an elicitation names its server", "elicitation/create",
			`{"message":"Name?","requestedSchema":{}}`, `{"action":"accept","content":{"n":1.0}}`,
			`{"message":"[a] Name?","requestedSchema":{}}`,
			`{"action":"accept","content":{"n":1.0}}`},
		{"a sampling request names its server in _meta, and its links get a prefix",
			"sampling/createMessage",
			`{"messages":[{"role":"user","content":{"type":"resource_link","uri":"f:///x","name":"x"}}],"tools":[{"name":"t"}]}`,
			`{"role":"assistant","content":{"type":"resource_link","uri":"a+f:///x"}}`,
			`{"messages":[{"role":"user","content":{"type":"resource_link","uri":"a+f:///x","name":"x"}}],"tools":[{"name":"t"}],"_meta":{"gatekit/server":"a"}}`,
			`{"role":"assistant","content":{"type":"resource_link","uri":"f:///x"}}`},
		{"a request for roots is not changed", "roots/list", `{}`, `{"roots":[{"uri":"file:///r"}]}`, `{}`,
			`{"roots":[{"uri":"file:///r"}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, map[string]*fakeServer{"a": {answer: relayClientAnswers(c.method,
				c.params)}, "b": {answer: echo}}, nil)
			w.client.answer = func(m *mcp.Message) *mcp.Message {
				return mcp.NewResponse(m.ID(), []byte(c.answer))
			}
			equal(t, "the server got", w.call(t, "tools/call", `{"name":"a__x"}`),
				`{"structuredContent":`+c.want+`}`)
			equal(t, "the client got", w.client.asked, []string{c.method + " " + c.asked})
			w.record.expect(t, "pass to_client request "+c.method+" a",
				"pass to_server response "+c.method+" a")
		})
	}
}

func TestServerRequestsAreUnchangedWithOneServer(t *testing.T) {
	w := open(t, map[string]*fakeServer{"a": {answer: relayClientAnswers("elicitation/create",
		`{"message":"Name?"}`)}}, nil)
	w.client.answer = func(m *mcp.Message) *mcp.Message {
		return mcp.NewResponse(m.ID(), []byte(`{"action":"cancel"}`))
	}
	equal(t, "the server got", w.call(t, "tools/call", `{"name":"a__x"}`),
		`{"structuredContent":{"action":"cancel"}}`)
	equal(t, "the client got", w.client.asked, []string{`elicitation/create {"message":"Name?"}`})
}

func TestDeniedServerRequestIsDeclined(t *testing.T) {
	for method, want := range map[string]string{
		"elicitation/create":     `{"action":"decline"}`,
		"roots/list":             `{"roots":[]}`,
		"sampling/createMessage": `{"code":-1,"message":"rejected"}`,
	} {
		for _, kind := range []mcp.Kind{mcp.Request, mcp.Response} {
			t.Run(method+", the "+kind.String(), func(t *testing.T) {
				refuse := pipeline.StageConfig{Name: "no",
					Stage: stage(func(m *mcp.Message) pipeline.Verdict {
						if m.Method == method && m.Kind == kind {
							return pipeline.Verdict{}
						}
						return pipeline.Verdict{Action: pipeline.Allow}
					})}
				w := open(t, map[string]*fakeServer{"a": {answer: relayClientAnswers(method,
					`{}`)}}, nil, refuse)
				w.client.answer = func(m *mcp.Message) *mcp.Message {
					return mcp.NewResponse(m.ID(), []byte(`{}`))
				}
				equal(t, "the server got", w.call(t, "tools/call", `{"name":"a__x"}`),
					`{"structuredContent":`+want+`}`)
			})
		}
	}
}

func TestUndeclaredServerRequestIsRefused(t *testing.T) {
	for _, c := range []struct{ name, method, params, want string }{
		{"an undeclared capability", "sampling/createMessage", `{}`,
			`{"code":-32601,"message":"the client did not declare the capability sampling"}`},
		{"roots of a client that does not declare roots", "roots/list", `{}`, `{"roots":[]}`},
		{"an undeclared mode", "elicitation/create", `{"mode":"url","message":"m"}`,
			`{"code":-32602,"message":"the client did not declare the capability elicitation/url"}`},
		{"an unknown method", "x/y", `{}`, `{"code":-32601,"message":"method not found: \"x/y\""}`},
		{"a method of clients", "tools/list", `{}`,
			`{"code":-32601,"message":"method not found: \"tools/list\""}`},
		{"a declared capability, but no answer", "elicitation/create", `{"message":"m"}`,
			`{"code":-32603,"message":"the client could not be asked: nobody is there"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, map[string]*fakeServer{"a": {answer: relayClientAnswers(c.method,
				c.params)}}, nil)
			w.callAs(t, w.session, w.client, "1", "initialize",
				`{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}`)
			equal(t, "the server got", w.call(t, "tools/call", `{"name":"a__x"}`),
				`{"structuredContent":`+c.want+`}`)
		})
	}
}

func TestClientTaskBelongsToItsServer(t *testing.T) {
	get := func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		if m.Name == "make" {
			return string(c.HandleRequests(ctx,
				[]*mcp.Message{mcp.NewRequest("1", "sampling/createMessage",
					[]byte(`{"task":{}}`))})[0].Message().Body())
		}
		return string(c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("2", "tasks/get", []byte(
			`{"taskId":"T"}`))})[0].Message().Body())
	}
	w := open(t, map[string]*fakeServer{"a": {answer: get}, "b": {answer: get}}, nil)
	w.client.answer = func(m *mcp.Message) *mcp.Message {
		return mcp.NewResponse(m.ID(), []byte(`{"task":{"taskId":"T"}}`))
	}
	w.call(t, "tools/call", `{"name":"a__make"}`)
	equal(t, "tasks/get by the task's server", w.call(t, "tools/call", `{"name":"a__get"}`),
		`{"task":{"taskId":"a+T"}}`)
	equal(t, "tasks/get by another server", w.call(t, "tools/call", `{"name":"b__get"}`),
		`{"code":-32602,"message":"Unknown task"}`)
}

func TestServerNotificationsArePrefixedAndInOrder(t *testing.T) {
	s := &fakeServer{answer: func(ctx context.Context, _ *mcp.Message, c proxy.Handler) string {
		for _, n := range [][2]string{
			{"notifications/message", `{"level":"info","logger":"l","data":"1"}`},
			{"notifications/resources/updated", `{"uri":"f:///x"}`},
			{"notifications/unknown", `{}`},
			{"notifications/initialized", `{}`},
			{"acme/news", `{"k":1}`},
			{"notifications/message", `{"level":"info","data":"2"}`},
		} {
			c.HandleNotification(ctx, mcp.NewNotification(n[0], []byte(n[1])))
		}
		return "{}"
	}}
	w := open(t, map[string]*fakeServer{"a": s},
		func(o *proxy.Options) { o.Servers[0].Methods = []string{"acme/news"} })
	w.call(t, "tools/call", `{"name":"a__x"}`)
	equal(t, "the client got", w.client.received(), []string{
		`notifications/message {"level":"info","logger":"a/l","data":"1"}`,
		`notifications/resources/updated {"uri":"a+f:///x"}`,
		`acme/news {"k":1}`, `notifications/message {"level":"info","data":"2"}`,
	})
	w.record.expect(t, "drop to_client notification notifications/unknown a",
		"drop to_client notification notifications/initialized a")
}

func TestClientNotificationsAreRouted(t *testing.T) {
	a, b := &fakeServer{answer: echo}, &fakeServer{answer: echo}
	w := open(t, map[string]*fakeServer{"a": a, "b": b},
		func(o *proxy.Options) { o.Servers[1].Methods = []string{"acme/n"} })
	for _, n := range []string{"notifications/roots/list_changed", "acme/n", "acme/other",
		"notifications/message"} {
		w.session.Notify(t.Context(), notification(t, n, `{}`))
	}
	progress := notification(t, "notifications/progress", `{"progressToken":1,"progress":1}`)
	progress.Server = "a"
	w.session.Notify(t.Context(), progress)
	equal(t, "server a got", a.seen(), []string{"notifications/roots/list_changed {}",
		`notifications/progress {"progressToken":1,"progress":1}`})
	equal(t, "server b got", b.seen(), []string{"notifications/roots/list_changed {}", "acme/n {}"})
	w.record.expect(t, "drop to_server notification acme/other",
		"drop to_server notification notifications/message")
}

func TestClientTasksAreListedForTheirServerOnly(t *testing.T) {
	ask := func(method, params string) answerFunc {
		return func(ctx context.Context, _ *mcp.Message, c proxy.Handler) string {
			a := c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", method,
				[]byte(params))})[0].Message()
			return `{"structuredContent":` + string(a.Body()) + `}`
		}
	}
	a, b := &fakeServer{}, &fakeServer{}
	w := open(t, map[string]*fakeServer{"a": a, "b": b}, nil)
	made := 0
	w.client.answer = func(m *mcp.Message) *mcp.Message {
		if m.Method == "tasks/list" {
			return mcp.NewResponse(m.ID(),
				[]byte(`{"tasks":[{"taskId":"T1","k":1.0},{"taskId":"T2"},{"taskId":"other"},7]}`))
		}
		made++
		return mcp.NewResponse(m.ID(), fmt.Appendf(nil, `{"task":{"taskId":"T%d"}}`, made))
	}
	for _, s := range []struct {
		name   string
		server *fakeServer
	}{{"a", a}, {"b", b}} {
		s.server.answer = ask("elicitation/create", `{"message":"m","task":{}}`)
		w.call(t, "tools/call", `{"name":"`+s.name+`__x"}`)
		s.server.answer = ask("tasks/list", `{}`)
	}
	equal(t, "the list for server a", w.call(t, "tools/call", `{"name":"a__x"}`),
		`{"structuredContent":{"tasks":[{"taskId":"T1","k":1.0}]}}`)
	equal(t, "the list for server b", w.call(t, "tools/call", `{"name":"b__x"}`),
		`{"structuredContent":{"tasks":[{"taskId":"T2"}]}}`)

	a.got, b.got = nil, nil
	for _, id := range []string{"T1", "T2", "T3", ""} {
		w.session.Notify(t.Context(), notification(t, "notifications/tasks/status",
			`{"taskId":"`+id+`"}`))
	}
	w.session.Notify(t.Context(), notification(t, "notifications/progress",
		`{"progressToken":1,"progress":1}`))
	equal(t, "server a got", a.seen(), []string{`notifications/tasks/status {"taskId":"T1"}`})
	equal(t, "server b got", b.seen(), []string{`notifications/tasks/status {"taskId":"T2"}`})
	w.record.expect(t, "pass to_server notification notifications/tasks/status a T1",
		"drop to_server notification notifications/tasks/status  T3",
		"drop to_server notification notifications/progress")
}

func TestOldestClientTasksAreForgotten(t *testing.T) {
	var id string
	s := &fakeServer{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		ask := mcp.NewRequest("1", "sampling/createMessage", []byte(`{"task":{}}`))
		if m.Name == "get" {
			ask = mcp.NewRequest("1", "tasks/get", []byte(`{"taskId":"`+id+`"}`))
		}
		return `{"structuredContent":` + string(c.HandleRequests(ctx,
			[]*mcp.Message{ask})[0].Message().Body()) + `}`
	}}
	w := open(t, map[string]*fakeServer{"a": s, "b": {answer: echo}}, nil)
	w.client.answer = func(m *mcp.Message) *mcp.Message {
		return mcp.NewResponse(m.ID(), []byte(`{"task":{"taskId":"`+id+`"}}`))
	}
	for i := range 300 {
		id = fmt.Sprint(i)
		w.call(t, "tools/call", `{"name":"a__x"}`)
	}
	if got := w.call(t, "tools/call", `{"name":"a__get"}`); !strings.Contains(got,
		`"taskId":"299"`) {
		t.Errorf("tasks/get of the newest task: got %s, want the task 299", got)
	}
	id = "0"
	if got := w.call(t, "tools/call", `{"name":"a__get"}`); !strings.Contains(got, "Unknown task") {
		t.Errorf("tasks/get of the oldest task: got %s, want Unknown task", got)
	}
}

func TestModesOfServerRequestsMustBeDeclared(t *testing.T) {
	for _, c := range []struct{ name, capabilities, method, params, lacks string }{
		{"a form, with a client that declares no mode", `{"elicitation":{}}`, "elicitation/create",
			`{"message":"m"}`, ""},
		{"a form, with a client that declares forms", `{"elicitation":{"form":{}}}`,
			"elicitation/create", `{"message":"m","mode":"form"}`, ""},
		{"a form, with a client that declares only URLs", `{"elicitation":{"url":{}}}`,
			"elicitation/create", `{"message":"m"}`, "elicitation/form"},
		{"a URL, with a client that declares both modes", `{"elicitation":{"form":{},"url":{}}}`,
			"elicitation/create", `{"message":"m","mode":"url"}`, ""},
		{"a URL, with a client that declares only forms", `{"elicitation":{"form":{}}}`,
			"elicitation/create", `{"message":"m","mode":"url"}`, "elicitation/url"},
		{"sampling with tools", `{"sampling":{"tools":{}}}`, "sampling/createMessage",
			`{"tools":[]}`, ""},
		{"sampling with tools, undeclared", `{"sampling":{}}`, "sampling/createMessage",
			`{"tools":[]}`, "sampling/tools"},
		{"sampling with a choice of tools, undeclared", `{"sampling":{}}`, "sampling/createMessage",
			`{"toolChoice":{}}`, "sampling/tools"},
		{"sampling, undeclared", `{}`, "sampling/createMessage", `{"tools":[]}`, "sampling"},
	} {
		t.Run(c.name, func(t *testing.T) {
			live := open(t, map[string]*fakeServer{"a": {answer: relayClientAnswers(c.method,
				c.params)}}, nil)
			live.client.answer = func(m *mcp.Message) *mcp.Message {
				return mcp.NewResponse(m.ID(), []byte(`{"action":"accept"}`))
			}
			live.callAs(t, live.session, live.client, "1", "initialize",
				`{"protocolVersion":"2025-11-25","capabilities":`+c.capabilities+`}`)
			want := `{"action":"accept"}`
			if c.lacks != "" {
				code := "-32602"
				if !strings.Contains(c.lacks, "/") {
					code = "-32601"
				}
				want = `{"code":` + code +
					`,"message":"the client did not declare the capability ` + c.lacks + `"}`
			}
			equal(t, "a request by itself", live.call(t, "tools/call", `{"name":"a__x"}`),
				`{"structuredContent":`+want+`}`)

			inResult := open(t, map[string]*fakeServer{"a": {answer: asksForInput(`{"k":{"method":"` +
				c.method + `","params":` + c.params + `}}`)}}, nil)
			inResult.client.takesInputRequests = true
			m := inResult.session.Call(t.Context(),
				request(t, "7", "tools/call",
					`{"name":"a__x","_meta":{"io.modelcontextprotocol/clientCapabilities":`+
						c.capabilities+`}}`), inResult.client).Message()
			if c.lacks == "" {
				equal(t, "a request in a result", m.Kind, mcp.Response)
				return
			}
			required := "{}"
			for _, part := range slices.Backward(strings.Split(c.lacks, "/")) {
				required = `{"` + part + `":` + required + `}`
			}
			equal(t, "a request in a result", string(m.Body()),
				`{"code":-32021,"message":"the client did not declare the capability `+c.lacks+
					`","data":{"requiredCapabilities":`+required+`}}`)
		})
	}
}

func TestCancellationOfServerIsNotForwarded(t *testing.T) {
	s := &fakeServer{answer: func(ctx context.Context, _ *mcp.Message, c proxy.Handler) string {
		c.HandleNotification(ctx, mcp.NewNotification("notifications/cancelled",
			[]byte(`{"requestId":1}`)))
		return `{}`
	}}
	w := open(t, map[string]*fakeServer{"a": s}, nil)
	w.call(t, "tools/call", `{"name":"a__x"}`)
	equal(t, "the client got", w.client.received(), []string{})
	w.record.expect(t, "drop to_client notification notifications/cancelled a")
}

func TestMissingClientAnswersBecomeErrors(t *testing.T) {
	s := &fakeServer{answer: func(ctx context.Context, _ *mcp.Message, c proxy.Handler) string {
		got := c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil),
			mcp.NewRequest("2", "x/y", nil), mcp.NewRequest("3", "roots/list", nil)})
		var ids []string
		for _, p := range got {
			ids = append(ids, string(p.Message().ID())+" "+p.Message().Kind.String())
		}
		return `{"structuredContent":"` + strings.Join(ids, ",") + `"}`
	}}
	w := open(t, map[string]*fakeServer{"a": s}, nil)
	w.client.answer = func(m *mcp.Message) *mcp.Message {
		if m.ID() == "3" {
			return nil
		}
		return mcp.NewResponse(m.ID(), []byte(`{"roots":[]}`))
	}
	equal(t, "the server got", w.call(t, "tools/call", `{"name":"a__x"}`),
		`{"structuredContent":"1 response,2 error,3 error"}`)
}

func TestServerGetsErrorIfClientCannotBeAskedOutsideCalls(t *testing.T) {
	for method, code := range map[string]string{"elicitation/create": "-32601",
		"sampling/createMessage": "-32601", "roots/list": "-32603"} {
		w := open(t, map[string]*fakeServer{"a": {answer: relayClientAnswers(method, `{}`)}}, nil)
		w.client.fails = proxy.ErrOutsideCall
		if got := w.call(t, "tools/call", `{"name":"a__x"}`); !strings.Contains(got,
			`"code":`+code) {
			t.Errorf("%s: the server got %s, want code %s", method, got, code)
		}
		w.record.expect(t, "pass to_client request "+method+" a",
			"answer to_server error "+method+" a")
	}
}
