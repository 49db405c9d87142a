package sessions

import (
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestSessionsWithALegacyServerAreBounded makes four parallel calls in which the server asks the
// client. With one further session, two calls run at a time, and the others wait. A client with
// other capabilities then takes the place of the only set of capabilities.
func TestSessionsWithALegacyServerAreBounded(t *testing.T) {
	const question = `{"method":"elicitation/create",` +
		`"params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}`
	g := harness.StartHTTP(t, harness.ScriptedServer("box")+
		"[limits]\nfurther_sessions = 1\ncapability_sets = 1\n")
	processes := func() int { return len(harness.ProcessesWith(g.Mark)) }
	wantProcesses := func(when string, want int) {
		t.Helper()
		ctx := harness.Context(t)
		for processes() != want {
			select {
			case <-ctx.Done():
				t.Fatalf("%s: %d server processes run, want %d", when, processes(), want)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	c := g.Connect(mcptest.Modern)
	asked := make(chan struct{}, 4)
	bothAsked := make(chan struct{}) // closed when two questions are open
	answer := sync.OnceFunc(func() { close(bothAsked) })
	t.Cleanup(answer)
	c.Answer["elicitation/create"] = func(mcptest.Message) string {
		asked <- struct{}{}
		<-bothAsked
		return `{"action":"accept","content":{}}`
	}
	harness.Handshake(t, c)
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			m, err := c.Tool(harness.Context(t), "box__ask", question)
			if err != nil || mcptest.Text(m.Result, "structuredContent", "result",
				"action") != "accept" {
				t.Errorf("got %s, %v; want the answer of the client", harness.Clip(m.Raw), err)
			}
		})
	}
	ctx := harness.Context(t)
	for range 2 {
		select {
		case <-asked:
		case <-ctx.Done():
			t.Fatal("the client was not asked two questions at once")
		}
	}
	wantProcesses("while two calls wait for the client", 2)
	answer()
	calls.Wait()
	wantProcesses("after all calls", 2)

	other := g.Connect(mcptest.Modern)
	other.Capabilities = `{"roots":{}}`
	harness.Request(t, other, "tools/call", `{"name":"box__echo","arguments":{}}`)
	wantProcesses("after a call with other capabilities", 1)
	g.WantRecords("to_client request elicitation/create box - pass",
		"to_server response elicitation/create box - pass",
		"to_client response tools/call box ask pass",
		"to_client response tools/call box echo pass")
}

// TestQuestionsOfOneResultAreBounded uses a modern server that asks two and three questions in one
// result, with a limit of two.
func TestQuestionsOfOneResultAreBounded(t *testing.T) {
	for _, revision := range []string{mcptest.Modern, "2025-11-25"} {
		t.Run("client of "+revision, func(t *testing.T) {
			g := harness.StartHTTP(t, harness.ScriptedServerOver(t, "box", mcptest.Modern, "stdio")+
				"[limits]\nreverse_requests = 2\n")
			c := g.Connect(revision)
			c.Answer["roots/list"] = func(mcptest.Message) string { return `{"roots":[]}` }
			harness.Handshake(t, c)
			question := func(key string) string { return `"` + key + `":{"method":"roots/list"}` }
			result := func(questions ...string) string {
				return `{"name":"box__result","arguments":{"result":` + string(mcptest.Quote(
					`{"resultType":"input_required","requestState":"s","inputRequests":{`+
						strings.Join(questions, ",")+`}}`)) + `}}`
			}
			// The server asks the same questions again and again, so that the call ends with an
			// error in any case. The text of the error shows the reason.
			for _, tt := range []struct{ params, want string }{
				{result(question("a"), question("b")), "too many times"},
				{result(question("a"), question("b"), question("c")), "too much input at once"},
			} {
				m, err := c.Call(harness.Context(t), "tools/call", tt.params)
				if text := mcptest.Text(m.Error, "message"); err != nil ||
					!strings.Contains(text, tt.want) {
					t.Errorf("got %s, %v; want an error with %q", harness.Clip(m.Raw), err, tt.want)
				}
			}
			g.WantRecords("to_client request roots/list box - pass",
				"to_client error tools/call box result answer")
		})
	}
}
