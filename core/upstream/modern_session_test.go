package upstream_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// newModernUpstream returns a modern server, and the launcher that starts its processes.
func newModernUpstream(o upstream.Options) (*upstream.Upstream, *upstreamtest.Launcher) {
	st := &upstreamtest.Launcher{}
	o.Name, o.Era, o.Dial.Pipe = "files", "modern", st.Start
	return upstream.New(o), st
}

func openModernSession(t *testing.T, u *upstream.Upstream, session, principal string) proxy.Server {
	t.Helper()
	s, err := u.Open(t.Context(), proxy.OpenOptions{Session: session,
		Principal: identity.FromID(principal),
		Revision:  mcp.Rev20260728}, &upstreamtest.Client{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSessionsOfOnePrincipalShareAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := newModernUpstream(upstream.Options{})
		defer u.Close()
		a, b, c := openModernSession(t, u, "a", "ann"), openModernSession(t, u, "b", "ann"),
			openModernSession(t, u, "c", "bob")
		pa := upstreamtest.StartCall(t, a, &upstreamtest.Client{}, upstreamtest.ModernRequest(`"x"`,
			"tools/list", ``, ``))
		srv := st.Last(t)
		ma := srv.Expect(t, "tools/list")
		pb := upstreamtest.StartCall(t, b, &upstreamtest.Client{}, upstreamtest.ModernRequest(`"x"`,
			"tools/list", ``, ``))
		mb := srv.Expect(t, "tools/list")
		if string(ma.ID) == string(mb.ID) {
			t.Errorf("two requests have the id %s, want different ids", ma.ID)
		}
		srv.Answer(mb.ID, `{"resultType":"complete","tools":["b"]}`)
		srv.Answer(ma.ID, `{"resultType":"complete","tools":["a"]}`)
		pa.ExpectAnswer(`{"jsonrpc":"2.0","id":"x","result":{"resultType":"complete","tools":["a"]}}`)
		pb.ExpectAnswer(`{"jsonrpc":"2.0","id":"x","result":{"resultType":"complete","tools":["b"]}}`)
		upstreamtest.StartCall(t, c, &upstreamtest.Client{}, upstreamtest.ModernRequest(`"x"`,
			"tools/list", ``, ``))
		if n := st.Count(); n != 2 {
			t.Errorf("%d processes were started for two principals, want 2", n)
		}
		st.Last(t).Expect(t, "tools/list")

		a.Close()
		time.Sleep(time.Minute)
		pb = upstreamtest.StartCall(t, b, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/list", ``, ``))
		srv.Expect(t, "tools/list")
		b.Close()
		pb.ExpectError("closed")
		time.Sleep(time.Minute)
		if !srv.HasEnded() {
			t.Error("an unused process still runs after a minute")
		}
	})
}

func TestIdleProcessIsKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := newModernUpstream(upstream.Options{})
		defer u.Close()
		a := openModernSession(t, u, "a", "")
		upstreamtest.StartCall(t, a, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/list", ``, ``))
		st.Last(t).Expect(t, "tools/list")
		a.Close()
		time.Sleep(time.Second)
		b := openModernSession(t, u, "b", "")
		defer b.Close()
		time.Sleep(time.Minute)
		upstreamtest.StartCall(t, b, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/list", ``, ``))
		// The request of session a was cancelled when the session was closed.
		st.Last(t).Expect(t, "notifications/cancelled")
		st.Last(t).Expect(t, "tools/list")
		if n := st.Count(); n != 1 {
			t.Errorf("%d processes were started, want 1", n)
		}
	})
}

