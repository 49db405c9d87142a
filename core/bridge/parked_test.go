package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/bridge"
	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/test/downstreamtest"
)

const askableMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{},"sampling":{}}}`

// parkCalls returns a function that sets Options.Parker to parked calls with the limits.
func parkCalls(limits bridge.ParkedCallLimits) func(*downstream.Options) {
	return func(o *downstream.Options) {
		o.Parker = bridge.NewParkedCalls(bridge.ParkedCallsOptions{Proxy: o.Proxy, Limits: limits})
	}
}

// run runs a test with a Gateway w in front of the server s. The Gateway parks calls.
func run(t *testing.T, s *downstreamtest.Server, limits bridge.ParkedCallLimits,
	test func(t *testing.T, w *downstreamtest.Gateway)) {
	t.Helper()
	downstreamtest.Run(t, s, downstream.Limits{}, test, parkCalls(limits))
}

// newGateway returns a Gateway that parks calls.
func newGateway(t *testing.T, s *downstreamtest.Server) *downstreamtest.Gateway {
	t.Helper()
	return downstreamtest.New(t, s, downstream.Limits{}, parkCalls(bridge.ParkedCallLimits{}))
}

// askingServer returns a server that sends elicitations during a tools/call, prompts/get or
// resources/read: one for each of the words, all at the same time. The result contains the answers
// in the order of the words. The server counts these requests in ran.
func askingServer(ran *atomic.Int32, words ...string) *downstreamtest.Server {
	return &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		switch m.Method {
		case "tools/call", "prompts/get", "resources/read":
		default:
			return `{"resultType":"complete"}`
		}
		ran.Add(1)
		answers := make([]string, len(words))
		done := make(chan struct{})
		for i, word := range words {
			go func() {
				defer func() { done <- struct{}{} }()
				q := mcp.NewRequest(mcp.ID(fmt.Sprintf("%d", i)), "elicitation/create",
					[]byte(`{"message":"`+word+`"}`))
				answers[i] = string(c.HandleRequests(ctx, []*mcp.Message{q})[0].Message().Body())
			}()
		}
		for range words {
			<-done
		}
		if ctx.Err() != nil {
			return ""
		}
		return `{"resultType":"complete","answers":[` + strings.Join(answers, ",") + `]}`
	}}
}

// inputRequired is a result that asks for input, or an error.
type inputRequired struct {
	Result struct {
		ResultType    string
		InputRequests map[string]struct {
			Method string
			Params struct{ Message string }
		}
		RequestState string
	}
	Error *struct{ Code int }
}

// toolCall returns a tools/call of a client that declares all capabilities for input. If state is
// not empty, the call contains the state as requestState, and the answers.
func toolCall(id any, arguments, state string, answers ...string) string {
	more := ""
	if state != "" {
		more = `"requestState":` + string(mcp.Quote(state)) + `,"inputResponses":{` +
			strings.Join(answers, ",") + `},`
	}
	return downstreamtest.Request(id, "tools/call", `{"name":"x","arguments":`+arguments+`,`+more+
		askableMeta+`}`)
}

// acceptAnswer returns a member of inputResponses. It accepts the elicitation that has the key.
func acceptAnswer(key string, n int) string {
	return fmt.Sprintf(`"%s":{"action":"accept","content":{"n":%d}}`, key, n)
}

// post sends a call over HTTP and returns the parts of the reply.
func post(t *testing.T, c *downstreamtest.HTTPClient,
	message string) (status string, a inputRequired, text string) {
	t.Helper()
	x := c.Begin(t, c.Endpoint.Post, message, "Mcp-Protocol-Version: 2026-07-28",
		"Mcp-Method: tools/call", "Mcp-Name: x")
	<-x.Done
	return parseAnswer(t, x.Text())
}

// parseAnswer parses a reply as HTTPExchange.Text returns it.
func parseAnswer(t *testing.T, answer string) (status string, a inputRequired, text string) {
	t.Helper()
	status, text, _ = strings.Cut(strings.TrimSuffix(answer, "\nEOF"), " ")
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	return status, a, text
}

func TestCallIsParkedWhileItsClientIsAsked(t *testing.T) {
	var ran atomic.Int32
	for _, over := range []string{"http", "a pipe"} {
		t.Run(over, func(t *testing.T) {
			ran.Store(0)
			run(t, askingServer(&ran, "who", "why"), bridge.ParkedCallLimits{}, func(t *testing.T,
				w *downstreamtest.Gateway) {
				var calls func(message string) (inputRequired, string)
				if over == "http" {
					c := w.HTTPClient("ann")
					calls = func(message string) (inputRequired, string) {
						_, a, text := post(t, c, message)
						return a, text
					}
				} else {
					l := w.Connect(t)
					defer l.Close(t)
					calls = func(message string) (inputRequired, string) {
						_, a, text := parseAnswer(t, "200 "+l.Ask(message))
						return a, text
					}
				}
				a, text := calls(toolCall(1, `{"n":1.0,"a":{}}`, ""))
				if len(a.Result.InputRequests) != 2 || a.Result.ResultType != "input_required" ||
					!strings.HasPrefix(
						text, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required"`) {
					t.Fatalf("the call was answered %s, want two questions", text)
				}
				words := []string{a.Result.InputRequests["g0"].Params.Message,
					a.Result.InputRequests["g1"].Params.Message}
				who := fmt.Sprintf("g%d", slices.Index(words, "who"))
				why := fmt.Sprintf("g%d", slices.Index(words, "why"))

				// The question why gets an answer of the wrong type, so it is asked again. The
				// arguments are the same JSON, with other spaces and in another order.
				b, text := calls(toolCall(2, `{ "a":{}, "n":1.0 }`, a.Result.RequestState,
					acceptAnswer(who, 1), `"`+why+`":{"roots":[]}`, acceptAnswer("g7", 7)))
				if len(b.Result.InputRequests) != 1 ||
					b.Result.InputRequests[why].Params.Message != "why" ||
					b.Result.RequestState == a.Result.RequestState {
					t.Fatalf("the call was answered %s, want one question with a new state", text)
				}
				_, text = calls(toolCall(3, `{"n":1.0,"a":{}}`, b.Result.RequestState,
					acceptAnswer(why, 2)))
				downstreamtest.Equal(t, "the answer", text,
					`{"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","answers":[{"action":"accept","content":{"n":1}},{"action":"accept","content":{"n":2}}]}}`)
				if n := ran.Load(); n != 1 {
					t.Errorf("the server ran the call %d times, want once", n)
				}
				w.Records.Contains(t, "pass to_client request elicitation/create")
				w.Records.Contains(t, "pass to_server response elicitation/create")
				w.Records.Contains(t, "park to_client response tools/call waiting for the "+
					"client's answers")
				w.Records.Contains(t, "resume to_server request tools/call the request brings "+
					"answers to a parked call")
			})
		})
	}
}

