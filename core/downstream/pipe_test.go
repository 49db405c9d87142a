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
	"gatekit/test/downstreamtest"
)

func TestRequestsAnsweredWithoutAServer(t *testing.T) {
	const before, after = false, true
	for _, c := range []struct {
		name        string
		initialized bool
		send        string
		want        string
	}{
		{"a ping before initialize", before, `{"jsonrpc":"2.0","id":"p","method":"ping"}`,
			`{"jsonrpc":"2.0","id":"p","result":{}}`},
		{"a ping after initialize", after, `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
			`{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"a request before initialize", before, downstreamtest.Request(1, "tools/list", "{}"),
			`"id":1,"error":{"code":-32600,"message":"the session is not initialized: send initialize first"}`},
		{"initialize twice", after, downstreamtest.Request(1,
			"initialize", `{"protocolVersion":"2025-11-25"}`),
			`"id":1,"error":{"code":-32600,`},
		{"initialize without a version", before, downstreamtest.Request(1, "initialize", `{}`),
			`"id":1,"error":{"code":-32602,`},
		{"initialize with a version that is not a string", before,
			downstreamtest.Request(1, "initialize", `{"protocolVersion":20251125}`),
			`"id":1,"error":{"code":-32602,`},
		{"initialize with the _meta of a modern request", before,
			downstreamtest.ModernRequest(1, "initialize", `"protocolVersion":"2025-11-25"`),
			`"id":1,"error":{"code":-32601,`},
		{"a modern method in a legacy session", after, downstreamtest.Request(1,
			"tasks/update", "{}"),
			`"id":1,"error":{"code":-32601,`},
		{"a method that servers send", after, downstreamtest.Request(1, "roots/list", "{}"),
			`"id":1,"error":{"code":-32601,`},
		{"a message that is not JSON", before, `{"jsonrpc":`, `"id":null,"error":{"code":-32700,`},
		{"a method that is not a string", before, `{"jsonrpc":"2.0","id":7,"method":7}`, `"error":{"code":-32600,`},
		{"an id of the wrong type", after, `{"jsonrpc":"2.0","id":true,"method":"ping"}`,
			`"id":null,"error":{"code":-32600,`},
		{"a duplicate name", after,
			`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`,
			`"error":{"code":-32600,`},
		{"a batch before initialize", before, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
			`"id":null,"error":{"code":-32600,`},
		{"a batch in a revision without batches", after, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
			`"id":null,"error":{"code":-32600,`},
		{"server/discover without _meta", before, downstreamtest.Request(1, "server/discover",
			"{}"),
			`"id":1,"error":{"code":-32602,`},
		{"a modern request without capabilities", before,
			downstreamtest.Request(1,
				"tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`),
			`"id":1,"error":{"code":-32602,`},
		{"a modern request with a legacy revision", before,
			downstreamtest.Request(1,
				"tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25","io.modelcontextprotocol/clientCapabilities":{}}}`),
			`"id":1,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2025-11-25"}}`},
		{"a modern request with an unknown log level", before,
			downstreamtest.Request(1,
				"tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"loud"}}`), `"id":1,"error":{"code":-32602,`},
		{"a modern ping", before, downstreamtest.ModernRequest(1, "ping", ""),
			`"id":1,"error":{"code":-32601,`},
	} {
		t.Run(c.name, func(t *testing.T) {
			downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
				w *downstreamtest.Gateway) {
				l := w.Connect(t)
				if c.initialized {
					l.Initialize(mcp.Rev20251125)
				}
				downstreamtest.ContainsText(t, "answer", l.Ask(c.send), c.want)
				downstreamtest.ContainsText(t, "the next answer",
					l.Ask(`{"jsonrpc":"2.0","id":2,"method":"ping"}`),
					`"id":2,"result":{}`)
				l.Close(t)
			})
		})
	}
}

func TestMessageOverTheLimitIsRefusedAndTheNextIsServed(t *testing.T) {
	downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		l := w.Connect(t)
		l.In <- nil // stands for a message that is too large
		downstreamtest.ContainsText(t, "answer", <-l.Out,
			`"id":null,"error":{"code":-32700,"message":"message of 99 bytes is over the limit of 50"`)
		downstreamtest.ContainsText(t, "the next answer",
			l.Ask(`{"jsonrpc":"2.0","id":2,"method":"ping"}`),
			`"id":2,"result":{}`)
		l.Close(t)
	})
}

