package proxy_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

func echo(_ context.Context, m *mcp.Message, _ proxy.Handler) string { return string(m.Body()) }

func withoutPrefix(o *proxy.Options) { o.Naming.Prefix = "never" }

func TestCallsAreRoutedByName(t *testing.T) {
	for _, c := range []struct{ name, method, params, want, seen string }{
		{"a tool of the first server", "tools/call", `{"name":"a__x","arguments":{"n":1.0}}`,
			`{"name":"x","arguments":{"n":1.0}}`, "a x"},
		{"a tool of the second server", "tools/call", `{"name":"b__x"}`, `{"name":"x"}`, "b x"},
		{"a tool whose own name has the separator", "tools/call", `{"name":"a__b__x"}`,
			`{"name":"b__x"}`, "a b__x"},
		{"a prompt", "prompts/get", `{"name":"b__p"}`, `{"name":"p"}`, "b p"},
		{"a resource in the scheme form", "resources/read", `{"uri":"a+file:///x"}`,
			`{"uri":"file:///x"}`, "a file:///x"},
		{"a resource whose scheme a client wrote in capitals", "resources/read",
			`{"uri":"A+file:///x"}`, `{"uri":"file:///x"}`, "a file:///x"},
		{"a resource in the prefix form", "resources/read", `{"uri":"a__file:///x"}`,
			`{"uri":"file:///x"}`, "a file:///x"},
		{"a resource of an MCP App", "resources/read", `{"uri":"ui://b+w/1"}`, `{"uri":"ui://w/1"}`,
			"b ui://w/1"},
		{"a completion for a prompt", "completion/complete",
			`{"ref":{"type":"ref/prompt","name":"a__p"},"argument":{"name":"x__y","value":"a__v"}}`,
			`{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"x__y","value":"a__v"}}`,
			"a p"},
		{"a completion for a template", "completion/complete",
			`{"ref":{"type":"ref/resource","uri":"b+r://{x}"}}`,
			`{"ref":{"type":"ref/resource","uri":"r://{x}"}}`, "b r://{x}"},
		{"a task", "tasks/cancel", `{"taskId":"b+t1"}`, `{"taskId":"b+t1"}`, "b t1"},
		{"an unknown server", "tools/call", `{"name":"c__x"}`, `!-32602 Unknown tool: "c__x"`, ""},
		{"a name without a server", "tools/call", `{"name":"x"}`, `!-32602 Unknown tool: "x"`, ""},
		{"an empty server name", "tools/call", `{"name":"__x"}`, `!-32602 Unknown tool: "__x"`,
			""},
		{"a name that is no string", "tools/call", `{"name":7}`,
			"!-32602 tools/call needs a string at /name", ""},
		{"no name at all", "tools/call", `{}`, "!-32602 tools/call needs a string at /name",
			""},
		{"a resource without prefix that no server listed", "resources/read", `{"uri":"file:///x"}`,
			`!-32602 Unknown resource: "file:///x"`, ""},
		{"an unknown method", "x/y", `{}`, `!-32601 method not found: "x/y"`, ""},
		{"a method that servers send", "sampling/createMessage", `{}`,
			"!-32601 clients do not send sampling/createMessage", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, map[string]*fakeServer{"a": {answer: echo}, "b": {answer: echo}}, nil)
			equal(t, "answer", w.call(t, c.method, c.params), c.want)
			if c.seen != "" {
				w.record.expect(t, "pass to_server request "+c.method+" "+c.seen,
					"pass to_client response "+c.method+" "+c.seen)
			}
		})
	}
}

func TestMessagesAreUnchangedWithoutPrefix(t *testing.T) {
	params := `{ "name" : "a__x\u0041", "arguments":{"big":12345678901234567890,"e":[],"o":{},"n":null}, "other":1e0 }`
	w := open(t, map[string]*fakeServer{"a": {answer: echo}}, withoutPrefix)
	equal(t, "tools/call", w.call(t, "tools/call", params), params)
	equal(t, "tools/list", w.call(t, "tools/list", `{"cursor":"theirs"}`), `{"cursor":"theirs"}`)
	equal(t, "server/discover", w.call(t, "server/discover", params), params)
}

