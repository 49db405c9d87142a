package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
)

// legacyFor opens a legacy server, whose processes are those of st, for a modern client.
func legacyFor(t *testing.T, feed *client) (s proxy.Server, st *starter, end func()) {
	t.Helper()
	return legacyShared(t, feed, false)
}

func legacyShared(t *testing.T, feed *client,
	shared bool) (s proxy.Server, st *starter, end func()) {
	t.Helper()
	st = &starter{}
	u := upstream.New(upstream.Options{Name: "files", Era: "legacy", Restart: true,
		Dial: upstream.Dial{Pipe: st.start}})
	s, err := u.Open(t.Context(), proxy.OpenOptions{Session: "s", Principal: "ann",
		Revision: mcp.Rev20260728, Shared: shared}, feed)
	if err != nil {
		t.Fatal(err)
	}
	return s, st, func() {
		s.Close()
		u.Close()
	}
}

// initialized answers the initialize of a visit, and takes the notification after it.
func (p *pipe) initialized(t *testing.T, capabilities string) {
	t.Helper()
	q := p.expect(t, "initialize")
	want := `{"protocolVersion":"2025-11-25","capabilities":` + capabilities +
		`,"clientInfo":{"name":"c","version":"1"}}`
	if string(q.Params) != want {
		t.Errorf("initialized with %s\nwant %s", q.Params, want)
	}
	p.result(q.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"old","version":"1"},"instructions":"be kind"}`)
	p.expect(t, "notifications/initialized")
}

// able is a modern request of a client that declares capabilities.
func able(id, method, capabilities, params string) string {
	return replace(modernRequest(id, method, ``, params), `clientCapabilities":{}`,
		`clientCapabilities":`+capabilities)
}

const serverInfo = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"old","version":"1"}}`

func TestLegacyServerForModernClient(t *testing.T) {
	for _, c := range []struct {
		name, method, params string
		sent                 string // params that the server gets; "" none
		answer, want         string
	}{
		{"a call", "tools/call", `,"name":"x","arguments":{"n":1.0}`,
			`{"name":"x","arguments":{"n":1.0}}`,
			`"result":{"content":[ ]}`, `"result":{"content":[ ],"resultType":"complete",` +
				serverInfo + `}`},
		{"a list", "tools/list", ``, `{}`,
			`"result":{"tools":[{"name":"a","execution":{"taskSupport":"optional"}},{"name":"b"}],"nextCursor":"c"}`,
			`"result":{"tools":[{"name":"a"},{"name":"b"}],"nextCursor":"c","resultType":"complete","ttlMs":0,"cacheScope":"private",` + serverInfo + `}`},
		{"a result that says what it is", "prompts/get", `,"name":"x"`, `{"name":"x"}`,
			`"result":{"resultType":"input_required","messages":[],"_meta":{"a":1}}`,
			`"result":{"resultType":"complete","messages":[],"_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"old","version":"1"}}}`},
		{"no such resource", "resources/read", `,"uri":"f:///x"`, `{"uri":"f:///x"}`,
			`"error":{"code":-32002,"message":"no","data":{"uri":"f:///x"}}`,
			`"error":{"code":-32602,"message":"no","data":{"uri":"f:///x"}}`},
		{"a code that means something else to the client", "tools/call", `,"name":"x"`,
			`{"name":"x"}`,
			`"error":{"code":-32021,"message":"no"}`,
			`"error":{"code":-32603,"message":"no","data":{"upstreamError":{"code":-32021,"message":"no"}}}`},
		{"a capability that the client lacks indeed", "tools/call", `,"name":"x"`, `{"name":"x"}`,
			`"error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{"roots":{}}}}`,
			`"error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{"roots":{}}}}`},
		{"a code of its own", "tools/call", `,"name":"x"`, `{"name":"x"}`,
			`"error":{"code":-32000,"message":"no"}`, `"error":{"code":-32000,"message":"no"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, st, end := legacyFor(t, &client{})
				defer end()
				p := call(t, s, &client{}, modernRequest(`"a"`, c.method, ``, c.params))
				srv := st.last(t)
				srv.initialized(t, `{}`)
				q := srv.expect(t, c.method)
				if string(q.Params) != c.sent {
					t.Errorf("the server got %s\nwant           %s", q.Params, c.sent)
				}
				srv.send(`{"jsonrpc":"2.0","id":%s,%s}`, q.ID, c.answer)
				p.is(`{"jsonrpc":"2.0","id":"a",` + c.want + `}`)
			})
		})
	}
}

func TestLegacyServerIsDiscovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := legacyFor(t, &client{})
		defer end()
		p := call(t, s, &client{}, modernRequest(`1`, "server/discover", ``, ``))
		st.last(t).initialized(t, `{}`)
		p.is(`{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"instructions":"be kind","resultType":"complete","ttlMs":0,"cacheScope":"private",` +
			serverInfo + `,"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]}}`)
		for _, method := range []string{"tasks/get", "tasks/update"} {
			call(t, s, &client{}, modernRequest(`2`, method, ``, `,"taskId":"t"`)).
				is(`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"method not found: the server speaks a revision of the protocol that has no ` + method + `"}}`)
		}
	})
}

func TestAnswersToNothingAreNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := legacyFor(t, &client{})
		defer end()
		call(t, s, &client{}, modernRequest(`1`, "tools/call", ``,
			`,"name":"x","inputResponses":{"g0":{"action":"accept"}}`)).
			is(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"inputResponses to nothing that was asked: make the call again without them"}}`)
		if n := st.count(); n != 0 {
			t.Errorf("%d processes were started for it", n)
		}
	})
}

func TestModernRequestsShareALegacySessionForEachSetOfCapabilities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := legacyFor(t, &client{})
		defer end()
		for n, c := range []struct {
			capabilities, told string
			processes          int
		}{
			{`{}`, `{}`, 1},
			{`{}`, ``, 1},
			{`{"roots":{"listChanged":true},"elicitation":{}}`, `{"roots":{},"elicitation":{}}`, 2},
			{`{ "elicitation":{}, "roots":{}, "extensions":{"x":{}} }`, ``, 2}, // says the same
			{`{"sampling":{}}`, `{"sampling":{}}`, 3},
		} {
			p := call(t, s, &client{}, able(`1`, "tools/list", c.capabilities, ``))
			if got := st.count(); got != c.processes {
				t.Fatalf("request %d: %d processes, want %d", n, got, c.processes)
			}
			srv := st.last(t)
			if c.told != "" {
				srv.initialized(t, c.told)
			}
			if n == 1 {
				srv = st.pipes[0]
			}
			srv.result(srv.expect(t, "tools/list").ID, `{"tools":[]}`)
			synctest.Wait()
			if p.err != nil {
				t.Fatal(p.err)
			}
		}
		time.Sleep(6 * time.Minute)
		if n := len(st.alive()); n != 0 {
			t.Errorf("%d processes run for nobody", n)
		}
		call(t, s, &client{}, modernRequest(`1`, "tools/list", ``, ``))
		if n := len(st.alive()); n != 1 {
			t.Errorf("%d processes for a request after that", n)
		}
	})
}

func TestTooManySetsOfCapabilities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := legacyFor(t, &client{})
		defer end()
		open := func(n int) *pending {
			return call(t, s, &client{},
				able(`1`, "tools/list", `{"experimental":{"n":`+string(rune('0'+n))+`}}`, ``))
		}
		var first *pending
		for n := range 9 {
			if p := open(n); n == 0 {
				first = p
			}
			synctest.Wait()
		}
		if n := st.count(); n != 8 {
			t.Errorf("%d processes, want 8", n)
		}
		srv := st.pipes[0]
		srv.initialized(t, `{"experimental":{"n":0}}`)
		srv.result(srv.expect(t, "tools/list").ID, `{"tools":[]}`)
		synctest.Wait()
		if first.err != nil {
			t.Error(first.err)
		}
		if n := st.count(); n != 9 || !srv.ended() {
			t.Errorf("%d processes, the idle one has ended: %v", n, srv.ended())
		}
	})
}

func TestALegacyServerThatCannotBeInitialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := legacyFor(t, &client{})
		defer end()
		p := call(t, s, &client{}, modernRequest(`1`, "tools/list", ``, ``))
		srv := st.last(t)
		srv.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no licence"}}`,
			srv.expect(t, "initialize").ID)
		p.fails(`error -32000, "no licence"`)
		// and is not started again at once
		call(t, s, &client{}, modernRequest(`1`, "tools/list", ``, ``)).fails("no licence")
		if n := st.count(); n != 1 {
			t.Errorf("%d processes", n)
		}
		time.Sleep(time.Minute)
		st.fail = errors.New("no such program")
		call(t, s, &client{}, modernRequest(`1`, "tools/list", ``,
			``)).fails("could not be started")
		st.fail = nil
		time.Sleep(time.Minute)
		p = call(t, s, &client{}, modernRequest(`1`, "tools/list", ``, ``))
		srv = st.last(t)
		srv.initialized(t, `{}`)
		srv.result(srv.expect(t, "tools/list").ID, `{}`)
		synctest.Wait()
		if p.err != nil {
			t.Error(p.err)
		}
	})
}