func TestSessionHasTheRevisionOfTheServersAnswer(t *testing.T) {
	for _, c := range []struct {
		name, ask, offer, answer string
	}{
		{"2024-11-05", "2024-11-05", "2024-11-05", `"protocolVersion":"2024-11-05"`},
		{"2025-03-26", "2025-03-26", "2025-03-26", `"protocolVersion":"2025-03-26"`},
		{"2025-11-25", "2025-11-25", "2025-11-25", `"protocolVersion":"2025-11-25"`},
		{"an old unknown revision", "2023-01-01", "2025-11-25",
			`"protocolVersion":"2025-11-25"`},
		{"a modern revision", "2026-07-28", "2025-11-25", `"protocolVersion":"2025-11-25"`},
		{"a revision that is not a date", "draft", "2025-11-25", `"protocolVersion":"2025-11-25"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &downstreamtest.Server{}
			downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T,
				w *downstreamtest.Gateway) {
				l := w.Connect(t)
				downstreamtest.ContainsText(t, "answer", l.Ask(downstreamtest.Initialize(c.ask)),
					c.answer)
				l.Close(t)
				want := strings.Replace(downstreamtest.Initialize(c.ask), c.ask, c.offer, 1)
				want = "initialize " + want[strings.Index(want, `{"protocolVersion`):len(want)-1]
				downstreamtest.Equal(t, "the session's revision", s.Opened[0].Revision, c.offer)
				downstreamtest.Equal(t, "the server got", strings.Join(s.Received(), "\n"), want)
			})
		})
	}
}

func TestClientMayInitializeAgainAfterAFailure(t *testing.T) {
	s := &downstreamtest.Server{}
	s.RefusesInitialize.Store(true)
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		l := w.Connect(t)
		downstreamtest.ContainsText(t, "the first initialize",
			l.Ask(downstreamtest.Initialize(mcp.Rev20251125)), `"error"`)
		downstreamtest.ContainsText(t, "a request",
			l.Ask(downstreamtest.Request(1, "tools/list", "{}")), `-32600`)
		s.RefusesInitialize.Store(false)
		downstreamtest.ContainsText(t, "the second initialize",
			l.Ask(downstreamtest.Initialize(mcp.Rev20251125)), `"result"`)
		downstreamtest.ContainsText(t, "a request",
			l.Ask(downstreamtest.Request(1, "tools/list", "{}")), `"result"`)
		l.Close(t)
	})
}

func TestRequestsSentWithAFailingInitializeAreRefused(t *testing.T) {
	downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		w.Server.RefusesInitialize.Store(true)
		l := w.Connect(t)
		start := time.Now()
		l.Send(downstreamtest.Initialize(mcp.Rev20251125), downstreamtest.Initialized,
			downstreamtest.Request(1, "tools/list", "{}"))
		answers := []string{<-l.Out, <-l.Out}
		slices.Sort(answers)
		downstreamtest.ContainsText(t, "initialize", answers[0], `"id":0,"error":{"code":-32603,`)
		// The request is refused when initialize fails.
		downstreamtest.ContainsText(t, "the request", answers[1],
			`"id":1,"error":{"code":-32600,"message":"the session is not initialized: `)
		if took := time.Since(start); took > 0 {
			t.Errorf("the answers took %v, want no delay", took)
		}
		l.Close(t)
	})
}

