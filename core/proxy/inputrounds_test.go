package proxy_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// asksForInput returns the answer function of a fakeServer that asks for input. When a request has
// inputResponses, the server answers with the params of the request.
func asksForInput(questions string) func(context.Context, *mcp.Message, proxy.Handler) string {
	return func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
		if _, ok := m.Get("/inputResponses"); ok {
			return string(m.Body())
		}
		return `{"resultType":"input_required","inputRequests":` + questions +
			`,"requestState":"mine\u0021"}`
	}
}

// twoServers returns two servers. The server with the name "a" is the parameter a. The server with
// the name "b" answers each request with the params of the request.
func twoServers(a *fakeServer) map[string]*fakeServer {
	return map[string]*fakeServer{"a": a, "b": {answer: echo}}
}

// callFirstRound makes the first round of a call. It returns the result that the client receives,
// and the state for the next round.
func callFirstRound(t *testing.T, w *fixture) (result *mcp.Message, state string) {
	t.Helper()
	result = mcp.NewResponse("7",
		[]byte(w.call(t, "tools/call", `{"name":"a__x","arguments":{"b":1,"a":[1.0,{}]}}`)))
	state, _ = result.Text("/requestState")
	return result, state
}

// retryParams returns the params of the next round of a call.
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
		t.Errorf("the client was asked %s, want the server's name in the message", raw)
	}
	if !strings.HasPrefix(state, "gk1.") || strings.Contains(state, "mine") {
		t.Fatalf("requestState is %q, want it sealed", state)
	}
	w.record.expect(t, "pass to_client request elicitation/create a",
		"pass to_client response tools/call a x")

	// The client encodes its arguments again, in another order and with other spaces.
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
			"another tool":       retryParams(state, "a__y", arguments, yes),
			"another server":     retryParams(state, "b__x", arguments, yes),
			"changed arguments":  retryParams(state, "a__x", `{"b":2,"a":[1.0,{}]}`, yes),
			"a number rewritten": retryParams(state, "a__x", `{"b":1,"a":[1,{}]}`, yes),
			"a flipped bit":      retryParams(flipped, "a__x", arguments, yes),
			"the server's state": retryParams("mine!", "a__x", arguments, yes),
			"an empty state":     retryParams("", "a__x", arguments, yes),
		} {
			equal(t, name, w.call(t, "tools/call", params),
				"!-32602 invalid or expired requestState: make the call again without it")
		}
		other := w.proxy.Open(proxy.OpenOptions{Principal: identity.FromID("other")}, w.client)
		equal(t, "another principal", w.callAs(t, other, w.client, "1", "tools/call",
			retryParams(state,
				"a__x", arguments, yes)),
			"!-32602 invalid or expired requestState: make the call again without it")
		if got := w.call(t, "tools/call", retryParams(state, "a__x", arguments,
			yes)); strings.HasPrefix(got, "!") {
			t.Errorf("the unchanged request: got %s, want a result", got)
		}
		_, state = callFirstRound(t, w)
		time.Sleep(11 * time.Minute)
		equal(t, "after 11 minutes", w.call(t, "tools/call", retryParams(state, "a__x", arguments,
			yes)),
			"!-32602 invalid or expired requestState: make the call again without it")
	})
}

// TestAnswersOfARoundAreTakenOnce sends the answers of a round twice, and then sends different
// answers. Only the first request with answers reaches the server.
func TestAnswersOfARoundAreTakenOnce(t *testing.T) {
	a := &fakeServer{answer: asksForInput(elicitRequests)}
	w := open(t, twoServers(a), nil)
	w.client.takesInputRequests = true
	const arguments, unusable = `{"b":1,"a":[1.0,{}]}`,
		"!-32602 invalid or expired requestState: make the call again without it"
	answers := func(state, action string) string {
		return w.call(t, "tools/call", retryParams(state, "a__x", arguments,
			`{"k":{"action":"`+action+`"}}`))
	}
	_, state := callFirstRound(t, w)
	// A request without answers does not use the round.
	if got := w.call(t, "tools/call", `{"name":"a__x","arguments":`+arguments+`,"requestState":"`+
		state+`"}`); strings.HasPrefix(got, "!") {
		t.Errorf("a request without answers: got %s, want another question", got)
	}
	if got := answers(state, "accept"); strings.HasPrefix(got, "!") {
		t.Errorf("the first answers: got %s, want a result", got)
	}
	before := len(a.seen())
	equal(t, "the same answers", answers(state, "accept"), unusable)
	equal(t, "different answers", answers(state, "decline"), unusable)
	equal(t, "number of calls that the server got after the first answers", len(a.seen())-before,
		0)
	_, state = callFirstRound(t, w)
	if got := answers(state, "accept"); strings.HasPrefix(got, "!") {
		t.Errorf("the answers of another round: got %s, want a result", got)
	}
}

