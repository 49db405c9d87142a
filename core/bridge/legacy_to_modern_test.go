package bridge_test

import (
	"context"
	"fmt"
	"strings"
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
	legacyInitialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{},"tasks":{"list":{}}},"clientInfo":{"name":"old","version":"1"}}}`
	// the client's description in each request to a modern server
	legacyMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"old","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"roots":{},"sampling":{},"elicitation":{}}}`
)

// openModernServer opens a session s of a legacy client with the modern server srv. It sends the
// client's initialize, which the server answers. end closes the session and the upstream.
func openModernServer(t *testing.T, revision, capabilities string,
	client *upstreamtest.Client) (s proxy.Server, srv *upstreamtest.PipeServer, end func()) {
	t.Helper()
	st := &upstreamtest.Launcher{}
	u := newUpstream(st, upstream.Options{Era: "modern"})
	s, err := u.Open(t.Context(), proxy.OpenOptions{Session: "s", Revision: revision}, client)
	if err != nil {
		t.Fatal(err)
	}
	initialize := upstreamtest.StartCall(t, s, &upstreamtest.Client{},
		strings.ReplaceAll(legacyInitialize,
			mcp.Rev20251125, revision))
	srv = st.Last(t)
	q := srv.Expect(t, "server/discover")
	if want := `{` + legacyMeta + `}`; string(q.Params) != want {
		t.Errorf("server/discover has the params %s\nwant %s", q.Params, want)
	}
	srv.Answer(q.ID, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":`+
		capabilities+`,"instructions":"be kind","ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new","version":"2"}}}`)
	initialize.ExpectAnswer(`{"jsonrpc":"2.0","id":0,"result":{"capabilities":` + capabilities +
		`,"instructions":"be kind","protocolVersion":"` + revision +
		`","serverInfo":{"name":"new","version":"2"}}}`)
	return s, srv, func() {
		s.Close()
		u.Close()
	}
}

