package bridge_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/test/upstreamtest"
)

func TestModernToolThatRunsAsATaskOnly(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"old","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"roots":{},"sampling":{},"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	get := func(t *testing.T, srv *upstreamtest.PipeServer, result string) {
		time.Sleep(time.Second)
		q := srv.Expect(t, "tasks/get")
		if want := `{"taskId":"T",` + meta + `}`; string(q.Params) != want {
			t.Errorf("tasks/get has the params %s\nwant %s", q.Params, want)
		}
		srv.Answer(q.ID, result)
	}
	for name, play := range map[string]func(t *testing.T, p *upstreamtest.Call,
		srv *upstreamtest.PipeServer, to *upstreamtest.Client){
		"the call is answered with the task's result": func(t *testing.T, p *upstreamtest.Call,
			srv *upstreamtest.PipeServer,
			to *upstreamtest.Client) {
			get(t, srv, `{"resultType":"complete","taskId":"T","status":"working","statusMessage":"half","pollIntervalMs":1000}`)
			const asks = `{"resultType":"complete","taskId":"T","status":"input_required","inputRequests":{"a/b":{"method":"elicitation/create","params":{"message":"who?"}}},"pollIntervalMs":1000}`
			get(t, srv, asks)
			q := srv.Expect(t, "tasks/update")
			if want := `{"taskId":"T",` + meta +
				`,"inputResponses":{"a/b":{"action":"accept"}}}`; string(q.Params) != want {
				t.Errorf("tasks/update has the params %s\nwant %s", q.Params, want)
			}
			srv.Answer(q.ID, `{"resultType":"complete"}`)
			// The server has not read the answers yet. The client is not asked again.
			get(t, srv, asks)
			get(t, srv, `{"resultType":"task","taskId":"T","status":"completed","result":{"content":[ ],"resultType":"complete"}}`)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"content":[ ]}}`)
			to.ExpectReceived(
				t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"message":"half"}}`)
			if to.Activity.Load() != 4 {
				t.Errorf("%d reports of activity, want 4", to.Activity.Load())
			}
		},
		"the task's failure fails the call": func(t *testing.T, p *upstreamtest.Call,
			srv *upstreamtest.PipeServer, to *upstreamtest.Client) {
			get(t, srv, `{"taskId":"T","status":"failed","error":{"code":-32000,"message":"no"}}`)
			p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}`)
		},
		"the server cancels the task": func(t *testing.T, p *upstreamtest.Call,
			srv *upstreamtest.PipeServer, to *upstreamtest.Client) {
			get(t, srv, `{"taskId":"T","status":"cancelled"}`)
			p.ExpectError("the server has cancelled the task")
		},
		"an unknown status ends the call": func(t *testing.T, p *upstreamtest.Call,
			srv *upstreamtest.PipeServer, to *upstreamtest.Client) {
			get(t, srv, `{"taskId":"T"}`)
			p.ExpectError("the server's task has an unknown status")
			srv.Expect(t, "tasks/cancel")
		},
		"the task is cancelled with the call": func(t *testing.T, p *upstreamtest.Call,
			srv *upstreamtest.PipeServer, to *upstreamtest.Client) {
			p.Cancel(&proxy.CancelledError{})
			p.ExpectError("cancelled")
			want := `{"taskId":"T",` + meta + `}`
			if q := srv.Expect(t, "tasks/cancel"); string(q.Params) != want {
				t.Errorf("tasks/cancel has the params %s, want %s", q.Params, want)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv, end := openModernServer(t, mcp.Rev20251125, `{}`, &upstreamtest.Client{})
				defer end()
				to := &upstreamtest.Client{OnAsk: upstreamtest.AnswerWith(`{"action":"accept"}`)}
				p := upstreamtest.StartCall(t, s, to,
					`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":"p"}}}`)
				q := srv.Expect(t, "tools/call")
				srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32021,"message":"tasks","data":{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`, q.ID)
				q = srv.Expect(t, "tools/call")
				if !strings.Contains(string(q.Params),
					`"extensions":{"io.modelcontextprotocol/tasks":{}}`) {
					t.Errorf("the second tools/call has the params %s, want the tasks extension",
						q.Params)
				}
				srv.Answer(q.ID, `{"resultType":"task","taskId":"T","status":"working","pollIntervalMs":1000}`)
				synctest.Wait()
				play(t, p, srv, to)
			})
		})
	}
}
