package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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

// run runs a test on a Gateway that parks calls.
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

// askingServer returns a server that sends elicitations during a tools/call: one for each of the
// words, all at the same time. Its result holds the answers, in the order of the words. ran counts
// the calls.
func askingServer(ran *atomic.Int32, words ...string) *downstreamtest.Server {
	return &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		if m.Method != "tools/call" {
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

// toolCall returns a tools/call of a client that declares all capabilities for input. With a state,
// the call carries the answers.
func toolCall(id any, arguments, state string, answers ...string) string {
	more := ""
	if state != "" {
		more = `"requestState":` + string(mcp.Quote(state)) + `,"inputResponses":{` +
			strings.Join(answers, ",") + `},`
	}
	return downstreamtest.Request(id, "tools/call", `{"name":"x","arguments":`+arguments+`,`+more+
		askableMeta+`}`)
}

// acceptAnswer returns the member of inputResponses that accepts the elicitation with that key.
func acceptAnswer(key string, n int) string {
	return fmt.Sprintf(`"%s":{"action":"accept","content":{"n":%d}}`, key, n)
}

// post sends a call over HTTP and returns the parts of its reply.
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
	status, text, _ = strings.Cut(answer, " ")
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

				// One question gets an answer of the wrong type, so it is asked again. The
				// arguments are the same in another notation.
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
					t.Errorf("the call was run %d times, want once", n)
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

func TestRequestStateResumesOneCallOfOneClientOnce(t *testing.T) {
	flip := func(state string) string {
		b := []byte(state)
		b[len(b)/2] ^= 1
		return string(b)
	}
	for _, c := range []struct {
		name  string
		after time.Duration
		as    string // principal
		call  func(state string) string
	}{
		{"of another principal", 0, "bob", func(state string) string {
			return toolCall(2, `{"n":1}`, state, acceptAnswer("g0", 1))
		}},
		{"of other arguments", 0, "ann", func(state string) string {
			return toolCall(2, `{"n":2}`, state, acceptAnswer("g0", 1))
		}},
		{"of arguments that are another number", 0, "ann", func(state string) string {
			return toolCall(2, `{"n":1.0}`, state, acceptAnswer("g0", 1))
		}},
		{"with a flipped bit", 0, "ann", func(state string) string {
			return toolCall(2, `{"n":1}`, flip(state), acceptAnswer("g0", 1))
		}},
		{"cut short", 0, "ann", func(state string) string {
			return toolCall(2, `{"n":1}`, state[:len(state)-4], acceptAnswer("g0", 1))
		}},
		{"of no call", 0, "ann", func(string) string {
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
					t.Errorf("answered %s, run %d times, want invalid params and one run", text,
						ran.Load())
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
					t.Errorf("a replay was answered %s, run %d times, want invalid params "+
						"and one run", text, ran.Load())
				}
			})
		})
	}
	t.Run("of another instance", func(t *testing.T) {
		var ran atomic.Int32
		synctest.Test(t, func(t *testing.T) {
			here, there := newGateway(t, askingServer(&ran, "who")),
				newGateway(t, askingServer(&ran, "who"))
			_, a, _ := post(t, here.HTTPClient("ann"), toolCall(1, `{}`, ""))
			_, b, text := post(t, there.HTTPClient("ann"), toolCall(2, `{}`, a.Result.RequestState,
				acceptAnswer("g0", 1)))
			if b.Error == nil || b.Error.Code != mcp.CodeInvalidParams || ran.Load() != 1 {
				t.Errorf("answered %s, run %d times, want invalid params and one run", text,
					ran.Load())
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
		return "" // until it is cancelled
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
					t.Errorf("call %d of %s was answered %s, want it refused: %v", n, c.principal,
						text, c.full)
				}
			}
		})
}

func TestBytesOfParkedCallsAreBounded(t *testing.T) {
	var ran atomic.Int32
	run(t, askingServer(&ran, strings.Repeat("w", 3<<20)),
		bridge.ParkedCallLimits{CallsPerPrincipal: 100},
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
				t.Errorf("parked calls of 3 MiB: %v, want 5 of ann and 21 in all", kept)
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
			if a.Result.ResultType != "input_required" {
				t.Fatalf("round %d was answered %+v, want a question", n, a)
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
				return "" // until it is cancelled
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
	withdraw := make(chan struct{})
	for _, c := range []struct {
		name   string
		answer func(ctx context.Context, m *mcp.Message, c proxy.Handler) string
	}{
		{"the server withdraws its question", func(ctx context.Context, m *mcp.Message,
			c proxy.Handler) string {
			ask, cancel := context.WithCancel(ctx)
			go func() {
				<-withdraw
				cancel()
			}()
			c.HandleRequests(ask, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
			return `{"n":1}`
		}},
		{"the call is answered", func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
			go c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
			<-withdraw
			return `{"n":1}`
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				withdraw = make(chan struct{})
				w := newGateway(t, &downstreamtest.Server{Answer: c.answer})
				_, a, _ := post(t, w.HTTPClient("ann"), toolCall(1, `{}`, ""))
				close(withdraw)
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
		downstreamtest.ContainsText(t, "before", l.Ask(with(toolCall(1, `{}`, ""), "first")),
			`{"progressToken":"first","progress":1}`)
		_, a, _ := parseAnswer(t, "200 "+<-l.Out)
		downstreamtest.ContainsText(t, "after", l.Ask(with(toolCall(2, `{}`, a.Result.RequestState,
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
		downstreamtest.ContainsText(t, "mine", text, `"id":3,"result":{"resultType":"complete"`)
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
		downstreamtest.ContainsText(t, "the second", l.Ask(toolCall(1, `{}`, "")),
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
		return "" // until it is cancelled
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