// A server in JavaScript may read ["x"] as x, while policies would find no name.
func TestNameThatIsNoStringIsRefusedWithoutPrefix(t *testing.T) {
	a := &fakeServer{answer: echo}
	w := open(t, map[string]*fakeServer{"a": a}, withoutPrefix)
	for _, c := range []struct{ method, params, want string }{
		{"tools/call", `{"name":["x"]}`, "!-32602 tools/call needs a string at /name"},
		{"prompts/get", `{"name":{"toString":"x"}}`, "!-32602 prompts/get needs a string at /name"},
		{"resources/read", `{"uri":["file:///x"]}`,
			"!-32602 resources/read needs a string at /uri"},
		{"tasks/get", `{"taskId":["t"]}`, "!-32602 tasks/get needs a string at /taskId"},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":["x"]}}`,
			"!-32602 completion/complete needs a string at /ref/name"},
		{"completion/complete", `{"ref":{"type":["ref/prompt"],"name":"x"}}`,
			"!-32602 unknown reference: the type is ref/prompt or ref/resource"},
	} {
		equal(t, c.params, w.call(t, c.method, c.params), c.want)
	}
	equal(t, "the server saw", a.seen(), []string{})
	equal(t, "a request without a name is left to the server", w.call(t, "tools/call", `{"x":1}`), `{"x":1}`)
}

func TestVendorMethodsAreForwardedOnlyWhenConfigured(t *testing.T) {
	w := open(t, map[string]*fakeServer{"a": {answer: echo}, "b": {answer: echo}},
		func(o *proxy.Options) { o.Servers[1].Methods = []string{"acme/*"} })
	equal(t, "configured", w.call(t, "acme/do", `{"x":1}`), `{"x":1}`)
	equal(t, "not configured", w.call(t, "other/do", `{}`), `!-32601 method not found: "other/do"`)
	w.record.expect(t, "pass to_server request acme/do b")
}

func TestListsAreMergedInConfiguredOrder(t *testing.T) {
	a := &fakeServer{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
		if m.Method != "tools/list" {
			return "!-32601 no"
		}
		if c, _ := m.Text("/cursor"); c == "2" {
			return `{"tools":[{"name":"y","x":1.0}]}`
		}
		return `{"tools":[{"name":"x","_meta":{"ui":{"resourceUri":"ui://w"}}}],"nextCursor":"2"}`
	}}
	b := &fakeServer{answer: fixedResults(
		map[string]string{"tools/list": `{"tools":[{ "name":"x" }],"_meta":{"k":1}}`})}
	w := open(t, map[string]*fakeServer{"b": b, "a": a}, nil)
	equal(t, "list", w.call(t, "tools/list", `{}`),
		`{"tools":[{"name":"a__x","_meta":{"ui":{"resourceUri":"ui://a+w"}}},{"name":"a__y","x":1.0},{ "name":"b__x" }],"_meta":{"k":1}}`)
	equal(t, "requests for pages that server a saw", a.seen(), []string{"tools/list {}",
		`tools/list {"cursor":"2"}`})
	equal(t, "a list that no server has", w.call(t, "prompts/list", `{}`),
		"!-32601 no server supports prompts/list")
}

func TestListWithFailedServerHasItemsOfOtherServers(t *testing.T) {
	good := &fakeServer{answer: fixedResults(
		map[string]string{"tools/list": `{"tools":[{"name":"x"}],"_meta":{"k":1}}`})}
	for _, c := range []struct {
		name   string
		bad    *fakeServer
		reason string
	}{
		{"a server that is down", &fakeServer{answer: func(context.Context, *mcp.Message,
			proxy.Handler) string {
			return "dead"
		}}, `server \"bad\" is not available: it ended`},
		{"a server that answers with an error", &fakeServer{answer: func(context.Context,
			*mcp.Message, proxy.Handler) string {
			return "!-32603 oops"
		}}, `server \"bad\" is not available: it answered error -32603, \"oops\"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, map[string]*fakeServer{"good": good, "bad": c.bad}, nil)
			equal(t, "list", w.call(t, "tools/list", `{}`),
				`{"tools":[{"name":"good__x"}],"_meta":{"k":1,"gatekit/partial":[{"server":"bad","reason":"`+c.reason+`"}]}}`)
		})
	}
}

func TestListWaitsOnlyFiveSecondsForSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := &fakeServer{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
			return ""
		}}
		good := &fakeServer{answer: fixedResults(
			map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`})}
		w := open(t, map[string]*fakeServer{"good": good, "silent": silent}, nil)
		began := time.Now()
		got := w.call(t, "tools/list", `{}`)
		if !strings.HasPrefix(got,
			`{"tools":[{"name":"good__x"}],"_meta":{"gatekit/partial":[{"server":"silent"`) {
			t.Errorf("list: got %s, want a partial list without the server \"silent\"", got)
		}
		equal(t, "time until the answer", time.Since(began), 5*time.Second)
	})
}

