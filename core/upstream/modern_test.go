package upstream_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
)

// request answers a modern request with more in its _meta, and in its params.
func modernRequest(id, method, meta, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{"_meta":{` + meta +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}` + params + `}}`
}

// modernUp is a modern server whose process is that of st.
func modernUp(o upstream.Options) (*upstream.Upstream, *starter) {
	st := &starter{}
	o.Name, o.Era, o.Dial.Pipe = "files", "modern", st.start
	return upstream.New(o), st
}

func openFor(t *testing.T, u *upstream.Upstream, session, principal string) proxy.Server {
	t.Helper()
	s, err := u.Open(t.Context(), proxy.OpenOptions{Session: session, Principal: principal,
		Revision: mcp.Rev20260728}, &client{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSessionsOfOnePrincipalShareAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := modernUp(upstream.Options{})
		defer u.Close()
		a, b, c := openFor(t, u, "a", "ann"), openFor(t, u, "b", "ann"), openFor(t, u, "c", "bob")
		pa := call(t, a, &client{}, modernRequest(`"x"`, "tools/list", ``, ``))
		srv := st.last(t)
		ma := srv.expect(t, "tools/list")
		pb := call(t, b, &client{}, modernRequest(`"x"`, "tools/list", ``, ``))
		mb := srv.expect(t, "tools/list")
		if string(ma.ID) == string(mb.ID) {
			t.Errorf("two requests went by %s", ma.ID)
		}
		srv.result(mb.ID, `{"resultType":"complete","tools":["b"]}`)
		srv.result(ma.ID, `{"resultType":"complete","tools":["a"]}`)
		pa.is(`{"jsonrpc":"2.0","id":"x","result":{"resultType":"complete","tools":["a"]}}`)
		pb.is(`{"jsonrpc":"2.0","id":"x","result":{"resultType":"complete","tools":["b"]}}`)
		call(t, c, &client{}, modernRequest(`"x"`, "tools/list", ``, ``))
		if n := st.count(); n != 2 {
			t.Errorf("%d processes for two principals", n)
		}
		st.last(t).expect(t, "tools/list")

		a.Close()
		time.Sleep(time.Minute)
		pb = call(t, b, &client{}, modernRequest(`1`, "tools/list", ``, ``))
		srv.expect(t, "tools/list")
		b.Close()
		pb.fails("closed")
		time.Sleep(time.Minute)
		if !srv.ended() {
			t.Error("the process of nobody still runs after a minute")
		}
	})
}

func (p *pipe) ended() bool {
	synctest.Wait()
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

func TestAProcessIsKeptForASessionThatComesSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := modernUp(upstream.Options{})
		defer u.Close()
		a := openFor(t, u, "a", "")
		call(t, a, &client{}, modernRequest(`1`, "tools/list", ``, ``))
		st.last(t).expect(t, "tools/list")
		a.Close()
		time.Sleep(time.Second)
		b := openFor(t, u, "b", "")
		defer b.Close()
		time.Sleep(time.Minute)
		call(t, b, &client{}, modernRequest(`1`, "tools/list", ``, ``))
		// The request of a was given up when it was closed.
		st.last(t).expect(t, "notifications/cancelled")
		st.last(t).expect(t, "tools/list")
		if n := st.count(); n != 1 {
			t.Errorf("%d processes", n)
		}
	})
}

func TestListenOverAPipe(t *testing.T) {
	const filter = `,"notifications":{"toolsListChanged":true}`
	setup := func(t *testing.T) (func(), *pipe, *client, *pending, said) {
		u, st := modernUp(upstream.Options{})
		s := openFor(t, u, "a", "")
		c := &client{}
		p := call(t, s, c, modernRequest(`"L"`, "subscriptions/listen", ``, filter))
		m := st.last(t).expect(t, "subscriptions/listen")
		return func() { u.Close() }, st.last(t), c, p, m
	}
	t.Run("everything comes under the client's id, with its type", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			end, srv, c, p, m := setup(t)
			defer end()
			srv.send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{}}}`, m.ID)
			srv.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.ID)
			srv.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":99}}}`)
			c.wants(t, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L"},"notifications":{}}}`,
				`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}`)
			srv.result(m.ID, `{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":`+string(m.ID)+`}}`)
			p.is(`{"jsonrpc":"2.0","id":"L","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}`)
		})
	})
	t.Run("the server may end it by cancelling it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			end, srv, _, p, m := setup(t)
			defer end()
			srv.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, m.ID)
			p.is(`{"jsonrpc":"2.0","id":"L","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}`)
		})
	})
	t.Run("the client ends it by cancelling it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			end, srv, _, p, m := setup(t)
			defer end()
			p.cancel(&proxy.CancelledError{})
			p.fails("cancelled")
			if n := srv.expect(t, "notifications/cancelled"); string(n.Params) != `{"requestId":`+
				string(m.ID)+`}` {
				t.Errorf("the server was told %s", n.Params)
			}
		})
	})
	t.Run("it ends when the client takes nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			end, srv, c, p, m := setup(t)
			defer end()
			c.slow = make(chan struct{})
			for range 2000 {
				srv.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.ID)
			}
			p.fails("too much of what it sent is waiting")
			srv.expect(t, "notifications/cancelled")
		})
	})
	t.Run("it fails with the process", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			end, srv, _, p, _ := setup(t)
			defer end()
			srv.Close()
			p.fails("the connection to it ended")
		})
	})
}