func TestALegacyServerAsksAModernClient(t *testing.T) {
	const can = `{"elicitation":{},"roots":{}}`
	synctest.Test(t, func(t *testing.T) {
		feed := &client{answer: answers(`{"from":"the feed"}`)}
		s, st, end := legacyFor(t, feed)
		defer end()
		asked := make(chan string, 9)
		c := &client{}
		c.answer = func(ctx context.Context, m *mcp.Message) pipeline.Passed {
			asked <- string(m.Body())
			return answers(`{"action":"decline"}`)(ctx, m)
		}
		list := call(t, s, &client{}, able(`1`, "tools/list", can, ``))
		srv := st.last(t)
		srv.initialized(t, can)
		q := srv.expect(t, "tools/list")

		fed := func(what string) {
			t.Helper()
			if a := srv.next(t); string(a.Result) != `{"from":"the feed"}` {
				t.Errorf("%s: answered %s", what, a.Raw)
			}
		}
		srv.send(`{"jsonrpc":"2.0","id":"s0","method":"elicitation/create","params":{}}`)
		fed("outside of a call") // which refuses
		srv.send(`{"jsonrpc":"2.0","id":"s1","method":"roots/list"}`)
		srv.quiet(t)
		time.Sleep(11 * time.Second)
		fed("roots, when no call has come")
		srv.send(`{"jsonrpc":"2.0","id":"s2","method":"roots/list"}`)
		srv.quiet(t)
		first := call(t, s, c, able(`2`, "tools/call", can, `,"name":"x"`))
		seen := []string{srv.next(t).Method, srv.next(t).Method}
		if slices.Sort(seen); !slices.Equal(seen, []string{"", "tools/call"}) || <-asked != "" {
			t.Errorf("the server got %q", seen)
		}
		// its client is being asked something else
		call(t, s, &client{away: true}, able(`3`, "tools/call", can, `,"name":"y"`))
		srv.expect(t, "tools/call")
		srv.send(`{"jsonrpc":"2.0","id":"s3","method":"elicitation/create","params":{"message":"?","mode":"url","elicitationId":"e","task":{},"_meta":{"progressToken":1}}}`)
		if a := srv.next(t); string(a.ID) != `"s3"` || string(a.Result) != `{"action":"decline"}` {
			t.Errorf("answered %s", a.Raw)
		}
		if got, want := <-asked, `{"message":"?","mode":"url"}`; got != want {
			t.Errorf("the client was asked %s, want %s", got, want)
		}
		srv.send(`{"jsonrpc":"2.0","id":"s4","method":"acme/ask","params":{}}`)
		fed("what no result can ask")
		srv.result(q.ID, `{"tools":[]}`)
		synctest.Wait()
		if list.err != nil {
			t.Error(list.err)
		}
		first.waits()
	})
}