func TestLongListsArePaged(t *testing.T) {
	tools := `{"tools":[{"name":"1"},{"name":"2"},{"name":"3"}]}`
	s := &fakeServer{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
		return tools
	}}
	w := open(t, map[string]*fakeServer{"a": s}, func(o *proxy.Options) { o.Limits.PageItems = 2 })
	page := request(t, "0", "x", w.call(t, "tools/list", `{}`))
	cursor, ok := page.Text("/nextCursor")
	if !ok || page.Len("/tools") != 2 {
		t.Fatalf("first page: got %s, want two tools and a cursor", page.Body())
	}
	equal(t, "second page", w.call(t, "tools/list", `{"cursor":"`+cursor+`"}`),
		`{"tools":[{"name":"a__3"}]}`)
	for name, params := range map[string]string{"not Gatekit's": `{"cursor":"x"}`,
		"no string": `{"cursor":1}`, "empty": `{"cursor":""}`,
		"cut short": `{"cursor":"` + cursor[:len(cursor)-2] + `"}`} {
		if got := w.call(t, "tools/list", params); !strings.HasPrefix(got,
			"!-32602 invalid cursor") {
			t.Errorf("a cursor that is %s: got %s, want invalid cursor", name, got)
		}
	}
	if got := w.call(t, "prompts/list", `{"cursor":"`+cursor+`"}`); !strings.HasPrefix(got,
		"!-32602 invalid cursor") {
		t.Errorf("a cursor of another list: got %s, want invalid cursor", got)
	}
	other := w.proxy.Open(proxy.OpenOptions{Session: "o", Principal: identity.FromID("other")},
		w.client)
	if got := w.callAs(t, other, w.client, "1", "tools/list", `{"cursor":"`+cursor+
		`"}`); !strings.HasPrefix(got, "!-32602 invalid cursor") {
		t.Errorf("another principal's cursor: got %s, want invalid cursor", got)
	}
	tools = `{"tools":[{"name":"1"},{"name":"2"},{"name":"4"}]}`
	if got := w.call(t, "tools/list", `{"cursor":"`+cursor+`"}`); !strings.HasPrefix(got,
		"!-32602 invalid cursor: the list has changed") {
		t.Errorf("a cursor after the list changed: got %s, want invalid cursor", got)
	}
}

