package downstream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// inBubble runs a test on a world; when it returns, no goroutine may be left.
func inBubble(t *testing.T, s *server, limits downstream.Limits, test func(t *testing.T,
	w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s, limits)
		test(t, w)
		w.close(t)
	})
}

func TestWhatIsAnsweredWithoutAServer(t *testing.T) {
	const before, after = false, true
	for _, c := range []struct {
		name    string
		greeted bool
		send    string
		want    string
	}{
		{"a ping before initialize", before, `{"jsonrpc":"2.0","id":"p","method":"ping"}`,
			`{"jsonrpc":"2.0","id":"p","result":{}}`},
		{"a ping after it", after, `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
			`{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"a request before initialize", before, request(1, "tools/list", "{}"),
			`"id":1,"error":{"code":-32600,"message":"the session is not initialized: send initialize first"}`},
		{"initialize twice", after, request(1, "initialize", `{"protocolVersion":"2025-11-25"}`),
			`"id":1,"error":{"code":-32600,`},
		{"initialize without a version", before, request(1, "initialize", `{}`),
			`"id":1,"error":{"code":-32602,`},
		{"initialize with a version that is no string", before,
			request(1, "initialize", `{"protocolVersion":20251125}`),
			`"id":1,"error":{"code":-32602,`},
		{"initialize with the fields of an era without it", before,
			modern(1, "initialize", `"protocolVersion":"2025-11-25"`),
			`"id":1,"error":{"code":-32601,`},
		{"a method of an era that the session is not of", after, request(1, "tasks/update", "{}"),
			`"id":1,"error":{"code":-32601,`},
		{"a method that servers send", after, request(1, "roots/list", "{}"),
			`"id":1,"error":{"code":-32601,`},
		{"no JSON", before, `{"jsonrpc":`, `"id":null,"error":{"code":-32700,`},
		{"no request", before, `{"jsonrpc":"2.0","id":7,"method":7}`, `"error":{"code":-32600,`},
		{"an id that is no id", after, `{"jsonrpc":"2.0","id":true,"method":"ping"}`,
			`"id":null,"error":{"code":-32600,`},
		{"a duplicate name", after,
			`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`,
			`"error":{"code":-32600,`},
		{"a batch before initialize", before, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
			`"id":null,"error":{"code":-32600,`},
		{"a batch in a revision without", after, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
			`"id":null,"error":{"code":-32600,`},
		{"server/discover without its fields", before, request(1, "server/discover", "{}"),
			`"id":1,"error":{"code":-32602,`},
		{"a modern request without capabilities", before,
			request(1, "tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`), `"id":1,"error":{"code":-32602,`},
		{"a modern request of a legacy revision", before,
			request(1, "tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25","io.modelcontextprotocol/clientCapabilities":{}}}`),
			`"id":1,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2025-11-25"}}`},
		{"a modern request with a log level that is none", before,
			request(1, "tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"loud"}}`), `"id":1,"error":{"code":-32602,`},
		{"a modern ping", before, modern(1, "ping", ""), `"id":1,"error":{"code":-32601,`},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, &server{}, downstream.Limits{}, func(t *testing.T, w *world) {
				l := w.pipe(t)
				if c.greeted {
					l.initialize(mcp.Rev20251125)
				}
				contains(t, "answer", l.ask(c.send), c.want)
				contains(t, "the next one", l.ask(`{"jsonrpc":"2.0","id":2,"method":"ping"}`),
					`"id":2,"result":{}`)
				l.leave(t)
			})
		})
	}
}

func TestALineThatIsTooLongIsAnsweredAndTheNextOneIsServed(t *testing.T) {
	inBubble(t, &server{}, downstream.Limits{}, func(t *testing.T, w *world) {
		l := w.pipe(t)
		l.in <- nil
		contains(t, "answer", <-l.out,
			`"id":null,"error":{"code":-32700,"message":"message of 99 bytes is over the limit of 50"`)
		contains(t, "the next one", l.ask(`{"jsonrpc":"2.0","id":2,"method":"ping"}`),
			`"id":2,"result":{}`)
		l.leave(t)
	})
}

func TestTheRevisionIsTheServersAnswerToWhatTheClientAskedFor(t *testing.T) {
	for _, c := range []struct {
		name, ask, offer, answer string
	}{
		{"2024-11-05", "2024-11-05", "2024-11-05", `"protocolVersion":"2024-11-05"`},
		{"2025-03-26", "2025-03-26", "2025-03-26", `"protocolVersion":"2025-03-26"`},
		{"2025-11-25", "2025-11-25", "2025-11-25", `"protocolVersion":"2025-11-25"`},
		{"an old one that nobody knows", "2023-01-01", "2025-11-25",
			`"protocolVersion":"2025-11-25"`},
		{"a modern one", "2026-07-28", "2025-11-25", `"protocolVersion":"2025-11-25"`},
		{"no date", "draft", "2025-11-25", `"protocolVersion":"2025-11-25"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &server{}
			inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
				l := w.pipe(t)
				contains(t, "answer", l.ask(initialize(c.ask)), c.answer)
				l.leave(t)
				want := strings.Replace(initialize(c.ask), c.ask, c.offer, 1)
				want = "initialize " + want[strings.Index(want, `{"protocolVersion`):len(want)-1]
				equal(t, "opened for", s.openings[0].Revision, c.offer)
				equal(t, "the server got", strings.Join(s.seen(), "\n"), want)
			})
		})
	}
}