// TestConcurrentAnswersOfARoundAreTakenOnce sends the answers of a round in many requests at once.
func TestConcurrentAnswersOfARoundAreTakenOnce(t *testing.T) {
	a := &fakeServer{answer: asksForInput(elicitRequests)}
	w := open(t, twoServers(a), nil)
	w.client.takesInputRequests = true
	_, state := callFirstRound(t, w)
	var taken atomic.Int32
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if got := w.callAs(t, w.session, w.client, strconv.Itoa(i+1), "tools/call",
				retryParams(state, "a__x", `{"b":1,"a":[1.0,{}]}`,
					`{"k":{"action":"accept"}}`)); !strings.HasPrefix(got, "!") {
				taken.Add(1)
			}
		})
	}
	all.Wait()
	equal(t, "number of requests that were taken", int(taken.Load()), 1)
}

// TestAnsweredRoundsAreBounded sends the answers of more rounds than Gatekit remembers for one
// principal. The oldest rounds then expire early, so that their answers cannot come twice.
func TestAnsweredRoundsAreBounded(t *testing.T) {
	const remembered = 1 << 14
	synctest.Test(t, func(t *testing.T) {
		w := open(t, twoServers(&fakeServer{answer: asksForInput(elicitRequests)}), nil)
		w.client.takesInputRequests = true
		answer := func(state string) string {
			return w.call(t, "tools/call", retryParams(state, "a__x", `{"b":1,"a":[1.0,{}]}`,
				`{"k":{"action":"accept"}}`))
		}
		const unusable = "!-32602 invalid or expired requestState: make the call again without it"
		_, unanswered := callFirstRound(t, w)
		_, answered := callFirstRound(t, w)
		answer(answered)
		time.Sleep(2 * time.Second)
		later := ""
		for n := range remembered {
			_, state := callFirstRound(t, w)
			if n == remembered/2 {
				_, later = callFirstRound(t, w)
			}
			time.Sleep(10 * time.Millisecond)
			if got := answer(state); strings.HasPrefix(got, "!") {
				t.Fatalf("the answers of a new round: got %s, want a result", got)
			}
		}
		equal(t, "the answers of the oldest round, again", answer(answered), unusable)
		equal(t, "the first answers of another round of the same age", answer(unanswered), unusable)
		if got := answer(later); strings.HasPrefix(got, "!") {
			t.Errorf("the first answers of a later round: got %s, want a result", got)
		}
		equal(t, "the answers of the later round, again", answer(later), unusable)
	})
}

func TestInstanceWithSameKeyContinuesInputRound(t *testing.T) {
	a := &fakeServer{answer: asksForInput(elicitRequests)}
	first, second := open(t, twoServers(a), nil), open(t, twoServers(a), nil)
	first.client.takesInputRequests, second.client.takesInputRequests = true, true
	_, state := callFirstRound(t, first)
	got := second.call(t, "tools/call", retryParams(state, "a__x", `{"b":1,"a":[1.0,{}]}`,
		`{"k":{"action":"accept"}}`))
	if strings.HasPrefix(got, "!") {
		t.Errorf("the next round got %s, want a result", got)
	}
}

// roundsOfInstances is the AnsweredRounds of several instances. It fails if err is set.
type roundsOfInstances struct {
	used map[string]bool
	made time.Time // of the last round
	err  error
}

func (r *roundsOfInstances) Use(_ context.Context, principal, id string,
	made, until time.Time) (bool, error) {
	r.made = made
	if r.err != nil || r.used[principal+" "+id] || until.Sub(made) != 10*time.Minute {
		return false, r.err
	}
	r.used[principal+" "+id] = true
	return true, nil
}