func TestALegacyServersLogsForAModernClient(t *testing.T) {
	const line = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"%s","data":1}}`
	synctest.Test(t, func(t *testing.T) {
		s, st, end := legacyFor(t, &client{})
		defer end()
		quiet, c := &client{}, &client{}
		p := call(t, s, quiet, modernRequest(`1`, "tools/call", ``, `,"name":"x"`))
		srv := st.last(t)
		srv.initialized(t, `{}`)
		q := srv.expect(t, "tools/call")
		srv.send(line, "error")
		srv.result(q.ID, `{}`)
		synctest.Wait()
		if p.err != nil {
			t.Error(p.err)
		}
		quiet.wants(t)

		call(t, s, c, modernRequest(`2`,
			"tools/call", `"io.modelcontextprotocol/logLevel":"warning",`, `,"name":"x"`))
		q = srv.expect(t, "logging/setLevel")
		if string(q.Params) != `{"level":"warning"}` {
			t.Errorf("the level is %s", q.Params)
		}
		srv.result(q.ID, `{}`)
		q = srv.expect(t, "tools/call")
		srv.send(line, "info")
		srv.send(line, "critical")
		c.wants(t, replace(line, "%s", "critical"))
		srv.result(q.ID, `{}`)

		// it tells enough already
		call(t, s, c, modernRequest(`3`,
			"tools/call", `"io.modelcontextprotocol/logLevel":"error",`, `,"name":"x"`))
		srv.expect(t, "tools/call")
	})
}

func TestAModernSubscriptionAtALegacyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := legacyFor(t, &client{})
		defer end()
		c := &client{}
		p := call(t, s, c, modernRequest(`"l"`, "subscriptions/listen", ``,
			`,"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["f:///a","f:///b"]}`))
		srv := st.last(t)
		srv.initialized(t, `{}`)
		srv.result(srv.expect(t, "resources/subscribe").ID, `{}`)
		srv.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`,
			srv.expect(t, "resources/subscribe").ID)
		srv.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		srv.send(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
		srv.send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"f:///a"}}`)
		const id = `"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}`
		c.wants(t, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{`+id+`,"notifications":{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}}}`,
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{`+id+`}}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"f:///a",`+
				id+`}}`)

		c.told = nil
		srv.Close() // a session is made anew, and what was missed is told
		time.Sleep(5 * time.Second)
		srv = st.last(t)
		srv.initialized(t, `{}`)
		if q := srv.expect(t, "resources/subscribe"); string(q.Params) != `{"uri":"f:///a"}` {
			t.Errorf("subscribed to %s", q.Params)
		} else {
			srv.result(q.ID, `{}`)
		}
		c.wants(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{`+id+
			`}}`)

		p.cancel(nil)
		if q := srv.expect(t, "resources/unsubscribe"); string(q.Params) != `{"uri":"f:///a"}` {
			t.Errorf("unsubscribed from %s", q.Params)
		}
	})
}

func TestALegacyServerThatWantsPagesToBeOpenedFirst(t *testing.T) {
	const (
		can   = `{"elicitation":{"url":{}}}`
		wants = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"first","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://x/","message":"Sign in"}]}}}`
	)
	for _, c := range []struct {
		name, capabilities, told, answer string
		again                            bool
		want                             string
	}{
		{"the client agrees", can, can, `{"action":"accept"}`, true, ``},
		{"the client does not", can, can, `{"action":"decline"}`, false,
			`"error":{"code":-32603,"message":"the server wants pages to be opened first, and the client did not agree"}`},
		{"the client opens none", `{"elicitation":{}}`, `{"elicitation":{}}`, ``, false,
			`"error":{"code":-32021,"message":"the server wants pages to be opened first, and the client did not declare elicitation/url","data":{"requiredCapabilities":{"elicitation":{"url":{}}}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, st, end := legacyFor(t, &client{})
				defer end()
				asked := make(chan string, 1)
				asks := &client{answer: func(ctx context.Context, m *mcp.Message) pipeline.Passed {
					asked <- string(m.Body())
					return answers(c.answer)(ctx, m)
				}}
				p := call(t, s, asks, able(`1`, "tools/call", c.capabilities, `,"name":"x"`))
				srv := st.last(t)
				srv.initialized(t, c.told)
				srv.send(wants, srv.expect(t, "tools/call").ID)
				if !c.again {
					p.is(`{"jsonrpc":"2.0","id":1,` + c.want + `}`)
					srv.quiet(t)
					return
				}
				q := srv.expect(t, "tools/call")
				if got, want := <-asked, `{"mode":"url","url":"https://x/","message":"Sign in"}`; got != want {
					t.Errorf("the client was asked %s, want %s", got, want)
				}
				srv.result(q.ID, `{"content":[]}`)
				p.is(`{"jsonrpc":"2.0","id":1,"result":{"content":[],"resultType":"complete",` +
					serverInfo + `}}`)
			})
		})
	}
}

func TestAQuestionThatMayBeAnotherClientsIsPutToNone(t *testing.T) {
	const can = `{"elicitation":{}}`
	synctest.Test(t, func(t *testing.T) {
		feed := &client{answer: answers(`{"from":"the feed"}`)}
		s, st, end := legacyShared(t, feed, true)
		defer end()
		mine, other := &client{answer: answers(`{"action":"accept"}`)},
			&client{answer: answers(`{"action":"accept"}`)}
		call(t, s, mine, able(`1`, "tools/call", can, `,"name":"x"`))
		srv := st.last(t)
		srv.initialized(t, can)
		first := srv.expect(t, "tools/call")
		ask := func(want string) {
			t.Helper()
			srv.send(`{"jsonrpc":"2.0","id":"s","method":"elicitation/create","params":{"message":"?"}}`)
			if a := srv.next(t); string(a.Result) != want {
				t.Errorf("answered %s, want %s", a.Raw, want)
			}
		}
		ask(`{"action":"accept"}`)
		call(t, s, other, able(`2`, "tools/call", can, `,"name":"y"`))
		srv.expect(t, "tools/call")
		ask(`{"from":"the feed"}`)
		srv.result(first.ID, `{}`)
		ask(`{"action":"accept"}`)
	})
}

func TestAServerThatTurnsOutToBeModernAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &starter{}
		u := upstream.New(upstream.Options{Name: "files", Dial: upstream.Dial{Pipe: st.start}})
		defer u.Close()
		go u.Revisions(t.Context())
		slow := st.last(t)
		probe := slow.expect(t, "server/discover")
		time.Sleep(6 * time.Second) // it is taken for legacy
		s, err := u.Open(t.Context(), proxy.OpenOptions{Session: "s", Revision: mcp.Rev20260728},
			&client{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p := call(t, s, &client{}, modernRequest(`1`, "tools/list", ``, ``))
		hello := slow.expect(t, "initialize")
		slow.result(probe.ID, `{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
		synctest.Wait()
		slow.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"?"}}`, hello.ID)
		srv := st.last(t)
		q := srv.expect(t, "tools/list")
		srv.result(q.ID, `{"resultType":"complete","tools":[]}`)
		p.is(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[]}}`)
	})
}

func TestASubscriptionThatALegacyServerDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := legacyFor(t, &client{})
		defer end()
		c := &client{}
		call(t, s, c, modernRequest(`"l"`, "subscriptions/listen", ``,
			`,"notifications":{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}`))
		srv := st.last(t)
		srv.initialized(t, `{}`)
		srv.expect(t, "resources/subscribe")
		time.Sleep(6 * time.Second)
		c.wants(t, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"notifications":{"toolsListChanged":true}}}`)
	})
}

func TestVisitsThatDoNotEndAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := legacyFor(t, &client{})
		defer end()
		st.deaf = time.Hour // no process ends when it is told to
		for n := range 100 {
			call(t, s, &client{}, able(`1`, "tools/list", fmt.Sprintf(`{"experimental":{"n":%d}}`,
				n), ``))
			synctest.Wait()
			for _, srv := range st.alive() {
				select {
				case b := <-srv.up:
					if q := parse(t, b); q.Method == "initialize" {
						srv.result(q.ID, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
						srv.expect(t, "notifications/initialized")
						srv.result(srv.expect(t, "tools/list").ID, `{"tools":[]}`)
					}
				default:
				}
			}
		}
		if n := len(st.alive()); n > 30 {
			t.Errorf("%d processes are alive", n)
		}
	})
}
