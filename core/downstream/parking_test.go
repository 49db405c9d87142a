package downstream_test

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

	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

const askableMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{},"sampling":{}}}`

// asking is a server that asks while it works: by elicitation of each of the words, all at once,
// and answers with what it was told.
func asking(ran *atomic.Int32, words ...string) *server {
	return &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		if m.Method != "tools/call" {
			return `{"resultType":"complete"}`
		}
		ran.Add(1)
		told := make([]string, len(words))
		done := make(chan struct{})
		for i, word := range words {
			go func() {
				defer func() { done <- struct{}{} }()
				q := mcp.NewRequest(mcp.ID(fmt.Sprintf("%d", i)), "elicitation/create",
					[]byte(`{"message":"`+word+`"}`))
				told[i] = string(c.HandleRequests(ctx, []*mcp.Message{q})[0].Message().Body())
			}()
		}
		for range words {
			<-done
		}
		if ctx.Err() != nil {
			return ""
		}
		return `{"resultType":"complete","told":[` + strings.Join(told, ",") + `]}`
	}}
}

// asks is a result that asks.
type asks struct {
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

// tool is a call of a tool by a client that can be asked, with answers, key by key, and a state
// where there are any.
func tool(id any, arguments, state string, answers ...string) string {
	more := ""
	if state != "" {
		more = `"requestState":` + string(mcp.Quote(state)) + `,"inputResponses":{` +
			strings.Join(answers, ",") + `},`
	}
	return request(id, "tools/call", `{"name":"x","arguments":`+arguments+`,`+more+askableMeta+`}`)
}

func accepts(key string, n int) string {
	return fmt.Sprintf(`"%s":{"action":"accept","content":{"n":%d}}`, key, n)
}

// calls sends a call over HTTP and answers what came back.
func (c *client) calls(t *testing.T, message string) (status string, a asks, text string) {
	t.Helper()
	x := c.begin(t, c.front.Post, message, "Mcp-Protocol-Version: 2026-07-28",
		"Mcp-Method: tools/call", "Mcp-Name: x")
	<-x.done
	return read(t, x.text())
}

func read(t *testing.T, answer string) (status string, a asks, text string) {
	t.Helper()
	status, text, _ = strings.Cut(answer, " ")
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	return status, a, text
}

func TestACallIsParkedWhileItsClientIsAsked(t *testing.T) {
	var ran atomic.Int32
	for _, over := range []string{"http", "a pipe"} {
		t.Run(over, func(t *testing.T) {
			ran.Store(0)
			inBubble(t, asking(&ran, "who", "why"), downstream.Limits{}, func(t *testing.T,
				w *world) {
				var calls func(message string) (asks, string)
				if over == "http" {
					c := w.client("ann")
					calls = func(message string) (asks, string) {
						_, a, text := c.calls(t, message)
						return a, text
					}
				} else {
					l := w.pipe(t)
					defer l.leave(t)
					calls = func(message string) (asks, string) {
						_, a, text := read(t, "200 "+l.ask(message))
						return a, text
					}
				}
				a, text := calls(tool(1, `{"n":1.0,"a":{}}`, ""))
				if len(a.Result.InputRequests) != 2 || a.Result.ResultType != "input_required" ||
					!strings.HasPrefix(
						text, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required"`) {
					t.Fatalf("answered %s", text)
				}
				words := []string{a.Result.InputRequests["g0"].Params.Message,
					a.Result.InputRequests["g1"].Params.Message}
				who := fmt.Sprintf("g%d", slices.Index(words, "who"))
				why := fmt.Sprintf("g%d", slices.Index(words, "why"))

				// Only one is answered, the other in a wrong shape; arguments are written in
				// another way.
				b, text := calls(tool(2, `{ "a":{}, "n":1.0 }`, a.Result.RequestState,
					accepts(who, 1), `"`+why+`":{"roots":[]}`, accepts("g7", 7)))
				if len(b.Result.InputRequests) != 1 ||
					b.Result.InputRequests[why].Params.Message != "why" ||
					b.Result.RequestState == a.Result.RequestState {
					t.Fatalf("answered %s", text)
				}
				_, text = calls(tool(3, `{"n":1.0,"a":{}}`, b.Result.RequestState, accepts(why, 2)))
				equal(t, "the answer", text,
					`{"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","told":[{"action":"accept","content":{"n":1}},{"action":"accept","content":{"n":2}}]}}`)
				if n := ran.Load(); n != 1 {
					t.Errorf("the call was run %d times", n)
				}
				w.record.has(t, "pass to_client request elicitation/create")
				w.record.has(t, "pass to_server response elicitation/create")
				w.record.has(t, "park to_client response tools/call it waits for what the "+
					"client answers")
				w.record.has(t, "resume to_server request tools/call it brings answers to a "+
					"call that waits for them")
			})
		})
	}
}

