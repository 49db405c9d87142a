package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/bridge"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/test/downstreamtest"
	"gatekit/test/upstreamtest"
)

// openLegacyServer opens a session s of a modern client with a legacy server. st starts the
// server's processes. end closes the session and the upstream.
func openLegacyServer(t *testing.T,
	client *upstreamtest.Client) (s proxy.Server, st *upstreamtest.Launcher, end func()) {
	t.Helper()
	return openSharedLegacyServer(t, client, false)
}

// openSharedLegacyServer is like openLegacyServer. If shared is true, several clients may use the
// session.
func openSharedLegacyServer(t *testing.T, client *upstreamtest.Client,
	shared bool) (s proxy.Server, st *upstreamtest.Launcher, end func()) {
	t.Helper()
	st = &upstreamtest.Launcher{}
	u := newUpstream(st, upstream.Options{Era: "legacy", Restart: true})
	s, err := u.Open(t.Context(), proxy.OpenOptions{Session: "s", Principal: identity.FromID("ann"),
		Revision: mcp.Rev20260728, Shared: shared}, client)
	if err != nil {
		t.Fatal(err)
	}
	return s, st, func() {
		s.Close()
		u.Close()
	}
}

// acceptInitialize makes the server answer the initialize of a pooled session, and expects
// notifications/initialized. The initialize must declare the capabilities.
func acceptInitialize(t *testing.T, p *upstreamtest.PipeServer, capabilities string) {
	t.Helper()
	q := p.Expect(t, "initialize")
	want := `{"protocolVersion":"2025-11-25","capabilities":` + capabilities +
		`,"clientInfo":{"name":"c","version":"1"}}`
	if string(q.Params) != want {
		t.Errorf("initialize has the params %s\nwant %s", q.Params, want)
	}
	p.Answer(q.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"old","version":"1"},"instructions":"be kind"}`)
	p.Expect(t, "notifications/initialized")
}

// requestWithCapabilities returns a modern request of a client that declares capabilities.
func requestWithCapabilities(id, method, capabilities, params string) string {
	return strings.ReplaceAll(upstreamtest.ModernRequest(id, method, ``, params),
		`clientCapabilities":{}`,
		`clientCapabilities":`+capabilities)
}

const serverInfo = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"old","version":"1"}}`

func TestModernClientAtLegacyServer(t *testing.T) {
	for _, c := range []struct {
		name, method, params string
		sent                 string // params that the server gets
		answer, want         string
	}{
		{"a call", "tools/call", `,"name":"x","arguments":{"n":1.0}`,
			`{"name":"x","arguments":{"n":1.0}}`,
			`"result":{"content":[ ]}`, `"result":{"content":[ ],"resultType":"complete",` +
				serverInfo + `}`},
		{"a list", "tools/list", ``, `{}`,
			`"result":{"tools":[{"name":"a","execution":{"taskSupport":"optional"}},{"name":"b"}],"nextCursor":"c"}`,
			`"result":{"tools":[{"name":"a"},{"name":"b"}],"nextCursor":"c","resultType":"complete","ttlMs":0,"cacheScope":"private",` + serverInfo + `}`},
		{"a result that already has a resultType", "prompts/get", `,"name":"x"`, `{"name":"x"}`,
			`"result":{"resultType":"input_required","messages":[],"_meta":{"a":1}}`,
			`"result":{"resultType":"complete","messages":[],"_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"old","version":"1"}}}`},
		{"no such resource", "resources/read", `,"uri":"f:///x"`, `{"uri":"f:///x"}`,
			`"error":{"code":-32002,"message":"no","data":{"uri":"f:///x"}}`,
			`"error":{"code":-32602,"message":"no","data":{"uri":"f:///x"}}`},
		{"an error code with another meaning in the client's revision", "tools/call", `,"name":"x"`,
			`{"name":"x"}`,
			`"error":{"code":-32021,"message":"no"}`,
			`"error":{"code":-32603,"message":"no","data":{"upstreamError":{"code":-32021,"message":"no"}}}`},
		{"an error that demands a capability that the client lacks", "tools/call", `,"name":"x"`, `{"name":"x"}`,
			`"error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{"roots":{}}}}`,
			`"error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{"roots":{}}}}`},
		{"the first error code that the client's revision reserves", "tools/call", `,"name":"x"`,
			`{"name":"x"}`, `"error":{"code":-32020,"message":"no"}`,
			`"error":{"code":-32603,"message":"no","data":{"upstreamError":{"code":-32020,"message":"no"}}}`},
		{"the last error code that the client's revision reserves", "tools/call", `,"name":"x"`,
			`{"name":"x"}`, `"error":{"code":-32099,"message":"no"}`,
			`"error":{"code":-32603,"message":"no","data":{"upstreamError":{"code":-32099,"message":"no"}}}`},
		{"an error code that the server chose itself", "tools/call", `,"name":"x"`, `{"name":"x"}`,
			`"error":{"code":-32000,"message":"no"}`, `"error":{"code":-32000,"message":"no"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, st, end := openLegacyServer(t, &upstreamtest.Client{})
				defer end()
				p := upstreamtest.StartCall(t, s, &upstreamtest.Client{},
					upstreamtest.ModernRequest(`"a"`, c.method, ``, c.params))
				srv := st.Last(t)
				acceptInitialize(t, srv, `{}`)
				q := srv.Expect(t, c.method)
				if string(q.Params) != c.sent {
					t.Errorf("the server got %s\nwant           %s", q.Params, c.sent)
				}
				srv.Send(`{"jsonrpc":"2.0","id":%s,%s}`, q.ID, c.answer)
				p.ExpectAnswer(`{"jsonrpc":"2.0","id":"a",` + c.want + `}`)
			})
		})
	}
}

func TestDiscoverOfALegacyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"server/discover", ``, ``))
		acceptInitialize(t, st.Last(t), `{}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"instructions":"be kind","resultType":"complete","ttlMs":0,"cacheScope":"private",` +
			serverInfo + `,"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]}}`)
		for _, method := range []string{"tasks/get", "tasks/update"} {
			upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`2`,
				method, ``, `,"taskId":"t"`)).
				ExpectAnswer(`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"method not found: the server speaks a revision of the protocol that has no ` + method + `"}}`)
		}
	})
}