// TestPromptsAndReadsAreParked has a server ask during prompts/get and resources/read. The server
// gets the request once. The client gets the question, and then the answer to the request.
func TestPromptsAndReadsAreParked(t *testing.T) {
	for method, member := range map[string]string{"prompts/get": `"name":"x"`,
		"resources/read": `"uri":"f:///x"`} {
		t.Run(method, func(t *testing.T) {
			var ran atomic.Int32
			run(t, askingServer(&ran, "who"), bridge.ParkedCallLimits{}, func(t *testing.T,
				w *downstreamtest.Gateway) {
				l := w.Connect(t)
				defer l.Close(t)
				request := func(id int, more string) (inputRequired, string) {
					_, a, text := parseAnswer(t, "200 "+l.Ask(downstreamtest.Request(id, method,
						`{`+member+`,`+more+askableMeta+`}`)))
					return a, text
				}
				a, text := request(1, "")
				if len(a.Result.InputRequests) != 1 ||
					a.Result.InputRequests["g0"].Params.Message != "who" {
					t.Fatalf("the request was answered %s, want one question", text)
				}
				_, text = request(2, `"requestState":`+string(mcp.Quote(a.Result.RequestState))+
					`,"inputResponses":{`+acceptAnswer("g0", 1)+`},`)
				downstreamtest.Equal(t, "the answer", text, `{"jsonrpc":"2.0","id":2,"result":`+
					`{"resultType":"complete","answers":[{"action":"accept","content":{"n":1}}]}}`)
				if n := ran.Load(); n != 1 {
					t.Errorf("the server ran the request %d times, want once", n)
				}
				w.Records.Contains(t, "park to_client response "+method+
					" waiting for the client's answers")
				w.Records.Contains(t, "pass to_server response elicitation/create")
				w.Records.Contains(t, "resume to_server request "+method+
					" the request brings answers to a parked call")
			})
		})
	}
}