func TestARequestStateIsGoodForOneCallOfOneClientOnce(t *testing.T) {
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
			return tool(2, `{"n":1}`, state, accepts("g0", 1))
		}},
		{"of other arguments", 0, "ann", func(state string) string {
			return tool(2, `{"n":2}`, state, accepts("g0", 1))
		}},
		{"of arguments that are another number", 0, "ann", func(state string) string {
			return tool(2, `{"n":1.0}`, state, accepts("g0", 1))
		}},
		{"with a flipped bit", 0, "ann", func(state string) string {
			return tool(2, `{"n":1}`, flip(state), accepts("g0", 1))
		}},
		{"cut short", 0, "ann", func(state string) string {
			return tool(2, `{"n":1}`, state[:len(state)-4], accepts("g0", 1))
		}},
		{"of nobody", 0, "ann", func(string) string {
			return tool(2, `{"n":1}`, "gk1.AAAA", accepts("g0", 1))
		}},
		{"expired", 11 * time.Minute, "ann", func(state string) string {
			return tool(2, `{"n":1}`, state, accepts("g0", 1))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ran atomic.Int32
			inBubble(t, asking(&ran, "who"), downstream.Limits{}, func(t *testing.T, w *world) {
				_, a, _ := w.client("ann").calls(t, tool(1, `{"n":1}`, ""))
				time.Sleep(c.after)
				_, b, text := w.client(c.as).calls(t, c.call(a.Result.RequestState))
				if b.Error == nil || b.Error.Code != mcp.CodeInvalidParams || ran.Load() != 1 {
					t.Errorf("answered %s, run %d times", text, ran.Load())
				}
				if c.after > 0 {
					return
				}
				// The one whose it is still can.
				_, _, text = w.client("ann").calls(t, tool(3, `{"n":1}`, a.Result.RequestState,
					accepts("g0", 5)))
				equal(t, "the answer", text,
					`{"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","told":[{"action":"accept","content":{"n":5}}]}}`)
				_, b, text = w.client("ann").calls(t, tool(4, `{"n":1}`, a.Result.RequestState,
					accepts("g0", 6)))
				if b.Error == nil || b.Error.Code != mcp.CodeInvalidParams || ran.Load() != 1 {
					t.Errorf("a replay was answered %s, run %d times", text, ran.Load())
				}
			})
		})
	}
	t.Run("of another instance", func(t *testing.T) {
		var ran atomic.Int32
		synctest.Test(t, func(t *testing.T) {
			here, there := newWorld(t, asking(&ran, "who"), downstream.Limits{}),
				newWorld(t, asking(&ran, "who"), downstream.Limits{})
			_, a, _ := here.client("ann").calls(t, tool(1, `{}`, ""))
			_, b, text := there.client("ann").calls(t, tool(2, `{}`, a.Result.RequestState,
				accepts("g0", 1)))
			if b.Error == nil || b.Error.Code != mcp.CodeInvalidParams || ran.Load() != 1 {
				t.Errorf("answered %s, run %d times", text, ran.Load())
			}
			here.close(t)
			there.close(t)
		})
	})
}

func TestAParkedCallWhoseClientDoesNotComeBack(t *testing.T) {
	told := make(chan string, 1)
	s := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		q := mcp.NewRequest("1", "elicitation/create", []byte(`{"message":"who"}`))
		told <- string(c.HandleRequests(context.WithoutCancel(ctx),
			[]*mcp.Message{q})[0].Message().Body())
		return "" // until it is cancelled
	}}
	inBubble(t, s, downstream.Limits{ParkedFor: time.Minute}, func(t *testing.T, w *world) {
		w.client("ann").calls(t, tool(1, `{}`, ""))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		equal(t, "the server was told", <-told, `{"action":"cancel"}`)
		w.record.has(t, "pass to_server response elicitation/create")
		if seen := strings.Join(s.seen(), "\n"); !strings.Contains(seen,
			"ended tools/call: cancelled") {
			t.Errorf("the server saw\n%s", seen)
		}
	})
}