func TestCancellationReachesTheServerAndIsNotAnswered(t *testing.T) {
	for _, c := range []struct {
		name   string
		end    func(w *fixture, leave func())
		notice string
	}{
		{"by a notification", func(w *fixture, _ func()) {
			w.session.Notify(context.Background(), notification(t, "notifications/cancelled",
				`{"requestId":7,"reason":"enough"}`))
		}, `{"requestId":7,"reason":"enough"}`},
		{"by the end of the connection", func(_ *fixture, leave func()) { leave() },
			`{"requestId":7,"reason":"the client is gone"}`},
		{"by the end of the session", func(w *fixture, _ func()) { w.session.Close() },
			`{"requestId":7,"reason":"the client is gone"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeServer{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
					return ""
				}}
				w := open(t, map[string]*fakeServer{"a": s}, nil)
				ctx, leave := context.WithCancel(t.Context())
				done := make(chan pipeline.Passed)
				go func() {
					done <- w.session.Call(ctx,
						request(t, "7", "tools/call", `{"name":"a__x"}`), w.client)
				}()
				synctest.Wait()
				go c.end(w, leave)
				equal(t, "answer", answerText(t, "7", <-done), "nothing")
				synctest.Wait()
				var cancelled *proxy.CancelledError
				if len(s.ended) != 1 || !errors.As(s.ended[0], &cancelled) ||
					cancelled.Notification.Message() == nil {
					t.Fatalf("the call ended with %v, want a CancelledError", s.ended)
				}
				equal(t, "notification", string(cancelled.Notification.Message().Body()), c.notice)
				leave()
			})
		})
	}
}

func TestUnknownCancellationIsDropped(t *testing.T) {
	w := open(t, map[string]*fakeServer{"a": {answer: echo}}, nil)
	w.session.Notify(t.Context(), notification(t, "notifications/cancelled", `{"requestId":"7"}`))
	w.record.expect(t, "drop to_server notification notifications/cancelled")
}

func TestServerTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		progress := time.NewTicker(40 * time.Second)
		defer progress.Stop()
		s := &fakeServer{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			if m.Name == "busy" {
				for range 20 {
					select {
					case <-progress.C:
						c.HandleNotification(ctx, mcp.NewNotification("notifications/progress",
							[]byte(`{"progressToken":1,"progress":1}`)))
					case <-ctx.Done():
						return ""
					}
				}
			}
			return ""
		}}
		w := open(t, map[string]*fakeServer{"a": s}, nil)
		began := time.Now()
		equal(t, "a call without progress", w.call(t, "tools/call", `{"name":"a__x"}`),
			`!-32603 server "a" did not answer within 1m0s without progress`)
		equal(t, "time without progress", time.Since(began), time.Minute)
		began = time.Now()
		w.call(t, "tools/call", `{"name":"a__busy"}`)
		equal(t, "time with progress", time.Since(began), 10*time.Minute)
		w.record.expect(t, "answer to_server notification notifications/cancelled a",
			"answer to_client error tools/call a x")
	})
}

func TestCallsOfOneSessionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
			return ""
		}}
		w := open(t, map[string]*fakeServer{"a": s},
			func(o *proxy.Options) { o.Limits.InFlight = 1 })
		go w.session.Call(t.Context(), request(t, "7", "tools/call", `{"name":"a__x"}`), w.client)
		synctest.Wait()
		equal(t, "the same id", w.call(t, "tools/call", `{"name":"a__x"}`),
			"!-32600 a request with this id is in flight")
		equal(t, "a second request", w.callAs(t, w.session, w.client, `"7"`, "tools/call",
			`{"name":"a__x"}`),
			"!-32603 too many requests in flight: wait for an answer, then try again")
		w.session.Close()
		equal(t, "a request after Close", w.call(t, "tools/list", `{}`), "!-32603 the session is closed")
		equal(t, "times that the server was closed", s.closed, 1)
	})
}

func TestDeniedMessageIsNotForwarded(t *testing.T) {
	refuse := func(to mcp.Direction, method string) pipeline.StageConfig {
		return pipeline.StageConfig{Name: "no", Stage: stage(func(m *mcp.Message) pipeline.Verdict {
			if m.Direction == to && m.Method == method {
				return pipeline.Verdict{}
			}
			return pipeline.Verdict{Action: pipeline.Allow}
		})}
	}
	t.Run("a request", func(t *testing.T) {
		s := &fakeServer{answer: echo}
		w := open(t, map[string]*fakeServer{"a": s}, nil, refuse(mcp.ToServer, "tools/call"))
		equal(t, "answer", w.call(t, "tools/call", `{"name":"a__x"}`), "!-31000 refused by policy")
		equal(t, "messages that the server saw", len(s.seen()), 0)
	})
	t.Run("an answer", func(t *testing.T) {
		w := open(t, map[string]*fakeServer{"a": {answer: echo}}, nil, refuse(mcp.ToClient,
			"tools/call"))
		equal(t, "answer", w.call(t, "tools/call", `{"name":"a__x"}`), "!-31000 refused by policy")
	})
	t.Run("a notification", func(t *testing.T) {
		s := &fakeServer{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			c.HandleNotification(ctx, mcp.NewNotification("notifications/message",
				[]byte(`{"level":"info","logger":"l","data":1}`)))
			c.HandleNotification(ctx, mcp.NewNotification("notifications/progress",
				[]byte(`{"progressToken":1,"progress":1}`)))
			return "{}"
		}}
		w := open(t, map[string]*fakeServer{"a": s}, nil, refuse(mcp.ToClient,
			"notifications/message"))
		w.call(t, "tools/call", `{"name":"a__x"}`)
		equal(t, "the client got", w.client.received(),
			[]string{`notifications/progress {"progressToken":1,"progress":1}`})
	})
}