// TestInstancesTakeAnswersOnce sends the answers of a round to two instances.
func TestInstancesTakeAnswersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeServer{answer: asksForInput(elicitRequests)}
		rounds := &roundsOfInstances{used: map[string]bool{}}
		share := func(o *proxy.Options) { o.Answered = rounds }
		first, second := open(t, twoServers(a), share), open(t, twoServers(a), share)
		first.client.takesInputRequests, second.client.takesInputRequests = true, true
		answers := func(w *fixture, state string) string {
			return w.call(t, "tools/call", retryParams(state, "a__x", `{"b":1,"a":[1.0,{}]}`,
				`{"k":{"action":"accept"}}`))
		}
		_, state := callFirstRound(t, first)
		asked := time.Now()
		time.Sleep(time.Minute)
		if got := answers(second, state); strings.HasPrefix(got, "!") {
			t.Errorf("the first answers: got %s, want a result", got)
		}
		equal(t, "when the server asked", rounds.made.Unix(), asked.Unix())
		before := len(a.seen())
		equal(t, "the same answers at the other instance", answers(first, state),
			"!-32602 invalid or expired requestState: make the call again without it")
		_, state = callFirstRound(t, first)
		rounds.err = errors.New("no answer within 50ms")
		equal(t, "answers that cannot be remembered", answers(first, state),
			"!-31000 refused: shared state is not available, and the server did not get the "+
				"answers: make the call again later, without requestState")
		first.record.expect(t, "deny to_server request tools/call a x")
		equal(t, "number of calls that the server got after the first answers",
			len(a.seen())-before, 1)
	})
}