func TestAPrincipalWithParkedCallsIsNotIdle(t *testing.T) {
	var ran atomic.Int32
	inBubble(t, asking(&ran, "who"), downstream.Limits{SessionIdle: time.Minute, Sessions: 1},
		func(t *testing.T, w *world) {
			_, a, _ := w.client("ann").calls(t, tool(1, `{}`, ""))
			time.Sleep(5 * time.Minute)
			if status, _, text := w.client("bob").calls(t, tool(1, `{}`, "")); status != "503" {
				t.Errorf("another, for whom there is no room, was answered %s %s", status, text)
			}
			_, _, text := w.client("ann").calls(t, tool(2, `{}`, a.Result.RequestState,
				accepts("g0", 1)))
			equal(t, "the answer", text,
				`{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","told":[{"action":"accept","content":{"n":1}}]}}`)
			if status, _, text := w.client("bob").calls(t, tool(1, `{}`, "")); status != "200" {
				t.Errorf("another, when there is room, was answered %s %s", status, text)
			}
		})
}

func TestParkedCallsAreBounded(t *testing.T) {
	var ran atomic.Int32
	inBubble(t, asking(&ran, "who"), downstream.Limits{ParkedOfOne: 3, Parked: 4},
		func(t *testing.T, w *world) {
			for n, c := range []struct {
				principal string
				full      bool
			}{{"ann", false}, {"ann", false}, {"ann", false}, {"ann", true}, {"bob", false},
				{"bob", true}} {
				_, a, text := w.client(c.principal).calls(t, tool(n, `{}`, ""))
				if full := a.Error != nil && a.Error.Code == mcp.CodeInternalError; full != c.full {
					t.Errorf("call %d of %s was answered %s", n, c.principal, text)
				}
			}
		})
}

func TestTheBytesOfParkedCallsAreBounded(t *testing.T) {
	var ran atomic.Int32
	inBubble(t, asking(&ran, strings.Repeat("w", 3<<20)), downstream.Limits{ParkedOfOne: 100},
		func(t *testing.T, w *world) {
			kept := map[string]int{}
			for n := range 8 {
				for _, principal := range []string{"ann", "bob", "cid", "dan", "eve"} {
					if _, a, _ := w.client(principal).calls(t, tool(n, `{}`, "")); a.Error == nil {
						kept[principal]++
					}
				}
			}
			if kept["ann"] != 5 || kept["ann"]+kept["bob"]+kept["cid"]+kept["dan"]+
				kept["eve"] != 21 {
				t.Errorf("calls of 3 MiB are kept: %v, want 5 of one and 21 in all", kept)
			}
		})
}

func TestARoundTooMany(t *testing.T) {
	s := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		for ctx.Err() == nil {
			c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
		}
		return ""
	}}
	inBubble(t, s, downstream.Limits{Rounds: 3}, func(t *testing.T, w *world) {
		c := w.client("ann")
		_, a, _ := c.calls(t, tool(0, `{}`, ""))
		for n := range 3 {
			if a.Result.ResultType != "input_required" {
				t.Fatalf("round %d: %+v", n, a)
			}
			_, a, _ = c.calls(t, tool(n+1, `{}`, a.Result.RequestState,
				fmt.Sprintf(`"g%d":{"roots":[]}`, n)))
		}
		if a.Error == nil || a.Error.Code != mcp.CodeInternalError {
			t.Errorf("after the last round: %+v", a)
		}
	})
}

func TestACarrierIsCancelled(t *testing.T) {
	for _, c := range []struct {
		name   string
		parked bool
	}{{"the first request", false}, {"the one with the answers", true}} {
		t.Run(c.name, func(t *testing.T) {
			s := &server{answer: func(ctx context.Context, m *mcp.Message,
				caller proxy.Handler) string {
				if c.parked {
					caller.HandleRequests(ctx,
						[]*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
				}
				return "" // until it is cancelled
			}}
			inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
				l := w.pipe(t)
				state := ""
				if c.parked {
					_, a, _ := read(t, "200 "+l.ask(tool(1, `{}`, "")))
					state = a.Result.RequestState
				}
				l.send(tool(`"again"`, `{}`, state, `"g0":{"roots":[]}`))
				synctest.Wait()
				l.send(cancelled(`"again"`))
				synctest.Wait()
				if seen := strings.Join(s.seen(), "\n"); !strings.Contains(seen,
					"ended tools/call: cancelled") {
					t.Errorf("the server saw\n%s", seen)
				}
				select {
				case answer := <-l.out:
					t.Errorf("the cancelled request was answered %s", answer)
				default:
				}
				l.leave(t)
			})
		})
	}
}