func TestAClientMayTryAgainWhenInitializeFailed(t *testing.T) {
	s := &server{}
	s.cold.Store(true)
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		l := w.pipe(t)
		contains(t, "the first", l.ask(initialize(mcp.Rev20251125)), `"error"`)
		contains(t, "a request", l.ask(request(1, "tools/list", "{}")), `-32600`)
		s.cold.Store(false)
		contains(t, "the second", l.ask(initialize(mcp.Rev20251125)), `"result"`)
		contains(t, "a request", l.ask(request(1, "tools/list", "{}")), `"result"`)
		l.leave(t)
	})
}

func TestRequestsThatDoNotWaitForAnInitializeThatFailsAreRefused(t *testing.T) {
	inBubble(t, &server{}, downstream.Limits{}, func(t *testing.T, w *world) {
		w.server.cold.Store(true)
		l := w.pipe(t)
		start := time.Now()
		l.send(initialize(mcp.Rev20251125), initialized, request(1, "tools/list", "{}"))
		answers := []string{<-l.out, <-l.out}
		slices.Sort(answers)
		contains(t, "initialize", answers[0], `"id":0,"error":{"code":-32603,`)
		// initialize failed, or had failed
		contains(t, "the request", answers[1],
			`"id":1,"error":{"code":-32600,"message":"the session is not initialized: `)
		if took := time.Since(start); took > 0 {
			t.Errorf("it took %v", took)
		}
		l.leave(t)
	})
}

func TestRequestsWaitForInitializeAndForInitialized(t *testing.T) {
	inBubble(t, &server{}, downstream.Limits{}, func(t *testing.T, w *world) {
		l := w.pipe(t)
		l.send(initialize(mcp.Rev20251125), initialized, request(1, "tools/list", `{"a":1}`),
			request(2, "tools/list", `{"a":2}`))
		synctest.Wait()
		seen := w.server.seen()
		slices.Sort(seen[2:])
		equal(t, "the server got", strings.Join(seen[1:], "\n"),
			"notifications/initialized \ntools/list {\"a\":1}\ntools/list {\"a\":2}")
		l.leave(t)
	})
}

func TestBothErasShareAPipe(t *testing.T) {
	inBubble(t, &server{}, downstream.Limits{}, func(t *testing.T, w *world) {
		l := w.pipe(t)
		params := `{"name":"x","arguments":{"n":1.0,"big":12345678901234567890},` + modernMeta + `}`
		equal(t, "modern first", l.ask(request(`"a"`, "tools/call", params)),
			`{"jsonrpc":"2.0","id":"a","result":`+params+`}`)
		l.initialize(mcp.Rev20250618)
		equal(t, "then legacy", l.ask(request(1, "tools/call", `{"name":"x"}`)),
			`{"jsonrpc":"2.0","id":1,"result":{"name":"x"}}`)
		equal(t, "and modern again", l.ask(request(2, "tools/call", params)),
			`{"jsonrpc":"2.0","id":2,"result":`+params+`}`)
		l.leave(t)
		if n := len(w.server.openings); n != 2 {
			t.Errorf("opened %d servers, want one for each era", n)
		}
	})
}

