package bridge_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/bridge"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// streamServer is a legacy server over Streamable HTTP, as the bridge sees it. Its sessions answer
// initialize. A call gets no answer.
type streamServer struct {
	offersStream bool // each session has a GET stream

	mu    sync.Mutex
	calls []streamCall // the calls that the server got, the oldest first
}

// streamCall is a call at a streamServer.
type streamCall struct {
	session *streamSession
	handler proxy.Handler
}

// streamSession is a session with a streamServer.
type streamSession struct {
	server *streamServer
	feed   proxy.Handler
}

// Name implements upstream.NativeSessions.
func (s *streamServer) Name() string { return "files" }

// SpeaksModern implements upstream.NativeSessions.
func (s *streamServer) SpeaksModern() bool { return false }

// SharesStream implements upstream.NativeSessions.
func (s *streamServer) SharesStream() bool { return false }

// OpenLegacy implements upstream.NativeSessions.
func (s *streamServer) OpenLegacy(_ proxy.OpenOptions, feed proxy.Handler) upstream.LegacySession {
	return &streamSession{s, feed}
}

// OpenModern implements upstream.NativeSessions.
func (s *streamServer) OpenModern(proxy.OpenOptions) upstream.ModernSession { return nil }

// StartContext implements upstream.NativeSessions.
func (s *streamServer) StartContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// Send implements upstream.LegacySession.
func (s *streamSession) Send(ctx context.Context, request upstream.Outgoing,
	h proxy.Handler) (*mcp.Message, error) {
	if m := request.Message(); m.Method == "initialize" {
		return mcp.NewResponse(m.ID(), []byte(`{"protocolVersion":"2025-11-25","capabilities":{}}`)),
			nil
	}
	s.server.mu.Lock()
	s.server.calls = append(s.server.calls, streamCall{s, h})
	s.server.mu.Unlock()
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// SendNotification implements upstream.LegacySession.
func (s *streamSession) SendNotification(context.Context, upstream.Outgoing) error { return nil }

// HasSessionStream implements upstream.LegacySession.
func (s *streamSession) HasSessionStream() bool { return s.server.offersStream }

// Close implements upstream.LegacySession.
func (s *streamSession) Close() error { return nil }

// CloseLater implements upstream.LegacySession.
func (s *streamSession) CloseLater() {}

// TestCallsThatShareASessionOverHTTP makes two calls of two clients at a server over HTTP. The two
// calls share a session if the bridge can tell which call a question of the server belongs to.
func TestCallsThatShareASessionOverHTTP(t *testing.T) {
	ask := func(h proxy.Handler, method string) {
		q := mcp.NewRequest("1", method, []byte(`{}`))
		q.Direction = mcp.ToClient
		h.HandleRequests(context.Background(), []*mcp.Message{q})
	}
	inCall := func(c streamCall) { ask(c.handler, "elicitation/create") }
	for _, c := range []struct {
		name         string
		offersStream bool
		asks         func(c streamCall) // questions during the first call
		shared       bool               // the second call shares the session of the first call
	}{
		{"the server has no GET stream", false, func(streamCall) {}, true},
		{"the server has a GET stream", true, func(streamCall) {}, false},
		{"the server asks on the stream of the call", true, inCall, true},
		{"the server asks for the roots on the GET stream", true, func(c streamCall) {
			inCall(c)
			ask(c.session.feed, "roots/list")
		}, true},
		{"the server asks the user on the GET stream", true, func(c streamCall) {
			inCall(c)
			ask(c.session.feed, "elicitation/create")
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &streamServer{offersStream: c.offersStream}
				s := bridge.New(bridge.Options{}).Open(server,
					proxy.OpenOptions{Revision: mcp.Rev20260728, Shared: true},
					&upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{}`)})
				defer s.Close()
				call := func() {
					upstreamtest.StartCall(t, s,
						&upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{}`)},
						requestWithCapabilities(`1`, "tools/call",
							`{"elicitation":{},"roots":{}}`, `,"name":"x"`))
					synctest.Wait()
				}
				calls := func() []streamCall {
					synctest.Wait()
					server.mu.Lock()
					defer server.mu.Unlock()
					return server.calls
				}
				call()
				if n := len(calls()); n != 1 {
					t.Fatalf("the server got %d calls, want 1", n)
				}
				c.asks(calls()[0])
				call()
				if got := len(calls()) == 2; got != c.shared {
					t.Errorf("the second call uses the session of the first call: %v, want %v", got,
						c.shared)
				}
				time.Sleep(furtherDelay)
				if got := calls(); len(got) != 2 {
					t.Errorf("the server got %d calls, want 2", len(got))
				} else if shared := got[0].session == got[1].session; shared != c.shared {
					t.Errorf("the calls share a session: %v, want %v", shared, c.shared)
				}
			})
		})
	}
}