func TestRequestsWaitForInitializeAndForInitialized(t *testing.T) {
	downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		l := w.Connect(t)
		l.Send(downstreamtest.Initialize(mcp.Rev20251125), downstreamtest.Initialized,
			downstreamtest.Request(1, "tools/list", `{"a":1}`),
			downstreamtest.Request(2, "tools/list", `{"a":2}`))
		synctest.Wait()
		seen := w.Server.Received()
		slices.Sort(seen[2:])
		downstreamtest.Equal(t, "the server got", strings.Join(seen[1:], "\n"),
			"notifications/initialized \ntools/list {\"a\":1}\ntools/list {\"a\":2}")
		l.Close(t)
	})
}

func TestPipeCarriesBothEras(t *testing.T) {
	downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		l := w.Connect(t)
		params := `{"name":"x","arguments":{"n":1.0,"big":12345678901234567890},` +
			downstreamtest.ModernMeta + `}`
		downstreamtest.Equal(t, "modern first",
			l.Ask(downstreamtest.Request(`"a"`, "tools/call", params)),
			`{"jsonrpc":"2.0","id":"a","result":`+params+`}`)
		l.Initialize(mcp.Rev20250618)
		downstreamtest.Equal(t, "then legacy",
			l.Ask(downstreamtest.Request(1, "tools/call", `{"name":"x"}`)),
			`{"jsonrpc":"2.0","id":1,"result":{"name":"x"}}`)
		downstreamtest.Equal(t, "and modern again",
			l.Ask(downstreamtest.Request(2, "tools/call", params)),
			`{"jsonrpc":"2.0","id":2,"result":`+params+`}`)
		l.Close(t)
		if n := len(w.Server.Opened); n != 2 {
			t.Errorf("the server was opened %d times, want once for each era", n)
		}
	})
}

func TestCancellationFindsTheRequestSentBeforeIt(t *testing.T) {
	for _, c := range []struct{ name, request string }{
		{"legacy", downstreamtest.Request(5, "tools/call", `{"name":"x"}`)},
		{"modern", downstreamtest.ModernRequest(5, "tools/call", `"name":"x"`)},
		{"a subscription", downstreamtest.ModernRequest(5, "subscriptions/listen",
			`"notifications":{}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &downstreamtest.Server{Answer: func(context.Context, *mcp.Message,
				proxy.Handler) string {
				return ""
			}}
			downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T,
				w *downstreamtest.Gateway) {
				l := w.Connect(t)
				l.Initialize(mcp.Rev20251125)
				synctest.Wait()
				for range 20 {
					// The cancellation follows at once: the server may not have the request yet.
					l.Send(c.request, downstreamtest.Cancelled(5))
					synctest.Wait()
				}
				downstreamtest.Equal(t, "the next answer is",
					l.Ask(`{"jsonrpc":"2.0","id":6,"method":"ping"}`),
					`{"jsonrpc":"2.0","id":6,"result":{}}`)
				w.Records.Contains(t, "pass to_server notification notifications/cancelled")
				l.Close(t)
				if len(l.Out) > 0 {
					t.Errorf("a cancelled request was answered %s, want no answer", <-l.Out)
				}
			})
		})
	}
}

func TestReverseRequestsGetGatekitsIDsAndTokens(t *testing.T) {
	s := &downstreamtest.Server{}
	s.Answer = func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
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
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		l := w.Connect(t)
		l.Initialize(mcp.Rev20251125)
		for n := 1; n <= 2; n++ {
			downstreamtest.ContainsText(t, "the first message", l.Ask(downstreamtest.Request(1,
				"tools/call", `{"name":"x"}`)), `"data":"one"`)
			downstreamtest.Equal(t, "the reverse request", <-l.Out,
				fmt.Sprintf(`{"jsonrpc":"2.0","id":"gatekit-%d","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"_meta":{"progressToken":"gatekit-%d"}}}`, n, n))
			// Gatekit did not make the token 1, so the notification with this token is dropped.
			l.Send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`,
				fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"gatekit-%d","progress":%d.0}}`, n, n))
			synctest.Wait()
			l.Send(`{"jsonrpc":"2.0","id":1,"result":{"forged":true}}`,
				fmt.Sprintf(`{"jsonrpc":"2.0","id":"gatekit-%d","result":{"role":"user"}}`, n))
			downstreamtest.ContainsText(t, "the next message", <-l.Out, `"data":"two"`)
			downstreamtest.Equal(t, "the answer", <-l.Out,
				`{"jsonrpc":"2.0","id":1,"result":{"answered":1,"with":{"role":"user"}}}`)
		}
		l.Close(t)
		var progress []string
		for _, g := range s.Received() {
			if strings.HasPrefix(g, "notifications/progress") {
				progress = append(progress, g)
			}
		}
		downstreamtest.Equal(t, "the progress that the server got", strings.Join(progress, "\n"),
			`notifications/progress {"progressToken":1,"progress":1.0}`+"\n"+
				`notifications/progress {"progressToken":1,"progress":2.0}`)
		w.Records.Contains(t, "drop to_server response  no reverse request in flight has this id")
	})
}

