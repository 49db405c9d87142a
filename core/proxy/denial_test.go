package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// A denied message is sent by itself ("live"), or inside a result or a request.
func TestAnswersToDeniedMessages(t *testing.T) {
	live := func(method, params string) answerFunc {
		return func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			a := c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", method,
				[]byte(params))})[0].Message()
			return `{"structuredContent":` + string(a.Body()) + `}`
		}
	}
	inResult := func(method, params string) answerFunc {
		return asksForInput(`{"k":{"method":"` + method + `","params":` + params + `}}`)
	}
	const denied = `{"code":-31000,"message":"refused by policy","data":{"gatekit":{"action":"deny","stage":"no","record":%d}}}`
	call := [2]string{"tools/call", `{"name":"a__x"}`}
	for _, c := range []struct {
		name    string
		kind    mcp.Kind
		method  string // the stage denies messages of this kind and method
		answer  answerFunc
		request [2]string // method and params
		want    string    // the answer to the client; %d is the number of the record
		asked   int       // requests of the server that reach the client
		server  string    // the last message that the server saw
	}{
		{"a request", mcp.Request, "tools/call", echo, call, denied, 0, ""},
		{"a result", mcp.Response, "tools/call", echo, call, denied, 0, `tools/call {"name":"x"}`},
		{"an error message", mcp.Error, "tools/call", func(context.Context, *mcp.Message,
			proxy.Handler) string {
			return "!-32000 secret"
		}, call, denied, 0, `tools/call {"name":"x"}`},
		{"a notification", mcp.Notification, "notifications/message", func(ctx context.Context,
			_ *mcp.Message, c proxy.Handler) string {
			c.HandleNotification(ctx, mcp.NewNotification("notifications/message",
				[]byte(`{"data":"secret"}`)))
			return `{}`
		}, call, `{}`, 0, `tools/call {"name":"x"}`},
		{"sampling request, live", mcp.Request, "sampling/createMessage",
			live("sampling/createMessage", `{}`), call,
			`{"structuredContent":{"code":-1,"message":"rejected"}}`, 0, `tools/call {"name":"x"}`},
		{"sampling request, in a result", mcp.Request, "sampling/createMessage",
			inResult("sampling/createMessage", `{}`), call, denied, 0, `tools/call {"name":"x"}`},
		{"elicitation request, live", mcp.Request, "elicitation/create",
			live("elicitation/create", `{"message":"m"}`), call,
			`{"structuredContent":{"action":"decline"}}`, 0, `tools/call {"name":"x"}`},
		{"elicitation request, in a result", mcp.Request, "elicitation/create",
			inResult("elicitation/create", `{"message":"m"}`), call,
			`{"name":"x","inputResponses":{"k":{"action":"decline"}},"requestState":"mine\u0021"}`,
			0, `tools/call {"name":"x","inputResponses":{"k":{"action":"decline"}},"requestState":"mine\u0021"}`},
		{"roots request, live", mcp.Request, "roots/list", live("roots/list", `{}`), call,
			`{"structuredContent":{"roots":[]}}`, 0, `tools/call {"name":"x"}`},
		{"roots request, in a result", mcp.Request, "roots/list", inResult("roots/list", `{}`),
			call, `{"name":"x","inputResponses":{"k":{"roots":[]}},"requestState":"mine\u0021"}`, 0,
			`tools/call {"name":"x","inputResponses":{"k":{"roots":[]}},"requestState":"mine\u0021"}`},
		{"a client's answer to elicitation, live", mcp.Response, "elicitation/create",
			live("elicitation/create", `{"message":"m"}`), call,
			`{"structuredContent":{"action":"decline"}}`, 1, `tools/call {"name":"x"}`},
		{"a client's answer to roots, live", mcp.Response, "roots/list", live("roots/list",
			`{}`), call, `{"structuredContent":{"roots":[]}}`, 1, `tools/call {"name":"x"}`},
		{"a client's answer to sampling, live", mcp.Response, "sampling/createMessage",
			live("sampling/createMessage", `{}`), call,
			`{"structuredContent":{"code":-1,"message":"rejected"}}`, 1, `tools/call {"name":"x"}`},
		{"a client's answer, in a request", mcp.Response, "elicitation/create", echo,
			[2]string{"tools/call", `{"name":"a__x","inputResponses":{"k":{"action":"accept","content":{"secret":1}}}}`},
			`{"name":"x","inputResponses":{"k":{"action":"decline"}}}`, 0,
			`tools/call {"name":"x","inputResponses":{"k":{"action":"decline"}}}`},
		{"a client's answer to sampling, in a request", mcp.Response, "sampling/createMessage",
			echo, [2]string{"tools/call",
				`{"name":"a__x","inputResponses":{"k":{"role":"user","content":"secret"}}}`},
			denied, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			no := pipeline.StageConfig{Name: "no",
				Stage: stage(func(m *mcp.Message) pipeline.Verdict {
					if m.Kind == c.kind && m.Method == c.method {
						return pipeline.Verdict{Reason: "a secret"}
					}
					return pipeline.Verdict{Action: pipeline.Allow}
				})}
			a := &fakeServer{answer: c.answer}
			w := open(t, twoServers(a), nil, no)
			w.client.takesInputRequests = true
			w.client.answer = func(m *mcp.Message) *mcp.Message {
				return mcp.NewResponse(m.ID(),
					[]byte(`{"action":"accept","roots":[{"uri":"file:///secret"}]}`))
			}
			m := w.session.Call(t.Context(), request(t, "7", c.request[0], c.request[1]),
				w.client).Message()
			want := c.want
			if strings.Contains(want, "%d") {
				want = fmt.Sprintf(want, w.record.denialNumber())
			}
			equal(t, "the client got", string(m.Body()), want)
			equal(t, "notifications to the client", w.client.received(), []string{})
			equal(t, "server requests that reached the client", len(w.client.asked), c.asked)
			last := ""
			if seen := a.seen(); len(seen) > 0 {
				last = seen[len(seen)-1]
			}
			equal(t, "the server saw", last, c.server)
		})
	}
}