func TestACancellationFindsTheRequestBeforeIt(t *testing.T) {
	for _, c := range []struct{ name, request string }{
		{"legacy", request(5, "tools/call", `{"name":"x"}`)},
		{"modern", modern(5, "tools/call", `"name":"x"`)},
		{"a subscription", modern(5, "subscriptions/listen", `"notifications":{}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &server{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
				return ""
			}}
			inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
				l := w.pipe(t)
				l.initialize(mcp.Rev20251125)
				synctest.Wait()
				for range 20 { // at once, so that the request may not have reached anybody yet
					l.send(c.request, cancelled(5))
					synctest.Wait()
				}
				equal(t, "the next answer is", l.ask(`{"jsonrpc":"2.0","id":6,"method":"ping"}`),
					`{"jsonrpc":"2.0","id":6,"result":{}}`)
				w.record.has(t, "pass to_server notification notifications/cancelled")
				l.leave(t)
				if len(l.out) > 0 {
					t.Errorf("a cancelled request was answered: %s", <-l.out)
				}
			})
		})
	}
}

func TestReverseRequestsGetIdsAndTokensOfOurs(t *testing.T) {
	s := &server{}
	s.answer = func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		ask, err := mcp.Parse([]byte(
			`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"_meta":{"progressToken":1}}}`))
		if err != nil {
			t.Error(err)
		}
		c.HandleNotification(ctx, mcp.NewNotification("notifications/message",
			[]byte(`{"level":"info","data":"one"}`)))
		a := c.HandleRequests(ctx, []*mcp.Message{ask})[0].Message()
		c.HandleNotification(ctx, mcp.NewNotification("notifications/message",
			[]byte(`{"level":"info","data":"two"}`)))
		return fmt.Sprintf(`{"answered":%s,"with":%s}`, a.ID(), a.Body())
	}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		l := w.pipe(t)
		l.initialize(mcp.Rev20251125)
		for n := 1; n <= 2; n++ {
			contains(t, "first", l.ask(request(1, "tools/call", `{"name":"x"}`)), `"data":"one"`)
			equal(t, "then", <-l.out,
				fmt.Sprintf(`{"jsonrpc":"2.0","id":"gatekit-%d","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"_meta":{"progressToken":"gatekit-%d"}}}`, n, n))
			// no token of ours
			l.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`,
				fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"gatekit-%d","progress":%d.0}}`, n, n))
			synctest.Wait()
			l.send(`{"jsonrpc":"2.0","id":1,"result":{"forged":true}}`,
				fmt.Sprintf(`{"jsonrpc":"2.0","id":"gatekit-%d","result":{"role":"user"}}`, n))
			contains(t, "then", <-l.out, `"data":"two"`)
			equal(t, "last", <-l.out,
				`{"jsonrpc":"2.0","id":1,"result":{"answered":1,"with":{"role":"user"}}}`)
		}
		l.leave(t)
		var progress []string
		for _, g := range s.seen() {
			if strings.HasPrefix(g, "notifications/progress") {
				progress = append(progress, g)
			}
		}
		equal(t, "progress that the server saw", strings.Join(progress, "\n"),
			`notifications/progress {"progressToken":1,"progress":1.0}`+"\n"+
				`notifications/progress {"progressToken":1,"progress":2.0}`)
		w.record.has(t, "drop to_server response  no reverse request in flight has this id")
	})
}