func TestRequestStateResumesOneCallOfOneClientOnce(t *testing.T) {
	flip := func(state string) string {
		b := []byte(state)
		b[len(b)/2] ^= 1
		return string(b)
	}
	for _, c := range []struct {
		name  string
		after time.Duration // how long after the question the state is used
		as    string        // the principal that uses the state
		call  func(state string) string
	}{
		{"used by another principal", 0, "bob", func(state string) string {
			return toolCall(2, `{"n":1}`, state, acceptAnswer("g0", 1))
		}},
		{"used with other arguments", 0, "ann", func(state string) string {
			return toolCall(2, `{"n":2}`, state, acceptAnswer("g0", 1))
		}},
		{"used with the argument 1.0 instead of 1", 0, "ann", func(state string) string {
			return toolCall(2, `{"n":1.0}`, state, acceptAnswer("g0", 1))
		}},
		{"with a flipped bit", 0, "ann", func(state string) string {
			return toolCall(2, `{"n":1}`, flip(state), acceptAnswer("g0", 1))
		}},
		{"cut short", 0, "ann", func(state string) string {
			return toolCall(2, `{"n":1}`, state[:len(state)-4], acceptAnswer("g0", 1))
		}},
		{"made up by the client", 0, "ann", func(string) string {
			return toolCall(2, `{"n":1}`, "gk1.AAAA", acceptAnswer("g0", 1))
		}},
		{"expired", 11 * time.Minute, "ann", func(state string) string {
			return toolCall(2, `{"n":1}`, state, acceptAnswer("g0", 1))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ran atomic.Int32
			run(t, askingServer(&ran, "who"), bridge.ParkedCallLimits{}, func(t *testing.T,
				w *downstreamtest.Gateway) {
				_, a, _ := post(t, w.HTTPClient("ann"), toolCall(1, `{"n":1}`, ""))
				time.Sleep(c.after)
				_, b, text := post(t, w.HTTPClient(c.as), c.call(a.Result.RequestState))
				if b.Error == nil || b.Error.Code != mcp.CodeInvalidParams || ran.Load() != 1 {
					t.Errorf("the request was answered %s and the call ran %d times, want invalid "+
						"params and one run", text, ran.Load())
				}
				if c.after > 0 {
					return
				}
				// The client that owns the call can still resume it.
				_, _, text = post(t, w.HTTPClient("ann"), toolCall(3, `{"n":1}`,
					a.Result.RequestState,
					acceptAnswer("g0", 5)))
				downstreamtest.Equal(t, "the answer", text,
					`{"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","answers":[{"action":"accept","content":{"n":5}}]}}`)
				_, b, text = post(t, w.HTTPClient("ann"), toolCall(4, `{"n":1}`,
					a.Result.RequestState,
					acceptAnswer("g0", 6)))
				if b.Error == nil || b.Error.Code != mcp.CodeInvalidParams || ran.Load() != 1 {
					t.Errorf("a replay was answered %s and the call ran %d times, want invalid "+
						"params and one run", text, ran.Load())
				}
			})
		})
	}
	t.Run("made by another instance", func(t *testing.T) {
		var ran atomic.Int32
		synctest.Test(t, func(t *testing.T) {
			here, there := newGateway(t, askingServer(&ran, "who")),
				newGateway(t, askingServer(&ran, "who"))
			_, a, _ := post(t, here.HTTPClient("ann"), toolCall(1, `{}`, ""))
			_, b, text := post(t, there.HTTPClient("ann"), toolCall(2, `{}`, a.Result.RequestState,
				acceptAnswer("g0", 1)))
			if b.Error == nil || b.Error.Code != mcp.CodeInvalidParams || ran.Load() != 1 {
				t.Errorf("the request was answered %s and the call ran %d times, want invalid "+
					"params and one run", text, ran.Load())
			}
			here.Close(t)
			there.Close(t)
		})
	})
}

func TestParkedCallIsAbandonedWhenItsClientDoesNotComeBack(t *testing.T) {
	answer := make(chan string, 1)
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		q := mcp.NewRequest("1", "elicitation/create", []byte(`{"message":"who"}`))
		answer <- string(c.HandleRequests(context.WithoutCancel(ctx),
			[]*mcp.Message{q})[0].Message().Body())
		return "" // waits until the call is cancelled
	}}
	run(t, s, bridge.ParkedCallLimits{Wait: time.Minute}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		post(t, w.HTTPClient("ann"), toolCall(1, `{}`, ""))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		downstreamtest.Equal(t, "the answer to the server", <-answer, `{"action":"cancel"}`)
		w.Records.Contains(t, "pass to_server response elicitation/create")
		if seen := strings.Join(s.Received(), "\n"); !strings.Contains(seen,
			"ended tools/call: cancelled") {
			t.Errorf("the server saw\n%s\nwant its call cancelled", seen)
		}
	})
}

func TestSessionWithParkedCallsIsNotIdle(t *testing.T) {
	var ran atomic.Int32
	downstreamtest.Run(t, askingServer(&ran, "who"), downstream.Limits{SessionIdle: time.Minute,
		Sessions: 1},
		func(t *testing.T, w *downstreamtest.Gateway) {
			_, a, _ := post(t, w.HTTPClient("ann"), toolCall(1, `{}`, ""))
			time.Sleep(5 * time.Minute)
			if status, _, text := post(t, w.HTTPClient("bob"),
				toolCall(1, `{}`, "")); status != "503" {
				t.Errorf("a client beyond the limit was answered %s %s, want 503", status, text)
			}
			_, _, text := post(t, w.HTTPClient("ann"), toolCall(2, `{}`, a.Result.RequestState,
				acceptAnswer("g0", 1)))
			downstreamtest.Equal(t, "the answer", text,
				`{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","answers":[{"action":"accept","content":{"n":1}}]}}`)
			if status, _, text := post(t, w.HTTPClient("bob"),
				toolCall(1, `{}`, "")); status != "200" {
				t.Errorf("when the session was idle, the other client was answered %s %s, want 200",
					status, text)
			}
		}, parkCalls(bridge.ParkedCallLimits{}))
}