// denialNumber returns the number of the record with the action deny.
func (j *memoryRecorder) denialNumber() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, row := range j.rows {
		if strings.HasPrefix(row, "deny ") {
			return i + 1
		}
	}
	return 0
}

func TestHiddenItemIsNeitherListedNorUsed(t *testing.T) {
	hide := pipeline.StageConfig{Name: "hide", Stage: stage(func(m *mcp.Message) pipeline.Verdict {
		if m.Server == "a" {
			return pipeline.Verdict{Action: pipeline.Allow, Hide: []string{"x",
				"f:///x", "t://{x}"}}
		}
		return pipeline.Verdict{Action: pipeline.Allow}
	})}
	lists := fixedOrEmpty(map[string]string{
		"tools/list":               `{"tools":[{"name":"x"},{"name":"y"}]}`,
		"prompts/list":             `{"prompts":[{"name":"x"}]}`,
		"resources/list":           `{"resources":[{"uri":"f:///x"},{"uri":"f:///y"}]}`,
		"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"t://{x}"}]}`,
	})
	a := &fakeServer{answer: lists}
	for _, mode := range []string{"scheme", "prefix", "transparent"} {
		w := open(t, map[string]*fakeServer{"a": a},
			func(o *proxy.Options) { o.Naming.Resources = mode }, hide)
		for method, at := range map[string]string{"tools/list": "tools", "prompts/list": "prompts",
			"resources/list": "resources", "resources/templates/list": "resourceTemplates"} {
			if got := w.call(t, method, `{}`); strings.Contains(got, "x\"") || strings.Contains(got,
				"{x}") || !strings.Contains(got, at) {
				t.Errorf("%s: %s: got %s, want a list without x", mode, method, got)
			}
		}
		a.got = nil
		for _, c := range [][2]string{
			{"tools/call", `{"name":"a__x"}`}, {"prompts/get", `{"name":"a__x"}`},
			{"resources/read", `{"uri":"a+f:///x"}`}, {"resources/read", `{"uri":"a__f:///x"}`},
			{"resources/read", `{"uri":"A+f:///x"}`}, {"resources/subscribe", `{"uri":"a+f:///x"}`},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"a__x"}}`},
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"a+t://{x}"}}`},
		} {
			equal(t, mode+": "+c[0]+" "+c[1], w.call(t, c[0], c[1]), "!-31000 refused by policy")
		}
		if got := w.call(t, "resources/read", `{"uri":"f:///x"}`); !strings.HasPrefix(got, "!") {
			t.Errorf("%s: resources/read of the bare URI: got %s, want an error", mode, got)
		}
		equal(t, mode+": the server saw", a.seen(), []string{})
	}
}

// The answer of a stage is treated like the answer of a server: its names get their prefix, and
// lists are merged.
func TestStageAnswerIsPrefixedAndMerged(t *testing.T) {
	link := `{"content":[{"type":"resource_link","uri":"file:///x","name":"x"}]}`
	answering := func(method, result string) pipeline.StageConfig {
		return pipeline.StageConfig{Name: "stage",
			Wants: pipeline.Wants{Kinds: []mcp.Kind{mcp.Request}},
			Stage: stage(func(m *mcp.Message) pipeline.Verdict {
				if m.Method == method && m.Server == "a" {
					return pipeline.Verdict{Action: pipeline.Answer, Answer: []byte(result)}
				}
				return pipeline.Verdict{Action: pipeline.Allow}
			})}
	}
	for _, c := range []struct {
		name, method, params, answer, want, record string
	}{
		{"a list", "tools/list", `{}`, `{"tools":[{"name":"x"}]}`,
			`{"tools":[{"name":"a__x"},{"name":"b__y"}]}`, "tools/list a"},
		{"a call", "tools/call", `{"name":"a__x"}`, link, strings.Replace(link, "file:", "a+file:",
			1), "tools/call a x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, map[string]*fakeServer{"a": serverAnswering("dead"),
				"b": serverAnswering(`{"tools":[{"name":"y"}]}`)}, nil, answering(c.method,
				c.answer))
			equal(t, "answer", w.call(t, c.method, c.params), c.want)
			w.record.expect(t, "answer to_server request "+c.record,
				"pass to_client response "+c.record)
		})
	}
}
