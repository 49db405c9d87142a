package bridge_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/proxy"
	"gatekit/test/upstreamtest"
)

func TestLegacyToolThatRunsAsATaskOnly(t *testing.T) {
	const params = `,"name":"x","arguments":{"n":1.0}`
	const progress = `"progressToken":"p"`
	for name, play := range map[string]func(t *testing.T, p *upstreamtest.Call,
		srv *upstreamtest.PipeServer, to *upstreamtest.Client){
		"the call is answered with the task's result": func(t *testing.T, p *upstreamtest.Call,
			srv *upstreamtest.PipeServer,
			to *upstreamtest.Client) {
			// The request has a token of its own, since "p" is the token of the task.
			q := srv.Expect(t, "tasks/result")
			if want := `{"taskId":"T","_meta":{"progressToken":"gatekit-6"}}`; string(
				q.Params) != want {
				t.Errorf("tasks/result has the params %s, want %s", q.Params, want)
			}
			srv.Send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
			srv.Send(`{"jsonrpc":"2.0","id":"s1","method":"elicitation/create","params":{"message":"who?","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"T"}}}}`)
			const accepted = `{"jsonrpc":"2.0","id":"s1","result":{"action":"accept"}}`
			if a := srv.Next(t); a.Raw != accepted {
				t.Errorf("the server got %s, want %s", a.Raw, accepted)
			}
			time.Sleep(1500 * time.Millisecond) // longer than the server's pollInterval of 1 s
			g := srv.Expect(t, "tasks/get")
			if string(g.Params) != `{"taskId":"T"}` {
				t.Errorf("tasks/get has the params %s, want the task T", g.Params)
			}
			srv.Answer(g.ID, `{"taskId":"T","status":"working","pollInterval":60000}`)
			synctest.Wait()
			if to.Activity.Load() != 1 {
				t.Errorf("the call got %d reports of activity, want 1", to.Activity.Load())
			}
			srv.Answer(q.ID, `{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"T"}}}`)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"old","version":"1"}},"resultType":"complete"}}`)
			to.ExpectReceived(
				t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
		},
		"the task's failure fails the call": func(t *testing.T, p *upstreamtest.Call,
			srv *upstreamtest.PipeServer, to *upstreamtest.Client) {
			q := srv.Expect(t, "tasks/result")
			srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no"}}`, q.ID)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}`)
		},
		"the task is cancelled with the call": func(t *testing.T, p *upstreamtest.Call,
			srv *upstreamtest.PipeServer, to *upstreamtest.Client) {
			srv.Expect(t, "tasks/result")
			p.Cancel(&proxy.CancelledError{})
			p.ExpectError("cancelled")
			seen := map[string]bool{}
			for range 2 {
				seen[srv.Next(t).Method] = true
			}
			if !seen["notifications/cancelled"] || !seen["tasks/cancel"] {
				t.Errorf("the server got %v, want the call and the task cancelled", seen)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, st, end := openLegacyServer(t, &upstreamtest.Client{})
				defer end()
				to := &upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{"action":"accept"}`)}
				p := upstreamtest.StartCall(t, s, to,
					strings.ReplaceAll(requestWithCapabilities(`1`,
						"tools/call", `{"elicitation":{}}`, params),
						`"_meta":{`, `"_meta":{`+progress+`,`))
				srv := st.Last(t)
				acceptInitialize(t, srv, `{"elicitation":{}}`)
				q := srv.Expect(t, "tools/call")
				srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"it requires a task"}}`, q.ID)
				srv.Answer(srv.Expect(t, "tools/list").ID, `{"tools":[],"nextCursor":"2"}`)
				q = srv.Expect(t, "tools/list")
				if string(q.Params) != `{"cursor":"2"}` {
					t.Errorf("the second tools/list has the params %s, want the cursor 2", q.Params)
				}
				srv.Answer(q.ID, `{"tools":[{"name":"x","execution":{"taskSupport":"required"}}]}`)
				q = srv.Expect(t, "tools/call")
				if want := `{"_meta":{"progressToken":"p"},"name":"x","arguments":{"n":1.0},"task":{}}`; string(q.Params) != want {
					t.Errorf("the call as a task has the params %s\nwant %s", q.Params, want)
				}
				srv.Answer(q.ID, `{"task":{"taskId":"T","status":"working","pollInterval":1000}}`)
				play(t, p, srv, to)
			})
		})
	}
}

func TestToolsListShowsToolsThatRunAsATaskOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/list", ``, ``))
		srv := st.Last(t)
		acceptInitialize(t, srv, `{}`)
		srv.Answer(srv.Expect(t, "tools/list").ID,
			`{"tools":[{"name":"x","execution":{"taskSupport":"required"}},{"name":"y","execution":{"taskSupport":"optional"}}]}`)
		synctest.Wait()
		if p.Err != nil {
			t.Fatal(p.Err)
		}
		callParams := func(name string) string {
			upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`2`,
				"tools/call", ``, `,"name":"`+name+`"`))
			return string(srv.Expect(t, "tools/call").Params)
		}
		if got := callParams("x"); got != `{"name":"x","task":{}}` {
			t.Errorf("a tool that must run as a task was called with %s, want the member task", got)
		}
		if got := callParams("y"); got != `{"name":"y"}` {
			t.Errorf("a tool that may run as a task was called with %s, want no member task", got)
		}
		srv.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		synctest.Wait()
		if got := callParams("x"); got != `{"name":"x"}` {
			t.Errorf("after the list changed, the tool was called with %s, want no member task",
				got)
		}
	})
}

func TestFailedToolIsNotCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		p := upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/call", ``, `,"name":"x"`))
		srv := st.Last(t)
		acceptInitialize(t, srv, `{}`)
		srv.Answer(srv.Expect(t, "tools/call").ID, `{"content":[],"isError":true}`)
		srv.Answer(srv.Expect(t, "tools/list").ID, `{"tools":[{"name":"x"}]}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true,"resultType":"complete",` + serverInfo + `}}`)
		p = upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`2`,
			"tools/call", ``, `,"name":"x"`))
		// Gatekit has listed the tools after the first call, so it does not list them again.
		srv.Answer(srv.Expect(t, "tools/call").ID, `{"content":[],"isError":true}`)
		p.ExpectAnswer(`{"jsonrpc":"2.0","id":2,"result":{"content":[],"isError":true,"resultType":"complete",` + serverInfo + `}}`)
	})
}

// Two clients of one principal may use the same progress token for their tasks.
func TestTaskProgressReachesItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openSharedLegacyServer(t, &upstreamtest.Client{}, true)
		defer end()
		upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`0`,
			"tools/list", ``, ``))
		srv := st.Last(t)
		acceptInitialize(t, srv, `{}`)
		srv.Answer(srv.Expect(t, "tools/list").ID,
			`{"tools":[{"name":"x","execution":{"taskSupport":"required"}}]}`)
		clients := []*upstreamtest.Client{{}, {}}
		var tokens []string
		for i, id := range []string{"A", "B"} {
			synctest.Wait()
			upstreamtest.StartCall(t, s, clients[i], upstreamtest.ModernRequest(`1`,
				"tools/call", `"progressToken":7,`,
				`,"name":"x"`))
			q := srv.Expect(t, "tools/call")
			_, token, _ := strings.Cut(string(q.Params), `"progressToken":`)
			tokens = append(tokens, token[:strings.IndexAny(token, ",}")])
			srv.Answer(q.ID, `{"task":{"taskId":"`+id+`","status":"working","pollInterval":60000}}`)
			srv.Expect(t, "tasks/result")
		}
		const n = 20
		for range n {
			for _, token := range tokens {
				srv.Send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, token)
			}
		}
		synctest.Wait()
		for i, c := range clients {
			if got := c.Received(); len(got) != n {
				t.Errorf("client %d got %d notifications, want %d", i, len(got), n)
			}
		}
	})
}

func TestRememberedToolsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st, end := openLegacyServer(t, &upstreamtest.Client{})
		defer end()
		upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`1`,
			"tools/list", ``, ``))
		srv := st.Last(t)
		acceptInitialize(t, srv, `{}`)
		tools := make([]string, 10_001)
		for n := range tools {
			tools[n] = fmt.Sprintf(`{"name":"%d","execution":{"taskSupport":"required"}}`, n)
		}
		srv.Answer(srv.Expect(t, "tools/list").ID, `{"tools":[`+strings.Join(tools, `,`)+`]}`)
		synctest.Wait()
		for name, want := range map[string]string{
			"9999":  `{"name":"9999","task":{}}`,
			"10000": `{"name":"10000"}`,
		} {
			upstreamtest.StartCall(t, s, &upstreamtest.Client{}, upstreamtest.ModernRequest(`2`,
				"tools/call", ``, `,"name":"`+name+`"`))
			if q := srv.Expect(t, "tools/call"); string(q.Params) != want {
				t.Errorf("a tool was called with %s, want %s", q.Params, want)
			}
		}
	})
}