func TestParkedCallsAreBounded(t *testing.T) {
	var ran atomic.Int32
	run(t, askingServer(&ran, "who"), bridge.ParkedCallLimits{CallsPerPrincipal: 3, Calls: 4},
		func(t *testing.T, w *downstreamtest.Gateway) {
			for n, c := range []struct {
				principal string
				full      bool
			}{{"ann", false}, {"ann", false}, {"ann", false}, {"ann", true}, {"bob", false},
				{"bob", true}} {
				_, a, text := post(t, w.HTTPClient(c.principal), toolCall(n, `{}`, ""))
				if full := a.Error != nil && a.Error.Code == mcp.CodeInternalError; full != c.full {
					t.Errorf("call %d of %s was answered %s; want a refusal: %v", n, c.principal,
						text, c.full)
				}
			}
		})
}

// TestCallsWaitUntilTheyMayBeParked makes more calls at once than may be parked. Each call beyond
// the limit waits until an earlier call goes on, and every call is answered.
func TestCallsWaitUntilTheyMayBeParked(t *testing.T) {
	const calls, limit = 20, 3
	var ran atomic.Int32
	run(t, askingServer(&ran, "who"), bridge.ParkedCallLimits{CallsPerPrincipal: limit},
		func(t *testing.T, w *downstreamtest.Gateway) {
			c := w.HTTPClient("ann")
			asked := make(chan inputRequired, calls)
			for n := range calls {
				go func() {
					_, a, _ := post(t, c, toolCall(n, `{}`, ""))
					asked <- a
				}()
			}
			for ended := range calls {
				time.Sleep(time.Second) // longer than a call waits for further questions
				if n := len(asked); n != min(limit, calls-ended) {
					t.Fatalf("after %d calls: %d calls have asked, want %d", ended, n,
						min(limit, calls-ended))
				}
				a := <-asked
				if a.Error != nil || a.Result.ResultType != "input_required" {
					t.Fatalf("a call was answered %+v, want a question", a)
				}
				_, a, text := post(t, c, toolCall(calls+ended, `{}`, a.Result.RequestState,
					acceptAnswer("g0", ended)))
				if a.Error != nil || a.Result.ResultType != "complete" {
					t.Fatalf("a resumed call was answered %s, want its result", text)
				}
			}
		})
}

// TestCallsThatMayNotBeParkedAreRefused checks that a call waits no longer than the time-out of its
// server, and that a call of another principal does not wait.
func TestCallsThatMayNotBeParkedAreRefused(t *testing.T) {
	var ran atomic.Int32
	run(t, askingServer(&ran, "who"), bridge.ParkedCallLimits{CallsPerPrincipal: 1, Calls: 8},
		func(t *testing.T, w *downstreamtest.Gateway) {
			ann, bob := w.HTTPClient("ann"), w.HTTPClient("bob")
			if _, a, text := post(t, ann, toolCall(1, `{}`, "")); a.Error != nil {
				t.Fatalf("the first call was answered %s, want a question", text)
			}
			refused := make(chan time.Duration, 8)
			began := time.Now()
			for n := range 3 {
				go func() {
					if _, a, text := post(t, ann, toolCall(10+n, `{}`, "")); a.Error == nil {
						t.Errorf("a call above the limit was answered %s, want an error", text)
					}
					refused <- time.Since(began)
				}()
			}
			time.Sleep(time.Second)        // longer than a call waits for further questions
			if n := len(refused); n != 1 { // for one principal, a quarter of Calls may wait
				t.Errorf("%d of 3 calls were refused at once, want 1", n)
			}
			if _, a, text := post(t, bob, toolCall(1, `{}`, "")); a.Error != nil ||
				time.Since(began) > 2*time.Second {
				t.Errorf("after %v, a call of another principal was answered %s, want a question",
					time.Since(began), text)
			}
			<-refused
			for range 2 {
				if after := (<-refused).Round(time.Second); after != time.Minute {
					t.Errorf("a call was refused after %v, want the server's time-out of 1m", after)
				}
			}
		})
}

// TestCallWhoseQuestionIsWithdrawnGoesOn uses a server that cancels its question while the call
// waits until it may be parked. The server answers the call later than the call may wait.
func TestCallWhoseQuestionIsWithdrawnGoesOn(t *testing.T) {
	answer := func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		if m.TextEquals("/arguments/withdraw", "yes") {
			asking, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			c.HandleRequests(asking, []*mcp.Message{mcp.NewRequest("1", "elicitation/create",
				[]byte(`{"message":"who"}`))})
			time.Sleep(50 * time.Second)
			return `{"resultType":"complete"}`
		}
		c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "elicitation/create",
			[]byte(`{"message":"who"}`))})
		return `{"resultType":"complete"}`
	}
	run(t, &downstreamtest.Server{Answer: answer}, bridge.ParkedCallLimits{CallsPerPrincipal: 1},
		func(t *testing.T, w *downstreamtest.Gateway) {
			c := w.HTTPClient("ann")
			if _, a, text := post(t, c, toolCall(1, `{}`, "")); a.Error != nil {
				t.Fatalf("the first call was answered %s, want a question", text)
			}
			_, a, text := post(t, c, toolCall(2, `{"withdraw":"yes"}`, ""))
			if a.Error != nil || a.Result.ResultType != "complete" {
				t.Errorf("the call was answered %s, want its result", text)
			}
		})
}

