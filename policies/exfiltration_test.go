package policies_test

import (
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/policies"
)

// flow returns a stage with the rule flow/exfiltration. Private data and untrusted content come
// from the tool "read" and from the server "source". Data can leave through the tool "send" and the
// server "out".
func flow(t *testing.T) *policies.Stage {
	t.Helper()
	source := map[string]any{"tools": []any{"read"}, "servers": []any{"source"}}
	return fromLibrary(t, "flow/exfiltration", map[string]any{"private": source,
		"untrusted": source,
		"egress":    map[string]any{"tools": []any{"send"}, "servers": []any{"out"}}})
}

// in returns a copy of m that belongs to another server or session. An empty argument keeps the
// server or the session of m.
func in(m *mcp.Message, server, session string) *mcp.Message {
	c := *m
	if server != "" {
		c.Server = server
	}
	if session != "" {
		c.Session = session
	}
	return &c
}

// taint lets the session read private data and untrusted content.
func taint(t *testing.T, s *policies.Stage, session string) {
	t.Helper()
	m := answered(sent(mcp.NewRequest("1", "resources/read", []byte(`{"uri":"x:y"}`)),
		mcp.ToServer, "x:y"), `{"contents":[]}`)
	if refused(t, s, in(m, "source", session)) {
		t.Fatal("the result of the source is denied")
	}
}

// fromServer returns a notification or request of server a.
func fromServer(kind mcp.Kind, method, params string) *mcp.Message {
	if kind == mcp.Request {
		return sent(mcp.NewRequest("9", method, []byte(params)), mcp.ToClient, "")
	}
	return sent(mcp.NewNotification(method, []byte(params)), mcp.ToClient, "")
}

// reply returns m as the client's answer to a server's request.
func reply(to *mcp.Message, m *mcp.Message) *mcp.Message {
	m = in(sent(m, mcp.ToServer, to.Name), to.Server, to.Session)
	m.Method, m.Request = to.Method, to
	return m
}

// TestFirstMessageOfACallSetsTheLabel sends the content of a source in the result of a call, or in
// another message that comes before the result or instead of it.
func TestFirstMessageOfACallSetsTheLabel(t *testing.T) {
	call := called("read", `{}`)
	failed := sent(mcp.NewError("1", -32000, "Dear ann", nil), mcp.ToClient, "read")
	failed.Method, failed.Request = "tools/call", call
	for name, m := range map[string]*mcp.Message{
		"a result": answered(call, `{"content":[]}`),
		"an error": failed,
		"progress": fromServer(mcp.Notification, "notifications/progress",
			`{"progressToken":1,"progress":1,"message":"Dear ann"}`),
		"a log message": fromServer(mcp.Notification, "notifications/message",
			`{"level":"info","data":"Dear ann"}`),
		"an elicitation": fromServer(mcp.Request, "elicitation/create",
			`{"message":"Dear ann"}`),
		"a sampling": fromServer(mcp.Request, "sampling/createMessage",
			`{"messages":[],"maxTokens":1}`),
		"a request for roots": fromServer(mcp.Request, "roots/list", `{"_meta":{"x":"Dear ann"}}`),
		"a notification of the vendor": fromServer(mcp.Notification, "acme/mail",
			`{"text":"Dear ann"}`),
	} {
		t.Run(name, func(t *testing.T) {
			s := flow(t)
			if m.Request == nil {
				verdictOf(t, s, m)
				if refused(t, s, called("send", `{}`)) {
					t.Fatal("the message sets a label, although no call to the source is in flight")
				}
			}
			s = flow(t)
			if refused(t, s, call) || refused(t, s, m) {
				t.Fatal("the call to the source, or its first message, is denied")
			}
			if !refused(t, s, called("send", `{}`)) {
				t.Error("data can leave after this message")
			}
			if refused(t, s, in(called("send", `{}`), "", "s2")) {
				t.Error("another session has the labels")
			}
		})
	}
}

