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
				t.Errorf("the call got %d reports of activity, want 4", to.Activity.Load())
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
		"a missing status ends the call": func(t *testing.T, p *upstreamtest.Call,
			srv *upstreamtest.PipeServer, to *upstreamtest.Client) {
			get(t, srv, `{"taskId":"T"}`)
			p.ExpectError(`the server's task has no known status: ""`)
			srv.Expect(t, "tasks/cancel")
		},
		"an unknown status ends the call": func(t *testing.T, p *upstreamtest.Call,
			srv *upstreamtest.PipeServer, to *upstreamtest.Client) {
			get(t, srv, `{"taskId":"T","status":"paused"}`)
			p.ExpectError(`the server's task has no known status: "paused"`)
			srv.Expect(t, "tasks/cancel")
		},
		"an unfinished result is recorded and ends the call": func(t *testing.T,
			p *upstreamtest.Call, srv *upstreamtest.PipeServer, to *upstreamtest.Client) {
			const state = `{"taskId":"T","status":"completed"}`
			get(t, srv, state)
			p.ExpectError("the server's task ended without a result")
			srv.ExpectNothing(t)
			got := to.Consumed()
			if last := got[len(got)-1]; !strings.HasPrefix(last,
				"drop: it ends the task without a result or an error: ") ||
				!strings.Contains(last, state) {
				t.Errorf("the last record is %s, want the dropped state", last)
			}
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

func TestPollIntervalIsBounded(t *testing.T) {
	for interval, want := range map[string]time.Duration{
		``:                           5 * time.Second,
		`,"pollIntervalMs":"1000"`:   5 * time.Second,
		`,"pollIntervalMs":1e999`:    5 * time.Second,
		`,"pollIntervalMs":-1000`:    200 * time.Millisecond,
		`,"pollIntervalMs":0`:        200 * time.Millisecond,
		`,"pollIntervalMs":199`:      200 * time.Millisecond,
		`,"pollIntervalMs":201`:      201 * time.Millisecond,
		`,"pollIntervalMs":60000`:    time.Minute,
		`,"pollIntervalMs":60001`:    time.Minute,
		`,"pollIntervalMs":1.000e30`: time.Minute,
	} {
		t.Run(interval, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv, end := openModernServer(t, mcp.Rev20251125, `{}`, &upstreamtest.Client{})
				defer end()
				p := upstreamtest.StartCall(t, s, &upstreamtest.Client{},
					`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
				q := srv.Expect(t, "tools/call")
				srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32021,"message":"tasks","data":{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`, q.ID)
				q = srv.Expect(t, "tools/call")
				srv.Answer(q.ID, `{"resultType":"task","taskId":"T","status":"working"`+
					interval+`}`)
				synctest.Wait()
				time.Sleep(want - time.Millisecond)
				srv.ExpectNothing(t)
				time.Sleep(time.Millisecond)
				q = srv.Expect(t, "tasks/get")
				srv.Answer(q.ID, `{"taskId":"T","status":"completed","result":{"content":[]}}`)
				p.ExpectAnswer(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
			})
		})
	}
}

// TestInputOfATaskIsBounded lets a task ask for input in many rounds. The client is asked each
// question once.
func TestInputOfATaskIsBounded(t *testing.T) {
	for _, c := range []struct {
		name  string
		asked []string // the inputRequests of each state of the task
		want  int      // how many questions the client is asked
		fails string   // the error of the call; "" if the task goes on
	}{
		{"questions that are answered already",
			[]string{rootsQuestions(0, 2), rootsQuestions(0, 2), rootsQuestions(0, 3)}, 3, ``},
		{"as many new questions as a state may have, and an answered one", []string{
			rootsQuestions(64, 1), rootsQuestions(0, 65)}, 65, ``},
		{"more new questions than a state may have", []string{rootsQuestions(0, 65)}, 64,
			"asked for too much input at once"},
		{"as many questions as a task may ask", roundsOfQuestions(16), 1024, ``},
		{"more questions than a task may ask",
			append(roundsOfQuestions(16), rootsQuestions(5000, 1)), 1024,
			"asked for input too many times"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv, end := openModernServer(t, mcp.Rev20251125, `{}`, &upstreamtest.Client{})
				defer end()
				asked := 0
				p := upstreamtest.StartCall(t, s, &upstreamtest.Client{OnAsk: func(
					ctx context.Context, m *mcp.Message) pipeline.Passed {
					asked++
					return upstreamtest.AnswerWith(`{"roots":[]}`)(ctx, m)
				}}, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
				srv.Send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32021,"message":"tasks","data":{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`,
					srv.Expect(t, "tools/call").ID)
				srv.Answer(srv.Expect(t, "tools/call").ID,
					`{"resultType":"task","taskId":"T","status":"working","pollIntervalMs":1000}`)
				for _, questions := range c.asked {
					synctest.Wait()
					time.Sleep(time.Second)
					srv.Answer(srv.Expect(t, "tasks/get").ID,
						`{"resultType":"complete","taskId":"T","status":"input_required","pollIntervalMs":1000,"inputRequests":`+
							questions+`}`)
					synctest.Wait()
					for len(srv.Written) > 0 {
						if q := srv.Next(t); q.Method == "tasks/update" {
							srv.Answer(q.ID, `{"resultType":"complete"}`)
						}
						synctest.Wait()
					}
				}
				if c.fails != "" {
					p.ExpectError(c.fails)
				} else {
					p.ExpectWaiting()
				}
				if asked != c.want {
					t.Errorf("the client was asked %d questions, want %d", asked, c.want)
				}
			})
		})
	}
}

// roundsOfQuestions returns the inputRequests of n states. Each state asks 64 new questions.
func roundsOfQuestions(n int) []string {
	rounds := make([]string, n)
	for i := range rounds {
		rounds[i] = rootsQuestions(64*i, 64)
	}
	return rounds
}