// TestInputResponsesWithoutAQuestionAreIgnored makes a call that brings answers although the server
// has not asked a question. The server gets the call without the answers.
func TestInputResponsesWithoutAQuestionAreIgnored(t *testing.T) {
	for _, responses := range []string{`{"g0":{"action":"accept"}}`, `{}`, `null`, `7`} {
		synctest.Test(t, func(t *testing.T) {
			s, st, end := openLegacyServer(t, &upstreamtest.Client{})
			defer end()
			call := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(
				`1`, "tools/call", ``, `,"name":"x","inputResponses":`+responses))
			srv := st.Last(t)
			acceptInitialize(t, srv, `{}`)
			q := srv.Expect(t, "tools/call")
			if want := `{"name":"x"}`; string(q.Params) != want {
				t.Errorf("the server got %s, want %s", q.Params, want)
			}
			srv.Answer(q.ID, `{}`)
			call.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete",` +
				serverInfo + `}}`)
		})
	}
}

func TestOneSessionForEachSetOfCapabilities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		for n, c := range []struct {
			capabilities string
			initialize   string // capabilities in a new session's initialize; "" if none
			processes    int    // how many processes have been started
		}{
			{`{}`, `{}`, 1},
			{`{}`, ``, 1},
			{`{"roots":{"listChanged":true},"elicitation":{}}`, `{"roots":{},"elicitation":{}}`, 2},
			// the same capabilities
			{`{ "elicitation":{}, "roots":{}, "extensions":{"x":{}} }`, ``, 2},
			{`{"sampling":{}}`, `{"sampling":{}}`, 3},
		} {
			p := upstreamtest.StartCall(t, s, &upstreamtest.Client{},
				requestWithCapabilities(`1`, "tools/list", c.capabilities, ``))
			if got := st.Count(); got != c.processes {
				t.Fatalf("request %d: %d processes have been started, want %d", n, got, c.processes)
			}
			srv := st.Last(t)
			if c.initialize != "" {
				acceptInitialize(t, srv, c.initialize)
			}
			if n == 1 {
				srv = st.First(t)
			}
			srv.Answer(srv.Expect(t, "tools/list").ID, `{"tools":[]}`)
			synctest.Wait()
			if p.Err != nil {
				t.Fatal(p.Err)
			}
		}
		time.Sleep(6 * time.Minute)
		if n := len(st.Alive()); n != 0 {
			t.Errorf("%d processes run after six minutes without a request, want 0", n)
		}
		upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/list", ``, ``))
		if n := len(st.Alive()); n != 1 {
			t.Errorf("%d processes run for the next request, want 1", n)
		}
	})
}

func TestSetsOfCapabilitiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		open := func(n int) *upstreamtest.Call {
			return upstreamtest.StartCall(t, s, &upstreamtest.Client{},
				requestWithCapabilities(`1`, "tools/list", `{"experimental":{"n":`+
					string(rune('0'+n))+`}}`, ``))
		}
		var first *upstreamtest.Call
		for n := range 9 {
			if p := open(n); n == 0 {
				first = p
			}
			synctest.Wait()
		}
		if n := st.Count(); n != 8 {
			t.Errorf("%d processes have been started, want 8", n)
		}
		srv := st.First(t)
		acceptInitialize(t, srv, `{"experimental":{"n":0}}`)
		srv.Answer(srv.Expect(t, "tools/list").ID, `{"tools":[]}`)
		synctest.Wait()
		if first.Err != nil {
			t.Error(first.Err)
		}
		if n := st.Count(); n != 9 || !srv.HasEnded() {
			t.Errorf("%d processes were started, want 9; the idle process has ended: %v, want true",
				n, srv.HasEnded())
		}
	})
}

func TestLegacyServerRefusesInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/list", ``, ``))
		srv := st.Last(t)
		srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no licence"}}`,
			srv.Expect(t, "initialize").ID)
		p.ExpectError(`error -32000, "no licence"`)
		// The server is not started again at once.
		upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/list", ``, ``)).ExpectError("no licence")
		if n := st.Count(); n != 1 {
			t.Errorf("%d processes were started, want 1", n)
		}
		time.Sleep(time.Minute)
		st.Fail = errors.New("no such program")
		upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/list", ``,
			``)).ExpectError("could not be started")
		st.Fail = nil
		time.Sleep(time.Minute)
		p = upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/list", ``, ``))
		srv = st.Last(t)
		acceptInitialize(t, srv, `{}`)
		srv.Answer(srv.Expect(t, "tools/list").ID, `{}`)
		synctest.Wait()
		if p.Err != nil {
			t.Error(p.Err)
		}
	})
}