func TestAbandonedReverseRequestIsCancelled(t *testing.T) {
	askForRoots := func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		a := c.HandleRequests(ctx,
			[]*mcp.Message{mcp.NewRequest("1", "roots/list", nil)})[0].Message()
		return fmt.Sprintf("!%d %s", a.ErrorCode(), a.Body())
	}
	t.Run("when its call was cancelled", func(t *testing.T) {
		downstreamtest.Run(t, &downstreamtest.Server{Answer: askForRoots}, downstream.Limits{},
			func(t *testing.T, w *downstreamtest.Gateway) {
				l := w.Connect(t)
				l.Initialize(mcp.Rev20251125)
				downstreamtest.ContainsText(t, "the reverse request",
					l.Ask(downstreamtest.Request(1, "tools/call", `{"name":"x"}`)),
					`"id":"gatekit-1","method":"roots/list"`)
				downstreamtest.ContainsText(t, "the cancellation",
					l.Ask(downstreamtest.Cancelled(1)),
					`"method":"notifications/cancelled","params":{"requestId":"gatekit-1"}`)
				l.Close(t)
			})
	})
	t.Run("when the client took too long", func(t *testing.T) {
		downstreamtest.Run(t, &downstreamtest.Server{Answer: askForRoots},
			downstream.Limits{ReverseTimeout: 7 * time.Second},
			func(t *testing.T, w *downstreamtest.Gateway) {
				l := w.Connect(t)
				l.Initialize(mcp.Rev20251125)
				start := time.Now()
				downstreamtest.ContainsText(t, "the reverse request",
					l.Ask(downstreamtest.Request(1, "tools/call", `{"name":"x"}`)),
					`"id":"gatekit-1","method":"roots/list"`)
				downstreamtest.ContainsText(t, "the cancellation", <-l.Out,
					`"method":"notifications/cancelled","params":{"requestId":"gatekit-1"}`)
				downstreamtest.ContainsText(t, "the call", <-l.Out,
					`the client did not answer within 7s`)
				if took := time.Since(start); took != 7*time.Second {
					t.Errorf("the call took %v, want 7s", took)
				}
				// A late answer is dropped.
				l.Send(`{"jsonrpc":"2.0","id":"gatekit-1","result":{"roots":[]}}`)
				downstreamtest.ContainsText(t, "a ping",
					l.Ask(`{"jsonrpc":"2.0","id":6,"method":"ping"}`), `"result"`)
				l.Close(t)
			})
	})
}

func TestModernClientsCannotBeAskedDuringACall(t *testing.T) {
	s := &downstreamtest.Server{Answer: func(ctx context.Context, m *mcp.Message,
		c proxy.Handler) string {
		a := c.HandleRequests(ctx,
			[]*mcp.Message{mcp.NewRequest("1", "sampling/createMessage", nil)})[0].Message()
		return fmt.Sprintf(`{"code":%d}`, a.ErrorCode())
	}}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		l := w.Connect(t)
		downstreamtest.ContainsText(t, "answer", l.Ask(downstreamtest.ModernRequest(1,
			"tools/call", `"name":"x"`)), `{"code":-3260`)
		l.Close(t)
	})
}

