package proxy_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// asksForInput asks for input until it gets its own state back, then returns what it got.
func asksForInput(questions string) func(context.Context, *mcp.Message, proxy.Handler) string {
	return func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
		if _, ok := m.Get("/inputResponses"); ok {
			return string(m.Body())
		}
		return `{"resultType":"input_required","inputRequests":` + questions +
			`,"requestState":"mine\u0021"}`
	}
}

func twoServers(a *fakeServer) map[string]*fakeServer {
	return map[string]*fakeServer{"a": a, "b": {answer: echo}}
}

// callFirstRound makes the first round of a call. It returns the client's answer and the state for
// the next round.
func callFirstRound(t *testing.T, w *fixture) (result *mcp.Message, state string) {
	t.Helper()
	result = mcp.NewResponse("7",
		[]byte(w.call(t, "tools/call", `{"name":"a__x","arguments":{"b":1,"a":[1.0,{}]}}`)))
	state, _ = result.Text("/requestState")
	return result, state
}

func retryParams(state, name, arguments, responses string) string {
	return `{"name":"` + name + `","arguments":` + arguments + `,"inputResponses":` + responses +
		`,"requestState":"` + state + `"}`
}

const elicitRequests = `{"k":{"method":"elicitation/create","params":{"message":"Name?","requestedSchema":{}}}}`

func TestInputRoundIsForwardedAndSealed(t *testing.T) {
	a := &fakeServer{answer: asksForInput(elicitRequests)}
	w := open(t, twoServers(a), nil)
	w.client.takesInputRequests = true
	result, state := callFirstRound(t, w)
	if raw, _ := result.Get("/inputRequests"); string(
		raw) != `{"k":{"method":"elicitation/create","params":{"message":"[a] Name?","requestedSchema":{}}}}` {
		t.Errorf("the client was asked %s", raw)
	}
	if !strings.HasPrefix(state, "gk1.") || strings.Contains(state, "mine") {
		t.Fatalf("the state is not sealed: %q", state)
	}
	w.record.expect(t, "pass to_client request elicitation/create a",
		"pass to_client response tools/call a x")

	// The client re-encodes its arguments: other order, other blanks, the same meaning.
	got := w.call(t, "tools/call", retryParams(state, "a__x", `{"a": [1.0, { }], "b":1}`,
		`{"k":{"action":"accept"},"extra":{"action":"accept"}}`))
	equal(t, "the server got", got,
		`{"name":"x","arguments":{"a": [1.0, { }], "b":1},"inputResponses":{"k":{"action":"accept"}},"requestState":"mine\u0021"}`)
	w.record.expect(t, "pass to_server response elicitation/create a")
}

func TestRequestStateIsBoundToRequestAndPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, twoServers(&fakeServer{answer: asksForInput(elicitRequests)}), nil)
		w.client.takesInputRequests = true
		_, state := callFirstRound(t, w)
		const arguments, yes = `{"b":1,"a":[1.0,{}]}`, `{"k":{"action":"accept"}}`
		flipped := state[:20] + string(state[20]^1) + state[21:]
		for name, params := range map[string]string{
			"another tool":          retryParams(state, "a__y", arguments, yes),
			"another server":        retryParams(state, "b__x", arguments, yes),
			"changed arguments":     retryParams(state, "a__x", `{"b":2,"a":[1.0,{}]}`, yes),
			"a number spelt anew":   retryParams(state, "a__x", `{"b":1,"a":[1,{}]}`, yes),
			"a flipped bit":         retryParams(flipped, "a__x", arguments, yes),
			"the server's own":      retryParams("mine!", "a__x", arguments, yes),
			"a state that is empty": retryParams("", "a__x", arguments, yes),
		} {
			equal(t, name, w.call(t, "tools/call", params),
				"!-32602 invalid or expired requestState: make the call again without one")
		}
		other := w.proxy.Open(proxy.OpenOptions{Principal: "other"}, w.client)
		equal(t, "another principal", w.callAs(t, other, w.client, "1", "tools/call",
			retryParams(state,
				"a__x", arguments, yes)),
			"!-32602 invalid or expired requestState: make the call again without one")
		if got := w.call(t, "tools/call", retryParams(state, "a__x", arguments,
			yes)); strings.HasPrefix(got, "!") {
			t.Errorf("the right one: %s", got)
		}
		time.Sleep(11 * time.Minute)
		equal(t, "too late", w.call(t, "tools/call", retryParams(state, "a__x", arguments, yes)),
			"!-32602 invalid or expired requestState: make the call again without one")
	})
}

