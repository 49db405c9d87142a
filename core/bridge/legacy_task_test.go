package upstream_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/proxy"
)

func TestAToolThatRunsAsATaskOnly(t *testing.T) {
	const call1 = `,"name":"x","arguments":{"n":1.0}`
	const progress = `"progressToken":"p"`
	for name, c := range map[string]func(t *testing.T, p *pending, srv *pipe, to *client){
		"it is answered with what comes of the task": func(t *testing.T, p *pending, srv *pipe,
			to *client) {
			q := srv.expect(t, "tasks/result") // "p" stays the task's
			if want := `{"taskId":"T","_meta":{"progressToken":"gatekit-6"}}`; string(
				q.Params) != want {
				t.Errorf("asked for the result with %s, want %s", q.Params, want)
			}
			srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
			srv.send(`{"jsonrpc":"2.0","id":"s1","method":"elicitation/create","params":{"message":"who?","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"T"}}}}`)
			if a := srv.next(
				t); a.Raw != `{"jsonrpc":"2.0","id":"s1","result":{"action":"accept"}}` {
				t.Errorf("the server was told %s", a.Raw)
			}
			time.Sleep(1500 * time.Millisecond) // as often as the server wants
			g := srv.expect(t, "tasks/get")
			if string(g.Params) != `{"taskId":"T"}` {
				t.Errorf("asked after the task with %s", g.Params)
			}
			srv.result(g.ID, `{"taskId":"T","status":"working","pollInterval":60000}`)
			synctest.Wait()
			if to.alive.Load() != 1 {
				t.Error("a server that works on its task is taken to be silent")
			}
			srv.result(q.ID, `{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"T"}}}`)
			p.is(`{"jsonrpc":"2.0","id":1,"result":{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"old","version":"1"}},"resultType":"complete"}}`)
			to.wants(t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
		},
		"its failure is the call's": func(t *testing.T, p *pending, srv *pipe, to *client) {
			q := srv.expect(t, "tasks/result")
			srv.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no"}}`, q.ID)
			p.is(`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}`)
		},
		"it is cancelled with the call": func(t *testing.T, p *pending, srv *pipe, to *client) {
			srv.expect(t, "tasks/result")
			p.cancel(&proxy.Cancelled{})
			p.fails("cancelled")
			seen := map[string]bool{}
			for range 2 {
				seen[srv.next(t).Method] = true
			}
			if !seen["notifications/cancelled"] || !seen["tasks/cancel"] {
				t.Errorf("the server was told %v", seen)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, st, end := legacyFor(t, &client{})
				defer end()
				to := &client{answer: answers(`{"action":"accept"}`)}
				p := call(t, s, to, replace(able(`1`, "tools/call", `{"elicitation":{}}`, call1),
					`"_meta":{`, `"_meta":{`+progress+`,`))
				srv := st.last(t)
				srv.initialized(t, `{"elicitation":{}}`)
				q := srv.expect(t, "tools/call")
				srv.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"it requires a task"}}`, q.ID)
				srv.result(srv.expect(t, "tools/list").ID, `{"tools":[],"nextCursor":"2"}`)
				q = srv.expect(t, "tools/list")
				if string(q.Params) != `{"cursor":"2"}` {
					t.Errorf("the second page is asked for with %s", q.Params)
				}
				srv.result(q.ID, `{"tools":[{"name":"x","execution":{"taskSupport":"required"}}]}`)
				q = srv.expect(t, "tools/call")
				if want := `{"_meta":{"progressToken":"p"},"name":"x","arguments":{"n":1.0},"task":{}}`; string(q.Params) != want {
					t.Errorf("called as a task with %s\nwant %s", q.Params, want)
				}
				srv.result(q.ID, `{"task":{"taskId":"T","status":"working","pollInterval":1000}}`)
				c(t, p, srv, to)
			})
		})
	}
}

func TestToolsThatRunAsTasksAreKnownFromTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := legacyFor(t, &client{})
		defer end()
		p := call(t, s, &client{}, modernRequest(`1`, "tools/list", ``, ``))
		srv := st.last(t)
		srv.initialized(t, `{}`)
		srv.result(srv.expect(t, "tools/list").ID,
			`{"tools":[{"name":"x","execution":{"taskSupport":"required"}},{"name":"y","execution":{"taskSupport":"optional"}}]}`)
		synctest.Wait()
		if p.err != nil {
			t.Fatal(p.err)
		}
		called := func(name string) string {
			call(t, s, &client{}, modernRequest(`2`, "tools/call", ``, `,"name":"`+name+`"`))
			return string(srv.expect(t, "tools/call").Params)
		}
		if got := called("x"); got != `{"name":"x","task":{}}` {
			t.Errorf("a tool that must run as a task was called with %s", got)
		}
		if got := called("y"); got != `{"name":"y"}` {
			t.Errorf("a tool that may run as a task was called with %s", got)
		}
		srv.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		synctest.Wait()
		if got := called("x"); got != `{"name":"x"}` {
			t.Errorf("a tool of a list that changed was called with %s", got)
		}
	})
}

func TestAToolThatFailsIsNotCalledTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := legacyFor(t, &client{})
		defer end()
		p := call(t, s, &client{}, modernRequest(`1`, "tools/call", ``, `,"name":"x"`))
		srv := st.last(t)
		srv.initialized(t, `{}`)
		srv.result(srv.expect(t, "tools/call").ID, `{"content":[],"isError":true}`)
		srv.result(srv.expect(t, "tools/list").ID, `{"tools":[{"name":"x"}]}`)
		p.is(`{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true,"resultType":"complete",` + serverInfo + `}}`)
		p = call(t, s, &client{}, modernRequest(`2`, "tools/call", ``, `,"name":"x"`))
		// and this time nothing is asked
		srv.result(srv.expect(t, "tools/call").ID, `{"content":[],"isError":true}`)
		p.is(`{"jsonrpc":"2.0","id":2,"result":{"content":[],"isError":true,"resultType":"complete",` + serverInfo + `}}`)
	})
}

// Two clients of one principal use the same progress token.
func TestProgressOfATaskGoesToWhoeverWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := legacyShared(t, &client{}, true)
		defer end()
		call(t, s, &client{}, modernRequest(`0`, "tools/list", ``, ``))
		srv := st.last(t)
		srv.initialized(t, `{}`)
		srv.result(srv.expect(t, "tools/list").ID,
			`{"tools":[{"name":"x","execution":{"taskSupport":"required"}}]}`)
		clients := []*client{{}, {}}
		var tokens []string
		for i, id := range []string{"A", "B"} {
			synctest.Wait()
			call(t, s, clients[i], modernRequest(`1`, "tools/call", `"progressToken":7,`,
				`,"name":"x"`))
			q := srv.expect(t, "tools/call")
			_, token, _ := strings.Cut(string(q.Params), `"progressToken":`)
			tokens = append(tokens, token[:strings.IndexAny(token, ",}")])
			srv.result(q.ID, `{"task":{"taskId":"`+id+`","status":"working","pollInterval":60000}}`)
			srv.expect(t, "tasks/result")
		}
		const n = 20
		for range n {
			for _, token := range tokens {
				srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, token)
			}
		}
		synctest.Wait()
		for i, c := range clients {
			if got := c.heard(); len(got) != n {
				t.Errorf("client %d was told %d reports, want %d", i, len(got), n)
			}
		}
	})
}