func TestLegacyServerAsksModernClient(t *testing.T) {
	const capabilities = `{"elicitation":{},"roots":{}}`
	synctest.Test(t, func(t *testing.T) {
		session := &upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{"from":"the session"}`)}
		s, st, end := openLegacyServer(t, session)
		defer end()
		asked := make(chan string, 9)
		c := &upstreamtest.Client{}
		c.OnAsk = func(ctx context.Context, m *mcp.Message) pipeline.Passed {
			asked <- string(m.Body())
			return upstreamtest.AnswerWith(`{"action":"decline"}`)(ctx, m)
		}
		list := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, requestWithCapabilities(`1`,
			"tools/list", capabilities,
			``))
		srv := st.Last(t)
		acceptInitialize(t, srv, capabilities)
		q := srv.Expect(t, "tools/list")

		expectSession := func(what string) {
			t.Helper()
			if a := srv.Next(t); string(a.Result) != `{"from":"the session"}` {
				t.Errorf("%s was answered with %s, want the session's answer", what, a.Raw)
			}
		}
		srv.Send(`{"jsonrpc":"2.0","id":"s0","method":"elicitation/create","params":{}}`)
		expectSession("a question outside of a call")
		srv.Answer(q.ID, `{"tools":[]}`)
		srv.Send(`{"jsonrpc":"2.0","id":"s1","method":"roots/list"}`)
		srv.ExpectNothing(t)
		time.Sleep(11 * time.Second)
		expectSession("a question for roots, while no call has come,")
		srv.Send(`{"jsonrpc":"2.0","id":"s2","method":"roots/list"}`)
		srv.ExpectNothing(t)
		first := upstreamtest.StartCall(t, s, c, requestWithCapabilities(`2`, "tools/call",
			capabilities, `,"name":"x"`))
		seen := []string{srv.Next(t).Method, srv.Next(t).Method}
		if slices.Sort(seen); !slices.Equal(seen, []string{"", "tools/call"}) || <-asked != "" {
			t.Errorf("the server got %q, want an answer and the call", seen)
		}
		// The client does not wait for this call, since another question has ended its request.
		upstreamtest.StartCall(t, s, &upstreamtest.Client{Away: true}, requestWithCapabilities(`3`,
			"tools/call", capabilities,
			`,"name":"y"`))
		srv.Expect(t, "tools/call")
		srv.Send(`{"jsonrpc":"2.0","id":"s3","method":"elicitation/create","params":{"message":"?","mode":"url","elicitationId":"e","task":{},"_meta":{"progressToken":1}}}`)
		if a := srv.Next(t); string(a.ID) != `"s3"` || string(a.Result) != `{"action":"decline"}` {
			t.Errorf("the question s3 was answered with %s, want the client's answer", a.Raw)
		}
		if got, want := <-asked, `{"message":"?","mode":"url"}`; got != want {
			t.Errorf("the client was asked %s, want %s", got, want)
		}
		srv.Send(`{"jsonrpc":"2.0","id":"s4","method":"acme/ask","params":{}}`)
		expectSession("a request that no result can carry")
		if list.Err != nil {
			t.Error(list.Err)
		}
		first.ExpectWaiting()
	})
}

// TestClientIsAskedInEachRequestThatAllowsQuestions has a server ask during several kinds of
// requests. In requests that allow input requests, the handler of that request must get the
// question.
func TestClientIsAskedInEachRequestThatAllowsQuestions(t *testing.T) {
	const capabilities = `{"elicitation":{},"roots":{},"sampling":{}}`
	const inRequest, inSession = `{"from":"the request"}`, `{"from":"the session"}`
	for _, c := range []struct{ method, params, want string }{
		{"tools/call", `,"name":"x"`, inRequest},
		{"prompts/get", `,"name":"x"`, inRequest},
		{"resources/read", `,"uri":"f:///x"`, inRequest},
		{"completion/complete", `,"ref":{"type":"ref/prompt","name":"x"},"argument":{}`, inSession},
		{"resources/list", ``, inSession},
	} {
		for _, question := range []string{"roots/list", "elicitation/create",
			"sampling/createMessage"} {
			t.Run(question+" during "+c.method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, st, end := openLegacyServer(t, &upstreamtest.Client{
						OnAsk: upstreamtest.AnswerWith(inSession)})
					defer end()
					call := upstreamtest.StartCall(t, s, &upstreamtest.Client{
						OnAsk: upstreamtest.AnswerWith(inRequest)},
						requestWithCapabilities(`1`, c.method, capabilities, c.params))
					srv := st.Last(t)
					acceptInitialize(t, srv, capabilities)
					q := srv.Expect(t, c.method)
					asked := time.Now()
					srv.Send(`{"jsonrpc":"2.0","id":"s","method":%q,"params":{}}`, question)
					if question == "roots/list" && c.want == inSession {
						time.Sleep(2 * time.Second) // the question waits for a call to begin
					}
					if a := srv.Next(t); string(a.Result) != c.want {
						t.Errorf("the question was answered with %s, want %s", a.Raw, c.want)
					}
					if waited := time.Since(asked); c.want == inRequest && waited > 0 {
						t.Errorf("the question waited for %v, want no wait", waited)
					}
					call.ExpectWaiting()
					srv.Answer(q.ID, `{}`)
					synctest.Wait()
					if call.Err != nil {
						t.Error(call.Err)
					}
				})
			})
		}
	}
}

// TestServerAsksForRootsDuringAList uses a server that answers tools/list only when it has the
// client's roots. A client cannot be asked anything during tools/list.
func TestServerAsksForRootsDuringAList(t *testing.T) {
	start := func(t *testing.T, capabilities string) (list *upstreamtest.Call,
		srv *upstreamtest.PipeServer, id json.RawMessage, end func()) {
		session := &upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{"from":"the session"}`)}
		s, st, end := openLegacyServer(t, session)
		caller := &upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{"from":"the list"}`)}
		list = upstreamtest.StartCall(t, s, caller, requestWithCapabilities(`1`, "tools/list",
			capabilities, ``))
		srv = st.Last(t)
		acceptInitialize(t, srv, capabilities)
		return list, srv, srv.Expect(t, "tools/list").ID, end
	}
	const question = `{"jsonrpc":"2.0","id":%d,"method":"roots/list"}`
	t.Run("the client has no roots", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			list, srv, id, end := start(t, canElicit)
			defer end()
			for i := range 20 {
				srv.Send(question, i)
				// The handler of the list knows that the client has no roots.
				if a := srv.Next(t); string(a.Result) != `{"from":"the list"}` {
					t.Errorf("question %d was answered with %s, want the answer from the list", i,
						a.Raw)
				}
			}
			srv.Answer(id, `{"tools":[]}`)
			list.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private",` + serverInfo + `}}`)
		})
	})
	t.Run("the client has no roots, and no request is in flight", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, srv, id, end := start(t, canElicit)
			defer end()
			srv.Answer(id, `{"tools":[]}`)
			synctest.Wait()
			srv.Send(question, 1)
			srv.ExpectNothing(t)
			time.Sleep(10 * time.Second)
			if a := srv.Next(t); string(a.Result) != `{"from":"the session"}` {
				t.Errorf("the question was answered with %s, want the session's answer", a.Raw)
			}
		})
	})
	t.Run("the client has roots", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			list, srv, id, end := start(t, `{"roots":{}}`)
			defer end()
			began := time.Now()
			for i := range 20 {
				srv.Send(question, i)
				synctest.Wait()
				if i == 0 { // the first question waits for a call in which the client can be asked
					srv.ExpectNothing(t)
					time.Sleep(2 * time.Second)
				}
				if a := srv.Next(t); string(a.Result) != `{"from":"the session"}` {
					t.Errorf("question %d was answered with %s, want the session's answer", i,
						a.Raw)
				}
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("all questions took %v, want at most 2 s", took)
			}
			list.ExpectWaiting()
			srv.Answer(id, `{"tools":[]}`)
			synctest.Wait()
			// without a list in flight, a question waits for a call
			srv.Send(question, 20)
			time.Sleep(9 * time.Second)
			srv.ExpectNothing(t)
		})
	})
}