func TestBatches(t *testing.T) {
	for _, revision := range []string{mcp.Rev20241105, mcp.Rev20250326} {
		for _, c := range []struct{ name, send, want string }{
			{"the answers are one array, in the order of the requests", `[` +
				downstreamtest.Request(1, "tools/call", `{"name":"a"}`) +
				`,` + `{"jsonrpc":"2.0","id":"1","method":"ping"}` + `]`,
				`[{"jsonrpc":"2.0","id":1,"result":{"name":"a"}},{"jsonrpc":"2.0","id":"1","result":{}}]`},
			{"an invalid message gets an error of its own",
				`[{"jsonrpc":"2.0","id":1,"method":"ping"},7]`,
				`[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
			{"initialize is refused", `[` + downstreamtest.Initialize(mcp.Rev20250326) + `]`,
				`[{"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"initialize cannot be sent in a batch"}}]`},
			{"modern requests are refused", `[` + downstreamtest.ModernRequest(1,
				"tools/list", "") + `]`,
				`[{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"tools/list cannot be sent in a batch"}}]`},
			{"an empty batch is refused", `[]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
			{"a duplicate id is refused",
				`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
			{"notifications alone are not answered", `[` + downstreamtest.Cancelled(99) + `]`, ``},
		} {
			t.Run(revision+": "+c.name, func(t *testing.T) {
				downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{},
					func(t *testing.T, w *downstreamtest.Gateway) {
						l := w.Connect(t)
						l.Initialize(revision)
						if c.want == "" {
							l.Send(c.send)
						} else {
							downstreamtest.ContainsText(t, "answer", l.Ask(c.send), c.want)
						}
						downstreamtest.ContainsText(t, "a ping",
							l.Ask(`{"jsonrpc":"2.0","id":6,"method":"ping"}`),
							`{"jsonrpc":"2.0","id":6,"result":{}}`)
						l.Close(t)
					})
			})
		}
	}
}

// forwardedPipe is a pipe whose messages other replicas have forwarded.
type forwardedPipe struct {
	*downstreamtest.Pipe
	vias []string // the names of the replicas, one for each message
	read int
}

// Read implements conn.Pipe.
func (p *forwardedPipe) Read(ctx context.Context) ([]byte, error) {
	p.read++
	return p.Pipe.Read(ctx)
}

// Via implements conn.ForwardedPipe.
func (p *forwardedPipe) Via() string { return p.vias[p.read-1] }

// The records of messages on a pipe name the replica that has forwarded them.
func TestRecordsNameTheReplicaThatForwarded(t *testing.T) {
	downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{}, func(t *testing.T,
		w *downstreamtest.Gateway) {
		l := &forwardedPipe{Pipe: &downstreamtest.Pipe{In: make(chan []byte, 10),
			Out: make(chan string, 10), Served: make(chan error, 1)},
			vias: []string{"a", "b", "", "c", "d", "e"}}
		go func() { l.Served <- w.Endpoint.ServePipe(t.Context(), l, nil) }()
		l.Initialize(mcp.Rev20250326)
		l.Ask(downstreamtest.Request(1, "tools/call", `{"name":"x"}`))
		l.Ask(downstreamtest.Request(2, "tools/list", "{}"))
		l.Ask("[" + downstreamtest.Request(3, "prompts/get", `{"name":"x"}`) + "," +
			`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}]`)
		l.Ask(downstreamtest.Request(4, "resources/read", `{"uri":"x:y"}`))
		l.Close(t)
		for _, row := range []string{
			"pass to_server request initialize via a",
			"pass to_server notification notifications/initialized via b",
			"pass to_server request tools/call",
			"pass to_server request tools/list via c",
			"pass to_server request prompts/get via d",
			"pass to_server notification notifications/roots/list_changed via d",
			"pass to_server request resources/read via e",
		} {
			w.Records.Contains(t, row)
		}
	})
}

func TestCallsInFlightWhenTheClientLeaves(t *testing.T) {
	t.Run("are answered if they end within the drain timeout", func(t *testing.T) {
		s := &downstreamtest.Server{Answer: func(context.Context, *mcp.Message,
			proxy.Handler) string {
			time.Sleep(4 * time.Second)
			return `{"late":1}`
		}}
		downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T,
			w *downstreamtest.Gateway) {
			l := w.Connect(t)
			l.Initialize(mcp.Rev20251125)
			l.Send(downstreamtest.Request(1, "tools/call", `{"name":"x"}`))
			l.Close(t)
			downstreamtest.ContainsText(t, "answer", <-l.Out, `{"late":1}`)
		})
	})
	t.Run("are cancelled after the drain timeout", func(t *testing.T) {
		s := &downstreamtest.Server{Answer: func(context.Context, *mcp.Message,
			proxy.Handler) string {
			return ""
		}}
		downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T,
			w *downstreamtest.Gateway) {
			l := w.Connect(t)
			l.Initialize(mcp.Rev20251125)
			l.Send(downstreamtest.Request(1, "tools/call", `{"name":"x"}`),
				downstreamtest.ModernRequest(2, "tools/call", `"name":"x"`))
			start := time.Now()
			l.Close(t)
			if took := time.Since(start); took > 6*time.Second {
				t.Errorf("the end of the pipe took %v, want at most 6s", took)
			}
			seen := strings.Join(s.Received(), "\n")
			if n := strings.Count(seen, "ended tools/call"); n != 2 {
				t.Errorf("%d calls were cancelled, want 2:\n%s", n, seen)
			}
		})
	})
	t.Run("do not delay the end if they are subscriptions", func(t *testing.T) {
		s := &downstreamtest.Server{Answer: func(context.Context, *mcp.Message,
			proxy.Handler) string {
			return ""
		}}
		downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T,
			w *downstreamtest.Gateway) {
			l := w.Connect(t)
			l.Send(downstreamtest.ModernRequest(2, "subscriptions/listen", `"notifications":{}`))
			synctest.Wait()
			start := time.Now()
			l.Close(t)
			if took := time.Since(start); took > 0 {
				t.Errorf("the end of the pipe took %v, want no delay", took)
			}
		})
	})
}

func TestCallsOfAClientThatDoesNotReadAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := downstreamtest.New(t, &downstreamtest.Server{}, downstream.Limits{InFlight: 4})
		l := &downstreamtest.Pipe{In: make(chan []byte, 100), Out: make(chan string, 100_000),
			Unread: make(chan struct{}), Served: make(chan error, 1)}
		w.Serve(t, l)
		other := w.Connect(t)
		l.Send(downstreamtest.Initialize(mcp.Rev20251125))
		for i := range 50 {
			l.Send(downstreamtest.Request(i+1, "tools/call", `{"name":"x"}`))
		}
		synctest.Wait()
		if left := len(l.In); left < 40 {
			t.Errorf("%d of 50 messages were read from a client that reads no answer, want at "+
				"most 10", 50-left)
		}
		other.Initialize(mcp.Rev20251125)
		downstreamtest.ContainsText(t, "another client",
			other.Ask(downstreamtest.Request(1, "tools/call", `{"name":"x"}`)),
			`"result"`)
		close(l.Unread)
		for range 51 {
			<-l.Out
		}
		l.Close(t)
		other.Close(t)
		w.Close(t)
	})
}

func TestRefuseAllAnswersEachRequestWithTheReason(t *testing.T) {
	l := &downstreamtest.Pipe{In: make(chan []byte, 10), Out: make(chan string, 10)}
	l.Send(downstreamtest.Initialize(mcp.Rev20251125), downstreamtest.Initialized, `{`,
		downstreamtest.Request(`"a"`, "server/discover", "{}"))
	close(l.In)
	if err := downstream.RefuseAll(t.Context(), l,
		errors.New("read gatekit.toml: no such file\nhint: write one")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{`0`, `"a"`} {
		downstreamtest.Equal(t, "answer", <-l.Out,
			`{"jsonrpc":"2.0","id":`+id+
				`,"error":{"code":-32603,"message":"gatekit could not start: read gatekit.toml: no such file\nhint: write one"}}`)
	}
	if len(l.Out) > 0 {
		t.Errorf("RefuseAll also wrote %s, want two answers", <-l.Out)
	}
}

func TestCallCanBeCancelledAfterItsIDWasUsedAgain(t *testing.T) {
	s := &downstreamtest.Server{Answer: waitForCancel}
	downstreamtest.Run(t, s, downstream.Limits{}, func(t *testing.T, w *downstreamtest.Gateway) {
		l := w.Connect(t)
		l.Send(downstreamtest.ModernRequest(1, "tools/call", `"name":"x"`))
		synctest.Wait()
		downstreamtest.ContainsText(t, "the second call", l.Ask(downstreamtest.ModernRequest(1,
			"tools/call", `"name":"x"`)), `"code":-32600`)
		l.Send(downstreamtest.Cancelled(1))
		synctest.Wait()
		downstreamtest.ContainsText(t, "the server saw", strings.Join(s.Received(), "\n"),
			"ended tools/call")
		l.Close(t)
	})
}

func TestRefusalsOfABatchAreRecordedWhenItsPipeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		w := downstreamtest.New(t, &downstreamtest.Server{HoldNotify: hold}, downstream.Limits{})
		ctx, end := context.WithCancelCause(t.Context())
		l := &downstreamtest.Pipe{In: make(chan []byte, 10), Out: make(chan string, 10)}
		served := make(chan error, 1)
		go func() { served <- w.Endpoint.ServePipe(ctx, l, nil) }()
		l.Initialize(mcp.Rev20250326)
		// The batch contains more notifications than the queue can hold. So the batch is still
		// being split when the pipe ends.
		l.Send(`[` + downstreamtest.Initialize(mcp.Rev20250326) + `,7` +
			strings.Repeat(`,{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`, 90) +
			`]`)
		synctest.Wait()
		ended := errors.New("the pipe broke")
		end(ended)
		synctest.Wait()
		close(hold)
		if err := <-served; !errors.Is(err, ended) {
			t.Errorf("ServePipe returned %v, want %v", err, ended)
		}
		w.Records.Contains(t,
			"answer to_client error initialize initialize cannot be sent in a batch")
		w.Records.Contains(t,
			"answer to_client error  not a valid message: not an object in /1 (byte 189)")
		w.Close(t)
	})
}

func TestBatchesOfAClientThatDoesNotReadAreBounded(t *testing.T) {
	for _, batch := range []string{"[1,1,1]", `[{"jsonrpc":"2.0","id":1,"method":"initialize"}]`,
		`[{"jsonrpc":"2.0","id":$ID,"method":"tools/call","params":{"name":"x"}},1]`} {
		downstreamtest.Run(t, &downstreamtest.Server{}, downstream.Limits{InFlight: 4},
			func(t *testing.T, w *downstreamtest.Gateway) {
				l := w.Connect(t)
				l.Initialize(mcp.Rev20250326)
				synctest.Wait()
				l.Unread = make(chan struct{})
				for i := range 500 {
					l.In <- []byte(strings.ReplaceAll(batch, "$ID", strconv.Itoa(i+10)))
				}
				synctest.Wait()
				if taken := 500 - len(l.In); taken > 10 {
					t.Errorf("%d batches like %s were read from a client that reads no answer, "+
						"want at most 10", taken, batch)
				}
				close(l.Unread)
				synctest.Wait()
				l.Close(t)
			})
	}
}
