package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

const (
	initializeRequest       = `{"jsonrpc":"2.0","id":"hi","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	initializedNotification = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	initializeResult        = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"listChanged":false},"prompts":{}},"serverInfo":{"name":"s","version":"1"}}`
)

// legacyServer is a session with a legacy server over a pipe.
type legacyServer struct {
	*upstreamtest.Launcher
	proxy.Server
	upstream *upstream.Upstream
	client   *upstreamtest.Client
	process  *upstreamtest.PipeServer
}

func openSession(t *testing.T, u *upstream.Upstream, revision string,
	handler proxy.Handler) proxy.Server {
	t.Helper()
	s, err := u.Open(t.Context(), proxy.OpenOptions{Session: "s1", Revision: revision}, handler)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openLegacyServer(t *testing.T, o upstream.Options) *legacyServer {
	t.Helper()
	l := &legacyServer{Launcher: &upstreamtest.Launcher{}, client: &upstreamtest.Client{}}
	o.Name, o.Era, o.Dial.Pipe = "files", "legacy", l.Start
	l.upstream = upstream.New(o)
	l.Server = openSession(t, l.upstream, mcp.Rev20251125, l.client)
	return l
}

// startLegacyServer opens a session and sends initialize and notifications/initialized.
func startLegacyServer(t *testing.T, o upstream.Options) *legacyServer {
	t.Helper()
	l := openLegacyServer(t, o)
	p := upstreamtest.StartCall(t, l, l.client, initializeRequest)
	l.process = l.Last(t)
	l.acceptInitialize(t)
	p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
	l.notify(t, initializedNotification)
	l.process.Expect(t, "notifications/initialized")
	return l
}

// acceptInitialize lets the server answer initialize.
func (l *legacyServer) acceptInitialize(t *testing.T) {
	t.Helper()
	m := l.process.Expect(t, "initialize")
	l.process.Answer(m.ID, initializeResult)
}

func (l *legacyServer) notify(t *testing.T, raw string) {
	t.Helper()
	if err := l.Notify(t.Context(), upstreamtest.Pass(t, raw)); err != nil {
		t.Error(err)
	}
}

// close closes the session and the server. synctest then fails the test if a goroutine is left.
func (l *legacyServer) close(t *testing.T) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.upstream.Close(); err != nil {
		t.Error(err)
	}
}

func TestClientGetsItsOwnIDAndTokenBack(t *testing.T) {
	const replaced = `"gatekit-2"` // the token that Gatekit makes
	for _, c := range []struct{ name, id, token, sent string }{
		{"numbers", `1`, `1`, `1`},
		{"a number beyond float64", `9007199254740993`, `9007199254740993`, replaced},
		{"a number with another spelling", `1`, `1.0`, replaced},
		{"strings", `"a\u0062"`, `"to"`, `"to"`},
		{"a string with another spelling", `"a\u0062"`, `"t\u006f"`, replaced},
		{"a string that some encoders escape", `"a"`, `"é"`, replaced},
		{"a string that looks like a token of Gatekit", `"a"`, `"gatekit-3"`, replaced},
		{"empty strings", `""`, `""`, `""`},
		{"zero", `0`, `0`, `0`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := startLegacyServer(t, upstream.Options{})
				defer l.close(t)
				caller := &upstreamtest.Client{}
				p := upstreamtest.StartCall(t, l, caller, `{"jsonrpc":"2.0","id":`+c.id+
					`,"method":"tools/call","params":{"_meta":{"x":1,"progressToken":`+c.token+
					`},"name":"a"}}`)
				m := l.process.Expect(t, "tools/call")
				want := fmt.Sprintf(
					`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"_meta":{"x":1,"progressToken":%s},"name":"a"}}`, m.ID, c.sent)
				if m.Raw != want {
					t.Errorf("the server got %s\nwant           %s", m.Raw, want)
				}
				if string(m.ID) == c.id {
					t.Errorf("the client's id %s reached the server, want another id", c.id)
				}
				l.process.Send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":0.50}}`, c.sent)
				l.process.Answer(m.ID, `{"content":[ ]}`)
				p.ExpectAnswer(`{"jsonrpc":"2.0","id":` + c.id + `,"result":{"content":[ ]}}`)
				caller.ExpectReceived(
					t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`+c.token+`,"progress":0.50}}`)
			})
		})
	}
}

func TestAnswersInAnyOrderReachTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLegacyServer(t, upstream.Options{})
		defer l.close(t)
		a := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a"}}`)
		am := l.process.Expect(t, "tools/call")
		b := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"b"}}`)
		bm := l.process.Expect(t, "tools/call")
		l.process.Send(`[{"jsonrpc":"2.0","id":%s,"error":{"code":-5,"message":"b"}},{"jsonrpc":"2.0","id":%s,"result":{"a":1}}]`, bm.ID, am.ID)
		b.ExpectAnswer(`{"jsonrpc":"2.0","id":7,"error":{"code":-5,"message":"b"}}`)
		a.ExpectAnswer(`{"jsonrpc":"2.0","id":7,"result":{"a":1}}`)
	})
}

func TestAnswerWaitsForEarlierMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLegacyServer(t, upstream.Options{})
		defer l.close(t)
		l.client.Slow = make(chan struct{})
		p := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`)
		m := l.process.Expect(t, "tools/call")
		l.process.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}`)
		l.process.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":2}}`)
		l.process.Answer(m.ID, `{}`)
		p.ExpectWaiting()
		l.client.Slow <- struct{}{}
		p.ExpectWaiting()
		l.client.Slow <- struct{}{}
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		l.client.ExpectReceived(
			t, `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}`,
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":2}}`)
	})
}

func TestSlowClientDoesNotBlockTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLegacyServer(t, upstream.Options{})
		defer l.close(t)
		l.client.Slow = make(chan struct{})
		p := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`)
		l.process.Expect(t, "tools/call")
		for i := range 3000 {
			l.process.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":%d}}`, i)
		}
		synctest.Wait()
		if n := l.process.Unread(); n > 0 {
			t.Errorf("%d messages were not read, want 0", n)
		}
		l.process.Send(`{"jsonrpc":"2.0","id":"alive?","method":"ping"}`)
		if m := l.process.Next(t); string(m.ID) != `"alive?"` || string(m.Result) != `{}` {
			t.Errorf("ping was answered with %s, want an empty result", m.Raw)
		}
		p.Cancel(context.Canceled)
		p.ExpectError("canceled")
		close(l.client.Slow)
		synctest.Wait()
		logs := l.client.Received()
		last := logs[len(logs)-1]
		if len(logs) > 1100 || !strings.HasSuffix(last, `{"data":2999}}`) {
			t.Errorf("the client got %d log messages, the last is %s; want at most 1100, and the "+
				"last with data 2999", len(logs), last)
		}
	})
}

func TestFullQueueEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLegacyServer(t, upstream.Options{})
		defer l.close(t)
		l.client.Slow = make(chan struct{})
		p := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`)
		l.process.Expect(t, "tools/call")
		for range 2000 {
			l.process.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
		p.ExpectError("too many of the server's messages wait for the client")
	})
}

func TestCancelledCallIsCancelledAtTheServer(t *testing.T) {
	notification := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c","reason":"changed \u006dy mind","_meta":{}}}`
	for _, c := range []struct {
		name  string
		cause func(t *testing.T) error
		want  string
	}{
		{"with the client's notification", func(t *testing.T) error {
			return &proxy.CancelledError{Notification: upstreamtest.Pass(t, notification)}
		}, `{"requestId":%s,"reason":"changed \u006dy mind","_meta":{}}`},
		{"with a modern client's notification", func(t *testing.T) error {
			return &proxy.CancelledError{Notification: upstreamtest.Pass(t,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","x":1}}}`)}
		}, `{"requestId":%s,"_meta":{"x":1}}`},
		{"without a notification", func(t *testing.T) error {
			return &proxy.CancelledError{}
		}, `{"requestId":%s}`},
		{"after a timeout", func(t *testing.T) error {
			return context.DeadlineExceeded
		}, `{"requestId":%s,"reason":"timed out"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := startLegacyServer(t, upstream.Options{})
				defer l.close(t)
				p := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
					`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"a"}}`)
				m := l.process.Expect(t, "tools/call")
				cause := c.cause(t)
				p.Cancel(cause)
				synctest.Wait()
				<-p.Done
				if !errors.Is(p.Err, cause) {
					t.Errorf("the call failed with %v, want %v", p.Err, cause)
				}
				n := l.process.Expect(t, "notifications/cancelled")
				if want := fmt.Sprintf(c.want, m.ID); string(n.Params) != want {
					t.Errorf("the server got %s, want %s", n.Params, want)
				}
				l.process.Answer(m.ID, `{}`) // too late
				q := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
					`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"b"}}`)
				m = l.process.Expect(t, "tools/call")
				l.process.Answer(m.ID, `{"b":1}`)
				q.ExpectAnswer(`{"jsonrpc":"2.0","id":"c","result":{"b":1}}`)
			})
		})
	}
}

func TestCancelledInitializeEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLegacyServer(t, upstream.Options{})
		defer l.close(t)
		p := upstreamtest.StartCall(t, l, l.client, initializeRequest)
		srv := l.Last(t)
		srv.Expect(t, "initialize")
		p.Cancel(context.DeadlineExceeded)
		p.ExpectError("deadline")
		srv.ExpectNothing(t)
		select {
		case <-srv.Gone:
		default:
			t.Error("the process still runs after initialize was cancelled")
		}
		p = upstreamtest.StartCall(t, l, l.client, initializeRequest)
		l.process = l.Last(t)
		l.acceptInitialize(t)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
	})
}

func TestServerRequestsReachTheRightHandler(t *testing.T) {
	const question = `{"jsonrpc":"2.0","id":"q\u0031","method":"roots/list"}`
	setup := func(t *testing.T) (*legacyServer, *upstreamtest.Client, *upstreamtest.Call) {
		l := startLegacyServer(t, upstream.Options{})
		l.client.OnAsk = upstreamtest.AnswerWith(`{"of":"session"}`)
		c := &upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{"of":"call"}`)}
		p := upstreamtest.StartCall(t, l, c,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`)
		l.process.Expect(t, "tools/call")
		return l, c, p
	}
	expect := func(t *testing.T, l *legacyServer, want string) {
		t.Helper()
		if m := l.process.Next(t); m.Raw != want {
			t.Errorf("the server got %s, want %s", m.Raw, want)
		}
	}
	t.Run("a request goes to the only call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, _, _ := setup(t)
			defer l.close(t)
			l.process.Send(question)
			expect(t, l, `{"jsonrpc":"2.0","id":"q\u0031","result":{"of":"call"}}`)
		})
	})
	t.Run("a request goes to the session when there are several calls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, c, _ := setup(t)
			defer l.close(t)
			upstreamtest.StartCall(t, l, c,
				`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b"}}`)
			l.process.Expect(t, "tools/call")
			l.process.Send(question)
			expect(t, l, `{"jsonrpc":"2.0","id":"q\u0031","result":{"of":"session"}}`)
		})
	})
	t.Run("a request goes to the tasks/result of its task", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, _, _ := setup(t)
			defer l.close(t)
			upstreamtest.StartCall(t, l,
				&upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{"of":"task"}`)},
				`{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"t"}}`)
			l.process.Expect(t, "tasks/result")
			l.process.Send(`{"jsonrpc":"2.0","id":4,"method":"elicitation/create","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}}`)
			expect(t, l, `{"jsonrpc":"2.0","id":4,"result":{"of":"task"}}`)
		})
	})
	t.Run("a request is delivered after the messages that were sent before it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, _, _ := setup(t)
			defer l.close(t)
			l.client.Slow = make(chan struct{})
			l.process.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
			l.process.Send(question)
			l.process.ExpectNothing(t)
			close(l.client.Slow)
			expect(t, l, `{"jsonrpc":"2.0","id":"q\u0031","result":{"of":"call"}}`)
		})
	})
	t.Run("a request is not answered when the server cancels it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, c, _ := setup(t)
			defer l.close(t)
			var cause error
			c.OnAsk = func(ctx context.Context, m *mcp.Message) pipeline.Passed {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return upstreamtest.AnswerWith(`{}`)(t.Context(), m)
			}
			l.process.Send(question)
			synctest.Wait()
			l.process.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q\u0031"}}`)
			l.process.ExpectNothing(t)
			if !errors.As(cause, new(*proxy.WithdrawnError)) {
				t.Errorf("the handler's context ended with %v, want a WithdrawnError", cause)
			}
		})
	})
	t.Run("a request waits for its turn, and is refused when too many wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, c, _ := setup(t)
			defer l.close(t)
			var asked atomic.Int32
			hold := make(chan struct{})
			c.OnAsk = func(ctx context.Context, m *mcp.Message) pipeline.Passed {
				asked.Add(1)
				<-hold
				return upstreamtest.AnswerWith(`{"roots":[]}`)(ctx, m)
			}
			const limit, queue = 256, 1024
			for i := range limit + queue + 1 {
				l.process.Send(`{"jsonrpc":"2.0","id":%d,"method":"roots/list"}`, i)
				synctest.Wait()
			}
			if m := l.process.Next(t); string(m.ID) != "1280" || m.Error == nil ||
				m.Error.Code != mcp.CodeInternalError {
				t.Errorf("the server got %s, want an internal error for the request 1280", m.Raw)
			}
			if n := asked.Load(); n != limit {
				t.Errorf("the client got %d requests at a time, want %d", n, limit)
			}
			before := c.Activity.Load()
			time.Sleep(time.Minute)
			if c.Activity.Load() == before {
				t.Error("the client's call reported no activity while server requests waited")
			}
			l.process.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1000}}`)
			synctest.Wait()
			close(hold)
			for range limit + queue - 1 {
				if m := l.process.Next(t); m.Error != nil || string(m.ID) == "1000" {
					t.Fatalf("the server got %s, want the client's answer", m.Raw)
				}
			}
			l.process.ExpectNothing(t)
		})
	})
	t.Run("a notification waits until a session uses the connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := &upstreamtest.Launcher{}
			u := upstream.New(upstream.Options{Name: "files", Dial: upstream.Dial{Pipe: st.Start},
				ProbeTimeout: time.Second})
			defer u.Close()
			// The server does not answer the probe. Revisions succeeds after ProbeTimeout.
			if _, err := u.Revisions(t.Context()); err != nil {
				t.Fatal(err)
			}
			srv := st.Last(t)
			srv.Expect(t, "server/discover")
			srv.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"early"}}`)
			client := &upstreamtest.Client{}
			s := openSession(t, u, mcp.Rev20250618, client)
			p := upstreamtest.StartCall(t, s, client, initializeRequest)
			srv.Answer(srv.Expect(t, "initialize").ID, initializeResult)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
			client.ExpectReceived(
				t, `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"early"}}`)
			if n := st.Count(); n != 1 {
				t.Errorf("%d processes were started, want only the probed process", n)
			}
		})
	})
}

