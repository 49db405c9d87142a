package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// If a principal requests a task of another principal, the answer is the error Unknown task.
func TestTaskBelongsToItsPrincipal(t *testing.T) {
	for name, c := range map[string]struct{ prefix, id string }{"with a prefix": {"always", "a+t1"},
		"without a prefix": {"never", "t1"}} {
		t.Run(name, func(t *testing.T) {
			a := &fakeServer{answer: func(ctx context.Context, m *mcp.Message,
				c proxy.Handler) string {
				switch m.Method {
				case "tools/call":
					return `{"task":{"taskId":"t1"}}`
				case "tasks/list":
					return `{"tasks":[{"taskId":"t1"},{"taskId":"older"}]}`
				}
				return `{"taskId":"t1","status":"working"}`
			}}
			w := open(t, map[string]*fakeServer{"a": a},
				func(o *proxy.Options) { o.Naming.Prefix = c.prefix })
			tool := `{"name":"a__x","arguments":{}}`
			if got := w.call(t, "tools/call", tool); !strings.Contains(got, `"`+c.id+`"`) {
				t.Fatalf("the task's answer is %s, want the id %q", got, c.id)
			}
			bob := w.proxy.Open(proxy.OpenOptions{Session: "b", Principal: identity.FromID("bob")},
				&fakeClient{})
			again := w.proxy.Open(proxy.OpenOptions{Session: "again",
				Principal: identity.FromID("p")},
				&fakeClient{})
			for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel",
				"tasks/update"} {
				params := `{"taskId":"` + c.id + `"}`
				asked := len(a.seen())
				if got := w.callAs(t, bob, &fakeClient{}, `1`, method,
					params); got != `!-32602 Unknown task: "`+c.id+`"` {
					t.Errorf("%s of another principal's task: got %s, want Unknown task", method,
						got)
				}
				if len(a.seen()) != asked {
					t.Errorf("%s of another principal's task reached the server", method)
				}
				if got := w.callAs(t, again, &fakeClient{}, `1`, method,
					params); !strings.Contains(got, "working") {
					t.Errorf("%s of an own task, in another session: got %s, want the task", method,
						got)
				}
			}
			older := strings.Replace(c.id, "t1", "older", 1)
			if got := w.callAs(t, bob, &fakeClient{}, `1`, "tasks/get", `{"taskId":"`+older+
				`"}`); !strings.Contains(got, "working") {
				t.Errorf("a task without a known owner: got %s, want the task", got)
			}
			if got := w.callAs(t, bob, &fakeClient{}, `1`, "tasks/list",
				`{}`); strings.Contains(got, "t1") || !strings.Contains(got, "older") {
				t.Errorf("tasks/list of another principal: got %s, want only \"older\"", got)
			}
			if got := w.call(t, "tasks/list", `{}`); !strings.Contains(got, "t1") {
				t.Errorf("tasks/list of the owner: got %s, want t1", got)
			}
			w.record.expect(t, "deny to_server request tasks/get a t1")
		})
	}
}

// A subscription to the task of another principal gets no notifications about the task, even if the
// server sends such notifications.
func TestTaskOfAnotherPrincipalCannotBeSubscribedTo(t *testing.T) {
	for name, c := range map[string]struct{ prefix, id string }{"with a prefix": {"always", "a+t1"},
		"without a prefix": {"never", "t1"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fakeServer{answer: func(ctx context.Context, m *mcp.Message,
					c proxy.Handler) string {
					if m.Method == "tools/call" {
						return `{"resultType":"task","taskId":"t1"}`
					}
					c.HandleNotification(ctx,
						mcp.NewNotification("notifications/subscriptions/acknowledged",
							[]byte(`{"notifications":{"toolsListChanged":true}}`)))
					c.HandleNotification(ctx, mcp.NewNotification("notifications/tasks",
						[]byte(`{"taskId":"t1","status":"working"}`)))
					c.HandleNotification(ctx,
						mcp.NewNotification("notifications/tools/list_changed", nil))
					return ""
				}}
				w := open(t, map[string]*fakeServer{"a": a},
					func(o *proxy.Options) { o.Naming.Prefix = c.prefix })
				w.call(t, "tools/call", `{"name":"a__x","arguments":{}}`)
				client := &fakeClient{}
				bob := w.proxy.Open(proxy.OpenOptions{Session: "b",
					Principal: identity.FromID("bob")}, client)
				ctx, leave := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					bob.Call(ctx, request(t, `9`, "subscriptions/listen",
						`{"notifications":{"taskIds":["`+c.id+`"],"toolsListChanged":true}}`),
						client)
				}()
				synctest.Wait()
				if got := strings.Join(client.received(), "\n"); strings.Contains(got, "t1") ||
					!strings.Contains(got, "notifications/tools/list_changed") {
					t.Errorf("the client of bob got %s, want list_changed and nothing about t1",
						got)
				}
				leave()
				<-done
			})
		})
	}
}