func TestAReverseRequestThatNobodyWaitsForIsWithdrawn(t *testing.T) {
	asks := func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		a := c.HandleRequests(ctx,
			[]*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})[0].Message()
		return fmt.Sprintf("!%d %s", a.ErrorCode(), a.Body())
	}
	t.Run("its call was cancelled", func(t *testing.T) {
		inBubble(t, &server{answer: asks}, downstream.Limits{}, func(t *testing.T, w *world) {
			l := w.pipe(t)
			l.initialize(mcp.Rev20251125)
			contains(t, "asked", l.ask(request(1, "tools/call", `{"name":"x"}`)),
				`"id":"gatekit-1","method":"roots/list"`)
			contains(t, "withdrawn", l.ask(cancelled(1)),
				`"method":"notifications/cancelled","params":{"requestId":"gatekit-1"}`)
			l.leave(t)
		})
	})
	t.Run("the client took too long", func(t *testing.T) {
		inBubble(t, &server{answer: asks}, downstream.Limits{ReverseTimeout: 7 * time.Second},
			func(t *testing.T, w *world) {
				l := w.pipe(t)
				l.initialize(mcp.Rev20251125)
				start := time.Now()
				contains(t, "asked", l.ask(request(1, "tools/call", `{"name":"x"}`)),
					`"id":"gatekit-1","method":"roots/list"`)
				contains(t, "withdrawn", <-l.out,
					`"method":"notifications/cancelled","params":{"requestId":"gatekit-1"}`)
				contains(t, "the call", <-l.out, `the client did not answer within 7s`)
				if took := time.Since(start); took != 7*time.Second {
					t.Errorf("it took %v", took)
				}
				// too late: no harm
				l.send(`{"jsonrpc":"2.0","id":"gatekit-1","result":{"roots":[]}}`)
				contains(t, "a ping", l.ask(`{"jsonrpc":"2.0","id":6,"method":"ping"}`), `"result"`)
				l.leave(t)
			})
	})
}

func TestModernClientsAreNotAskedLive(t *testing.T) {
	s := &server{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		a := c.HandleRequests(ctx,
			[]*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})[0].Message()
		return fmt.Sprintf(`{"code":%d}`, a.ErrorCode())
	}}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		l := w.pipe(t)
		contains(t, "answer", l.ask(modern(1, "tools/call", `"name":"x"`)), `{"code":-3260`)
		l.leave(t)
	})
}

func TestBatches(t *testing.T) {
	for _, revision := range []string{mcp.Rev20241105, mcp.Rev20250326} {
		for _, c := range []struct{ name, send, want string }{
			{"answers are one array in order", `[` + request(1, "tools/call", `{"name":"a"}`) +
				`,` + `{"jsonrpc":"2.0","id":"1","method":"ping"}` + `]`,
				`[{"jsonrpc":"2.0","id":1,"result":{"name":"a"}},{"jsonrpc":"2.0","id":"1","result":{}}]`},
			{"what is no message is answered for itself",
				`[{"jsonrpc":"2.0","id":1,"method":"ping"},7]`,
				`[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
			{"initialize is refused", `[` + initialize(mcp.Rev20250326) + `]`,
				`[{"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"initialize has no place in a batch"}}]`},
			{"modern requests are refused", `[` + modern(1, "tools/list", "") + `]`,
				`[{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"tools/list has no place in a batch"}}]`},
			{"an empty one is refused", `[]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
			{"an id twice is refused",
				`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
			{"notifications alone are not answered", `[` + cancelled(99) + `]`, ``},
		} {
			t.Run(revision+": "+c.name, func(t *testing.T) {
				inBubble(t, &server{}, downstream.Limits{}, func(t *testing.T, w *world) {
					l := w.pipe(t)
					l.initialize(revision)
					if c.want == "" {
						l.send(c.send)
					} else {
						contains(t, "answer", l.ask(c.send), c.want)
					}
					contains(t, "a ping", l.ask(`{"jsonrpc":"2.0","id":6,"method":"ping"}`),
						`{"jsonrpc":"2.0","id":6,"result":{}}`)
					l.leave(t)
				})
			})
		}
	}
}

func TestWhatIsInFlightWhenTheClientLeaves(t *testing.T) {
	t.Run("is answered when that does not take long", func(t *testing.T) {
		s := &server{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
			time.Sleep(4 * time.Second)
			return `{"late":1}`
		}}
		inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
			l := w.pipe(t)
			l.initialize(mcp.Rev20251125)
			l.send(request(1, "tools/call", `{"name":"x"}`))
			l.leave(t)
			contains(t, "answer", <-l.out, `{"late":1}`)
		})
	})
	t.Run("is cancelled when it does", func(t *testing.T) {
		s := &server{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
			return ""
		}}
		inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
			l := w.pipe(t)
			l.initialize(mcp.Rev20251125)
			l.send(request(1, "tools/call", `{"name":"x"}`), modern(2, "tools/call", `"name":"x"`))
			start := time.Now()
			l.leave(t)
			if took := time.Since(start); took > 6*time.Second {
				t.Errorf("it took %v", took)
			}
			seen := strings.Join(s.seen(), "\n")
			if n := strings.Count(seen, "ended tools/call"); n != 2 {
				t.Errorf("%d calls were cancelled, want 2:\n%s", n, seen)
			}
		})
	})
	t.Run("a subscription does not hold it up", func(t *testing.T) {
		s := &server{answer: func(context.Context, *mcp.Message, proxy.Handler) string {
			return ""
		}}
		inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
			l := w.pipe(t)
			l.send(modern(2, "subscriptions/listen", `"notifications":{}`))
			synctest.Wait()
			start := time.Now()
			l.leave(t)
			if took := time.Since(start); took > 0 {
				t.Errorf("it took %v", took)
			}
		})
	})
}

func TestAClientThatDoesNotReadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &server{}, downstream.Limits{InFlight: 4})
		l := &line{in: make(chan []byte, 100), out: make(chan string, 100_000),
			stuck: make(chan struct{}), gone: make(chan error, 1)}
		w.serve(t, l)
		other := w.pipe(t)
		l.send(initialize(mcp.Rev20251125))
		for i := range 50 {
			l.send(request(i+1, "tools/call", `{"name":"x"}`))
		}
		synctest.Wait()
		if left := len(l.in); left < 40 {
			t.Errorf("%d of 50 messages were taken from a client that reads none", 50-left)
		}
		other.initialize(mcp.Rev20251125)
		contains(t, "another client", other.ask(request(1, "tools/call", `{"name":"x"}`)),
			`"result"`)
		close(l.stuck)
		for range 51 {
			<-l.out
		}
		l.leave(t)
		other.leave(t)
		w.close(t)
	})
}

func TestRefuseTellsTheReasonToWhoeverAsks(t *testing.T) {
	l := &line{in: make(chan []byte, 10), out: make(chan string, 10)}
	l.send(initialize(mcp.Rev20251125), initialized, `{`, request(`"a"`, "server/discover", "{}"))
	close(l.in)
	if err := downstream.RefuseAll(t.Context(), l,
		errors.New("read gatekit.toml: no such file\nhint: write one")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{`0`, `"a"`} {
		equal(t, "answer", <-l.out,
			`{"jsonrpc":"2.0","id":`+id+
				`,"error":{"code":-32603,"message":"gatekit could not start: read gatekit.toml: no such file\nhint: write one"}}`)
	}
	if len(l.out) > 0 {
		t.Errorf("and also %s", <-l.out)
	}
}

func TestAnIDThatIsTakenDoesNotKeepTheFirstCallFromBeingCancelled(t *testing.T) {
	s := &server{answer: waits}
	inBubble(t, s, downstream.Limits{}, func(t *testing.T, w *world) {
		l := w.pipe(t)
		l.send(modern(1, "tools/call", `"name":"x"`))
		synctest.Wait()
		contains(t, "the second", l.ask(modern(1, "tools/call", `"name":"x"`)), `"code":-32600`)
		l.send(cancelled(1))
		synctest.Wait()
		contains(t, "the server saw", strings.Join(s.seen(), "\n"), "ended tools/call")
		l.leave(t)
	})
}

func TestBatchesOfAClientThatDoesNotReadAreBounded(t *testing.T) {
	for _, batch := range []string{"[1,1,1]", `[{"jsonrpc":"2.0","id":1,"method":"initialize"}]`,
		`[{"jsonrpc":"2.0","id":$ID,"method":"tools/call","params":{"name":"x"}},1]`} {
		inBubble(t, &server{}, downstream.Limits{InFlight: 4}, func(t *testing.T, w *world) {
			l := w.pipe(t)
			l.initialize(mcp.Rev20250326)
			synctest.Wait()
			l.stuck = make(chan struct{})
			for i := range 500 {
				l.in <- []byte(strings.ReplaceAll(batch, "$ID", strconv.Itoa(i+10)))
			}
			synctest.Wait()
			if taken := 500 - len(l.in); taken > 10 {
				t.Errorf("%d batches like %s were taken in from a client that reads no answer",
					taken, batch)
			}
			close(l.stuck)
			synctest.Wait()
			l.leave(t)
		})
	}
}