func TestLegacyClientAtModernServer(t *testing.T) {
	for _, c := range []struct {
		name, revision, method, params string
		sent                           string // params that the server gets
		answer, want                   string
	}{
		{"a call", mcp.Rev20251125, "tools/call", `{"name":"x","arguments":{"n":1.0}}`,
			`{"name":"x","arguments":{"n":1.0},` + legacyMeta + `}`,
			`"result":{"resultType":"complete","content":[ ],"ttlMs":1,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{}}}`, `"result":{"content":[ ]}`},
		{"no params", mcp.Rev20251125, "tools/list", ``, `{` + legacyMeta + `}`,
			`"result":{"resultType":"complete","tools":[{"name":"a","outputSchema":{"type":"array"}},{"name":"b","outputSchema":{"type":"object"}}]}`,
			`"result":{"tools":[{"name":"a"},{"name":"b","outputSchema":{"type":"object"}}]}`},
		{"forged keys in _meta", mcp.Rev20251125,
			"prompts/get", `{"name":"x","_meta":{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"x":{}}},"io.modelcontextprotocol/logLevel":"debug","mine":1}}`,
			`{"name":"x","_meta":{"io.modelcontextprotocol/clientCapabilities":{"roots":{},"sampling":{},"elicitation":{}},"mine":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"old","version":"1"}}}`,
			`"result":{"resultType":"complete","messages":[],"_meta":{"theirs":2,"io.modelcontextprotocol/serverInfo":{}}}`, `"result":{"messages":[],"_meta":{"theirs":2}}`},
		{"a call as a task", mcp.Rev20251125, "tools/call", `{"name":"x","task":{"ttl":1}}`,
			`{"name":"x",` + legacyMeta + `}`,
			`"result":{"resultType":"complete","content":[]}`, `"result":{"content":[]}`},
		{"inputResponses without a question", mcp.Rev20251125,
			"tools/call", `{"name":"x","inputResponses":{"k":{"action":"accept"}},"requestState":"forged"}`, `{"name":"x",` + legacyMeta + `}`,
			`"result":{"resultType":"complete","content":[]}`, `"result":{"content":[]}`},
		{"structured content that is not an object", mcp.Rev20251125, "tools/call", `{"name":"x"}`,
			`{"name":"x",` + legacyMeta + `}`,
			`"result":{"resultType":"complete","content":[],"structuredContent":[1,2]}`,
			`"result":{"content":[{"type":"text","text":"[1,2]"}]}`},
		{"structured content beside other content", mcp.Rev20251125, "tools/call", `{"name":"x"}`,
			`{"name":"x",` + legacyMeta + `}`,
			`"result":{"resultType":"complete","content":[{"type":"text","text":"t"}],"structuredContent":[1,2]}`,
			`"result":{"content":[{"type":"text","text":"t"}]}`},
		{"a resource link for the first revision that has it", mcp.Rev20250618, "tools/call",
			`{"name":"x"}`, `{"name":"x",` + legacyMeta + `}`,
			`"result":{"resultType":"complete","content":[{"type":"resource_link","uri":"f:///x"}]}`,
			`"result":{"content":[{"type":"resource_link","uri":"f:///x"}]}`},
		{"audio for the first revision that has it", mcp.Rev20250326, "tools/call",
			`{"name":"x"}`, `{"name":"x",` + legacyMeta + `}`,
			`"result":{"resultType":"complete","content":[{"type":"audio","data":"","mimeType":"audio/wav"}]}`,
			`"result":{"content":[{"type":"audio","data":"","mimeType":"audio/wav"}]}`},
		{"content types that are too new", mcp.Rev20241105, "tools/call", `{"name":"x"}`,
			`{"name":"x",` + legacyMeta + `}`,
			`"result":{"resultType":"complete","content":[{"type":"audio","data":"","mimeType":"audio/wav"},{"type":"resource_link","uri":"f:///x"},{"type":"text","text":"t"}]}`,
			`"result":{"content":[{"type":"text","text":"[audio: audio/wav]"},{"type":"text","text":"[resource: f:///x]"},{"type":"text","text":"t"}]}`},
		{"no such resource", mcp.Rev20251125, "resources/read", `{"uri":"f:///x"}`,
			`{"uri":"f:///x",` + legacyMeta + `}`,
			`"error":{"code":-32602,"message":"no","data":{"uri":"f:///x"}}`,
			`"error":{"code":-32002,"message":"no","data":{"uri":"f:///x"}}`},
		{"an error about what Gatekit has added", mcp.Rev20251125, "tools/call", `{"name":"x"}`,
			`{"name":"x",` + legacyMeta + `}`,
			`"error":{"code":-32020,"message":"no"}`, `"error":{"code":-32603,"message":"no"}`},
		{"a prompt with content that is too new", mcp.Rev20250326, "prompts/get", `{"name":"x"}`,
			`{"name":"x",` + legacyMeta + `}`,
			`"result":{"resultType":"complete","messages":[{"role":"user","content":{"type":"text","text":"t"}},{"role":"user","content":{"type":"resource_link","uri":"f:///x"}}]}`,
			`"result":{"messages":[{"role":"user","content":{"type":"text","text":"t"}},{"role":"user","content":{"type":"text","text":"[resource: f:///x]"}}]}`},
		{"another error", mcp.Rev20251125, "resources/read", `{"uri":"f:///x"}`,
			`{"uri":"f:///x",` + legacyMeta + `}`,
			`"error":{"code":-32602,"message":"no","data":{}}`,
			`"error":{"code":-32602,"message":"no","data":{}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv, end := openModernServer(t, c.revision, `{}`, &upstreamtest.Client{})
				defer end()
				request := `{"jsonrpc":"2.0","id":"a","method":"` + c.method + `"`
				if c.params != "" {
					request += `,"params":` + c.params
				}
				p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, request+`}`)
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

func TestModernServerAsksLegacyClient(t *testing.T) {
	const asks = `{"resultType":"input_required","inputRequests":{"Roots":{"method":"elicitation/create","params":{"message":"who?","requestedSchema":{}}},"a":{"method":"roots/list"}},"requestState":"S\u0041"}`
	for _, c := range []struct {
		name   string
		answer func(ctx context.Context, m *mcp.Message) pipeline.Passed
		again  string // inputResponses of the repeated call; "" if the call is not repeated
		want   string // the client's answer to its call, if the call is not repeated
	}{
		{"the client answers", func(ctx context.Context, m *mcp.Message) pipeline.Passed {
			if m.Method == "roots/list" {
				return upstreamtest.AnswerWith(`{"roots":[]}`)(ctx, m)
			}
			return upstreamtest.AnswerWith(`{"action":"accept","content":{"n": 1}}`)(ctx, m)
		}, `{"Roots":{"action":"accept","content":{"n": 1}},"a":{"roots":[]}}`, ``},
		{"the client fails to elicit", func(ctx context.Context, m *mcp.Message) pipeline.Passed {
			if m.Method == "roots/list" {
				return upstreamtest.AnswerWith(`{"roots":[]}`)(ctx, m)
			}
			return answerWithError(ctx, m, -32603)
		}, `{"Roots":{"action":"cancel"},"a":{"roots":[]}}`, ``},
		{"the client does not know elicitation", func(ctx context.Context,
			m *mcp.Message) pipeline.Passed {
			return answerWithError(ctx, m, -32601)
		}, ``,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server asks for input that this client cannot give: elicitation/create","data":{"unsupportedInput":"Roots"}}}`},
		{"the client refuses to list its roots", func(ctx context.Context,
			m *mcp.Message) pipeline.Passed {
			if m.Method == "roots/list" {
				return answerWithError(ctx, m, -1)
			}
			return upstreamtest.AnswerWith(`{"action":"decline"}`)(ctx, m)
		}, ``, `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"the client refused the server's request (roots/list)","data":{"input":"a","error":{"code":-1,"message":"no"}}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv, end := openModernServer(t, mcp.Rev20251125, `{}`, &upstreamtest.Client{})
				defer end()
				p := upstreamtest.StartCall(t, s, &upstreamtest.Client{OnAsk: c.answer},
					`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":7}}}`)
				first := srv.Expect(t, "tools/call")
				srv.Answer(first.ID, asks)
				if c.again == "" {
					p.ExpectAnswer(c.want)
					srv.ExpectNothing(t)
					return
				}
				q := srv.Expect(t, "tools/call")
				if string(q.ID) == string(first.ID) {
					t.Error("the retry has the id of the first request, want another id")
				}
				if want := strings.ReplaceAll(string(first.Params),
					`}}}`, `}}`) + `,"inputResponses":` +
					c.again + `,"requestState":"S\u0041"}`; string(q.Params) != want {
					t.Errorf("the server got %s\nwant           %s", q.Params, want)
				}
				srv.Answer(q.ID, `{"resultType":"complete","content":[]}`)
				p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
			})
		})
	}
}