// If a stage denies the answer to a call, the server's task goes on. The task still belongs to the
// principal that made the call.
func TestTaskWithDeniedAnswerBelongsToItsPrincipal(t *testing.T) {
	noTasks := stage(func(m *mcp.Message) pipeline.Verdict {
		if m.Method == "tools/call" && m.Kind == mcp.Response {
			return pipeline.Verdict{Reason: "no tasks"}
		}
		return pipeline.Verdict{Action: pipeline.Allow}
	})
	a := &fakeServer{answer: fixedResults(
		map[string]string{"tools/call": `{"task":{"taskId":"t1"}}`,
			"tasks/get": `{"taskId":"t1","status":"working"}`})}
	w := open(t, map[string]*fakeServer{"a": a}, nil, pipeline.StageConfig{Name: "policy",
		Stage: noTasks})
	bob := w.proxy.Open(proxy.OpenOptions{Session: "b", Principal: identity.FromID("bob")},
		&fakeClient{})
	if got := w.call(t, "tools/call", `{"name":"a__x"}`); strings.Contains(got, "t1") {
		t.Fatalf("tools/call: got %s, want a denial", got)
	}
	if got := w.callAs(t, bob, &fakeClient{}, `2`, "tasks/get",
		`{"taskId":"a+t1"}`); got != `!-32602 Unknown task: "a+t1"` {
		t.Errorf("tasks/get of another principal: got %s, want Unknown task", got)
	}
	if got := w.call(t, "tasks/get", `{"taskId":"a+t1"}`); !strings.Contains(got, "working") {
		t.Errorf("tasks/get of the owner: got %s, want the task", got)
	}
}

// A server that runs one process for each principal may give the same id to several tasks.
func TestSeveralPrincipalsHaveTheSameTaskID(t *testing.T) {
	w := open(t, map[string]*fakeServer{"a": {answer: fixedResults(
		map[string]string{"tools/call": `{"resultType":"task","taskId":"1"}`,
			"tasks/get": `{"taskId":"1","status":"working"}`})}}, nil)
	bob := w.proxy.Open(proxy.OpenOptions{Session: "b", Principal: identity.FromID("bob")},
		&fakeClient{})
	for _, s := range []*proxy.Session{w.session, bob} {
		w.callAs(t, s, &fakeClient{}, `1`, "tools/call", `{"name":"a__x"}`)
	}
	for _, s := range []*proxy.Session{w.session, bob} {
		if got := w.callAs(t, s, &fakeClient{}, `2`, "tasks/get",
			`{"taskId":"a+1"}`); !strings.Contains(got, "working") {
			t.Errorf("tasks/get of an own task: got %s, want the task", got)
		}
	}
}

// When a principal has too many tasks, only the oldest tasks of that principal are forgotten.
func TestManyTasksOfOnePrincipalDoNotEvictOtherTasks(t *testing.T) {
	next := 0
	a := &fakeServer{answer: func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
		if m.Method == "tools/call" {
			next++
			return fmt.Sprintf(`{"task":{"taskId":"t%d"}}`, next)
		}
		return `{"status":"working"}`
	}}
	w := open(t, map[string]*fakeServer{"a": a}, nil)
	w.call(t, "tools/call", `{"name":"a__x"}`)
	// The names of principals count towards the bound of 16 MiB, so 10,001 tasks exceed it.
	mallory := w.proxy.Open(proxy.OpenOptions{Session: "m",
		Principal: identity.FromID(strings.Repeat("mallory", 250))}, &fakeClient{})
	for range 10_001 {
		w.callAs(t, mallory, &fakeClient{}, `1`, "tools/call", `{"name":"a__x"}`)
	}
	if got := w.callAs(t, mallory, &fakeClient{}, `2`, "tasks/get",
		`{"taskId":"a+t1"}`); got != `!-32602 Unknown task: "a+t1"` {
		t.Errorf("another principal's task: got %s, want Unknown task", got)
	}
	if got := w.call(t, "tasks/get", `{"taskId":"a+t2"}`); !strings.Contains(got, "working") {
		t.Errorf("mallory's oldest task, for another principal: got %s, want the answer of the "+
			"server, because the task is forgotten", got)
	}
}