func TestBytesOfParkedCallsAreBounded(t *testing.T) {
	var ran atomic.Int32
	run(t, askingServer(&ran, strings.Repeat("w", 3<<20)),
		bridge.ParkedCallLimits{CallsPerPrincipal: 100, Wait: 24 * time.Hour},
		func(t *testing.T, w *downstreamtest.Gateway) {
			kept := map[string]int{}
			for n := range 8 {
				for _, principal := range []string{"ann", "bob", "cid", "dan", "eve"} {
					if _, a, _ := post(t, w.HTTPClient(principal),
						toolCall(n, `{}`, "")); a.Error == nil {
						kept[principal]++
					}
				}
			}
			if kept["ann"] != 5 || kept["ann"]+kept["bob"]+kept["cid"]+kept["dan"]+
				kept["eve"] != 21 {
				t.Errorf("%v calls of 3 MiB were parked, want 5 of ann and 21 in all", kept)
			}
		})
}

func TestRoundsOfOneCallAreBounded(t *testing.T) {
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		for ctx.Err() == nil {
			c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
		}
		return ""
	}}
	run(t, s, bridge.ParkedCallLimits{Rounds: 3}, func(t *testing.T, w *downstreamtest.Gateway) {
		c := w.HTTPClient("ann")
		_, a, _ := post(t, c, toolCall(0, `{}`, ""))
		for n := range 3 {
			if _, ok := a.Result.InputRequests[fmt.Sprintf("g%d", n)]; !ok {
				t.Fatalf("round %d was answered %+v, want the question g%d", n, a, n)
			}
			_, a, _ = post(t, c, toolCall(n+1, `{}`, a.Result.RequestState,
				fmt.Sprintf(`"g%d":{"roots":[]}`, n)))
		}
		if a.Error == nil || a.Error.Code != mcp.CodeInternalError {
			t.Errorf("the request after the last round was answered %+v, want an internal error", a)
		}
	})
}

func TestCancellingTheWaitingRequestCancelsTheCall(t *testing.T) {
	for _, c := range []struct {
		name   string
		parked bool
	}{{"the first request", false}, {"the request with the answers", true}} {
		t.Run(c.name, func(t *testing.T) {
			s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
				caller proxy.Handler) string {
				if c.parked {
					caller.HandleRequests(ctx,
						[]*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
				}
				return "" // waits until the call is cancelled
			}}
			run(t, s, bridge.ParkedCallLimits{}, func(t *testing.T, w *downstreamtest.Gateway) {
				l := w.Connect(t)
				state := ""
				if c.parked {
					_, a, _ := parseAnswer(t, "200 "+l.Ask(toolCall(1, `{}`, "")))
					state = a.Result.RequestState
				}
				l.Send(toolCall(`"again"`, `{}`, state, `"g0":{"roots":[]}`))
				synctest.Wait()
				l.Send(downstreamtest.Cancelled(`"again"`))
				synctest.Wait()
				if seen := strings.Join(s.Received(), "\n"); !strings.Contains(seen,
					"ended tools/call: cancelled") {
					t.Errorf("the server saw\n%s\nwant its call cancelled", seen)
				}
				select {
				case answer := <-l.Out:
					t.Errorf("the cancelled request was answered %s, want no answer", answer)
				default:
				}
				l.Close(t)
			})
		})
	}
}

func TestParkedCallIsAnsweredWithoutItsClient(t *testing.T) {
	proceed := make(chan struct{}) // closed when the call is parked
	for _, c := range []struct {
		name   string
		answer func(ctx context.Context, m *mcp.Message, c proxy.Handler) string
	}{
		{"the server withdraws its question", func(ctx context.Context, m *mcp.Message,
			c proxy.Handler) string {
			ask, cancel := context.WithCancel(ctx)
			go func() {
				<-proceed
				cancel()
			}()
			c.HandleRequests(ask, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
			return `{"n":1}`
		}},
		{"the server answers the call", func(ctx context.Context, m *mcp.Message,
			c proxy.Handler) string {
			go c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
			<-proceed
			return `{"n":1}`
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				proceed = make(chan struct{})
				w := newGateway(t, &downstreamtest.Server{Answer: c.answer})
				_, a, _ := post(t, w.HTTPClient("ann"), toolCall(1, `{}`, ""))
				close(proceed)
				synctest.Wait()
				_, _, text := post(t, w.HTTPClient("ann"), toolCall(2, `{}`, a.Result.RequestState,
					`"g0":{"roots":[]}`))
				downstreamtest.Equal(t, "the answer", text,
					`{"jsonrpc":"2.0","id":2,"result":{"n":1}}`)
				w.Close(t)
			})
		})
	}
}