func TestAnotherInstanceWithSameKeyTakesNextRound(t *testing.T) {
	a := &fakeServer{answer: asksForInput(elicitRequests)}
	one, two := open(t, twoServers(a), nil), open(t, twoServers(a), nil)
	one.client.takesInputRequests, two.client.takesInputRequests = true, true
	_, state := callFirstRound(t, one)
	got := two.call(t, "tools/call", retryParams(state, "a__x", `{"b":1,"a":[1.0,{}]}`,
		`{"k":{"action":"accept"}}`))
	if strings.HasPrefix(got, "!") {
		t.Errorf("next round: %s", got)
	}
}

func denyMethods(methods ...string) pipeline.StageConfig {
	return pipeline.StageConfig{Name: "no", Stage: stage(func(m *mcp.Message) pipeline.Verdict {
		for _, method := range methods {
			if m.Method == method {
				return pipeline.Verdict{}
			}
		}
		return pipeline.Verdict{Action: pipeline.Allow}
	})}
}

func TestDeniedInputRequestIsDeclined(t *testing.T) {
	w := open(t, twoServers(&fakeServer{answer: asksForInput(elicitRequests)}), nil,
		denyMethods("elicitation/create"))
	w.client.takesInputRequests = true
	equal(t, "answer", w.call(t, "tools/call", `{"name":"a__x"}`),
		`{"name":"x","inputResponses":{"k":{"action":"decline"}},"requestState":"mine\u0021"}`)
}

func TestOnlyDeniedInputRequestsAreDeclined(t *testing.T) {
	questions := `{"k":{"method":"elicitation/create","params":{"message":"m"}},"r":{"method":"roots/list"}}`
	w := open(t, twoServers(&fakeServer{answer: asksForInput(questions)}), nil,
		denyMethods("roots/list"))
	w.client.takesInputRequests = true
	result, state := callFirstRound(t, w)
	if raw, _ := result.Get("/inputRequests"); string(
		raw) != `{"k":{"method":"elicitation/create","params":{"message":"[a] m"}}}` {
		t.Errorf("the client was asked %s", raw)
	}
	got := mcp.NewResponse("1",
		[]byte(w.call(t, "tools/call", retryParams(state, "a__x", `{"b":1,"a":[1.0,{}]}`,
			`{"k":{"action":"accept"},"r":{"roots":[{"uri":"file:///forged"}]}}`))))
	if raw, _ := got.Get("/inputResponses/r"); string(raw) != `{"roots":[]}` {
		t.Errorf("roots: %s", got.Body())
	}
	if raw, _ := got.Get("/inputResponses/k"); string(raw) != `{"action":"accept"}` {
		t.Errorf("elicitation: %s", got.Body())
	}
}

func TestDeniedSamplingEndsTheCall(t *testing.T) {
	w := open(t, twoServers(&fakeServer{answer: asksForInput(
		`{"s":{"method":"sampling/createMessage","params":{}}}`)}), nil,
		denyMethods("sampling/createMessage"))
	w.client.takesInputRequests = true
	equal(t, "answer", w.call(t, "tools/call", `{"name":"a__x"}`), "!-31000 refused by policy")
}

func TestUndeclaredInputRequestIsAnError(t *testing.T) {
	w := open(t, twoServers(&fakeServer{answer: asksForInput(elicitRequests)}), nil)
	w.client.takesInputRequests = true
	got := w.call(t, "tools/call",
		`{"name":"a__x","_meta":{"io.modelcontextprotocol/clientCapabilities":{"sampling":{}}}}`)
	equal(t, "answer", got, "!-32021 the client did not declare the capability elicitation")
}