func TestLogsOfAModernServer(t *testing.T) {
	const line = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
	const level = `"io.modelcontextprotocol/logLevel":"info",`
	for _, c := range []struct {
		name        string
		first, next string // _meta of two calls
		other       bool   // the second call is another session's
		want        bool   // the first call's client gets the line
	}{
		{"go to the call that asked for them", level, ``, true, true},
		{"go to the first of several calls of one session", level, level, false, true},
		{"go to nobody when two sessions asked", level, level, true, false},
		{"go to nobody when nobody asked", ``, ``, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, st := modernUp(upstream.Options{})
				defer u.Close()
				a := openFor(t, u, "a", "")
				b := a
				if c.other {
					b = openFor(t, u, "b", "")
				}
				first, second := &client{}, &client{}
				call(t, a, first, modernRequest(`1`, "tools/call", c.first, `,"name":"x"`))
				st.last(t).expect(t, "tools/call")
				call(t, b, second, modernRequest(`1`, "tools/call", c.next, `,"name":"x"`))
				st.last(t).expect(t, "tools/call")
				st.last(t).send(line)
				if c.want {
					first.wants(t, line)
				} else {
					first.wants(t)
				}
				second.wants(t)
			})
		})
	}
}

func TestAModernServerMayNotAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := modernUp(upstream.Options{})
		defer u.Close()
		s := openFor(t, u, "a", "")
		call(t, s, &client{}, modernRequest(`1`, "tools/call", ``, `,"name":"x"`))
		srv := st.last(t)
		srv.expect(t, "tools/call")
		srv.send(`{"jsonrpc":"2.0","id":5,"method":"roots/list"}`)
		if m := srv.next(t); string(m.ID) != "5" || m.Error == nil ||
			m.Error.Code != mcp.CodeMethodNotFound {
			t.Errorf("it was answered with %s", m.Raw)
		}
	})
}

func TestResultTypes(t *testing.T) {
	const extended = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"acme/x":{}}}}}}`
	plain := modernRequest(`1`, "tools/call", ``, `,"name":"x"`)
	for _, c := range []struct {
		name, request, result string
		folded                bool
		fails                 string // else the result comes as it is
	}{
		{"complete", plain, `{"resultType":"complete"}`, false, ``},
		{"absent is complete", plain, `{}`, false, ``},
		{"a task", plain, `{"resultType":"task","taskId":"t"}`, false, ``},
		{"input for a client that takes it in rounds", plain,
			`{"resultType":"input_required","inputRequests":{}}`, true, ``},
		{"an escaped word is the same word", plain,
			`{"resultType":"input_req\u0075ired","inputRequests":{}}`, true, ``},
		{"input for a list", modernRequest(`1`, "tools/list", ``, ``),
			`{"resultType":"input_required"}`, false, `no place for it`},
		{"an unknown type", plain, `{"resultType":"acme"}`, false, `of type "acme"`},
		{"an unknown type for a client with extensions", extended, `{"resultType":"acme"}`, false,
			``},
		{"no word", plain, `{"resultType":7}`, false, `which is no name`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, st := modernUp(upstream.Options{})
				defer u.Close()
				s := openFor(t, u, "a", "")
				p := call(t, s, &client{}, c.request)
				srv := st.last(t)
				srv.result(srv.next(t).ID, c.result)
				if c.fails != "" {
					p.fails(c.fails)
					return
				}
				p.is(`{"jsonrpc":"2.0","id":1,"result":` + c.result + `}`)
				if p.m.CarriesInput != c.folded {
					t.Errorf("Folded is %v", p.m.CarriesInput)
				}
			})
		})
	}
}

func TestAModernProcessIsStartedAgainByTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := modernUp(upstream.Options{Restart: true})
		defer u.Close()
		s := openFor(t, u, "a", "")
		p := call(t, s, &client{}, modernRequest(`1`, "tools/call", ``, `,"name":"x"`))
		st.last(t).expect(t, "tools/call")
		st.last(t).Close()
		p.fails("the connection to it ended")
		time.Sleep(time.Minute)
		if n := st.count(); n != 1 {
			t.Errorf("%d processes though nobody calls", n)
		}
		for i := range 5 {
			p = call(t, s, &client{}, modernRequest(`1`, "tools/call", ``, `,"name":"x"`))
			time.Sleep(20 * time.Second)
			st.last(t).expect(t, "tools/call")
			st.last(t).Close()
			p.fails("the connection to it ended")
			if n := st.count(); n != i+2 {
				t.Errorf("%d processes after %d restarts", n, i+1)
			}
		}
		p = call(t, s, &client{}, modernRequest(`1`, "tools/call", ``, `,"name":"x"`))
		p.fails("it has ended too often")
	})
}

func TestAProcessThatIsNotToBeRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := modernUp(upstream.Options{})
		defer u.Close()
		s := openFor(t, u, "a", "")
		st.fail = errors.New("no such program")
		call(t, s, &client{}, modernRequest(`1`, "tools/call", ``,
			`,"name":"x"`)).fails("could not be started")
		st.fail = nil // one that never ran may be started still
		call(t, s, &client{}, modernRequest(`1`, "tools/call", ``, `,"name":"x"`))
		time.Sleep(time.Second)
		st.last(t).Close()
		synctest.Wait()
		call(t, s, &client{}, modernRequest(`1`, "tools/call", ``,
			`,"name":"x"`)).fails("not to be started again")
	})
}

func TestANotificationThatTheRevisionDoesNotHaveIsSwallowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, st := modernUp(upstream.Options{})
		defer u.Close()
		s := openFor(t, u, "a", "")
		if err := s.Notify(context.Background(),
			pass(t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)); err != nil {
			t.Error(err)
		}
		if st.count() != 0 {
			t.Error("it started a process")
		}
		if err := s.Notify(context.Background(),
			pass(t, `{"jsonrpc":"2.0","method":"acme/told"}`)); err != nil {
			t.Error(err)
		}
		st.last(t).expect(t, "acme/told")
	})
}