// denyMethods returns a stage that denies messages of the methods, and allows all other messages.
func denyMethods(methods ...string) pipeline.StageConfig {
	return pipeline.StageConfig{Name: "deny-methods",
		Stage: stage(func(m *mcp.Message) pipeline.Verdict {
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
		t.Errorf("the client was asked %s, want the elicitation only", raw)
	}
	got := mcp.NewResponse("1",
		[]byte(w.call(t, "tools/call", retryParams(state, "a__x", `{"b":1,"a":[1.0,{}]}`,
			`{"k":{"action":"accept"},"r":{"roots":[{"uri":"file:///forged"}]}}`))))
	if raw, _ := got.Get("/inputResponses/r"); string(raw) != `{"roots":[]}` {
		t.Errorf("the server got %s, want no roots", got.Body())
	}
	if raw, _ := got.Get("/inputResponses/k"); string(raw) != `{"action":"accept"}` {
		t.Errorf("the server got %s, want the client's answer to k", got.Body())
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
		`!-32603 server "a" is not available: the server asked for input too many times in one call`)
	equal(t, "number of calls that the server got", len(endless.seen()), 17)
}

// Without a requestState, Gatekit does not know the request that an input response answers.
func TestShapeOfInputResponseSelectsMethod(t *testing.T) {
	w := open(t, twoServers(&fakeServer{answer: echo}), nil)
	w.call(t, "tools/call", `{"name":"a__x","inputResponses":{"e":{"action":"accept"},"r":{"roots":[]},"s":{"role":"assistant"}}}`)
	w.record.expect(t, "pass to_server response elicitation/create a",
		"pass to_server response roots/list a", "pass to_server response sampling/createMessage a")
	got := w.call(t, "tools/call",
		`{"name":"a__x","inputResponses":{"e":{"action":"accept","roots":[]},"r":{"roots":[]},"x":{"data":1}}}`)
	equal(t, "input responses that fit two methods, one method and none", got,
		`{"name":"x","inputResponses":{"r":{"roots":[]}}}`)
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
	many := `"k`
	for i := range 65 {
		many += strings.Repeat("x", i) + `":{"method":"roots/list"},"k`
	}
	for _, c := range []struct{ name, result, want string }{
		{"a list", `{"resultType":"input_required","inputRequests":[{"method":"elicitation/create"}]}`, "inputRequests is not an object"},
		{"a string", `{"resultType":"input_required","inputRequests":"x"}`,
			"inputRequests is not an object"},
		{"null", `{"resultType":"input_required","inputRequests":null}`,
			"inputRequests is not an object"},
		{"a member that is no object", entry(`7`), "a member of inputRequests is not a request"},
		{"an empty member", entry(`{}`), "a member of inputRequests is not a request"},
		{"a member without a method", entry(`{"params":{}}`),
			"a member of inputRequests is not a request"},
		{"a member whose method is no string", entry(`{"method":1}`),
			"a member of inputRequests is not a request"},
		{"a member whose params are no object", entry(`{"method":"roots/list","params":[1]}`),
			"a member of inputRequests is not a request"},
		{"a member with a method and a Method",
			entry(`{"method":"roots/list","Method":"sampling/createMessage"}`),
			"a member of inputRequests is not a request"},
		{"params with a message and a Message",
			entry(`{"method":"elicitation/create","params":{"message":"a","Message":"b"}}`),
			"a member of inputRequests is not a request"},
		{"a response", entry(`{"result":{}}`),
			"a member of inputRequests is not a request"},
		{"an unknown method", entry(`{"method":"x/y"}`),
			`inputRequests contains a request that is not allowed: method not found: "x/y"`},
		{"a method of clients", entry(`{"method":"tools/call","params":{"name":"x"}}`),
			`inputRequests contains a request that servers may not send: "tools/call"`},
		{"a method that is not allowed in inputRequests", entry(`{"method":"tasks/list"}`),
			`inputRequests contains a request that servers may not send: "tasks/list"`},
		{"too many members", `{"resultType":"input_required","inputRequests":{` + many +
			`":{"method":"roots/list"}}}`, "the server asked for too much input at once"},
		{"a requestState that is too long", `{"resultType":"input_required","requestState":"` +
			strings.Repeat("x", 2<<20) + `"}`,
			"requestState is too long for a client to keep"},
		{"a result with the resultType complete", `{"resultType":"complete","inputRequests":` +
			elicitRequests + `}`, "inputRequests is in a result whose resultType is not " +
			"input_required"},
		{"a result without a resultType", `{"inputRequests":` + elicitRequests + `}`,
			"inputRequests is in a result whose resultType is not input_required"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, twoServers(serverAnswering(c.result)), func(o *proxy.Options) {
				o.Limits.InputRequests = 64
			})
			w.client.takesInputRequests = true
			equal(t, "answer", w.call(t, "tools/call", `{"name":"a__x"}`),
				`!-32603 server "a" is not available: `+c.want)
		})
	}
	t.Run("a result of tools/list", func(t *testing.T) {
		w := open(t, twoServers(serverAnswering(
			`{"resultType":"input_required","tools":[],"inputRequests":`+
				elicitRequests+`}`)), nil)
		w.client.takesInputRequests = true
		if got := w.call(t, "tools/list", `{}`); strings.Contains(got, "Name?") {
			t.Errorf("tools/list: got %s, want it without the input request", got)
		}
	})
}

