package bridge_test

import (
	"context"
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

// openModernServer opens a modern server for a legacy client, and has it answer the client's
// initialize. end closes both.
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
		sent                           string // params that the server gets, after _meta
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
		{"content types that are too new", mcp.Rev20241105, "tools/call", `{"name":"x"}`,
			`{"name":"x",` + legacyMeta + `}`,
			`"result":{"resultType":"complete","content":[{"type":"audio","data":"","mimeType":"audio/wav"},{"type":"resource_link","uri":"f:///x"},{"type":"text","text":"t"}]}`,
			`"result":{"content":[{"type":"text","text":"[audio: audio/wav]"},{"type":"text","text":"[resource: f:///x]"},{"type":"text","text":"t"}]}`},
		{"no such resource", mcp.Rev20251125, "resources/read", `{"uri":"f:///x"}`,
			`{"uri":"f:///x",` + legacyMeta + `}`,
			`"error":{"code":-32602,"message":"no","data":{"uri":"f:///x"}}`,
			`"error":{"code":-32002,"message":"no","data":{"uri":"f:///x"}}`},
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
		again  string // the answers that the server gets; "" when the call ends with an error
		want   string
	}{
		{"it answers", func(ctx context.Context, m *mcp.Message) pipeline.Passed {
			if m.Method == "roots/list" {
				return upstreamtest.AnswerWith(`{"roots":[]}`)(ctx, m)
			}
			return upstreamtest.AnswerWith(`{"action":"accept","content":{"n": 1}}`)(ctx, m)
		}, `{"Roots":{"action":"accept","content":{"n": 1}},"a":{"roots":[]}}`, ``},
		{"it fails to elicit", func(ctx context.Context, m *mcp.Message) pipeline.Passed {
			if m.Method == "roots/list" {
				return upstreamtest.AnswerWith(`{"roots":[]}`)(ctx, m)
			}
			return answerWithError(ctx, m, -32603)
		}, `{"Roots":{"action":"cancel"},"a":{"roots":[]}}`, ``},
		{"it cannot elicit", func(ctx context.Context, m *mcp.Message) pipeline.Passed {
			return answerWithError(ctx, m, -32601)
		}, ``,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server asks for input that this client cannot give: elicitation/create","data":{"unsupportedInput":"Roots"}}}`},
		{"it refuses roots", func(ctx context.Context, m *mcp.Message) pipeline.Passed {
			if m.Method == "roots/list" {
				return answerWithError(ctx, m, -1)
			}
			return upstreamtest.AnswerWith(`{"action":"decline"}`)(ctx, m)
		}, ``, `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"the client refused what the server asked it for (roots/list)","data":{"input":"a","error":{"code":-1,"message":"no"}}}}`},
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
					t.Error("the retry has the id of the first request")
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
			time.Sleep(5 * time.Second)
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
		// A pipe has one subscription at a time: the next is opened when the last has ended.
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
			// The subscription is cancelled before the call is sent, or after that.
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
			} else { // changes that the client missed are reported when the subscription is open
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
		{"several values", mcp.Rev20250618, "elicitation/create",
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