// A result that cannot be translated ends the call. The client is not asked, and the server does
// not get the call again.
func TestResultsThatALegacyClientCannotGet(t *testing.T) {
	const asks = `{"resultType":"input_required","requestState":"s","inputRequests":`
	for _, c := range []struct{ name, result, want string }{
		{"questions in a list", asks + `[{"method":"roots/list"}]}`,
			"the server's inputRequests are not an object"},
		{"a question without a method", asks + `{"a":{"params":{}}}}`,
			"the server's inputRequests hold an invalid request"},
		{"a question that is a request for servers", asks + `{"a":{"method":"tools/call"}}}`,
			"the server's inputRequests hold a request that servers may not make"},
		{"a question that is a notification", asks + `{"a":{"method":"notifications/progress"}}}`,
			"the server's inputRequests hold a request that servers may not make"},
		{"neither a question nor a state", `{"resultType":"input_required"}`,
			"the server asked for input and named none"},
		{"an unknown type of result", `{"resultType":"partial","content":[]}`,
			`the result is of type "partial"`},
		{"a task that was not asked for", `{"resultType":"task","taskId":"T"}`,
			`the result is of type "task", which the client does not know`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv, end := openModernServer(t, mcp.Rev20251125, `{}`, &upstreamtest.Client{})
				defer end()
				asked := false
				client := &upstreamtest.Client{OnAsk: func(ctx context.Context,
					m *mcp.Message) pipeline.Passed {
					asked = true
					return upstreamtest.AnswerWith(`{"roots":[]}`)(ctx, m)
				}}
				p := upstreamtest.StartCall(t, s, client,
					`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
				srv.Answer(srv.Expect(t, "tools/call").ID, c.result)
				p.ExpectError(c.want)
				srv.ExpectNothing(t)
				if got := client.Consumed(); asked || len(got) != 1 ||
					!strings.Contains(got[0], c.result) {
					t.Errorf("the client was asked: %v; the records are %q, want one with the "+
						"result", asked, got)
				}
			})
		})
	}
}

func answerWithError(ctx context.Context, m *mcp.Message, code int) pipeline.Passed {
	r := mcp.NewError(m.ID(), code, "no", nil)
	r.Direction = mcp.ToServer
	return upstreamtest.Pipeline.PassOwn(ctx, r)
}

func TestModernServerPostponesACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv, end := openModernServer(t, mcp.Rev20251125, `{}`, &upstreamtest.Client{})
		defer end()
		c := &upstreamtest.Client{}
		p := upstreamtest.StartCall(t, s, c,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":"p"}}}`)
		for n := range 9 {
			q := srv.Expect(t, "tools/call")
			for _, v := range []string{"1", "2"} {
				srv.Send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":%s}}`, v)
			}
			srv.Answer(q.ID, `{"resultType":"input_required","requestState":"s"}`)
			if n == 8 {
				break
			}
			// the delay before the call is repeated: 200 ms, 400 ms, … 5 s
			delay := min(200*time.Millisecond<<n, 5*time.Second)
			synctest.Wait()
			time.Sleep(delay - time.Millisecond)
			srv.ExpectNothing(t)
			time.Sleep(time.Millisecond)
		}
		p.ExpectError("postponed the call too many times")
		c.ExpectReceived(
			t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":2}}`)
	})
}

func TestLogLevelGoesWithEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv, end := openModernServer(t, mcp.Rev20251125, `{"logging":{}}`,
			&upstreamtest.Client{})
		defer end()
		upstreamtest.StartCall(t, s, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}`).
			ExpectAnswer(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"logging/setLevel needs a level, from debug to emergency"}}`)
		upstreamtest.StartCall(t, s, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`).ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		upstreamtest.StartCall(t, s, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`).ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		srv.ExpectNothing(t)
		upstreamtest.StartCall(t, s, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}`)
		if q := srv.Expect(t, "tools/call"); !strings.Contains(string(q.Params),
			`"io.modelcontextprotocol/logLevel":"info"`) {
			t.Errorf("the server got %s, want the log level info", q.Params)
		}
	})
}

func TestLegacySubscriptionsAtModernServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &upstreamtest.Client{}
		s, srv, end := openModernServer(t, mcp.Rev20251125,
			`{"tools":{"listChanged":true},"resources":{"subscribe":true}}`, client)
		defer end()
		if err := s.Notify(t.Context(),
			upstreamtest.Pass(
				t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)); err != nil {
			t.Fatal(err)
		}
		ack := func(q upstreamtest.Message, filter string) {
			srv.Send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":%s}}`, q.ID, filter)
		}
		listen := srv.Expect(t, "subscriptions/listen")
		// A pipe has one subscription at a time. The next subscription is opened when the last
		// subscription has ended.
		endLast := func() {
			srv.Expect(t, "notifications/cancelled")
			srv.Answer(listen.ID, `{"resultType":"complete"}`)
		}
		if want := `{` + legacyMeta +
			`,"notifications":{"toolsListChanged":true}}`; string(listen.Params) != want {
			t.Errorf("the first subscriptions/listen has %s\nwant %s", listen.Params, want)
		}
		ack(listen, `{"toolsListChanged":true}`)
		srv.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, listen.ID)
		client.ExpectReceived(
			t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`)

		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"f:///a"}}`)
		endLast()
		listen = srv.Expect(t, "subscriptions/listen")
		if want := `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}}`; !strings.Contains(string(listen.Params), want) {
			t.Errorf("the second subscriptions/listen has %s\nwant %s", listen.Params, want)
		}
		p.ExpectWaiting()
		ack(listen, `{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{}}`)

		p = upstreamtest.StartCall(t, s, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"f:///b"}}`)
		endLast()
		listen = srv.Expect(t, "subscriptions/listen")
		ack(listen, `{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"the server does not take this subscription","data":{"uri":"f:///b"}}}`)

		client.Forget()
		srv.Answer(listen.ID, `{"resultType":"complete"}`) // the server ends the subscription
		time.Sleep(2 * time.Second)
		listen = srv.Expect(t, "subscriptions/listen")
		ack(listen, `{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}`)
		client.ExpectReceived(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"f:///a"}}`)

		// The subscription at the server stays, but updates of f:///a no longer reach the client.
		upstreamtest.StartCall(t, s, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":3,"method":"resources/unsubscribe","params":{"uri":"f:///a"}}`).ExpectAnswer(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		synctest.Wait()
		client.Forget()
		srv.Send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"f:///a","_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, listen.ID)
		srv.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, listen.ID)
		client.ExpectReceived(
			t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`)

		// The answer to a later resources/subscribe still waits for the server.
		p = upstreamtest.StartCall(t, s, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":4,"method":"resources/subscribe","params":{"uri":"f:///c"}}`)
		p.ExpectWaiting()
	})
}