func TestLogMessagesOfALegacyServer(t *testing.T) {
	const line = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"%s","data":1}}`
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		quiet, c := &upstreamtest.Client{}, &upstreamtest.Client{}
		p := upstreamtest.StartCall(t, s, quiet, upstreamtest.ModernRequest(`1`, "tools/call", ``,
			`,"name":"x"`))
		srv := st.Last(t)
		acceptInitialize(t, srv, `{}`)
		q := srv.Expect(t, "tools/call")
		srv.Send(line, "error")
		srv.Answer(q.ID, `{}`)
		synctest.Wait()
		if p.Err != nil {
			t.Error(p.Err)
		}
		quiet.ExpectReceived(t)

		upstreamtest.StartCall(t, s, c, upstreamtest.ModernRequest(`2`,
			"tools/call", `"io.modelcontextprotocol/logLevel":"warning",`, `,"name":"x"`))
		q = srv.Expect(t, "logging/setLevel")
		if string(q.Params) != `{"level":"warning"}` {
			t.Errorf("logging/setLevel has the params %s, want warning", q.Params)
		}
		srv.Answer(q.ID, `{}`)
		q = srv.Expect(t, "tools/call")
		srv.Send(line, "info")
		srv.Send(line, "warning")
		srv.Send(line, "critical")
		c.ExpectReceived(t, strings.ReplaceAll(line, "%s", "warning"),
			strings.ReplaceAll(line, "%s", "critical"))
		srv.Answer(q.ID, `{}`)

		// The server already sends messages of these levels, so its level is not set again.
		for _, level := range []string{"warning", "error"} {
			upstreamtest.StartCall(t, s, c, upstreamtest.ModernRequest(`3`, "tools/call",
				`"io.modelcontextprotocol/logLevel":"`+level+`",`, `,"name":"x"`))
			srv.Expect(t, "tools/call")
		}
	})
}

// A message that could be for another call, or that the client's revision does not have, reaches no
// client. It is recorded.
func TestMessagesOfALegacyServerThatReachNoClient(t *testing.T) {
	const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1}}`
	for _, c := range []struct {
		name, message string
		inFlight      int // number of calls
		reason        string
	}{
		{"a log message without a call", log, 0, "no call is in flight"},
		{"a log message during two calls", log, 2,
			"several calls are in flight, and the message names none of them"},
		{"the end of an elicitation",
			`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}`,
			1, "the client's revision has no such notification"},
		{"the status of a task",
			`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"T","status":"working"}}`,
			1, "the client's revision has no such notification"},
		{"a change that nobody has subscribed to",
			`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`, 1,
			"no subscription of the client includes it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				feed, caller := &upstreamtest.Client{}, &upstreamtest.Client{}
				s, st, end := openLegacyServer(t, feed)
				defer end()
				var srv *upstreamtest.PipeServer
				for i := range max(c.inFlight, 1) {
					upstreamtest.StartCall(t, s, caller, upstreamtest.ModernRequest(
						strconv.Itoa(i), "tools/call", `"io.modelcontextprotocol/logLevel":"error",`,
						`,"name":"x"`))
					if srv == nil {
						srv = st.Last(t)
						acceptInitialize(t, srv, `{}`)
						srv.Answer(srv.Expect(t, "logging/setLevel").ID, `{}`)
					}
					if q := srv.Expect(t, "tools/call"); c.inFlight == 0 {
						srv.Answer(q.ID, `{}`)
					}
				}
				synctest.Wait()
				srv.Send("%s", c.message)
				synctest.Wait()
				got := append(feed.Consumed(), caller.Consumed()...)
				if len(got) != 1 || !strings.HasPrefix(got[0], "drop: "+c.reason+": ") ||
					len(feed.Received())+len(caller.Received()) > 0 {
					t.Errorf("the records are %q, and the client got %q and %q; want one record "+
						"with the reason %q", got, feed.Received(), caller.Received(), c.reason)
				}
			})
		})
	}
}

func TestModernSubscriptionAtLegacyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		c := &upstreamtest.Client{}
		p := upstreamtest.StartCall(t, s, c, upstreamtest.ModernRequest(`"l"`,
			"subscriptions/listen", ``,
			`,"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["f:///a","f:///b"]}`))
		srv := st.Last(t)
		acceptInitialize(t, srv, `{}`)
		srv.Answer(srv.Expect(t, "resources/subscribe").ID, `{}`)
		srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`,
			srv.Expect(t, "resources/subscribe").ID)
		srv.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		srv.Send(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
		srv.Send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"f:///a"}}`)
		const id = `"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}`
		c.ExpectReceived(
			t, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{`+id+
				`,"notifications":{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}}}`,
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{`+id+`}}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"f:///a",`+
				id+`}}`)

		c.Forget()
		srv.Close() // the session is restarted, and missed changes are reported
		time.Sleep(5 * time.Second)
		srv = st.Last(t)
		acceptInitialize(t, srv, `{}`)
		if q := srv.Expect(t, "resources/subscribe"); string(q.Params) != `{"uri":"f:///a"}` {
			t.Errorf("resources/subscribe has the params %s, want f:///a", q.Params)
		} else {
			srv.Answer(q.ID, `{}`)
		}
		c.ExpectReceived(
			t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{`+id+
				`}}`)

		p.Cancel(nil)
		if q := srv.Expect(t, "resources/unsubscribe"); string(q.Params) != `{"uri":"f:///a"}` {
			t.Errorf("resources/unsubscribe has the params %s, want f:///a", q.Params)
		}
	})
}

func TestLegacyServerWantsPagesOpenedFirst(t *testing.T) {
	const (
		urls = `{"elicitation":{"url":{}}}`
		// wants is the error of a server that wants a page to be opened before the call
		wants = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"first","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://x/","message":"Sign in"}]}}}`
	)
	for _, c := range []struct {
		name, capabilities, answer string
		again                      bool   // the call is sent again
		want                       string // the error that the client gets; "" if again is true
	}{
		{"the client agrees", urls, `{"action":"accept"}`, true, ``},
		{"the client declines", urls, `{"action":"decline"}`, false,
			`"error":{"code":-32603,"message":"the server wants pages to be opened first, and the client did not agree"}`},
		{"the client opens no pages", `{"elicitation":{}}`, ``, false,
			`"error":{"code":-32021,"message":"the server wants pages to be opened first, and the client did not declare elicitation/url","data":{"requiredCapabilities":{"elicitation":{"url":{}}}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, st, end := openLegacyServer(t, &upstreamtest.Client{})
				defer end()
				asked := make(chan string, 1)
				asks := &upstreamtest.Client{OnAsk: func(ctx context.Context,
					m *mcp.Message) pipeline.Passed {
					asked <- string(m.Body())
					return upstreamtest.AnswerWith(c.answer)(ctx, m)
				}}
				p := upstreamtest.StartCall(t, s, asks, requestWithCapabilities(`1`,
					"tools/call", c.capabilities,
					`,"name":"x"`))
				srv := st.Last(t)
				acceptInitialize(t, srv, c.capabilities)
				srv.Send(wants, srv.Expect(t, "tools/call").ID)
				if !c.again {
					p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,` + c.want + `}`)
					srv.ExpectNothing(t)
					return
				}
				q := srv.Expect(t, "tools/call")
				if got, want := <-asked, `{"mode":"url","url":"https://x/","message":"Sign in"}`; got != want {
					t.Errorf("the client was asked %s, want %s", got, want)
				}
				srv.Answer(q.ID, `{"content":[]}`)
				p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"content":[],"resultType":"complete",` +
					serverInfo + `}}`)
			})
		})
	}
}

// TestSeveralPagesToBeOpenedFirst uses a server that names pages in the error that answers a call.
func TestSeveralPagesToBeOpenedFirst(t *testing.T) {
	const urls = `{"elicitation":{"url":{}}}`
	page := func(n int) string { return fmt.Sprintf(`{"url":"https://x/%d","message":"?"}`, n) }
	var many []string
	for n := range 65 {
		many = append(many, page(n))
	}
	for _, c := range []struct {
		name, pages string
		asked       int    // how many pages the client is asked to open
		fails       string // the error of the call; "" if the call is sent again
	}{
		{"two pages", page(0) + `,` + page(1), 2, ``},
		{"as many pages as a server may name", strings.Join(many[:64], `,`), 64, ``},
		{"more pages than a server may name", strings.Join(many, `,`), 0,
			"asked for too many pages at once"},
		{"no page", ``, 0, "does not name them"},
		{"a page that is not an object", page(0) + `,7`, 0, "does not name them"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, st, end := openLegacyServer(t, &upstreamtest.Client{})
				defer end()
				var asked []string
				p := upstreamtest.StartCall(t, s, &upstreamtest.Client{OnAsk: func(
					ctx context.Context, m *mcp.Message) pipeline.Passed {
					url, _ := m.Text("/url")
					asked = append(asked, url)
					return upstreamtest.AnswerWith(`{"action":"accept"}`)(ctx, m)
				}}, requestWithCapabilities(`1`, "tools/call", urls, `,"name":"x"`))
				srv := st.Last(t)
				acceptInitialize(t, srv, urls)
				srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"first","data":{"elicitations":[%s]}}}`,
					srv.Expect(t, "tools/call").ID, c.pages)
				if c.fails != "" {
					p.ExpectError(c.fails)
				} else {
					srv.Answer(srv.Expect(t, "tools/call").ID, `{}`)
					p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete",` +
						serverInfo + `}}`)
				}
				for n, url := range asked {
					if want := fmt.Sprintf("https://x/%d", n); url != want {
						t.Errorf("page %d that the client was asked to open is %s, want %s", n, url,
							want)
					}
				}
				if len(asked) != c.asked {
					t.Errorf("the client was asked to open %d pages, want %d", len(asked), c.asked)
				}
			})
		})
	}
}

// TestServerMayDemandPagesThreeTimes uses a server that answers each call with the demand to open a
// page.
func TestServerMayDemandPagesThreeTimes(t *testing.T) {
	const urls = `{"elicitation":{"url":{}}}`
	synctest.Test(t, func(t *testing.T) {
		records := &downstreamtest.Recorder{}
		stages := pipeline.New(records, pipeline.Options{})
		st := &upstreamtest.Launcher{}
		u := newUpstream(st, upstream.Options{Era: "legacy",
			Pipeline: func() *pipeline.Pipeline { return stages }})
		defer u.Close()
		s, err := u.Open(t.Context(), proxy.OpenOptions{Session: "s", Revision: mcp.Rev20260728},
			&upstreamtest.Client{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		// StartCall records the client's request with another recorder.
		asked := 0
		client := &upstreamtest.Client{OnAsk: func(ctx context.Context,
			m *mcp.Message) pipeline.Passed {
			asked++
			return upstreamtest.AnswerWith(`{"action":"accept"}`)(ctx, m)
		}}
		p := upstreamtest.StartCall(t, s, client,
			requestWithCapabilities(`1`, "tools/call", urls, `,"name":"x"`))
		srv := st.Last(t)
		acceptInitialize(t, srv, urls)
		for range 3 {
			srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"first","data":{"elicitations":[{"url":"https://x/","message":"?"}]}}}`,
				srv.Expect(t, "tools/call").ID)
		}
		srv.ExpectNothing(t)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"first","data":{"upstreamError":{"code":-32042,"message":"first","data":{"elicitations":[{"url":"https://x/","message":"?"}]}}}}}`)
		repeated := 0
		for _, row := range records.Rows() {
			if strings.Contains(row, "to_server request tools/call") {
				repeated++
			}
		}
		if repeated != 2 {
			t.Errorf("%d repeated calls were recorded, want 2; the records are\n%s", repeated,
				strings.Join(records.Rows(), "\n"))
		}
		// The proxy records the third demand, because it is the answer to the call.
		if got := client.Consumed(); asked != 2 || len(got) != 2 {
			t.Errorf("the client was asked %d times and %d demands were recorded as answered, "+
				"want 2 and 2", asked, len(got))
		}
	})
}

// callsOfClients makes calls at one legacy server, each for another client. Every client can be
// asked, and answers a question with its number.
type callsOfClients struct {
	t       *testing.T
	server  proxy.Server
	started *upstreamtest.Launcher
}

const canElicit = `{"elicitation":{}}`

// call makes the call of client n.
func (c *callsOfClients) call(n int) *upstreamtest.Call {
	c.t.Helper()
	client := &upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(fmt.Sprintf(`{"client":%d}`, n))}
	call := upstreamtest.StartCall(c.t, c.server, client, requestWithCapabilities(`1`, "tools/call",
		canElicit, `,"name":"x"`))
	synctest.Wait()
	return call
}

// ask sends a question from the server srv, and checks the answer that the server gets.
func (c *callsOfClients) ask(srv *upstreamtest.PipeServer, want string) {
	c.t.Helper()
	srv.Send(`{"jsonrpc":"2.0","id":"s","method":"elicitation/create","params":{"message":"?"}}`)
	if a := srv.Next(c.t); string(a.Result) != want {
		c.t.Errorf("the question was answered %s, want %s", a.Raw, want)
	}
}