func TestSubscriptionOverAPipe(t *testing.T) {
	const filter = `,"notifications":{"toolsListChanged":true}`
	setup := func(t *testing.T) (end func(), srv *upstreamtest.PipeServer, c *upstreamtest.Client,
		p *upstreamtest.Call, m upstreamtest.Message) {
		u, st := newModernUpstream(upstream.Options{})
		s := openModernSession(t, u, "a", "")
		c = &upstreamtest.Client{}
		p = upstreamtest.StartCall(t, s, c, upstreamtest.ModernRequest(`"L"`,
			"subscriptions/listen", ``, filter))
		m = st.Last(t).Expect(t, "subscriptions/listen")
		return func() { u.Close() }, st.Last(t), c, p, m
	}
	t.Run("every message has the client's subscription id", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			end, srv, c, p, m := setup(t)
			defer end()
			srv.Send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{}}}`, m.ID)
			srv.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.ID)
			srv.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":99}}}`)
			c.ExpectReceived(
				t, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L"},"notifications":{}}}`,
				`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}`)
			srv.Answer(m.ID, `{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":`+string(m.ID)+`}}`)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":"L","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}`)
		})
	})
	t.Run("the server ends the subscription with a cancellation", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			end, srv, _, p, m := setup(t)
			defer end()
			srv.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, m.ID)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":"L","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}`)
		})
	})
	t.Run("the client ends the subscription with a cancellation", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			end, srv, _, p, m := setup(t)
			defer end()
			p.Cancel(&proxy.CancelledError{})
			p.ExpectError("cancelled")
			want := `{"requestId":` + string(m.ID) + `}`
			if n := srv.Expect(t, "notifications/cancelled"); string(n.Params) != want {
				t.Errorf("the cancellation has the params %s, want %s", n.Params, want)
			}
		})
	})
	t.Run("the subscription ends when the client does not read its messages", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			end, srv, c, p, m := setup(t)
			defer end()
			c.Slow = make(chan struct{})
			for range 2000 {
				srv.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.ID)
			}
			p.ExpectError("too many of the server's messages wait for the client")
			srv.Expect(t, "notifications/cancelled")
		})
	})
	t.Run("the subscription fails when the process ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			end, srv, _, p, _ := setup(t)
			defer end()
			srv.Close()
			p.ExpectError("the connection ended")
		})
	})
}

func TestLogMessagesReachTheCallThatAskedForThem(t *testing.T) {
	const line = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
	const level = `"io.modelcontextprotocol/logLevel":"info",`
	for _, c := range []struct {
		name        string
		first, next string // keys in the _meta of the two calls
		other       bool   // the second call is from another session
		want        bool   // the client of the first call gets the message
	}{
		{"messages go to the call that asked for them", level, ``, true, true},
		{"messages go to the first of several calls of one session", level, level, false, true},
		{"messages are dropped when calls of two sessions asked for them", level, level, true,
			false},
		{"messages are dropped when no call asked for them", ``, ``, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, st := newModernUpstream(upstream.Options{})
				defer u.Close()
				a := openModernSession(t, u, "a", "")
				b := a
				if c.other {
					b = openModernSession(t, u, "b", "")
				}
				first, second := &upstreamtest.Client{}, &upstreamtest.Client{}
				upstreamtest.StartCall(t, a, first, upstreamtest.ModernRequest(`1`,
					"tools/call", c.first, `,"name":"x"`))
				st.Last(t).Expect(t, "tools/call")
				upstreamtest.StartCall(t, b, second, upstreamtest.ModernRequest(`1`,
					"tools/call", c.next, `,"name":"x"`))
				st.Last(t).Expect(t, "tools/call")
				st.Last(t).Send(line)
				if c.want {
					first.ExpectReceived(t, line)
				} else {
					first.ExpectReceived(t)
				}
				second.ExpectReceived(t)
			})
		})
	}
}

func TestRequestsOfModernServersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := newModernUpstream(upstream.Options{})
		defer u.Close()
		s := openModernSession(t, u, "a", "")
		upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/call", ``, `,"name":"x"`))
		srv := st.Last(t)
		srv.Expect(t, "tools/call")
		srv.Send(`{"jsonrpc":"2.0","id":5,"method":"roots/list"}`)
		if m := srv.Next(t); string(m.ID) != "5" || m.Error == nil ||
			m.Error.Code != mcp.CodeMethodNotFound {
			t.Errorf("the server's request was answered with %s, want method not found", m.Raw)
		}
	})
}