// TestCallWaitsOnlyOnceForAFurtherSession ends other requests while a call waits. The call still
// gets a further session in time.
func TestCallWaitsOnlyOnceForAFurtherSession(t *testing.T) {
	runCallsOfClients(t, func(t *testing.T, c *callsOfClients) {
		c.call(0)
		first := c.started.Last(t)
		acceptInitialize(t, first, canElicit)
		first.Expect(t, "tools/call")
		c.call(1)
		time.Sleep(furtherDelay * 3 / 5)
		list := upstreamtest.StartCall(t, c.server, &upstreamtest.Client{},
			requestWithCapabilities(`2`, "tools/list", canElicit, ``))
		first.Answer(first.Expect(t, "tools/list").ID, `{"tools":[]}`)
		synctest.Wait()
		if list.Err != nil {
			t.Error(list.Err)
		}
		time.Sleep(furtherDelay*2/5 - time.Millisecond)
		c.wantProcesses(1)
		time.Sleep(time.Millisecond)
		c.wantProcesses(2)
	})
}

// callOfSet makes a call of a client that declares set number n of the capabilities.
func callOfSet(t *testing.T, s proxy.Server, n int) (capabilities string) {
	t.Helper()
	capabilities = fmt.Sprintf(`{"elicitation":{},"experimental":{"n":%d}}`, n)
	upstreamtest.StartCall(t, s, &upstreamtest.Client{}, requestWithCapabilities(`1`, "tools/call",
		capabilities, `,"name":"x"`))
	synctest.Wait()
	return capabilities
}

// TestIdleSetOfCapabilitiesMakesRoom uses one set of capabilities more than can have sessions. All
// sessions of one idle set are closed, and no session of another set.
func TestIdleSetOfCapabilitiesMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openSharedLegacyServer(t, &upstreamtest.Client{}, true)
		defer end()
		begin := func(set int) (srv *upstreamtest.PipeServer, answer func()) {
			capabilities := callOfSet(t, s, set)
			time.Sleep(furtherDelay)
			srv = st.Last(t)
			acceptInitialize(t, srv, capabilities)
			q := srv.Expect(t, "tools/call")
			return srv, func() { srv.Answer(q.ID, `{}`) }
		}
		first, answerFirst := begin(0)
		further, answerFurther := begin(0)
		answerFirst()
		answerFurther()
		for set := 1; set < 8; set++ {
			_, answer := begin(set)
			answer()
		}
		if n := len(st.Alive()); n != 9 {
			t.Fatalf("%d processes run, want 9", n)
		}
		begin(8)
		if n := len(st.Alive()); n != 8 || !first.HasEnded() || !further.HasEnded() {
			t.Errorf("%d processes run, want 8; the processes of the first set have ended: %v and "+
				"%v, want true", n, first.HasEnded(), further.HasEnded())
		}
	})
}

// TestSessionsAreBoundedByTheOptions uses a bridge with one set of capabilities and two further
// sessions. A call with another set waits until no request uses the first set. A parallel call
// that would need a third further session shares a session after five seconds.
func TestSessionsAreBoundedByTheOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &upstreamtest.Launcher{}
		u := newUpstream(st, upstream.Options{Era: "legacy", Restart: true,
			Bridge: bridge.New(bridge.Options{CapabilitySets: 1, FurtherSessions: 2})})
		defer u.Close()
		s, err := u.Open(t.Context(), proxy.OpenOptions{Session: "s",
			Principal: identity.FromID("ann"), Revision: mcp.Rev20260728, Shared: true},
			&upstreamtest.Client{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		processes := func(step string, want int) {
			t.Helper()
			if n := len(st.Alive()); n != want {
				t.Fatalf("%s: %d processes run, want %d", step, n, want)
			}
		}
		var answers []func()
		for range 3 {
			capabilities := callOfSet(t, s, 0)
			time.Sleep(furtherDelay)
			srv := st.Last(t)
			acceptInitialize(t, srv, capabilities)
			q := srv.Expect(t, "tools/call")
			answers = append(answers, func() { srv.Answer(q.ID, `{}`) })
		}
		processes("three parallel calls", 3)
		callOfSet(t, s, 0)
		time.Sleep(5*time.Second - time.Millisecond)
		for _, srv := range st.Alive() {
			srv.ExpectNothing(t)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		first := st.Alive()[0]
		shared := first.Expect(t, "tools/call")
		processes("a fourth call shares a session", 3)
		callOfSet(t, s, 1)
		time.Sleep(time.Minute)
		processes("a call with other capabilities waits", 3)
		first.Answer(shared.ID, `{}`)
		for _, answer := range answers {
			answer()
		}
		synctest.Wait()
		processes("a call with other capabilities", 1)
		if first := st.Last(t); first.HasEnded() {
			t.Error("the process of the other capabilities has ended")
		}
	})
}