func TestInvalidAnswers(t *testing.T) {
	const request = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`
	t.Run("an error without an id answers the only call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := startLegacyServer(t, upstream.Options{})
			defer l.close(t)
			p := upstreamtest.StartCall(t, l, &upstreamtest.Client{}, request)
			l.process.Expect(t, "tools/call")
			l.process.Send(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}`)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"error":{"code":-32700,"message":"?"}}`)
		})
	})
	t.Run("an invalid answer fails its call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := startLegacyServer(t, upstream.Options{})
			defer l.close(t)
			p := upstreamtest.StartCall(t, l, &upstreamtest.Client{}, request)
			m := l.process.Expect(t, "tools/call")
			l.process.Send(`{"jsonrpc":"2.0","id":%s,"result":{"a":1,"a":2}}`, m.ID)
			p.ExpectError("the answer is not a valid message")
			q := upstreamtest.StartCall(t, l, &upstreamtest.Client{}, request)
			l.process.Answer(l.process.Expect(t, "tools/call").ID, `{}`)
			q.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		})
	})
	t.Run("more than a hundred invalid messages end the connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := startLegacyServer(t, upstream.Options{})
			defer l.close(t)
			p := upstreamtest.StartCall(t, l, &upstreamtest.Client{}, request)
			l.process.Expect(t, "tools/call")
			for range 100 {
				l.process.Send(`{"jsonrpc":"1.0"}`)
			}
			p.ExpectWaiting()
			l.process.Send(`{`)
			p.ExpectError("more than 100 invalid messages")
		})
	})
}

func TestTooLargeMessageFailsTheOnlyCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLegacyServer(t, upstream.Options{})
		defer l.close(t)
		p := upstreamtest.StartCall(t, l, &upstreamtest.Client{}, toolsCall)
		l.process.Expect(t, "tools/call")
		l.process.SendTooLarge()
		p.ExpectError("is too large") // no other call was in flight
		p = upstreamtest.StartCall(t, l, &upstreamtest.Client{}, toolsCall)
		m := l.process.Expect(t, "tools/call")
		q := upstreamtest.StartCall(t, l, &upstreamtest.Client{}, toolsCall)
		l.process.Expect(t, "tools/call")
		l.process.SendTooLarge()
		p.ExpectWaiting()
		q.ExpectWaiting()
		l.process.Answer(m.ID, `{}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":"c","result":{}}`)
	})
}

func TestAnswersToPingsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLegacyServer(t, upstream.Options{})
		defer l.close(t)
		for i := range 1000 {
			l.process.Send(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)
		}
		synctest.Wait()
		answers := 0
		for ; len(l.process.Written) > 0; synctest.Wait() {
			l.process.Next(t)
			answers++
		}
		if answers < 256 || answers > 100+256 { // 100 fit into the pipe
			t.Errorf("%d answers were kept, want 256 to 356", answers)
		}
	})
}

func TestClientNotificationsNeedInitialize(t *testing.T) {
	const changed = `{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{ }}`
	synctest.Test(t, func(t *testing.T) {
		l := openLegacyServer(t, upstream.Options{})
		for _, raw := range []string{changed, initializedNotification} {
			if err := l.Notify(t.Context(), upstreamtest.Pass(t, raw)); !errors.As(err,
				new(*proxy.UnavailableError)) {
				t.Errorf("before initialize: the error is %v, want an UnavailableError", err)
			}
		}
		l.close(t)
		l = startLegacyServer(t, upstream.Options{})
		defer l.close(t)
		l.notify(t, changed)
		if m := l.process.Next(t); m.Raw != changed {
			t.Errorf("the server got %s, want %s", m.Raw, changed)
		}
	})
}

func TestRequestsWaitForInitialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLegacyServer(t, upstream.Options{})
		defer l.close(t)
		p := upstreamtest.StartCall(t, l, l.client, initializeRequest)
		l.process = l.Last(t)
		l.acceptInitialize(t)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
		q := upstreamtest.StartCall(t, l, l.client, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		l.process.ExpectNothing(t)
		l.notify(t, initializedNotification)
		l.process.Expect(t, "notifications/initialized")
		l.process.Answer(l.process.Expect(t, "tools/list").ID, `{"tools":[]}`)
		q.ExpectAnswer(`{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}`)
	})
}

func TestClientThatNeverSendsInitializedIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLegacyServer(t, upstream.Options{})
		defer l.close(t)
		upstreamtest.StartCall(t, l, l.client, initializeRequest)
		l.process = l.Last(t)
		l.acceptInitialize(t)
		synctest.Wait()
		upstreamtest.StartCall(t, l, l.client, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		time.Sleep(5 * time.Second)
		l.process.Expect(t, "tools/list")
	})
}

func TestCallsWithTheSameProgressTokenGetTheirOwnProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLegacyServer(t, upstream.Options{})
		defer l.close(t)
		one, two := &upstreamtest.Client{}, &upstreamtest.Client{}
		const params = `"method":"tools/call","params":{"name":"a","_meta":{"progressToken":7}}}`
		p := upstreamtest.StartCall(t, l, one, `{"jsonrpc":"2.0","id":1,`+params)
		first := l.process.Expect(t, "tools/call")
		q := upstreamtest.StartCall(t, l, two, `{"jsonrpc":"2.0","id":2,`+params)
		second := l.process.Expect(t, "tools/call")
		l.process.Send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"gatekit-%s","progress":2}}`, second.ID)
		l.process.Send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`)
		l.process.Answer(first.ID, `{}`)
		l.process.Answer(second.ID, `{}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		q.ExpectAnswer(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		one.ExpectReceived(
			t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`)
		two.ExpectReceived(
			t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":2}}`)
	})
}

