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

// inRounds asks for input until it gets its own state back, then answers what it got.
func inRounds(questions string) func(context.Context, *mcp.Message, proxy.Caller) string {
	return func(_ context.Context, m *mcp.Message, _ proxy.Caller) string {
		if _, ok := m.Get("/inputResponses"); ok {
			return string(m.Body())
		}
		return `{"resultType":"input_required","inputRequests":` + questions + `,"requestState":"mine\u0021"}`
	}
}

func twoServers(a *server) map[string]*server {
	return map[string]*server{"a": a, "b": {answer: echo}}
}

// first makes the first round of a call and answers what the client got, and the state that it is to bring back.
func first(t *testing.T, w *world) (result *mcp.Message, state string) {
	t.Helper()
	result = mcp.NewResponse("7", []byte(w.call(t, "tools/call", `{"name":"a__x","arguments":{"b":1,"a":[1.0,{}]}}`)))
	state, _ = result.Text("/requestState")
	return result, state
}

func retry(state, name, arguments, responses string) string {
	return `{"name":"` + name + `","arguments":` + arguments + `,"inputResponses":` + responses + `,"requestState":"` + state + `"}`
}

const elicit = `{"k":{"method":"elicitation/create","params":{"message":"Name?","requestedSchema":{}}}}`

func TestARoundPassesThroughAndIsSealed(t *testing.T) {
	a := &server{answer: inRounds(elicit)}
	w := open(t, twoServers(a), nil)
	w.client.rounds = true
	result, state := first(t, w)
	if raw, _ := result.Get("/inputRequests"); string(raw) != `{"k":{"method":"elicitation/create","params":{"message":"[a] Name?","requestedSchema":{}}}}` {
		t.Errorf("the client was asked %s", raw)
	}
	if !strings.HasPrefix(state, "gk1.") || strings.Contains(state, "mine") {
		t.Fatalf("the state is not sealed: %q", state)
	}
	w.record.has(t, "pass to_client request elicitation/create a", "pass to_client response tools/call a x")

	// The client re-encodes its arguments: other order, other blanks, the same meaning.
	got := w.call(t, "tools/call", retry(state, "a__x", `{"a": [1.0, { }], "b":1}`, `{"k":{"action":"accept"},"extra":{"action":"accept"}}`))
	equal(t, "the server got", got, `{"name":"x","arguments":{"a": [1.0, { }], "b":1},"inputResponses":{"k":{"action":"accept"}},"requestState":"mine\u0021"}`)
	w.record.has(t, "pass to_server response elicitation/create a")
}

func TestAStateIsGoodForOneRequestOfOnePrincipalOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, twoServers(&server{answer: inRounds(elicit)}), nil)
		w.client.rounds = true
		_, state := first(t, w)
		const arguments, yes = `{"b":1,"a":[1.0,{}]}`, `{"k":{"action":"accept"}}`
		flipped := state[:20] + string(state[20]^1) + state[21:]
		for name, params := range map[string]string{
			"another tool":          retry(state, "a__y", arguments, yes),
			"another server":        retry(state, "b__x", arguments, yes),
			"changed arguments":     retry(state, "a__x", `{"b":2,"a":[1.0,{}]}`, yes),
			"a number spelt anew":   retry(state, "a__x", `{"b":1,"a":[1,{}]}`, yes),
			"a flipped bit":         retry(flipped, "a__x", arguments, yes),
			"the server's own":      retry("mine!", "a__x", arguments, yes),
			"a state that is empty": retry("", "a__x", arguments, yes),
		} {
			equal(t, name, w.call(t, "tools/call", params), "!-32602 invalid or expired requestState: make the call again without one")
		}
		other := w.proxy.Open(proxy.Opening{Principal: "other"}, w.client)
		equal(t, "another principal", w.callAs(t, other, w.client, "1", "tools/call", retry(state, "a__x", arguments, yes)), "!-32602 invalid or expired requestState: make the call again without one")
		if got := w.call(t, "tools/call", retry(state, "a__x", arguments, yes)); strings.HasPrefix(got, "!") {
			t.Errorf("the right one: %s", got)
		}
		time.Sleep(11 * time.Minute)
		equal(t, "too late", w.call(t, "tools/call", retry(state, "a__x", arguments, yes)), "!-32602 invalid or expired requestState: make the call again without one")
	})
}