func TestInvalidInputResponsesAreNotForwarded(t *testing.T) {
	many := `"k":{"action":"accept"}`
	for i := range 256 {
		many += `,"k` + strings.Repeat("x", i+1) + `":{"action":"accept"}`
	}
	for _, c := range []struct{ name, responses, want string }{
		{"a list", `[{"action":"accept"}]`, "inputResponses is no object"},
		{"a string", `"x"`, "inputResponses is no object"},
		{"null", `null`, "inputResponses is no object"},
		{"a member that is no object", `{"k":"accept"}`, `inputResponses: "k" is no answer`},
		{"a member that is null", `{"k":null}`, `inputResponses: "k" is no answer`},
		{"a member with an action and an Action",
			`{"k":{"action":"decline","Action":"accept"}}`, `inputResponses: "k" is no answer`},
		{"too many members", `{` + many + `}`, "inputResponses has more than 256 members"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &fakeServer{answer: asksForInput(elicitRequests)}
			w := open(t, twoServers(a), nil)
			w.client.takesInputRequests = true
			_, state := callFirstRound(t, w)
			equal(t, "with a requestState", w.call(t, "tools/call", retryParams(state,
				"a__x", `{"b":1,"a":[1.0,{}]}`, c.responses)), "!-32602 "+c.want)
			if got := w.call(t, "tools/call", `{"name":"a__x","inputResponses":`+c.responses+
				`}`); !strings.HasPrefix(got, "!-32602 "+c.want) {
				t.Errorf("without a requestState: got %s, want %s", got, c.want)
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
			t.Errorf("%q: the client was asked %s, want the elicitation only", key, raw)
		}
		got := mcp.NewResponse("1",
			[]byte(w.call(t, "tools/call", retryParams(state, "a__x", `{"b":1,"a":[1.0,{}]}`,
				`{"`+key+`":{"action":"accept"}}`))))
		if raw, _ := got.Get("/inputResponses"); string(raw) != `{"`+key+
			`":{"action":"accept"},"r/~":{"roots":[]}}` {
			t.Errorf("%q: the server got %s, want both answers", key, got.Body())
		}
	}
}

func TestLinksInInputRequestsAndResponsesArePrefixed(t *testing.T) {
	questions := `{"s":{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"resource_link","uri":"f:///x"}}]}}}`
	w := open(t, twoServers(&fakeServer{answer: asksForInput(questions)}), nil)
	w.client.takesInputRequests = true
	result, state := callFirstRound(t, w)
	if uri, _ := result.Text("/inputRequests/s/params/messages/0/content/uri"); uri != "a+f:///x" {
		t.Errorf("the client was asked %s, want the URI with its prefix", result.Body())
	}
	got := mcp.NewResponse("1",
		[]byte(w.call(t, "tools/call", retryParams(state, "a__x", `{"b":1,"a":[1.0,{}]}`,
			`{"s":{"role":"assistant","content":{"type":"resource_link","uri":"a+f:///y"}}}`))))
	if uri, _ := got.Text("/inputResponses/s/content/uri"); uri != "f:///y" {
		t.Errorf("the server got %s, want the URI without a prefix", got.Body())
	}
}

// Stages inspect the input requests first, and then the whole result. Here a stage edits an input
// request when it inspects the result.
func TestEditsOfResultWithInputRequestsAreKept(t *testing.T) {
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
		t.Errorf("the client was asked %s, want the edited message", result.Body())
	}
}

func TestInputRequestsOfTasksAreInspected(t *testing.T) {
	task := func(questions string) string {
		return `{"taskId":"t","status":"input_required","inputRequests":` + questions + `}`
	}
	asksInTask := func(questions string) *fakeServer {
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

	w := open(t, twoServers(asksInTask(elicitRequests)), nil)
	equal(t, "tasks/get", w.call(t, "tasks/get", `{"taskId":"a+t"}`), shown)
	w.call(t, "tools/call", `{"name":"a__x"}`)
	equal(t, "the client got", w.client.received(), []string{"notifications/tasks " + shown})
	w.record.expect(t, "pass to_client request elicitation/create a",
		"pass to_client response tasks/get a t",
		"pass to_client notification notifications/tasks a t")

	for name, questions := range map[string]string{"a denied request": elicitRequests,
		"a list": `[{"method":"elicitation/create"}]`, "a member that is no request": `{"k":7}`} {
		w = open(t, twoServers(asksInTask(questions)), nil, denyMethods("elicitation/create"))
		if got := w.call(t, "tasks/get", `{"taskId":"a+t"}`); !strings.HasPrefix(got, "!") {
			t.Errorf("%s: tasks/get: got %s, want an error", name, got)
		}
		w.call(t, "tools/call", `{"name":"a__x"}`)
		equal(t, name+": the client got", w.client.received(), []string{})
	}

	a := &fakeServer{answer: echo}
	w = open(t, twoServers(a), nil, denyMethods("elicitation/create"))
	equal(t, "tasks/update", w.call(t,
		"tasks/update", `{"taskId":"a+t","inputResponses":{"k":{"action":"accept","content":{}},"r":{"roots":[]}}}`), `{"taskId":"t","inputResponses":{"k":{"action":"decline"},"r":{"roots":[]}}}`)
	w.record.expect(t, "deny to_server response elicitation/create a",
		"pass to_server response roots/list a", "pass to_server request tasks/update a t")
}