func TestProgressIsSentToTheWaitingRequest(t *testing.T) {
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		report := func(n int) {
			c.HandleNotification(ctx, mcp.NewNotification("notifications/progress",
				fmt.Appendf(nil, `{"progressToken":"first","progress":%d}`, n)))
		}
		report(1)
		c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
		report(2)
		return `{"n":1}`
	}}
	run(t, s, bridge.ParkedCallLimits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		l := w.Connect(t)
		with := func(call, token string) string {
			return strings.Replace(call, `"_meta":{`, `"_meta":{"progressToken":"`+token+`",`, 1)
		}
		downstreamtest.ContainsText(t, "before the question", l.Ask(with(toolCall(1, `{}`, ""), "first")),
			`{"progressToken":"first","progress":1}`)
		_, a, _ := parseAnswer(t, "200 "+<-l.Out)
		downstreamtest.ContainsText(t, "after the question", l.Ask(with(toolCall(2, `{}`, a.Result.RequestState,
			`"g0":{"roots":[]}`),
			"second")), `{"progressToken":"second","progress":2}`)
		downstreamtest.ContainsText(t, "the answer", <-l.Out, `"id":2,"result":{"n":1}`)
		l.Close(t)
	})
}

func TestRequestStateIsRefusedOnAnotherConnection(t *testing.T) {
	var ran atomic.Int32
	run(t, askingServer(&ran, "who"), bridge.ParkedCallLimits{}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		mine, other := w.Connect(t), w.Connect(t)
		_, a, _ := parseAnswer(t, "200 "+mine.Ask(toolCall(1, `{}`, "")))
		_, b, text := parseAnswer(t, "200 "+other.Ask(toolCall(2, `{}`, a.Result.RequestState,
			acceptAnswer("g0", 1))))
		if b.Error == nil || b.Error.Code != mcp.CodeInvalidParams {
			t.Errorf("the other connection was answered %s, want invalid params", text)
		}
		_, _, text = parseAnswer(t, "200 "+mine.Ask(toolCall(3, `{}`, a.Result.RequestState,
			acceptAnswer("g0", 1))))
		downstreamtest.ContainsText(t, "the answer to the first connection", text, `"id":3,"result":{"resultType":"complete"`)
		mine.Close(t)
		other.Close(t)
	})
}

func TestCallWithAnIDInFlightIsRefused(t *testing.T) {
	s := &downstreamtest.Server{Answer: func(context.Context, *mcp.Message, proxy.Handler) string {
		return ""
	}}
	run(t, s, bridge.ParkedCallLimits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		l := w.Connect(t)
		l.Send(toolCall(1, `{}`, ""))
		synctest.Wait()
		downstreamtest.ContainsText(t, "the answer to the second call", l.Ask(toolCall(1, `{}`, "")),
			`"id":1,"error":{"code":-32600,"message":"a request with this id is in flight"}`)
		l.Send(downstreamtest.Cancelled(1))
		synctest.Wait()
		if n := strings.Count(strings.Join(s.Received(), "\n"), "ended tools/call"); n != 1 {
			t.Errorf("%d calls were cancelled, want 1", n)
		}
		l.Close(t)
	})
}

func TestCancelledCallIsNotAnsweredWithAQuestion(t *testing.T) {
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		go c.HandleRequests(context.WithoutCancel(ctx),
			[]*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
		return "" // waits until the call is cancelled
	}}
	run(t, s, bridge.ParkedCallLimits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		l := w.Connect(t)
		l.Send(toolCall(1, `{}`, ""), downstreamtest.Cancelled(1))
		time.Sleep(time.Second)
		select {
		case answer := <-l.Out:
			t.Errorf("the cancelled call was answered %s, want no answer", answer)
		default:
		}
		l.Close(t)
	})
}

// TestQuestionWithoutAValidAnswerIsAskedAgain resumes a call without an answer to its question, and
// then with an answer of the wrong type.
func TestQuestionWithoutAValidAnswerIsAskedAgain(t *testing.T) {
	var ran atomic.Int32
	run(t, askingServer(&ran, "who"), bridge.ParkedCallLimits{}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		c := w.HTTPClient("ann")
		_, a, _ := post(t, c, toolCall(1, `{}`, ""))
		for n, answer := range []string{`"g7":{}`, `"g0":{"roots":[]}`} {
			var text string
			_, a, text = post(t, c, toolCall(2+n, `{}`, a.Result.RequestState, answer))
			if a.Result.InputRequests["g0"].Params.Message != "who" {
				t.Fatalf("after the answers %s, the client got %s, want the question again", answer,
					text)
			}
		}
		_, _, text := post(t, c, toolCall(4, `{}`, a.Result.RequestState, acceptAnswer("g0", 1)))
		downstreamtest.ContainsText(t, "the answer", text, `"resultType":"complete"`)
	})
}

// TestQuestionThatIsOpenAtTheEndOfTheCall uses a server that answers a call at once, and that asks
// a question which does not end with the call. The client gets the question first, and then the
// answer to its call.
func TestQuestionThatIsOpenAtTheEndOfTheCall(t *testing.T) {
	got := make(chan string, 1)
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		go func() {
			q := mcp.NewRequest("1", "roots/list", nil)
			answers := c.HandleRequests(context.WithoutCancel(ctx), []*mcp.Message{q})
			got <- string(answers[0].Message().Body())
		}()
		synctest.Wait() // until the call waits for further questions
		return `{"n":1}`
	}}
	run(t, s, bridge.ParkedCallLimits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		c := w.HTTPClient("ann")
		_, a, text := post(t, c, toolCall(1, `{}`, ""))
		if a.Result.InputRequests["g0"].Method != "roots/list" {
			t.Fatalf("the call was answered %s, want the question", text)
		}
		_, _, text = post(t, c, toolCall(2, `{}`, a.Result.RequestState, `"g0":{"roots":[]}`))
		downstreamtest.Equal(t, "the answer to the call", text,
			`{"jsonrpc":"2.0","id":2,"result":{"n":1}}`)
		downstreamtest.Equal(t, "the answer to the question", <-got, `{"roots":[]}`)
	})
}