func TestProgressOfATaskIsDeliveredAfterItsCallHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLegacyServer(t, upstream.Options{})
		defer l.close(t)
		p := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","task":{},"_meta":{"progressToken":"mine"}}}`)
		m := l.process.Expect(t, "tools/call")
		l.process.Answer(m.ID, `{"task":{"taskId":"t","status":"working"}}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"t","status":"working"}}}`)
		l.process.Send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"mine","progress":1}}`)
		l.process.Send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":77,"progress":1}}`)
		l.client.ExpectReceived(
			t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"mine","progress":1}}`)
	})
}

// acceptRestart checks that a restarted server gets the client's initialize, and answers it.
func (l *legacyServer) acceptRestart(t *testing.T) {
	t.Helper()
	l.process = l.Last(t)
	m := l.process.Expect(t, "initialize")
	if want := `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`; string(m.Params) != want {
		t.Errorf("initialize was sent again with %s, want %s", m.Params, want)
	}
	l.process.Answer(m.ID, initializeResult)
	l.process.Expect(t, "notifications/initialized")
}

func TestStateIsSentAgainToARestartedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		l := startLegacyServer(t, upstream.Options{Restart: true, Event: func(action, _ string,
			_ error) {
			events = append(events, action)
		}})
		defer l.close(t)
		for _, raw := range []string{
			`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"info"}}`,
			`{"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"debug"}}`,
			`{"jsonrpc":"2.0","id":4,"method":"resources/subscribe","params":{"uri":"a:b"}}`,
			`{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"a:c"}}`,
			`{"jsonrpc":"2.0","id":6,"method":"resources/unsubscribe","params":{"uri":"a:c"}}`,
		} {
			upstreamtest.StartCall(t, l, l.client, raw)
			l.process.Answer(l.process.Next(t).ID, `{}`)
			synctest.Wait()
		}
		p := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a"}}`)
		l.process.Expect(t, "tools/call")
		l.process.Close()
		p.ExpectError("the connection ended")
		q := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":8,"method":"tools/list"}`)
		q.ExpectWaiting()
		time.Sleep(200 * time.Millisecond)
		l.acceptRestart(t)
		m := l.process.Expect(t, "logging/setLevel")
		if string(m.Params) != `{"level":"debug"}` {
			t.Errorf("the log level was set with %s, want debug", m.Params)
		}
		l.process.Answer(m.ID, `{}`)
		m = l.process.Expect(t, "resources/subscribe")
		if string(m.Params) != `{"uri":"a:b"}` {
			t.Errorf("the subscription was sent again with %s, want only a:b", m.Params)
		}
		l.process.Answer(m.ID, `{}`)
		l.process.Answer(l.process.Expect(t, "tools/list").ID, `{"tools":[]}`)
		q.ExpectAnswer(`{"jsonrpc":"2.0","id":8,"result":{"tools":[]}}`)
		l.client.ExpectReceived(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		if want := []string{"lost", "restarted"}; !slices.Equal(events, want) {
			t.Errorf("the events are %v, want %v", events, want)
		}
	})
}

func TestRestartsAreDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLegacyServer(t, upstream.Options{Restart: true})
		defer l.close(t)
		began := time.Now()
		var at []time.Duration
		for range 6 {
			before := l.Count()
			l.process.Close()
			for l.Count() == before {
				time.Sleep(100 * time.Millisecond)
			}
			at = append(at, time.Since(began))
			l.acceptRestart(t)
			synctest.Wait()
		}
		for i, least := range []time.Duration{200, 600, 1400, 3000, 6200, 300_000} {
			if at[i] < least*time.Millisecond || at[i] > least*time.Millisecond+time.Second {
				t.Errorf("restart %d came after %v, want %v", i+1, at[i], least*time.Millisecond)
			}
		}
	})
}

func TestSessionSurvivesRefusalsOfARestartedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLegacyServer(t, upstream.Options{Restart: true})
		defer l.close(t)
		upstreamtest.StartCall(t, l, l.client,
			`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"info"}}`)
		l.process.Answer(l.process.Expect(t, "logging/setLevel").ID, `{}`)
		synctest.Wait()
		l.process.Close()
		time.Sleep(200 * time.Millisecond)
		srv := l.Last(t)
		srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"not now"}}`,
			srv.Expect(t, "initialize").ID)
		synctest.Wait()
		if !srv.HasEnded() {
			t.Error("a process that refused initialize still runs")
		}
		p := upstreamtest.StartCall(t, l, l.client, toolsList)
		time.Sleep(400 * time.Millisecond)
		l.acceptRestart(t)
		l.process.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"no more levels"}}`,
			l.process.Expect(t, "logging/setLevel").ID)
		// The session is used although the log level could not be set.
		l.process.Answer(l.process.Expect(t, "tools/list").ID, `{}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":"l","result":{}}`)
	})
}

func TestServerLostBeforeInitializedIsRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLegacyServer(t, upstream.Options{Restart: true})
		defer l.close(t)
		upstreamtest.StartCall(t, l, l.client, initializeRequest)
		l.process = l.Last(t)
		l.acceptInitialize(t)
		synctest.Wait()
		l.process.Close()
		synctest.Wait()
		l.notify(t, initializedNotification) // while no process runs
		time.Sleep(200 * time.Millisecond)
		l.acceptRestart(t)
		l.process.ExpectNothing(t)
	})
}

func TestCallFailsWhenTheServerStaysLost(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("Options.Restart is %v", restart), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := startLegacyServer(t, upstream.Options{Restart: restart})
				defer l.close(t)
				l.Fail = errors.New("no such program")
				l.process.Close()
				synctest.Wait()
				p := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
					`{"jsonrpc":"2.0","id":8,"method":"tools/list"}`)
				time.Sleep(time.Second)
				if restart {
					p.ExpectError("the process could not be started")
				} else {
					p.ExpectError("the connection ended")
				}
				if !errors.As(p.Err, new(*proxy.UnavailableError)) {
					t.Errorf("the error is a %T, want an UnavailableError", p.Err)
				}
			})
		})
	}
}

func TestInitializeFailsWhenTheProcessCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLegacyServer(t, upstream.Options{Restart: true})
		defer l.close(t)
		l.Fail = errors.New("no such program")
		p := upstreamtest.StartCall(t, l, l.client, initializeRequest)
		p.ExpectError("the process could not be started")
		l.Fail = nil
		p = upstreamtest.StartCall(t, l, l.client, initializeRequest)
		l.process = l.Last(t)
		l.acceptInitialize(t)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
	})
}

// recordingBridge is a Bridge that keeps the NativeSessions that Open gets. Its sessions serve no
// requests.
type recordingBridge struct{ native upstream.NativeSessions }

func (b *recordingBridge) Open(native upstream.NativeSessions, _ proxy.OpenOptions,
	_ proxy.Handler) proxy.Server {
	b.native = native
	return unusedServer{}
}

// unusedServer is a proxy.Server that serves no requests.
type unusedServer struct{ proxy.Server }

func (unusedServer) Close() error { return nil }

// A client may send initialize again as soon as a process has refused it. That process may take
// seconds to end, so the number of processes that are ending is bounded.
func TestClosingProcessesAreBounded(t *testing.T) {
	const grace = 4 * time.Second
	const no = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"no"}}`
	t.Run("the answer waits for the end of the process", func(t *testing.T) {
		for _, c := range []struct{ name, answer, fails string }{
			{"an error", no, ``},
			{"an unknown revision",
				`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2031-01-01"}}`,
				`"2031-01-01"`},
			{"an invalid answer", `{"jsonrpc":"2.0","id":%s,"result":{"a":1,"a":2}}`,
				`not a valid message`},
		} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := openLegacyServer(t, upstream.Options{})
					defer l.close(t)
					l.CloseDelay = grace
					for range 3 {
						p := upstreamtest.StartCall(t, l, l.client, initializeRequest)
						srv := l.Last(t)
						srv.Send(c.answer, srv.Expect(t, "initialize").ID)
						p.ExpectWaiting()
						time.Sleep(grace)
						if n := len(l.Alive()); n != 0 {
							t.Errorf("%d processes are alive, want 0", n)
						}
						if c.fails != "" {
							p.ExpectError(c.fails)
						} else {
							p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","error":{"code":-32603,"message":"no"}}`)
						}
					}
				})
			})
		}
	})
	t.Run("the answer waits no longer than the request's deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := openLegacyServer(t, upstream.Options{})
			defer l.close(t)
			l.CloseDelay = grace
			p := upstreamtest.StartCall(t, l, l.client, initializeRequest)
			srv := l.Last(t)
			srv.Send(no, srv.Expect(t, "initialize").ID)
			p.ExpectWaiting()
			p.Cancel(context.DeadlineExceeded)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","error":{"code":-32603,"message":"no"}}`)
		})
	})
	// When the client gives up initialize or closes the session, no call waits until the process
	// has ended. So the number of processes that are ending is limited, and the next initialize
	// waits.
	for _, c := range []struct {
		name    string
		abandon func(t *testing.T, s proxy.Server, srv *upstreamtest.PipeServer,
			p *upstreamtest.Call)
	}{
		{"many clients give up initialize", func(t *testing.T, s proxy.Server,
			srv *upstreamtest.PipeServer, p *upstreamtest.Call) {
			p.Cancel(context.Canceled)
			p.ExpectError("canceled")
		}},
		{"many clients close sessions before initialized", func(t *testing.T, s proxy.Server,
			srv *upstreamtest.PipeServer, p *upstreamtest.Call) {
			srv.Answer(srv.Expect(t, "initialize").ID, initializeResult)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
			go s.Close()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &upstreamtest.Launcher{CloseDelay: grace}
				u := upstream.New(upstream.Options{Name: "files", Era: "legacy",
					Dial: upstream.Dial{Pipe: st.Start}})
				defer u.Close()
				for range 16 {
					s := openSession(t, u, mcp.Rev20251125, &upstreamtest.Client{})
					p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, initializeRequest)
					c.abandon(t, s, st.Last(t), p)
				}
				if n := len(st.Alive()); n != 16 {
					t.Fatalf("%d processes are alive, want 16", n)
				}
				s := openSession(t, u, mcp.Rev20251125, &upstreamtest.Client{})
				p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, initializeRequest)
				if n := st.Count(); n != 16 {
					t.Errorf("%d processes were started, want 16, because 16 are still ending", n)
				}
				p.Cancel(context.DeadlineExceeded)
				p.ExpectError("deadline")
				p = upstreamtest.StartCall(t, s, &upstreamtest.Client{}, initializeRequest)
				time.Sleep(grace)
				if n := st.Count(); n != 17 {
					t.Errorf("%d processes were started, want 17 after the first 16 have ended", n)
				}
				srv := st.Last(t)
				srv.Answer(srv.Expect(t, "initialize").ID, initializeResult)
				p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
			})
		})
	}
	t.Run("a session that CloseLater closes counts once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st, bridge := &upstreamtest.Launcher{CloseDelay: grace}, &recordingBridge{}
			u := upstream.New(upstream.Options{Name: "files", Era: "legacy",
				Dial: upstream.Dial{Pipe: st.Start}, Bridge: bridge})
			defer u.Close()
			openSession(t, u, mcp.Rev20260728, &upstreamtest.Client{})
			begin := func() (upstream.LegacySession, *upstreamtest.Call) {
				s := bridge.native.OpenLegacy(proxy.OpenOptions{}, &upstreamtest.Client{})
				return s, upstreamtest.StartCall(t, s.(proxy.Server), &upstreamtest.Client{},
					initializeRequest)
			}
			for n := range 16 {
				s, p := begin()
				if st.Count() != n+1 {
					t.Fatalf("%d processes were started, want %d, because only %d are ending",
						st.Count(), n+1, n)
				}
				srv := st.Last(t)
				srv.Answer(srv.Expect(t, "initialize").ID, initializeResult)
				p.ExpectAnswer(`{"jsonrpc":"2.0","id":"hi","result":` + initializeResult + `}`)
				s.CloseLater()
				synctest.Wait()
			}
			s, p := begin()
			if st.Count() != 16 {
				t.Errorf("%d processes were started, want 16, because 16 are ending", st.Count())
			}
			p.Cancel(context.Canceled)
			p.ExpectError("canceled")
			s.Close()
			time.Sleep(grace)
		})
	})
	t.Run("processes of initialized sessions do not count", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := &upstreamtest.Launcher{CloseDelay: grace}
			u := upstream.New(upstream.Options{Name: "files", Era: "legacy",
				Dial: upstream.Dial{Pipe: st.Start}})
			defer u.Close()
			begin := func() *upstreamtest.Call {
				return upstreamtest.StartCall(t, openSession(t, u, mcp.Rev20251125,
					&upstreamtest.Client{}), &upstreamtest.Client{}, initializeRequest)
			}
			for range 100 {
				begin()
			}
			if n := st.Count(); n != 100 {
				t.Errorf("%d processes were started, want 100", n)
			}
			for range 100 {
				s := openSession(t, u, mcp.Rev20251125, &upstreamtest.Client{})
				upstreamtest.StartCall(t, s, &upstreamtest.Client{}, initializeRequest)
				srv := st.Last(t)
				srv.Answer(srv.Expect(t, "initialize").ID, initializeResult)
				synctest.Wait()
				if err := s.Notify(t.Context(), upstreamtest.Pass(t,
					initializedNotification)); err != nil {
					t.Fatal(err)
				}
				go s.Close()
			}
			begin()
			if n := st.Count(); n != 201 {
				t.Errorf("%d processes were started, want 201", n)
			}
			// The deferred Close must not wait for the lock of another Close: synctest's clock does
			// not advance while a goroutine waits for a lock.
			time.Sleep(grace)
		})
	})
}

func TestUnknownRevisionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLegacyServer(t, upstream.Options{})
		defer l.close(t)
		p := upstreamtest.StartCall(t, l, l.client, initializeRequest)
		srv := l.Last(t)
		srv.Answer(srv.Expect(t, "initialize").ID,
			`{"protocolVersion":"2031-01-01","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`)
		p.ExpectError(`"2031-01-01"`)
	})
}

func TestCloseFailsCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLegacyServer(t, upstream.Options{Restart: true})
		p := upstreamtest.StartCall(t, l, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":8,"method":"tools/list"}`)
		l.process.Expect(t, "tools/list")
		if err := l.upstream.Close(); err != nil {
			t.Error(err)
		}
		p.ExpectError("closed")
		if n := l.Count(); n != 1 {
			t.Errorf("%d processes were started, want 1", n)
		}
		if _, err := l.upstream.Open(t.Context(), proxy.OpenOptions{Revision: mcp.Rev20251125},
			l.client); err == nil {
			t.Error("Open of a closed server succeeded, want an error")
		}
	})
}