func TestAnotherInstanceWithTheSameKeyTakesTheNextRound(t *testing.T) {
	a := &server{answer: inRounds(elicit)}
	one, two := open(t, twoServers(a), nil), open(t, twoServers(a), nil)
	one.client.rounds, two.client.rounds = true, true
	_, state := first(t, one)
	got := two.call(t, "tools/call", retry(state, "a__x", `{"b":1,"a":[1.0,{}]}`, `{"k":{"action":"accept"}}`))
	if strings.HasPrefix(got, "!") {
		t.Errorf("next round: %s", got)
	}
}

func refusing(methods ...string) pipeline.Named {
	return pipeline.Named{Name: "no", Stage: stage(func(m *mcp.Message) pipeline.Verdict {
		for _, method := range methods {
			if m.Method == method {
				return pipeline.Verdict{}
			}
		}
		return pipeline.Verdict{Action: pipeline.Allow}
	})}
}

func TestARefusedQuestionIsDeclinedInTheClientsPlace(t *testing.T) {
	w := open(t, twoServers(&server{answer: inRounds(elicit)}), nil, refusing("elicitation/create"))
	w.client.rounds = true
	equal(t, "answer", w.call(t, "tools/call", `{"name":"a__x"}`), `{"name":"x","inputResponses":{"k":{"action":"decline"}},"requestState":"mine\u0021"}`)
}

func TestOfSeveralQuestionsOnlyTheRefusedOnesAreDeclined(t *testing.T) {
	questions := `{"k":{"method":"elicitation/create","params":{"message":"m"}},"r":{"method":"roots/list"}}`
	w := open(t, twoServers(&server{answer: inRounds(questions)}), nil, refusing("roots/list"))
	w.client.rounds = true
	result, state := first(t, w)
	if raw, _ := result.Get("/inputRequests"); string(raw) != `{"k":{"method":"elicitation/create","params":{"message":"[a] m"}}}` {
		t.Errorf("the client was asked %s", raw)
	}
	got := mcp.NewResponse("1", []byte(w.call(t, "tools/call", retry(state, "a__x", `{"b":1,"a":[1.0,{}]}`, `{"k":{"action":"accept"},"r":{"roots":[{"uri":"file:///forged"}]}}`))))
	if raw, _ := got.Get("/inputResponses/r"); string(raw) != `{"roots":[]}` {
		t.Errorf("roots: %s", got.Body())
	}
	if raw, _ := got.Get("/inputResponses/k"); string(raw) != `{"action":"accept"}` {
		t.Errorf("elicitation: %s", got.Body())
	}
}

func TestRefusedSamplingEndsTheCall(t *testing.T) {
	w := open(t, twoServers(&server{answer: inRounds(`{"s":{"method":"sampling/createMessage","params":{}}}`)}), nil, refusing("sampling/createMessage"))
	w.client.rounds = true
	equal(t, "answer", w.call(t, "tools/call", `{"name":"a__x"}`), "!-31000 refused by policy")
}

func TestAQuestionThatTheClientDidNotDeclareIsAnError(t *testing.T) {
	w := open(t, twoServers(&server{answer: inRounds(elicit)}), nil)
	w.client.rounds = true
	got := w.call(t, "tools/call", `{"name":"a__x","_meta":{"io.modelcontextprotocol/clientCapabilities":{"sampling":{}}}}`)
	equal(t, "answer", got, "!-32021 the client did not declare the capability elicitation")
}

func TestAServerThatNeverStopsAskingIsStopped(t *testing.T) {
	endless := &server{answer: func(context.Context, *mcp.Message, proxy.Caller) string {
		return `{"resultType":"input_required","inputRequests":` + elicit + `}`
	}}
	w := open(t, twoServers(endless), nil, refusing("elicitation/create"))
	w.client.rounds = true
	equal(t, "answer", w.call(t, "tools/call", `{"name":"a__x"}`), `!-32603 server "a" is not available: it asked for input too many times`)
	equal(t, "times it was called", len(endless.seen()), 17)
}

func TestAnswersWithoutAStateAreJudgedByTheirShape(t *testing.T) {
	w := open(t, twoServers(&server{answer: echo}), nil)
	w.call(t, "tools/call", `{"name":"a__x","inputResponses":{"e":{"action":"accept"},"r":{"roots":[]},"s":{"role":"assistant"}}}`)
	w.record.has(t, "pass to_server response elicitation/create a", "pass to_server response roots/list a", "pass to_server response sampling/createMessage a")
	got := w.call(t, "tools/call", `{"name":"a__x","inputResponses":{"e":{"action":"accept","roots":[]}}}`)
	equal(t, "a shape of two kinds", got, `!-32602 inputResponses: "e" is no answer to sampling, elicitation or roots`)
}