func TestInputRoundsAreBounded(t *testing.T) {
	endless := &fakeServer{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
		return `{"resultType":"input_required","inputRequests":` + elicitRequests + `}`
	}}
	w := open(t, twoServers(endless), nil, denyMethods("elicitation/create"))
	w.client.takesInputRequests = true
	equal(t, "answer", w.call(t, "tools/call", `{"name":"a__x"}`),
		`!-32603 server "a" is not available: it asked for input too many times`)
	equal(t, "times it was called", len(endless.seen()), 17)
}

func TestInputResponsesWithoutStateAreInspectedByShape(t *testing.T) {
	w := open(t, twoServers(&fakeServer{answer: echo}), nil)
	w.call(t, "tools/call", `{"name":"a__x","inputResponses":{"e":{"action":"accept"},"r":{"roots":[]},"s":{"role":"assistant"}}}`)
	w.record.expect(t, "pass to_server response elicitation/create a",
		"pass to_server response roots/list a", "pass to_server response sampling/createMessage a")
	got := w.call(t, "tools/call",
		`{"name":"a__x","inputResponses":{"e":{"action":"accept","roots":[]}}}`)
	equal(t, "a shape of two kinds", got,
		`!-32602 inputResponses: "e" is no answer to sampling, elicitation or roots`)
}

// serverAnswering returns a server with one result for every call.
func serverAnswering(result string) *fakeServer {
	return &fakeServer{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
		return result
	}}
}

func TestInvalidInputRequestsAreNotForwarded(t *testing.T) {
	entry := func(e string) string {
		return `{"resultType":"input_required","inputRequests":{"ok":{"method":"roots/list"},"k":` +
			e + `}}`
	}
	many := strings.Repeat(`"k`, 1)
	for i := range 65 {
		many += strings.Repeat("x", i) + `":{"method":"roots/list"},"k`
	}
	for _, c := range []struct{ name, result, want string }{
		{"a list", `{"resultType":"input_required","inputRequests":[{"method":"elicitation/create"}]}`, "its inputRequests are no object"},
		{"a string", `{"resultType":"input_required","inputRequests":"x"}`,
			"its inputRequests are no object"},
		{"null", `{"resultType":"input_required","inputRequests":null}`,
			"its inputRequests are no object"},
		{"one that is no object", entry(`7`), "its inputRequests hold what is no request"},
		{"one that is empty", entry(`{}`), "its inputRequests hold what is no request"},
		{"one without a method", entry(`{"params":{}}`),
			"its inputRequests hold what is no request"},
		{"one whose method is no string", entry(`{"method":1}`),
			"its inputRequests hold what is no request"},
		{"one whose params are no object", entry(`{"method":"roots/list","params":[1]}`),
			"its inputRequests hold what is no request"},
		{"one that a careless reader takes for another",
			entry(`{"method":"roots/list","Method":"sampling/createMessage"}`),
			"its inputRequests hold what is no request"},
		{"one whose params a careless reader takes for others",
			entry(`{"method":"elicitation/create","params":{"message":"a","Message":"b"}}`),
			"its inputRequests hold what is no request"},
		{"one that is an answer", entry(`{"result":{}}`),
			"its inputRequests hold what is no request"},
		{"one of a method that nobody knows", entry(`{"method":"x/y"}`),
			`its inputRequests hold what it may not ask for: method not found: "x/y"`},
		{"one of a method of clients", entry(`{"method":"tools/call","params":{"name":"x"}}`),
			`its inputRequests hold what servers may not ask for: "tools/call"`},
		{"one of a method that has no place there", entry(`{"method":"tasks/list"}`),
			`its inputRequests hold what servers may not ask for: "tasks/list"`},
		{"too many", `{"resultType":"input_required","inputRequests":{` + many +
			`":{"method":"roots/list"}}}`, "it asked for too much input at once"},
		{"a state too long to come back", `{"resultType":"input_required","requestState":"` +
			strings.Repeat("x", 2<<20) + `"}`,
			"its requestState is too long to be kept by a client"},
		{"in a result that says it is complete", `{"resultType":"complete","inputRequests":` +
			elicitRequests + `}`, "it asked for input in a result that does not say so"},
		{"in a result that says nothing", `{"inputRequests":` + elicitRequests + `}`,
			"it asked for input in a result that does not say so"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, twoServers(serverAnswering(c.result)), nil)
			w.client.takesInputRequests = true
			equal(t, "answer", w.call(t, "tools/call", `{"name":"a__x"}`),
				`!-32603 server "a" is not available: `+c.want)
		})
	}
	t.Run("in a list", func(t *testing.T) {
		w := open(t, twoServers(serverAnswering(
			`{"resultType":"input_required","tools":[],"inputRequests":`+
				elicitRequests+`}`)), nil)
		w.client.takesInputRequests = true
		if got := w.call(t, "tools/list", `{}`); strings.Contains(got, "Name?") {
			t.Errorf("answer %s", got)
		}
	})
}