// wantProcesses checks how many processes have been started.
func (c *callsOfClients) wantProcesses(want int) {
	c.t.Helper()
	if got := c.started.Count(); got != want {
		c.t.Errorf("%d processes have been started, want %d", got, want)
	}
}

// runCallsOfClients runs a test with a session that several clients may use.
func runCallsOfClients(t *testing.T, test func(t *testing.T, c *callsOfClients)) {
	synctest.Test(t, func(t *testing.T) {
		session := &upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{"from":"the session"}`)}
		s, st, end := openSharedLegacyServer(t, session, true)
		defer end()
		test(t, &callsOfClients{t, s, st})
	})
}

func TestQuestionsReachTheClientOfTheirCall(t *testing.T) {
	runCallsOfClients(t, func(t *testing.T, c *callsOfClients) {
		c.call(0)
		first := c.started.Last(t)
		acceptInitialize(t, first, canElicit)
		running := first.Expect(t, "tools/call")

		waiting := c.call(1)
		first.ExpectNothing(t)
		time.Sleep(furtherDelay)
		c.wantProcesses(2)
		second := c.started.Last(t)
		acceptInitialize(t, second, canElicit)
		other := second.Expect(t, "tools/call")
		c.ask(first, `{"client":0}`)
		c.ask(second, `{"client":1}`)
		waiting.ExpectWaiting()

		// a request in which no client can be asked uses the first session at once
		upstreamtest.StartCall(t, c.server, &upstreamtest.Client{},
			requestWithCapabilities(`2`, "tools/list", canElicit, ``))
		first.Expect(t, "tools/list")
		c.ask(first, `{"client":0}`)

		// a waiting call gets the session of a call that ends in time
		c.call(2)
		first.Answer(running.ID, `{}`)
		first.Expect(t, "tools/call")
		c.ask(first, `{"client":2}`)
		c.wantProcesses(2)

		// the further session ends when it is not used
		second.Answer(other.ID, `{}`)
		time.Sleep(61 * time.Second)
		if !second.HasEnded() || first.HasEnded() {
			t.Errorf("the further session has ended: %v, want true; the first session has ended: "+
				"%v, want false", second.HasEnded(), first.HasEnded())
		}
	})
}

// furtherDelay is how long a call waits before it gets a further session.
const furtherDelay = 100 * time.Millisecond

// TestFurtherSessionsAreBounded makes more calls at once than there can be sessions.
func TestFurtherSessionsAreBounded(t *testing.T) {
	for _, asks := range []bool{false, true} {
		t.Run(fmt.Sprintf("the server has asked: %v", asks), func(t *testing.T) {
			runCallsOfClients(t, func(t *testing.T, c *callsOfClients) {
				const sessions = 25
				var last upstreamtest.Message
				for n := range sessions {
					c.call(n)
					if n > 0 {
						time.Sleep(furtherDelay)
					}
					acceptInitialize(t, c.started.Last(t), canElicit)
					last = c.started.Last(t).Expect(t, "tools/call")
				}
				if asks {
					c.ask(c.started.Last(t), fmt.Sprintf(`{"client":%d}`, sessions-1))
				}
				c.call(sessions)
				time.Sleep(5*time.Second - time.Millisecond)
				c.started.First(t).ExpectNothing(t)
				c.wantProcesses(sessions)
				if asks { // the call waits until a session is free
					time.Sleep(time.Minute)
					c.started.First(t).ExpectNothing(t)
					c.started.Last(t).Answer(last.ID, `{}`)
					c.started.Last(t).Expect(t, "tools/call")
					c.ask(c.started.Last(t), fmt.Sprintf(`{"client":%d}`, sessions))
					return
				}
				// the call shares a session, in which no client can be asked any more
				time.Sleep(time.Millisecond)
				c.started.First(t).Expect(t, "tools/call")
				c.ask(c.started.First(t), `{"from":"the session"}`)
				c.ask(c.started.Last(t), fmt.Sprintf(`{"client":%d}`, sessions-1))
			})
		})
	}
}

// TestSecondProcessOfAServerCannotBeStarted makes two calls at a server that can run only once. The
// second call waits until the first has ended.
func TestSecondProcessOfAServerCannotBeStarted(t *testing.T) {
	runCallsOfClients(t, func(t *testing.T, c *callsOfClients) {
		c.call(0)
		first := c.started.Last(t)
		acceptInitialize(t, first, canElicit)
		running := first.Expect(t, "tools/call")
		c.started.Fail = errors.New("the port is taken")
		next := c.call(1)
		time.Sleep(furtherDelay)
		next.ExpectWaiting()
		c.ask(first, `{"client":0}`)
		first.Answer(running.ID, `{}`)
		first.Expect(t, "tools/call")
		c.ask(first, `{"client":1}`)
	})
}

func TestServerTurnsOutToBeModern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &upstreamtest.Launcher{}
		u := newUpstream(st, upstream.Options{})
		defer u.Close()
		go u.Revisions(t.Context())
		slow := st.Last(t)
		probe := slow.Expect(t, "server/discover")
		time.Sleep(6 * time.Second) // after this time the server counts as a legacy server
		s, err := u.Open(t.Context(), proxy.OpenOptions{Session: "s", Revision: mcp.Rev20260728},
			&upstreamtest.Client{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/list", ``, ``))
		initialize := slow.Expect(t, "initialize")
		slow.Answer(probe.ID, `{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
		synctest.Wait()
		slow.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"?"}}`, initialize.ID)
		srv := st.Last(t)
		q := srv.Expect(t, "tools/list")
		srv.Answer(q.ID, `{"resultType":"complete","tools":[]}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[]}}`)
	})
}

// TestSubscribersShareTheServersSubscriptions opens two subscriptions. The server gets one
// resources/subscribe for a resource of both, and a resources/unsubscribe when both have ended.
func TestSubscribersShareTheServersSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		listen := func(id, uris string) (*upstreamtest.Call, *upstreamtest.Client) {
			c := &upstreamtest.Client{}
			return upstreamtest.StartCall(t, s, c, upstreamtest.ModernRequest(id,
				"subscriptions/listen", ``,
				`,"notifications":{"resourceSubscriptions":[`+uris+`]}`)), c
		}
		subscribed := func(c *upstreamtest.Client, id, uris string) {
			t.Helper()
			c.ExpectReceived(t,
				`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":`+
					id+`},"notifications":{"resourceSubscriptions":[`+uris+`]}}}`)
			c.Forget()
		}
		first, a := listen(`1`, `"f:///no","f:///a","f:///a"`)
		srv := st.Last(t)
		acceptInitialize(t, srv, `{}`)
		// A resource that the server refuses does not stop the next one.
		srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`,
			srv.Expect(t, "resources/subscribe").ID)
		srv.Answer(srv.Expect(t, "resources/subscribe").ID, `{}`)
		subscribed(a, `1`, `"f:///a"`)
		second, b := listen(`2`, `"f:///a"`)
		srv.ExpectNothing(t)
		subscribed(b, `2`, `"f:///a"`)

		first.Cancel(nil)
		srv.ExpectNothing(t)
		srv.Send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"f:///a"}}`)
		b.ExpectReceived(t, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"f:///a","_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`)
		second.Cancel(nil)
		if q := srv.Expect(t, "resources/unsubscribe"); string(q.Params) != `{"uri":"f:///a"}` {
			t.Errorf("resources/unsubscribe has the params %s, want f:///a", q.Params)
		} else {
			srv.Answer(q.ID, `{}`)
		}
		// The next subscriber needs a subscription at the server again.
		_, c := listen(`3`, `"f:///a"`)
		srv.Answer(srv.Expect(t, "resources/subscribe").ID, `{}`)
		subscribed(c, `3`, `"f:///a"`)
	})
}