func TestWhatHappensWhileACallIsParked(t *testing.T) {
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
				w := newWorld(t, &server{answer: c.answer}, downstream.Limits{})
				_, a, _ := w.client("ann").calls(t, tool(1, `{}`, ""))
				close(withdraw)
				synctest.Wait()
				_, _, text := w.client("ann").calls(t, tool(2, `{}`, a.Result.RequestState,
					`"g0":{"roots":[]}`))
				equal(t, "the answer", text, `{"jsonrpc":"2.0","id":2,"result":{"n":1}}`)
				w.close(t)
			})
		})
	}
}

func TestProgressGoesToTheRequestThatWaits(t *testing.T) {
	s := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		report := func(n int) {
			c.HandleNotification(ctx, mcp.NewNotification("notifications/progress",
				fmt.Appendf(nil, `{"progressToken":"first","progress":%d}`, n)))
		}
		report(1)
		c.HandleRequests(ctx, []*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
		report(2)
		return `{"n":1}`
	}}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		l := w.pipe(t)
		with := func(call, token string) string {
			return strings.Replace(call, `"_meta":{`, `"_meta":{"progressToken":"`+token+`",`, 1)
		}
		contains(t, "before", l.ask(with(tool(1, `{}`, ""), "first")),
			`{"progressToken":"first","progress":1}`)
		_, a, _ := read(t, "200 "+<-l.out)
		contains(t, "after", l.ask(with(tool(2, `{}`, a.Result.RequestState, `"g0":{"roots":[]}`),
			"second")), `{"progressToken":"second","progress":2}`)
		contains(t, "the answer", <-l.out, `"id":2,"result":{"n":1}`)
		l.leave(t)
	})
}

func TestARequestStateIsOfNoUseOnAnotherConnection(t *testing.T) {
	var ran atomic.Int32
	inBubble(t, asking(&ran, "who"), downstream.Limits{}, func(t *testing.T, w *world) {
		mine, other := w.pipe(t), w.pipe(t)
		_, a, _ := read(t, "200 "+mine.ask(tool(1, `{}`, "")))
		_, b, text := read(t, "200 "+other.ask(tool(2, `{}`, a.Result.RequestState,
			accepts("g0", 1))))
		if b.Error == nil || b.Error.Code != mcp.CodeInvalidParams {
			t.Errorf("answered %s", text)
		}
		_, _, text = read(t, "200 "+mine.ask(tool(3, `{}`, a.Result.RequestState,
			accepts("g0", 1))))
		contains(t, "mine", text, `"id":3,"result":{"resultType":"complete"`)
		mine.leave(t)
		other.leave(t)
	})
}

func TestACallUnderAnIDInFlightIsRefused(t *testing.T) {
	s := &server{answer: func(context.Context, *mcp.Message, proxy.Handler) string { return "" }}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		l := w.pipe(t)
		l.send(tool(1, `{}`, ""))
		synctest.Wait()
		contains(t, "the second", l.ask(tool(1, `{}`, "")),
			`"id":1,"error":{"code":-32600,"message":"a request with this id is in flight"}`)
		l.send(cancelled(1))
		synctest.Wait()
		if n := strings.Count(strings.Join(s.seen(), "\n"), "ended tools/call"); n != 1 {
			t.Errorf("%d calls were cancelled", n)
		}
		l.leave(t)
	})
}

func TestACancelledCallIsNotAnsweredWithAQuestion(t *testing.T) {
	s := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		go c.HandleRequests(context.WithoutCancel(ctx),
			[]*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})
		return "" // until it is cancelled
	}}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		l := w.pipe(t)
		l.send(tool(1, `{}`, ""), cancelled(1))
		time.Sleep(time.Second)
		select {
		case answer := <-l.out:
			t.Errorf("answered %s", answer)
		default:
		}
		l.leave(t)
	})
}