func TestInvalidInputResponsesAreNotForwarded(t *testing.T) {
	many := `"k":{"action":"accept"}`
	for i := range 64 {
		many += `,"k` + strings.Repeat("x", i+1) + `":{"action":"accept"}`
	}
	for _, c := range []struct{ name, responses, want string }{
		{"a list", `[{"action":"accept"}]`, "inputResponses is no object"},
		{"a string", `"x"`, "inputResponses is no object"},
		{"null", `null`, "inputResponses is no object"},
		{"one that is no object", `{"k":"accept"}`, `inputResponses: "k" is no answer`},
		{"one that is null", `{"k":null}`, `inputResponses: "k" is no answer`},
		{"one that a careless reader takes for another",
			`{"k":{"action":"decline","Action":"accept"}}`, `inputResponses: "k" is no answer`},
		{"too many", `{` + many + `}`, "inputResponses has more than 64 members"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &fakeServer{answer: asksForInput(elicitRequests)}
			w := open(t, twoServers(a), nil)
			w.client.takesInputRequests = true
			_, state := callFirstRound(t, w)
			equal(t, "with a state", w.call(t, "tools/call", retryParams(state,
				"a__x", `{"b":1,"a":[1.0,{}]}`, c.responses)), "!-32602 "+c.want)
			if got := w.call(t, "tools/call", `{"name":"a__x","inputResponses":`+c.responses+
				`}`); !strings.HasPrefix(got, "!-32602 "+c.want) {
				t.Errorf("without one: %s", got)
			}
			equal(t, "tasks/update", w.call(t, "tasks/update", `{"taskId":"a+t","inputResponses":`+
				c.responses+`}`), "!-32602 "+c.want)
			equal(t, "calls that the server saw", len(a.seen()), 1)
		})
	}
}

func TestInputRequestKeysMayContainAnything(t *testing.T) {
	for _, key := range []string{"a/b", "~", "~1", "", "0", `\"`, `\u0000`, "é", `\ud83d\ude00`} {
		questions := `{"` + key +
			`":{"method":"elicitation/create","params":{"message":"m"}},"r/~":{"method":"roots/list"}}`
		w := open(t, twoServers(&fakeServer{answer: asksForInput(questions)}), nil,
			denyMethods("roots/list"))
		w.client.takesInputRequests = true
		result, state := callFirstRound(t, w)
		if raw, _ := result.Get("/inputRequests"); string(raw) != `{"`+key+
			`":{"method":"elicitation/create","params":{"message":"[a] m"}}}` {
			t.Errorf("%q: the client was asked %s", key, raw)
		}
		got := mcp.NewResponse("1",
			[]byte(w.call(t, "tools/call", retryParams(state, "a__x", `{"b":1,"a":[1.0,{}]}`,
				`{"`+key+`":{"action":"accept"}}`))))
		if raw, _ := got.Get("/inputResponses"); string(raw) != `{"`+key+
			`":{"action":"accept"},"r/~":{"roots":[]}}` {
			t.Errorf("%q: the server got %s", key, got.Body())
		}
	}
}