func TestSubscriptionToToolsGetsNoUpdatesOfResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		c := &upstreamtest.Client{}
		upstreamtest.StartCall(t, s, c, upstreamtest.ModernRequest(`1`, "subscriptions/listen", ``,
			`,"notifications":{"toolsListChanged":true}`))
		srv := st.Last(t)
		acceptInitialize(t, srv, `{}`)
		// another subscription makes the server send updates of the resource
		upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`2`,
			"subscriptions/listen", ``, `,"notifications":{"resourceSubscriptions":["f:///a"]}`))
		srv.Answer(srv.Expect(t, "resources/subscribe").ID, `{}`)
		synctest.Wait()
		c.Forget()
		srv.Send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"f:///a"}}`)
		c.ExpectReceived(t)
	})
}

// TestWaitingNotificationsAreBounded uses a client that does not take the notifications of its
// subscription for a while. Those above the bounds are dropped and recorded. When the client has
// taken the others, it gets new notifications.
func TestWaitingNotificationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session := &upstreamtest.Client{}
		s, st, end := openLegacyServer(t, session)
		defer end()
		slow := &upstreamtest.Client{Slow: make(chan struct{})}
		upstreamtest.StartCall(t, s, slow, upstreamtest.ModernRequest(`1`,
			"subscriptions/listen", ``, `,"notifications":{"toolsListChanged":true}`))
		srv := st.Last(t)
		acceptInitialize(t, srv, `{}`)
		slow.Slow <- struct{}{} // the acknowledgement
		synctest.Wait()
		dropped := 0
		for _, c := range []struct {
			size, sent  int // of the notifications, and how many the server sends
			wantArrived int // the bounds do not count the first, which waits outside of the queue
		}{
			{3000, 700, 257}, // their number is bounded
			{300_000, 8, 4},  // their size is bounded
			{300_000, 8, 4},
			{3000, 700, 257},
		} {
			slow.Forget()
			for range c.sent {
				srv.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":%q}}`,
					strings.Repeat("x", c.size))
				synctest.Wait()
			}
			for arrived := true; arrived; synctest.Wait() {
				select {
				case slow.Slow <- struct{}{}:
				default:
					arrived = false
				}
			}
			if n := len(slow.Received()); n != c.wantArrived {
				t.Errorf("%d of %d notifications with %d bytes arrived, want %d", n, c.sent, c.size,
					c.wantArrived)
			}
			dropped += c.sent - c.wantArrived
		}
		recorded := 0
		for _, row := range session.Consumed() {
			if strings.HasPrefix(row, "drop: too many notifications wait") {
				recorded++
			}
		}
		if recorded != dropped {
			t.Errorf("%d notifications were recorded as dropped, want %d", recorded, dropped)
		}
	})
}

// TestListChangeIsNotDropped uses a client that does not take the notifications of its subscription
// for a while, until no further update of a resource has room.
func TestListChangeIsNotDropped(t *testing.T) {
	const (
		updated     = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"f:///a","x":%q}}`
		listChanged = `{"jsonrpc":"2.0","method":"notifications/%s/list_changed"}`
	)
	for _, c := range []struct {
		name  string
		times int
		sizes []int // the updates have each of these sizes as many times
	}{
		{"the number of updates is bounded", 300, []int{1}},
		{"the size of the updates is bounded", 30, []int{100_000, 10_000, 1000, 100, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				session := &upstreamtest.Client{}
				s, st, end := openLegacyServer(t, session)
				defer end()
				slow := &upstreamtest.Client{Slow: make(chan struct{})}
				upstreamtest.StartCall(t, s, slow, upstreamtest.ModernRequest(`1`,
					"subscriptions/listen", ``, `,"notifications":{"toolsListChanged":true,`+
						`"resourcesListChanged":true,"resourceSubscriptions":["f:///a"]}`))
				srv := st.Last(t)
				initialize := srv.Expect(t, "initialize")
				srv.Answer(initialize.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}},"serverInfo":{"name":"old","version":"1"}}`)
				srv.Expect(t, "notifications/initialized")
				srv.Answer(srv.Expect(t, "resources/subscribe").ID, `{}`)
				slow.Slow <- struct{}{} // the acknowledgement
				synctest.Wait()
				slow.Forget()
				for _, size := range c.sizes {
					for range c.times {
						srv.Send(updated, strings.Repeat("x", size))
					}
				}
				// A second change of the same list is merged with the first.
				for _, list := range []string{"tools", "resources", "tools", "resources"} {
					srv.Send(listChanged, list)
				}
				synctest.Wait()
				before := len(session.Consumed())
				srv.Send(updated, "")
				for arrived := true; arrived; {
					synctest.Wait()
					select {
					case slow.Slow <- struct{}{}:
					default:
						arrived = false
					}
				}
				if got := len(session.Consumed()); got != before+1 {
					t.Errorf("%d notifications were dropped after the changes of lists, want the "+
						"update", got-before)
				}
				var got []string
				for _, raw := range slow.Received() {
					if m := upstreamtest.ParseMessage(t, []byte(raw)); strings.HasSuffix(m.Method,
						"/list_changed") {
						got = append(got, m.Method)
					}
				}
				want := []string{"notifications/tools/list_changed",
					"notifications/resources/list_changed"}
				if !slices.Equal(got, want) {
					t.Errorf("the client got the changes %q, want %q", got, want)
				}
				slow.Forget()
				srv.Send(listChanged, "tools")
				synctest.Wait()
				slow.Slow <- struct{}{}
				if got := len(slow.Received()); got != 1 {
					t.Errorf("the client got %d notifications of a later change, want 1", got)
				}
			})
		})
	}
}

func TestResourcesOfOneSubscriptionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		var uris []string
		for n := range 1001 {
			uris = append(uris, fmt.Sprintf(`"f:///%d"`, n))
		}
		c := &upstreamtest.Client{}
		upstreamtest.StartCall(t, s, c, upstreamtest.ModernRequest(`1`, "subscriptions/listen",
			``, `,"notifications":{"resourceSubscriptions":[`+strings.Join(uris, `,`)+`]}`))
		srv := st.Last(t)
		acceptInitialize(t, srv, `{}`)
		for range 1000 {
			srv.Answer(srv.Expect(t, "resources/subscribe").ID, `{}`)
		}
		srv.ExpectNothing(t)
		if got := c.Received(); len(got) != 1 ||
			!strings.HasSuffix(got[0], `"f:///998","f:///999"]}}}`) {
			t.Errorf("the client got %.200q, want an acknowledgement of 1000 resources", got)
		}
	})
}

func TestSessionDeclaresTheClientsName(t *testing.T) {
	for _, c := range []struct{ name, version, clientInfo, want string }{
		{"the client has a name", "1.2", `{"name":"c","version":"1"}`, `{"name":"c","version":"1"}`},
		{"the client has no name", "1.2", ``, `{"name":"gatekit","version":"1.2"}`},
		{"no version is configured", "", ``, `{"name":"gatekit","version":"dev"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &upstreamtest.Launcher{}
				u := upstream.New(upstream.Options{Name: "files", Era: "legacy",
					Dial:   upstream.Dial{Pipe: st.Start},
					Bridge: bridge.New(bridge.Options{Version: c.version})})
				defer u.Close()
				s, err := u.Open(t.Context(), proxy.OpenOptions{Revision: mcp.Rev20260728},
					&upstreamtest.Client{})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				info := ``
				if c.clientInfo != "" {
					info = `"io.modelcontextprotocol/clientInfo":` + c.clientInfo + `,`
				}
				upstreamtest.StartCall(t, s, &upstreamtest.Client{},
					`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{`+info+
						`"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
				q := st.Last(t).Expect(t, "initialize")
				if want := `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":` +
					c.want + `}`; string(q.Params) != want {
					t.Errorf("initialize has the params %s\nwant %s", q.Params, want)
				}
			})
		})
	}
}

func TestUnansweredSubscriptionIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		c := &upstreamtest.Client{}
		upstreamtest.StartCall(t, s, c, upstreamtest.ModernRequest(`"l"`, "subscriptions/listen",
			``,
			`,"notifications":{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}`))
		srv := st.Last(t)
		acceptInitialize(t, srv, `{}`)
		srv.Expect(t, "resources/subscribe")
		time.Sleep(6 * time.Second)
		c.ExpectReceived(
			t, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"notifications":{"toolsListChanged":true}}}`)
	})
}

func TestClosingPooledSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		st.CloseDelay = time.Hour // no process ends in time
		for n := range 100 {
			upstreamtest.StartCall(t, s, &upstreamtest.Client{},
				requestWithCapabilities(`1`, "tools/list", fmt.Sprintf(`{"experimental":{"n":%d}}`,
					n), ``))
			synctest.Wait()
			for _, srv := range st.Alive() {
				select {
				case b := <-srv.Written:
					if q := upstreamtest.ParseMessage(t, b); q.Method == "initialize" {
						srv.Answer(q.ID, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
						srv.Expect(t, "notifications/initialized")
						srv.Answer(srv.Expect(t, "tools/list").ID, `{"tools":[]}`)
					}
				default:
				}
			}
		}
		if n := len(st.Alive()); n > 30 {
			t.Errorf("%d processes are alive, want at most 30", n)
		}
	})
}

// TestSubscriptionKeepsTheProcess uses a client over HTTP that has a subscription. The server gets
// no request for the subscription, but its process must run to send notifications.
func TestSubscriptionKeepsTheProcess(t *testing.T) {
	for _, c := range []struct {
		name       string
		subscribed bool
		want       int // how many processes run after four minutes
	}{{"with a subscription", true, 1}, {"without a subscription", false, 0}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &upstreamtest.Launcher{}
				u := newUpstream(st, upstream.Options{Era: "legacy", Restart: true,
					ServerIdle: time.Minute})
				defer u.Close()
				s, err := u.Open(t.Context(), proxy.OpenOptions{Revision: mcp.Rev20260728,
					Shared: true, HasStream: func() bool { return false }}, &upstreamtest.Client{})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				method := "tools/list"
				if c.subscribed {
					method = "subscriptions/listen"
				}
				upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(
					`"l"`, method, ``, `,"notifications":{"toolsListChanged":true}`))
				srv := st.Last(t)
				acceptInitialize(t, srv, `{}`)
				if !c.subscribed {
					srv.Answer(srv.Expect(t, method).ID, `{"tools":[]}`)
				}
				time.Sleep(4 * time.Minute)
				if n := len(st.Alive()); n != c.want {
					t.Fatalf("%d processes run, want %d", n, c.want)
				}
				// the session's next request starts a process that was ended
				p := upstreamtest.StartCall(t, s, &upstreamtest.Client{},
					upstreamtest.ModernRequest(`"a"`, "tools/call", ``, `,"name":"x"`))
				srv = st.Last(t)
				if c.want == 0 {
					acceptInitialize(t, srv, `{}`)
				}
				srv.Answer(srv.Expect(t, "tools/call").ID, `{"content":[]}`)
				p.ExpectAnswer(`{"jsonrpc":"2.0","id":"a","result":{"content":[],` +
					`"resultType":"complete",` + serverInfo + `}}`)
			})
		})
	}
}