// TestTaskOfASourceSetsTheLabelInEverySession starts a task of a source in one session, and gets a
// message about the task in another session of the same principal.
func TestTaskOfASourceSetsTheLabelInEverySession(t *testing.T) {
	request := func(method, id string) *mcp.Message {
		return sent(mcp.NewRequest("1", method, []byte(`{"taskId":"`+id+`"}`)), mcp.ToServer, id)
	}
	status := func(method, id string) *mcp.Message {
		m := fromServer(mcp.Notification, method, `{"taskId":"`+id+
			`","status":"working","statusMessage":"Dear ann"}`)
		m.Name = id
		return m
	}
	for name, about := range map[string]func(id string) *mcp.Message{
		"tasks/result": func(id string) *mcp.Message {
			return answered(request("tasks/result", id), `{"content":[]}`)
		},
		"tasks/get": func(id string) *mcp.Message {
			return answered(request("tasks/get", id), `{"taskId":"`+id+`","status":"working"}`)
		},
		"tasks/cancel": func(id string) *mcp.Message {
			return answered(request("tasks/cancel", id), `{"taskId":"`+id+
				`","status":"cancelled"}`)
		},
		"tasks/list": func(id string) *mcp.Message {
			return answered(sent(mcp.NewRequest("1", "tasks/list", nil), mcp.ToServer, ""),
				`{"tasks":[{"taskId":"`+id+`","statusMessage":"Dear ann"}]}`)
		},
		"notifications/tasks/status": func(id string) *mcp.Message {
			return status("notifications/tasks/status", id)
		},
		"notifications/tasks": func(id string) *mcp.Message {
			return status("notifications/tasks", id)
		},
		"an elicitation for the task": func(id string) *mcp.Message {
			return fromServer(mcp.Request, "elicitation/create",
				`{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for tool, wantLabel := range map[string]bool{"read": true, "other": false} {
				s := flow(t)
				created := answered(called(tool, `{"task":{}}`), `{"task":{"taskId":"`+tool+`"}}`)
				if refused(t, s, created) {
					t.Fatal("the task is denied")
				}
				if refused(t, s, in(about(tool), "", "s2")) {
					t.Fatal("the message about the task is denied")
				}
				if got := refused(t, s, in(called("send", `{}`), "", "s2")); got != wantLabel {
					t.Errorf("after a task of the tool %q, sending is denied: %v, want %v", tool,
						got, wantLabel)
				}
			}
		})
	}
	s := flow(t) // the task was created before Gatekit was restarted
	verdictOf(t, s, answered(request("tasks/result", "old"), `{"content":[]}`))
	if !refused(t, s, called("send", `{}`)) {
		t.Error("the result of an unknown task sets no label")
	}
}

// TestEveryStringToEgressIsDenied puts data into each place of a message to an egress server. These
// messages must be denied after the session has read data of a source. Messages that the
// protocol needs, such as a list without data, must still pass.
func TestEveryStringToEgressIsDenied(t *testing.T) {
	to := func(method, params string) *mcp.Message {
		m := sent(mcp.NewRequest("1", method, []byte(params)), mcp.ToServer, "")
		if meth, _ := mcp.LookupMethod(method); meth.NamePointer != "" {
			m.Name, _ = m.Text(meth.NamePointer)
		}
		return in(m, "out", "")
	}
	notice := func(method, params string) *mcp.Message {
		return in(sent(mcp.NewNotification(method, []byte(params)), mcp.ToServer, ""), "out", "")
	}
	ask := func(method string) *mcp.Message {
		return in(fromServer(mcp.Request, method, `{}`), "out", "")
	}
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"x":{"y":"z"}}}`
	for name, m := range map[string]*mcp.Message{
		"tools/call":                    to("tools/call", `{"name":"x"}`),
		"resources/read":                to("resources/read", `{"uri":"https://x/?data"}`),
		"resources/subscribe":           to("resources/subscribe", `{"uri":"https://x/?data"}`),
		"prompts/get":                   to("prompts/get", `{"name":"data"}`),
		"completion/complete":           to("completion/complete", `{"argument":{"value":"data"}}`),
		"a method of a vendor":          to("acme/x", `{}`),
		"a vendor's method with params": to("acme/x", `{"x":"data"}`),
		"a notification of a vendor":    notice("acme/x", `{}`),
		"tasks/get":                     to("tasks/get", `{"taskId":"data"}`),
		"tasks/cancel":                  to("tasks/cancel", `{"taskId":"data"}`),
		"tasks/result":                  to("tasks/result", `{"taskId":"data"}`),
		"tasks/update":                  to("tasks/update", `{"taskId":"t"}`),
		"_meta of a known task":         to("tasks/get", `{"taskId":"t","_meta":{"x":"data"}}`),
		"_meta of a list":               to("tools/list", `{"_meta":{"x":"data"}}`),
		"a name in _meta":               to("tools/list", `{"_meta":{"data":1}}`),
		"a cursor":                      to("tools/list", `{"cursor":"data"}`),
		"a progress token":              to("tools/list", `{"_meta":{"progressToken":"data"}}`),
		"an unknown member":             to("resources/list", `{"x":["data"]}`),
		"the name of an unknown member": to("resources/list", `{"data":1}`),
		"the client's information":      to("tools/list", `{`+strings.Replace(meta, `"c"`, `"d"`, 1)+`}}`),
		"the client's capabilities":     to("tools/list", `{`+strings.Replace(meta, `"z"`, `"data"`, 1)+`}}`),
		"the revision":                  to("tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"data"}}`),
		"the log level":                 to("tools/list", `{"_meta":{"io.modelcontextprotocol/logLevel":"data"}}`),
		"logging/setLevel":              to("logging/setLevel", `{"level":"data"}`),
		"ping":                          to("ping", `{"x":"data"}`),
		"resources of a subscription":   to("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["https://x/?data"]}}`),
		"tasks of a subscription":       to("subscriptions/listen", `{"notifications":{"taskIds":["data"]}}`),
		"a member of a filter":          to("subscriptions/listen", `{"notifications":{"data":true}}`),
		"the answer of a model":         reply(ask("sampling/createMessage"), mcp.NewResponse("9", []byte(`{}`))),
		"the answer of a user":          reply(ask("elicitation/create"), mcp.NewResponse("9", []byte(`{}`))),
		"roots":                         reply(ask("roots/list"), mcp.NewResponse("9", []byte(`{"roots":[]}`))),
		"a result of the client's task": reply(ask("tasks/result"), mcp.NewResponse("9", []byte(`{}`))),
		"the client's tasks":            reply(ask("tasks/list"), mcp.NewResponse("9", []byte(`{"tasks":[]}`))),
		"an error of the client": reply(ask("elicitation/create"),
			mcp.NewError("9", -1, "data", nil)),
		"progress of the client":            notice("notifications/progress", `{"progressToken":1,"progress":1,"message":"data"}`),
		"status of the client's task":       notice("notifications/tasks/status", `{"taskId":"data"}`),
		"_meta of a notification":           notice("notifications/initialized", `{"_meta":{"x":"data"}}`),
		"a member of a cancellation":        notice("notifications/cancelled", `{"requestId":1,"x":"data"}`),
		"_meta of a cancellation":           notice("notifications/cancelled", `{"requestId":1,"_meta":{"x":"data"}}`),
		"a task of initialized":             notice("notifications/initialized", `{"taskId":"data"}`),
		"a task of a cancellation":          notice("notifications/cancelled", `{"requestId":1,"taskId":"data"}`),
		"a task of roots/list_changed":      notice("notifications/roots/list_changed", `{"taskId":"data"}`),
		"tasks/get without an id":           notice("tasks/get", `{"taskId":"data"}`),
		"a task of a ping":                  to("ping", `{"taskId":"data"}`),
		"_meta of roots/list_changed":       notice("notifications/roots/list_changed", `{"_meta":{"x":"data"}}`),
		"an answer to a method of a vendor": reply(ask("acme/x"), mcp.NewResponse("9", []byte(`{}`))),
	} {
		t.Run(name, func(t *testing.T) {
			s := flow(t)
			first := to("tools/list", `{`+meta+`}}`)
			call := in(called("x", `{}`), "out", "")
			created := in(answered(called("x", `{}`), `{"task":{"taskId":"t"}}`), "out", "")
			if refused(t, s, first) || refused(t, s, call) || refused(t, s, created) ||
				refused(t, flow(t), m) {
				t.Fatal("a message is denied before the session has read anything")
			}
			taint(t, s, "")
			if !refused(t, s, m) {
				t.Errorf("the message passes, so data can leave: %s", m.Body())
			}
			other := in(m, "harmless", "")
			if other.Request != nil {
				other.Request = in(other.Request, "harmless", "")
			}
			if !strings.Contains(m.Method, "tasks/") && refused(t, s, other) {
				t.Error("the message is denied for a server that is not in egress")
			}
		})
	}
	for name, m := range map[string]*mcp.Message{
		"a list": to("tools/list", `{`+meta+`,"progressToken":7,`+
			`"io.modelcontextprotocol/logLevel":"debug"}}`),
		"a list without params": in(sent(mcp.NewRequest("1", "prompts/list", nil), mcp.ToServer,
			""), "out", ""),
		"initialize":       to("initialize", `{"clientInfo":{"name":"c"},"capabilities":{}}`),
		"server/discover":  to("server/discover", `{`+meta+`}}`),
		"ping":             to("ping", `{}`),
		"logging/setLevel": to("logging/setLevel", `{"level":"warning"}`),
		"a subscription to lists": to("subscriptions/listen",
			`{"notifications":{"toolsListChanged":true}}`),
		"a known task": to("tasks/get", `{"taskId":"t"}`),
		"initialized":  notice("notifications/initialized", `{}`),
		"cancelled":    notice("notifications/cancelled", `{"requestId":"data"}`),
	} {
		s := flow(t)
		first := to("tools/list", `{`+meta+`}}`)
		created := in(answered(called("x", `{}`), `{"task":{"taskId":"t"}}`), "out", "")
		if refused(t, s, first) || refused(t, s, created) {
			t.Fatal("a message is denied before the session has read anything")
		}
		taint(t, s, "")
		if got := verdictOf(t, s, m); strings.HasPrefix(got, "denied") ||
			strings.HasPrefix(got, "error") {
			t.Errorf("%s: %s, want that the message passes", name, got)
		}
	}
	s := flow(t)
	taint(t, s, "")
	if got, want := verdictOf(t, s, notice("notifications/cancelled",
		`{"requestId":1,"reason":"data"}`)), `{"requestId":1,"reason":"[removed]"}`; got != want {
		t.Errorf("a cancellation with a reason: got %s, want %s", got, want)
	}
}

// TestDataToAnEarlierEgressCallIsDenied calls an egress tool before the session reads any data of a
// source. After that, the client sends data to this call, such as an answer to the tool's question.
func TestDataToAnEarlierEgressCallIsDenied(t *testing.T) {
	for name, m := range map[string]func(asked *mcp.Message) *mcp.Message{
		"the user's answer": func(asked *mcp.Message) *mcp.Message {
			return reply(asked, mcp.NewResponse("9",
				[]byte(`{"action":"accept","content":{"x":"data"}}`)))
		},
		"an error": func(asked *mcp.Message) *mcp.Message {
			return reply(asked, mcp.NewError("9", -1, "data", nil))
		},
		"an update of the call's task": func(*mcp.Message) *mcp.Message {
			return sent(mcp.NewRequest("2", "tasks/update", []byte(`{"taskId":"t"}`)),
				mcp.ToServer, "t")
		},
		"progress": func(*mcp.Message) *mcp.Message {
			return sent(mcp.NewNotification("notifications/progress",
				[]byte(`{"progressToken":1,"progress":1,"message":"data"}`)), mcp.ToServer, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			for tool, want := range map[string]bool{"send": true, "other": false} {
				s := flow(t)
				verdictOf(t, s, called(tool, `{}`))
				verdictOf(t, s, answered(called(tool, `{}`), `{"task":{"taskId":"t"}}`))
				taint(t, s, "")
				asked := fromServer(mcp.Request, "elicitation/create", `{"message":"which?"}`)
				verdictOf(t, s, asked)
				if got := refused(t, s, m(asked)); got != want {
					t.Errorf("after a call of the tool %q, the message is denied: %v, want %v",
						tool, got, want)
				}
			}
		})
	}
}