// TestServerSeesWhetherTheClientWaits checks the result of IsWaiting before a call is parked, while
// it is parked, and after it is resumed.
func TestServerSeesWhetherTheClientWaits(t *testing.T) {
	var before, parked, after bool
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		before = c.IsWaiting()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
		}()
		time.Sleep(time.Second)
		parked = c.IsWaiting()
		<-answered
		after = c.IsWaiting()
		return `{"n":1}`
	}}
	run(t, s, bridge.ParkedCallLimits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		c := w.HTTPClient("ann")
		_, a, _ := post(t, c, toolCall(1, `{}`, ""))
		time.Sleep(2 * time.Second)
		post(t, c, toolCall(2, `{}`, a.Result.RequestState, `"g0":{"roots":[]}`))
		if !before || parked || !after {
			t.Errorf("the client waits before the question: %v, while parked: %v, after the "+
				"answer: %v; want true, false, true", before, parked, after)
		}
	})
}

func TestEndOfASessionEndsOnlyItsParkedCalls(t *testing.T) {
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		q := mcp.NewRequest("1", "roots/list", nil)
		if a := c.HandleRequests(ctx, []*mcp.Message{q})[0].Message(); a != nil &&
			a.Kind == mcp.Response {
			return `{"n":1}`
		}
		return "" // waits until the call is cancelled
	}}
	run(t, s, bridge.ParkedCallLimits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		ending, other := w.Connect(t), w.Connect(t)
		ending.Ask(toolCall(1, `{}`, ""))
		_, a, _ := parseAnswer(t, "200 "+other.Ask(toolCall(1, `{}`, "")))
		ending.Close(t)
		synctest.Wait()
		if n := strings.Count(strings.Join(s.Received(), "\n"), "ended tools/call"); n != 1 {
			t.Errorf("%d calls have been cancelled, want 1", n)
		}
		downstreamtest.ContainsText(t, "the answer to the other session",
			other.Ask(toolCall(2, `{}`, a.Result.RequestState, `"g0":{"roots":[]}`)),
			`"id":2,"result":{"n":1}`)
		other.Close(t)
	})
}

// sizedServer returns a server that sends one elicitation during a tools/call. The argument mib of
// the call is the size of the elicitation in MiB.
func sizedServer() *downstreamtest.Server {
	return &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		var arguments struct{ MiB int }
		if raw, _ := m.Get("/arguments"); json.Unmarshal(raw, &arguments) != nil {
			return `{}`
		}
		q := mcp.NewRequest("1", "elicitation/create",
			[]byte(`{"message":"`+strings.Repeat("w", arguments.MiB<<20)+`"}`))
		c.HandleRequests(ctx, []*mcp.Message{q})
		if ctx.Err() != nil {
			return ""
		}
		return `{"resultType":"complete"}`
	}}
}

func callOfSize(id, mib int, state string, answers ...string) string {
	return toolCall(id, fmt.Sprintf(`{"mib":%d}`, mib), state, answers...)
}

// TestResumedCallsMakeRoom resumes calls, so that further calls can be parked. If all these calls
// were parked at the same time, they would exceed the bounds.
func TestResumedCallsMakeRoom(t *testing.T) {
	run(t, sizedServer(), bridge.ParkedCallLimits{Calls: 2}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		c := w.HTTPClient("ann")
		if _, a, text := post(t, c, callOfSize(1, 7, "")); a.Error != nil {
			t.Fatalf("the first call was answered %.100s, want a question", text)
		}
		for n := range 6 {
			_, a, text := post(t, c, callOfSize(2, 7, ""))
			if a.Error != nil {
				t.Fatalf("call %d was answered %.100s, want a question", n, text)
			}
			_, a, text = post(t, c, callOfSize(3, 7, a.Result.RequestState, acceptAnswer("g0", 1)))
			if a.Result.ResultType != "complete" {
				t.Fatalf("call %d was answered %.100s, want its result", n, text)
			}
		}
	})
}

