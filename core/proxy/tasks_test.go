package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// For another principal the task does not exist, however it got the id, by any request, with and
// without prefixes.
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
				t.Fatalf("the task is %s", got)
			}
			bob := w.proxy.Open(proxy.OpenOptions{Session: "b", Principal: "bob"}, &fakeClient{})
			again := w.proxy.Open(proxy.OpenOptions{Session: "again", Principal: "p"},
				&fakeClient{})
			for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel",
				"tasks/update"} {
				params := `{"taskId":"` + c.id + `"}`
				asked := len(a.seen())
				if got := w.callAs(t, bob, &fakeClient{}, `1`, method,
					params); got != `!-32602 Unknown task: "`+c.id+`"` {
					t.Errorf("%s of another's task: %s", method, got)
				}
				if len(a.seen()) != asked {
					t.Errorf("%s of another's task reached the server", method)
				}
				if got := w.callAs(t, again, &fakeClient{}, `1`, method,
					params); !strings.Contains(got, "working") {
					t.Errorf("%s of the own task, in another session: %s", method, got)
				}
			}
			older := strings.Replace(c.id, "t1", "older", 1)
			if got := w.callAs(t, bob, &fakeClient{}, `1`, "tasks/get", `{"taskId":"`+older+
				`"}`); !strings.Contains(got, "working") {
				t.Errorf("a task of which nobody knows whose it is: %s", got)
			}
			if got := w.callAs(t, bob, &fakeClient{}, `1`, "tasks/list",
				`{}`); strings.Contains(got, "t1") || !strings.Contains(got, "older") {
				t.Errorf("another's list: %s", got)
			}
			if got := w.call(t, "tasks/list", `{}`); !strings.Contains(got, "t1") {
				t.Errorf("the own list: %s", got)
			}
			w.record.expect(t, "deny to_server request tasks/get a t1")
		})
	}
}

// Subscribing to the task of another principal yields no notification, whatever the server does.
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
				theirs := &fakeClient{}
				bob := w.proxy.Open(proxy.OpenOptions{Session: "b", Principal: "bob"}, theirs)
				ctx, leave := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					bob.Call(ctx, request(t, `9`, "subscriptions/listen",
						`{"notifications":{"taskIds":["`+c.id+`"],"toolsListChanged":true}}`),
						theirs)
				}()
				synctest.Wait()
				if heard := strings.Join(theirs.received(), "\n"); strings.Contains(heard, "t1") ||
					!strings.Contains(heard, "notifications/tools/list_changed") {
					t.Errorf("another was told: %s", heard)
				}
				leave()
				<-done
			})
		})
	}
}

// A task whose creation was denied to the client runs all the same, and belongs to its principal.
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
	bob := w.proxy.Open(proxy.OpenOptions{Session: "b", Principal: "bob"}, &fakeClient{})
	if got := w.call(t, "tools/call", `{"name":"a__x"}`); strings.Contains(got, "t1") {
		t.Fatalf("it answered %s", got)
	}
	if got := w.callAs(t, bob, &fakeClient{}, `2`, "tasks/get",
		`{"taskId":"a+t1"}`); got != `!-32602 Unknown task: "a+t1"` {
		t.Errorf("for another: %s", got)
	}
	if got := w.call(t, "tasks/get", `{"taskId":"a+t1"}`); !strings.Contains(got, "working") {
		t.Errorf("for its principal: %s", got)
	}
}

// A server with a process for each principal may give one id to several: each has its own task.
func TestSeveralPrincipalsHaveTheSameTaskID(t *testing.T) {
	w := open(t, map[string]*fakeServer{"a": {answer: fixedResults(
		map[string]string{"tools/call": `{"resultType":"task","taskId":"1"}`,
			"tasks/get": `{"taskId":"1","status":"working"}`})}}, nil)
	bob := w.proxy.Open(proxy.OpenOptions{Session: "b", Principal: "bob"}, &fakeClient{})
	for _, s := range []*proxy.Session{w.session, bob} {
		w.callAs(t, s, &fakeClient{}, `1`, "tools/call", `{"name":"a__x"}`)
	}
	for _, s := range []*proxy.Session{w.session, bob} {
		if got := w.callAs(t, s, &fakeClient{}, `2`, "tasks/get",
			`{"taskId":"a+1"}`); !strings.Contains(got, "working") {
			t.Errorf("the own task: %s", got)
		}
	}
}

// A principal that creates tasks without end loses only its own.
func TestManyTasksOfOnePrincipalDoNotEvictOthers(t *testing.T) {
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
	mallory := w.proxy.Open(proxy.OpenOptions{Session: "m", Principal: "mallory"}, &fakeClient{})
	for range 10_001 {
		w.callAs(t, mallory, &fakeClient{}, `1`, "tools/call", `{"name":"a__x"}`)
	}
	if got := w.callAs(t, mallory, &fakeClient{}, `2`, "tasks/get",
		`{"taskId":"a+t1"}`); got != `!-32602 Unknown task: "a+t1"` {
		t.Errorf("another's task: %s", got)
	}
}