// openListeningServer opens a session with a modern server whose list of tools can change. The
// client sends notifications/initialized. listen is the server's first subscriptions/listen.
func openListeningServer(t *testing.T, client *upstreamtest.Client) (s proxy.Server,
	srv *upstreamtest.PipeServer, listen upstreamtest.Message, end func()) {
	t.Helper()
	s, srv, end = openModernServer(t, mcp.Rev20251125, `{"tools":{"listChanged":true}}`, client)
	if err := s.Notify(t.Context(), upstreamtest.Pass(t,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`)); err != nil {
		t.Fatal(err)
	}
	return s, srv, srv.Expect(t, "subscriptions/listen"), end
}

func TestServerWithoutSubscriptionsIsNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv, listen, end := openListeningServer(t, &upstreamtest.Client{})
		defer end()
		srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, listen.ID)
		time.Sleep(time.Minute)
		srv.ExpectNothing(t)
		upstreamtest.StartCall(t, s, &upstreamtest.Client{},
			`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"f:///a"}}`).
			ExpectAnswer(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"the server does not take this subscription","data":{"uri":"f:///a"}}}`)
		srv.ExpectNothing(t)
	})
}

// TestEndedSubscriptionIsOpenedAgain checks how long the bridge waits before it opens a
// subscription again that the server has ended or refused.
func TestEndedSubscriptionIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, srv, listen, end := openListeningServer(t, &upstreamtest.Client{})
		defer end()
		for n, c := range []struct {
			refused bool          // the server answers with an error in place of a subscription
			stays   time.Duration // how long the subscription is open
			delay   time.Duration // until the next subscription
		}{
			{false, 0, time.Second},
			{true, 0, 2 * time.Second},
			{false, 10 * time.Second, 4 * time.Second},
			{false, 11 * time.Second, time.Second},
			{false, 0, 2 * time.Second},
		} {
			if c.refused {
				srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"no"}}`,
					listen.ID)
			} else {
				srv.Send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{"toolsListChanged":true}}}`, listen.ID)
				synctest.Wait()
				time.Sleep(c.stays)
				srv.Answer(listen.ID, `{"resultType":"complete"}`)
			}
			synctest.Wait()
			time.Sleep(c.delay - time.Millisecond)
			srv.ExpectNothing(t)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if len(srv.Written) == 0 {
				t.Fatalf("subscription %d was not opened again after %v", n, c.delay)
			}
			listen = srv.Expect(t, "subscriptions/listen")
		}
	})
}