func TestLinksInInputRequestsAndResponsesArePrefixed(t *testing.T) {
	questions := `{"s":{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"resource_link","uri":"f:///x"}}]}}}`
	w := open(t, twoServers(&fakeServer{answer: asksForInput(questions)}), nil)
	w.client.takesInputRequests = true
	result, state := callFirstRound(t, w)
	if uri, _ := result.Text("/inputRequests/s/params/messages/0/content/uri"); uri != "a+f:///x" {
		t.Errorf("the client was asked %s", result.Body())
	}
	got := mcp.NewResponse("1",
		[]byte(w.call(t, "tools/call", retryParams(state, "a__x", `{"b":1,"a":[1.0,{}]}`,
			`{"s":{"role":"assistant","content":{"type":"resource_link","uri":"a+f:///y"}}}`))))
	if uri, _ := got.Text("/inputResponses/s/content/uri"); uri != "f:///y" {
		t.Errorf("the server got %s", got.Body())
	}
}

// A result is inspected after its requests, and as the client will see it, so that a removed part
// stays out.
func TestEditsOfInputRoundAreKept(t *testing.T) {
	redact := pipeline.StageConfig{Name: "redact",
		Stage: stage(func(m *mcp.Message) pipeline.Verdict {
			if m.Kind == mcp.Response && m.CarriesInput {
				return pipeline.Verdict{Action: pipeline.Modify,
					Edits: []mcp.Edit{mcp.Set("/inputRequests/k/params/message", []byte(`"***"`))}}
			}
			return pipeline.Verdict{Action: pipeline.Allow}
		})}
	w := open(t, twoServers(&fakeServer{answer: asksForInput(elicitRequests)}), nil, redact)
	w.client.takesInputRequests = true
	if result, _ := callFirstRound(t, w); !strings.Contains(string(result.Body()),
		`"message":"***"`) ||
		strings.Contains(string(result.Body()), "Name?") {
		t.Errorf("the client was asked %s", result.Body())
	}
}

func TestInputRequestsOfTasksAreInspected(t *testing.T) {
	task := func(questions string) string {
		return `{"taskId":"t","status":"input_required","inputRequests":` + questions + `}`
	}
	tell := func(questions string) *fakeServer {
		return &fakeServer{answer: func(ctx context.Context, m *mcp.Message,
			c proxy.Handler) string {
			if m.Method == "tools/call" {
				c.HandleNotification(ctx, mcp.NewNotification("notifications/tasks",
					[]byte(task(questions))))
				return `{}`
			}
			return task(questions)
		}}
	}
	shown := `{"taskId":"a+t","status":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"[a] Name?","requestedSchema":{}}}}}`

	w := open(t, twoServers(tell(elicitRequests)), nil)
	equal(t, "tasks/get", w.call(t, "tasks/get", `{"taskId":"a+t"}`), shown)
	w.call(t, "tools/call", `{"name":"a__x"}`)
	equal(t, "told", w.client.received(), []string{"notifications/tasks " + shown})
	w.record.expect(t, "pass to_client request elicitation/create a",
		"pass to_client response tasks/get a t",
		"pass to_client notification notifications/tasks a t")

	for name, questions := range map[string]string{"refused": elicitRequests,
		"no object": `[{"method":"elicitation/create"}]`, "no request": `{"k":7}`} {
		w = open(t, twoServers(tell(questions)), nil, denyMethods("elicitation/create"))
		if got := w.call(t, "tasks/get", `{"taskId":"a+t"}`); !strings.HasPrefix(got, "!") {
			t.Errorf("%s: tasks/get: %s", name, got)
		}
		w.call(t, "tools/call", `{"name":"a__x"}`)
		equal(t, name+": told", w.client.received(), []string{})
	}

	a := &fakeServer{answer: echo}
	w = open(t, twoServers(a), nil, denyMethods("elicitation/create"))
	equal(t, "tasks/update", w.call(t,
		"tasks/update", `{"taskId":"a+t","inputResponses":{"k":{"action":"accept","content":{}},"r":{"roots":[]}}}`), `{"taskId":"t","inputResponses":{"k":{"action":"decline"},"r":{"roots":[]}}}`)
	w.record.expect(t, "deny to_server response elicitation/create a",
		"pass to_server response roots/list a", "pass to_server request tasks/update a t")
}