// TestIdleFurtherSessionMakesRoom uses as many further sessions as there can be for one set of
// capabilities. When they are idle, one of them is closed for a call of another set.
func TestIdleFurtherSessionMakesRoom(t *testing.T) {
	for _, c := range []struct {
		name    string
		expires bool // the first session of the set is closed before
	}{{"the first session is open", false}, {"the first session has been closed", true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, st, end := openSharedLegacyServer(t, &upstreamtest.Client{}, true)
				defer end()
				begin := func(set int) (answer func()) {
					capabilities := callOfSet(t, s, set)
					time.Sleep(furtherDelay)
					srv := st.Last(t)
					acceptInitialize(t, srv, capabilities)
					q := srv.Expect(t, "tools/call")
					return func() { srv.Answer(q.ID, `{}`) }
				}
				var answers []func()
				for range 25 {
					answers = append(answers, begin(0))
				}
				if c.expires {
					answers[0]()
					time.Sleep(5*time.Minute + time.Second)
					if n := len(st.Alive()); n != 24 {
						t.Fatalf("%d processes run, want 24", n)
					}
					answers[0] = begin(0)
				}
				for _, answer := range answers {
					answer()
				}
				begin(1)
				if n := len(st.Alive()); n != 26 {
					t.Fatalf("%d processes run, want 26", n)
				}
				begin(1)
				if n := len(st.Alive()); n != 26 {
					t.Errorf("%d processes run after another call, want 26", n)
				}
			})
		})
	}
}

// TestQuestionOfAnAnsweredCallIsAskedInAnotherCall uses a server that answers a call while the
// client of the call is asked.
func TestQuestionOfAnAnsweredCallIsAskedInAnotherCall(t *testing.T) {
	for _, c := range []struct {
		name  string
		reply func(ctx context.Context, m *mcp.Message) pipeline.Passed // after the call has ended
		want  string                                                    // what the server gets
	}{
		{"the client could not be asked", func(context.Context, *mcp.Message) pipeline.Passed {
			return pipeline.Passed{}
		}, `{"jsonrpc":"2.0","id":"s","result":{"from":"another call"}}`},
		{"asking failed", func(ctx context.Context, m *mcp.Message) pipeline.Passed {
			return answerWithError(ctx, m, mcp.CodeInternalError)
		}, `{"jsonrpc":"2.0","id":"s","result":{"from":"another call"}}`},
		{"the client refused", func(ctx context.Context, m *mcp.Message) pipeline.Passed {
			return answerWithError(ctx, m, -1)
		}, `{"jsonrpc":"2.0","id":"s","error":{"code":-1,"message":"no"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, st, end := openLegacyServer(t, &upstreamtest.Client{})
				defer end()
				upstreamtest.StartCall(t, s,
					&upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{"from":"another call"}`)},
					requestWithCapabilities(`1`, "tools/call", canElicit, `,"name":"x"`))
				srv := st.Last(t)
				acceptInitialize(t, srv, canElicit)
				srv.Expect(t, "tools/call")
				answered := make(chan struct{})
				p := upstreamtest.StartCall(t, s, &upstreamtest.Client{OnAsk: func(
					ctx context.Context, m *mcp.Message) pipeline.Passed {
					<-answered
					return c.reply(ctx, m)
				}}, requestWithCapabilities(`2`, "tools/call", canElicit, `,"name":"y"`))
				q := srv.Expect(t, "tools/call")
				srv.Send(`{"jsonrpc":"2.0","id":"s","method":"elicitation/create","params":{}}`)
				synctest.Wait()
				srv.Answer(q.ID, `{}`)
				p.ExpectAnswer(`{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete",` +
					serverInfo + `}}`)
				close(answered)
				if a := srv.Next(t); a.Raw != c.want {
					t.Errorf("the server got %s, want %s", a.Raw, c.want)
				}
			})
		})
	}
}