// TestBoundsOfParkedAndWaitingCalls makes calls one after the other. A call is parked, waits until
// it may be parked, or is refused at once.
func TestBoundsOfParkedAndWaitingCalls(t *testing.T) {
	const parked, waits, refused = "parked", "waits", "refused"
	type call struct {
		principal string
		mib       int
		want      string
	}
	for _, c := range []struct {
		name   string
		limits bridge.ParkedCallLimits
		calls  []call
	}{
		{"bytes of one principal's parked calls", bridge.ParkedCallLimits{}, []call{
			{"ann", 10, parked}, {"ann", 10, waits},
			{"ann", 0, waits}, // it does not overtake the waiting call of ann
			{"bob", 0, parked}}},
		{"a principal's only parked call may be larger than the bound", bridge.ParkedCallLimits{},
			[]call{{"ann", 17, parked}, {"ann", 0, waits}}},
		{"bytes of one principal's waiting calls", bridge.ParkedCallLimits{CallsPerPrincipal: 1},
			[]call{{"ann", 0, parked}, {"ann", 10, waits}, {"ann", 10, refused}}},
		{"a principal's only waiting call may be larger than the bound",
			bridge.ParkedCallLimits{CallsPerPrincipal: 1},
			[]call{{"ann", 0, parked}, {"ann", 17, waits}, {"ann", 0, refused}}},
		{"number of all waiting calls", bridge.ParkedCallLimits{Calls: 2, CallsPerPrincipal: 1},
			[]call{{"ann", 0, parked}, {"bob", 0, parked}, {"ann", 0, waits}, {"bob", 0, waits},
				{"cid", 0, refused}}},
		{"bytes of all waiting calls", bridge.ParkedCallLimits{Calls: 3}, []call{
			{"ann", 0, parked}, {"ann", 0, parked}, {"ann", 0, parked}, {"bob", 30, waits},
			{"cid", 30, waits}, {"dan", 30, refused}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, sizedServer(), c.limits, func(t *testing.T, w *downstreamtest.Gateway) {
				for n, call := range c.calls {
					answers := make(chan inputRequired, 1)
					go func() {
						client := w.HTTPClient(call.principal)
						_, a, _ := post(t, client, callOfSize(n, call.mib, ""))
						answers <- a
					}()
					time.Sleep(time.Second) // longer than a call waits for further questions
					got := waits
					select {
					case a := <-answers:
						if got = parked; a.Error != nil {
							got = refused
						}
					default:
					}
					if got != call.want {
						t.Errorf("call %d of %s with %d MiB: %s, want %s", n, call.principal,
							call.mib, got, call.want)
					}
				}
				time.Sleep(2 * time.Minute) // until the waiting calls are refused
			})
		})
	}
}

// TestCallsAreParkedInOrder makes calls of which some wait until they may be parked. When a parked
// call is resumed, the next call that is parked is the one that has waited longest. A call that is
// too large for now holds back the later calls of its principal, but no other calls.
func TestCallsAreParkedInOrder(t *testing.T) {
	type call struct {
		name, principal string
		mib             int
	}
	type step struct {
		resumed string // the call that the client resumes; "" before the first
		parked  string // the names of the calls that are parked then
	}
	for _, c := range []struct {
		name   string
		limits bridge.ParkedCallLimits
		calls  []call
		steps  []step
	}{
		{"calls of one principal", bridge.ParkedCallLimits{CallsPerPrincipal: 1},
			[]call{{"a", "ann", 0}, {"b", "ann", 0}, {"c", "ann", 0}, {"d", "ann", 0}},
			[]step{{"", "a"}, {"a", "b"}, {"b", "c"}, {"c", "d"}}},
		{"calls of several principals", bridge.ParkedCallLimits{Calls: 2, CallsPerPrincipal: 2},
			[]call{{"a", "ann", 0}, {"b", "ann", 0}, {"c", "bob", 0}, {"d", "ann", 0}},
			[]step{{"", "ab"}, {"b", "c"}, {"a", "d"}}},
		{"a call that is too large", bridge.ParkedCallLimits{Calls: 3},
			[]call{{"a", "ann", 9}, {"b", "ann", 0}, {"c", "bob", 0}, {"d", "ann", 9},
				{"e", "ann", 0}, {"f", "bob", 0}},
			[]step{{"", "abc"}, {"b", "f"}, {"c", ""}, {"a", "de"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, sizedServer(), c.limits, func(t *testing.T, w *downstreamtest.Gateway) {
				resume := map[string]func(){} // resumes a parked call, by its name
				var mu sync.Mutex             // guards resume and parked
				parked := ""
				for n, call := range c.calls {
					client := w.HTTPClient(call.principal)
					go func() {
						_, a, _ := post(t, client, callOfSize(n, call.mib, ""))
						if a.Error != nil {
							return // the call was not parked in time
						}
						mu.Lock()
						defer mu.Unlock()
						parked += call.name
						resume[call.name] = func() {
							post(t, client, callOfSize(100+n, call.mib, a.Result.RequestState,
								acceptAnswer("g0", 1)))
						}
					}()
					time.Sleep(time.Second) // longer than a call waits for further questions
				}
				for _, step := range c.steps {
					if step.resumed != "" {
						mu.Lock()
						f := resume[step.resumed]
						mu.Unlock()
						f()
					}
					time.Sleep(time.Second)
					mu.Lock()
					names := []byte(parked)
					parked = ""
					mu.Unlock()
					if slices.Sort(names); string(names) != step.parked {
						t.Errorf("after call %q went on, the calls %q were parked, want %q",
							step.resumed, names, step.parked)
						break
					}
				}
				time.Sleep(2 * time.Minute) // until the waiting calls are refused
			})
		})
	}
}