// TestLongOpenSubscriptionResetsTheDelay lets a subscription fail twice and then stay open for a
// minute. Whatever the client does after this minute, the delay before the next subscription is the
// first delay again.
func TestLongOpenSubscriptionResetsTheDelay(t *testing.T) {
	for _, c := range []struct {
		name, method string // the client's request after the minute
		reopens      bool   // the request changes the subscription
	}{
		{"nothing happens", ``, false},
		{"the subscription is not changed", "resources/unsubscribe", false},
		{"the subscription is changed", "resources/subscribe", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv, listen, end := openListeningServer(t, &upstreamtest.Client{})
				defer end()
				acknowledge := func() {
					srv.Send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{"toolsListChanged":true,"resourceSubscriptions":["f:///a"]}}}`, listen.ID)
					synctest.Wait()
				}
				for _, delay := range []time.Duration{time.Second, 2 * time.Second} {
					acknowledge()
					srv.Answer(listen.ID, `{"resultType":"complete"}`)
					synctest.Wait()
					time.Sleep(delay)
					listen = srv.Expect(t, "subscriptions/listen")
				}
				acknowledge()
				time.Sleep(time.Minute)
				if c.method != "" {
					upstreamtest.StartCall(t, s, &upstreamtest.Client{},
						`{"jsonrpc":"2.0","id":1,"method":"`+c.method+`","params":{"uri":"f:///a"}}`)
					synctest.Wait()
				}
				if c.reopens {
					srv.Expect(t, "notifications/cancelled")
					srv.Answer(listen.ID, `{"resultType":"complete"}`)
					listen = srv.Expect(t, "subscriptions/listen")
					acknowledge()
				}
				srv.Answer(listen.ID, `{"resultType":"complete"}`)
				synctest.Wait()
				time.Sleep(time.Second)
				srv.Expect(t, "subscriptions/listen")
			})
		})
	}
}

// TestSubscribedResourcesAreBounded subscribes to more resources than one session may have.
func TestSubscribedResourcesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv, _, end := openListeningServer(t, &upstreamtest.Client{})
		defer end()
		subscribe := func(n int) *upstreamtest.Call {
			return upstreamtest.StartCall(t, s, &upstreamtest.Client{},
				fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"f:///%d"}}`, n))
		}
		for n := range 1000 {
			if p := subscribe(n); n == 0 || n == 999 {
				p.ExpectWaiting()
			}
		}
		subscribe(1000).ExpectAnswer(
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"too many subscriptions"}}`)
		subscribe(0).ExpectWaiting() // it is subscribed to already
		srv.ExpectNothing(t)         // the first subscription has not been acknowledged
	})
}

// The first call waits until the subscription is open, so that the client is notified of the
// changes that the call makes.
func TestFirstCallWaitsForTheSubscription(t *testing.T) {
	const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"`
	for _, acknowledged := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			client := &upstreamtest.Client{}
			s, srv, end := openModernServer(t, mcp.Rev20251125, `{"tools":{"listChanged":true}}`,
				client)
			defer end()
			p := upstreamtest.StartCall(t, s, &upstreamtest.Client{},
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
			listen := srv.Expect(t, "subscriptions/listen")
			srv.ExpectNothing(t)
			if acknowledged {
				srv.Send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{"toolsListChanged":true}}}`, listen.ID)
			} else {
				time.Sleep(6 * time.Second) // longer than the call waits for the subscription
			}
			q := srv.Next(t)
			// The cancellation of the subscription arrives before the call, or after it.
			if q.Method == "notifications/cancelled" {
				q = srv.Next(t)
			}
			if q.Method != "tools/call" {
				t.Fatalf("the server got %s, want the call", q.Raw)
			}
			srv.Answer(q.ID, `{"resultType":"complete","content":[]}`)
			if acknowledged {
				srv.Send(changed+`,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, listen.ID)
				client.ExpectReceived(t, changed+`,"params":{}}`)
			} else {
				// The client is notified of the changes that it missed when the subscription opens.
				time.Sleep(2 * time.Second)
				if listen = srv.Next(t); listen.Method == "notifications/cancelled" {
					listen = srv.Next(t)
				}
				srv.Send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{"toolsListChanged":true}}}`, listen.ID)
				client.ExpectReceived(t, changed+`}`)
			}
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		})
	}
}

func TestQuestionsAreTranslatedForOlderClients(t *testing.T) {
	for _, c := range []struct{ name, revision, method, params, want, refused string }{
		{"a titled choice", mcp.Rev20250618, "elicitation/create",
			`{"message":"?","requestedSchema":{"properties":{"a/b":{"type":"string","oneOf":[{"const":"x","title":"X"},{"const":"y"}]},"n":{"type":"number"}}}}`,
			`{"message":"?","requestedSchema":{"properties":{"a/b":{"type":"string","enum":["x","y"],"enumNames":["X","y"]},"n":{"type":"number"}}}}`, ``},
		{"a titled choice for a revision that has it", mcp.Rev20251125, "elicitation/create",
			`{"requestedSchema":{"properties":{"a":{"oneOf":[{"const":"x","title":"X"}]}}}}`,
			`{"requestedSchema":{"properties":{"a":{"oneOf":[{"const":"x","title":"X"}]}}}}`, ``},
		{"a choice of several values", mcp.Rev20250618, "elicitation/create",
			`{"requestedSchema":{"properties":{"a":{"type":"array"}}}}`,
			``, `a choice of several values`},
		{"a page to open", mcp.Rev20250618, "elicitation/create", `{"mode":"url","url":"https://x/"}`,
			``, `a page to be opened`},
		{"several blocks of content", mcp.Rev20250618, "sampling/createMessage",
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","data":""}]},{"role":"assistant","content":{"type":"text","text":"b"}}],"maxTokens":1}`,
			`{"messages":[{"role":"user","content":{"type":"text","text":"a"}},{"role":"user","content":{"type":"image","data":""}},{"role":"assistant","content":{"type":"text","text":"b"}}],"maxTokens":1}`, ``},
		{"one block of content", mcp.Rev20241105, "sampling/createMessage",
			`{"messages":[ {"role":"user","content":{"type":"text","text":"a"}} ]}`,
			`{"messages":[ {"role":"user","content":{"type":"text","text":"a"}} ]}`, ``},
		{"several blocks of content for a revision that has them", mcp.Rev20251125,
			"sampling/createMessage",
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`, ``},
		{"a message without content", mcp.Rev20250618, "sampling/createMessage",
			`{"messages":[{"role":"user","content":[]},{"role":"user","content":{"type":"text","text":"a"}}]}`,
			`{"messages":[{"role":"user","content":{"type":"text","text":"a"}}]}`, ``},
		{"no tools for the model", mcp.Rev20250618, "sampling/createMessage",
			`{"messages":[],"tools":[]}`, `{"messages":[],"tools":[]}`, ``},
		{"audio", mcp.Rev20241105, "sampling/createMessage",
			`{"messages":[{"role":"user","content":{"type":"audio","data":""}}]}`,
			``, `content of type \"audio\"`},
		{"audio for a revision that has it", mcp.Rev20250326, "sampling/createMessage",
			`{"messages":[{"role":"user","content":{"type":"audio","data":""}}]}`,
			`{"messages":[{"role":"user","content":{"type":"audio","data":""}}]}`, ``},
		{"tools for the model", mcp.Rev20250618, "sampling/createMessage", `{"messages":[],"tools":[{}]}`,
			``, `a model that uses tools`},
		{"content that is not an object", mcp.Rev20250618, "sampling/createMessage",
			`{"messages":[{"role":"user","content":7}]}`, ``, `content that is not an object`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv, end := openModernServer(t, c.revision, `{}`, &upstreamtest.Client{})
				defer end()
				asked := ""
				p := upstreamtest.StartCall(t, s,
					&upstreamtest.Client{OnAsk: func(ctx context.Context,
						m *mcp.Message) pipeline.Passed {
						asked = string(m.Body())
						return upstreamtest.AnswerWith(`{"ok":1}`)(ctx, m)
					}}, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
				srv.Answer(srv.Expect(t, "tools/call").ID,
					`{"resultType":"input_required","inputRequests":{"k":{"method":"`+c.method+
						`","params":`+c.params+`}}}`)
				if c.refused != "" {
					p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server asks for input that this client cannot give: ` + c.refused + `","data":{"unsupportedInput":"k"}}}`)
					return
				}
				srv.Expect(t, "tools/call")
				if asked != c.want {
					t.Errorf("the client was asked %s\nwant                  %s", asked, c.want)
				}
			})
		})
	}
}

func TestPageToBeOpenedGetsAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv, end := openModernServer(t, mcp.Rev20251125, `{}`, &upstreamtest.Client{})
		defer end()
		ids := map[string]bool{}
		upstreamtest.StartCall(t, s, &upstreamtest.Client{OnAsk: func(ctx context.Context,
			m *mcp.Message) pipeline.Passed {
			id, _ := m.Text("/elicitationId")
			ids[id] = strings.HasPrefix(id, "gatekit-") && m.TextEquals("/url", "https://x/")
			return upstreamtest.AnswerWith(`{"action":"accept"}`)(ctx, m)
		}}, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
		const page = `{"method":"elicitation/create","params":{"mode":"url","url":"https://x/","message":"?"}}`
		srv.Answer(srv.Expect(t, "tools/call").ID,
			`{"resultType":"input_required","inputRequests":{"a":`+page+`,"b":`+page+`}}`)
		srv.Expect(t, "tools/call")
		for id, ok := range ids {
			if !ok {
				t.Errorf("a page has the elicitationId %q, want gatekit-, then random text", id)
			}
		}
		if len(ids) != 2 {
			t.Errorf("the pages have the ids %v, want two different ids", ids)
		}
	})
}

func TestQuestionsAtOnceAreBounded(t *testing.T) {
	for _, n := range []int{64, 65} {
		synctest.Test(t, func(t *testing.T) {
			s, srv, end := openModernServer(t, mcp.Rev20251125, `{}`, &upstreamtest.Client{})
			defer end()
			p := upstreamtest.StartCall(t, s,
				&upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{"roots":[]}`)},
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
			srv.Answer(srv.Expect(t, "tools/call").ID,
				`{"resultType":"input_required","inputRequests":`+rootsQuestions(0, n)+`}`)
			if n > 64 {
				p.ExpectError("the server asked for too much input at once")
				srv.ExpectNothing(t)
				return
			}
			srv.Answer(srv.Expect(t, "tools/call").ID, `{"resultType":"complete","content":[]}`)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		})
	}
}

// rootsQuestions returns inputRequests with n questions for the roots. Their keys are numbers that
// begin with first.
func rootsQuestions(first, n int) string {
	questions := make([]string, n)
	for i := range questions {
		questions[i] = fmt.Sprintf(`"%d":{"method":"roots/list"}`, first+i)
	}
	return `{` + strings.Join(questions, ",") + `}`
}

func TestModernServerWithoutCapabilities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &upstreamtest.Launcher{}
		u := newUpstream(st, upstream.Options{Era: "modern"})
		defer u.Close()
		s, err := u.Open(t.Context(), proxy.OpenOptions{Session: "s", Revision: mcp.Rev20251125},
			&upstreamtest.Client{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, legacyInitialize)
		srv := st.Last(t)
		srv.Answer(srv.Expect(t, "server/discover").ID,
			`{"resultType":"complete","supportedVersions":["2026-07-28"]}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"unknown","version":"unknown"},"capabilities":{}}}`)
	})
}

func TestRoundsOfInputAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv, end := openModernServer(t, mcp.Rev20251125, `{}`, &upstreamtest.Client{})
		defer end()
		p := upstreamtest.StartCall(t, s,
			&upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{"roots":[]}`)},
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
		for range 17 {
			srv.Answer(srv.Expect(t, "tools/call").ID,
				`{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}}}`)
		}
		p.ExpectError("the server asked for input too many times")
		srv.ExpectNothing(t)
	})
}