func TestResultTypeIsChecked(t *testing.T) {
	const extended = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"acme/x":{}}}}}}`
	plain := upstreamtest.ModernRequest(`1`, "tools/call", ``, `,"name":"x"`)
	for _, c := range []struct {
		name, request, result string
		carriesInput          bool
		fails                 string // a part of the error; "" when the result is returned
	}{
		{"complete", plain, `{"resultType":"complete"}`, false, ``},
		{"no type means complete", plain, `{}`, false, ``},
		{"a task", plain, `{"resultType":"task","taskId":"t"}`, false, ``},
		{"a tools/call that needs input", plain,
			`{"resultType":"input_required","inputRequests":{}}`, true, ``},
		{"a tools/call that needs input, with escapes in the type", plain,
			`{"resultType":"input_req\u0075ired","inputRequests":{}}`, true, ``},
		{"a list that needs input", upstreamtest.ModernRequest(`1`, "tools/list", ``, ``),
			`{"resultType":"input_required"}`, false, `the protocol does not allow it`},
		{"an unknown type", plain, `{"resultType":"acme"}`, false, `of type "acme"`},
		{"an unknown type for a client with extensions", extended, `{"resultType":"acme"}`, false,
			``},
		{"a type that is not a string", plain, `{"resultType":7}`, false, `is not a string`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, st := newModernUpstream(upstream.Options{})
				defer u.Close()
				s := openModernSession(t, u, "a", "")
				p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, c.request)
				srv := st.Last(t)
				srv.Answer(srv.Next(t).ID, c.result)
				if c.fails != "" {
					p.ExpectError(c.fails)
					return
				}
				p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":` + c.result + `}`)
				if got := p.Answer.CarriesInput; got != c.carriesInput {
					t.Errorf("CarriesInput is %v, want %v", got, c.carriesInput)
				}
			})
		})
	}
}

func TestNextCallRestartsAModernProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := newModernUpstream(upstream.Options{Restart: true})
		defer u.Close()
		s := openModernSession(t, u, "a", "")
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/call", ``, `,"name":"x"`))
		st.Last(t).Expect(t, "tools/call")
		st.Last(t).Close()
		p.ExpectError("the connection ended")
		time.Sleep(time.Minute)
		if n := st.Count(); n != 1 {
			t.Errorf("%d processes were started, want 1: no call needs another", n)
		}
		for i := range 5 {
			p = upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
				"tools/call", ``, `,"name":"x"`))
			time.Sleep(20 * time.Second)
			st.Last(t).Expect(t, "tools/call")
			st.Last(t).Close()
			p.ExpectError("the connection ended")
			if n := st.Count(); n != i+2 {
				t.Errorf("%d processes were started after %d restarts, want %d", n, i+1, i+2)
			}
		}
		p = upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/call", ``, `,"name":"x"`))
		p.ExpectError("the process has ended too often")
	})
}

func TestProcessWithoutRestartIsNotStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := newModernUpstream(upstream.Options{})
		defer u.Close()
		s := openModernSession(t, u, "a", "")
		st.Fail = errors.New("no such program")
		upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/call", ``,
			`,"name":"x"`)).ExpectError("could not be started")
		st.Fail = nil // a process that never ran may still be started
		upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/call", ``, `,"name":"x"`))
		time.Sleep(time.Second)
		st.Last(t).Close()
		synctest.Wait()
		upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/call", ``,
			`,"name":"x"`)).ExpectError("not to be restarted")
	})
}

func TestLegacyNotificationsAreNotSentToModernServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := newModernUpstream(upstream.Options{})
		defer u.Close()
		s := openModernSession(t, u, "a", "")
		if err := s.Notify(context.Background(),
			upstreamtest.Pass(
				t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)); err != nil {
			t.Error(err)
		}
		if st.Count() != 0 {
			t.Error("the notification started a process, want none")
		}
		if err := s.Notify(context.Background(),
			upstreamtest.Pass(t, `{"jsonrpc":"2.0","method":"acme/event"}`)); err != nil {
			t.Error(err)
		}
		st.Last(t).Expect(t, "acme/event")
	})
}
