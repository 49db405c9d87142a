package proxy_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
	"gatekit/core/tasks"
)

// taskServer is a server with tasks, as all replicas see it. created is its result of a tools/call.
func taskServer(created string) *fakeServer {
	return &fakeServer{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
		switch m.Method {
		case "tools/call":
			return created
		case "tasks/list":
			return `{"tasks":[{"taskId":"t1"},{"taskId":"older"}]}`
		}
		return `{"taskId":"t1","status":"working"}`
	}}
}

const (
	legacyTask = `{"task":{"taskId":"t1","ttl":60000}}`
	modernTask = `{"resultType":"task","taskId":"t1","ttlMs":60000}`
)

// replicaOf opens a replica with the state, and a session of the principal "bob" beside that of
// "p".
func replicaOf(t *testing.T, state shared.Values, a *fakeServer,
	change func(*proxy.Options)) (w *fixture, bob *proxy.Session, bobs *fakeClient) {
	t.Helper()
	w = open(t, map[string]*fakeServer{"a": a}, func(o *proxy.Options) {
		o.Tasks = &tasks.Owners{State: state, IsReplica: true}
		if change != nil {
			change(o)
		}
	})
	bobs = &fakeClient{}
	bob = w.proxy.Open(proxy.OpenOptions{Session: "b", Principal: identity.FromID("bob")}, bobs)
	return w, bob, bobs
}

// A replica that has not seen a task created lets only its owner use it, in both eras.
func TestTaskOfAnotherReplicaBelongsToItsPrincipal(t *testing.T) {
	for name, c := range map[string]struct{ created, prefix, id string }{
		"legacy":           {legacyTask, "always", "a+t1"},
		"modern":           {modernTask, "always", "a+t1"},
		"without a prefix": {modernTask, "never", "t1"},
	} {
		t.Run(name, func(t *testing.T) {
			state := &shared.Memory{}
			prefix := func(o *proxy.Options) { o.Naming.Prefix = c.prefix }
			one, _, _ := replicaOf(t, state, taskServer(c.created), prefix)
			a := taskServer(c.created)
			two, bob, _ := replicaOf(t, state, a, prefix)
			if got := one.call(t, "tools/call", `{"name":"a__x"}`); !strings.Contains(got, c.id) {
				t.Fatalf("tools/call: got %s, want the task %s", got, c.id)
			}
			for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel",
				"tasks/update"} {
				params := `{"taskId":"` + c.id + `"}`
				asked := len(a.seen())
				if got := two.callAs(t, bob, &fakeClient{}, `1`, method,
					params); got != `!-32602 Unknown task: "`+c.id+`"` {
					t.Errorf("%s of another principal's task: got %s, want Unknown task", method,
						got)
				}
				if len(a.seen()) != asked {
					t.Errorf("%s of another principal's task reached the server", method)
				}
				if got := two.call(t, method, params); !strings.Contains(got, "working") {
					t.Errorf("%s of an own task: got %s, want the task", method, got)
				}
			}
			older := strings.Replace(c.id, "t1", "older", 1)
			if got := two.call(t, "tasks/get", `{"taskId":"`+older+
				`"}`); got != `!-32602 Unknown task: "`+older+`"` {
				t.Errorf("a task that nobody knows: got %s, want Unknown task", got)
			}
			if got := two.callAs(t, bob, &fakeClient{}, `1`, "tasks/list",
				`{}`); strings.Contains(got, "taskId") {
				t.Errorf("tasks/list of another principal: got %s, want no task", got)
			}
			if got := two.call(t, "tasks/list", `{}`); !strings.Contains(got, `"`+c.id+`"`) ||
				strings.Contains(got, "older") {
				t.Errorf("tasks/list of the owner: got %s, want only %s", got, c.id)
			}
			two.record.expect(t, "deny to_server request tasks/get a t1",
				"deny to_server request tasks/get a older")
			if !slices.Contains(two.record.reasons,
				"deny no replica has seen the principal create the task") {
				t.Errorf("the reasons are %q", two.record.reasons)
			}
		})
	}
}

// A client gets no notification about another principal's task, on whatever replica the task was
// created. If the owner of the task is not known, nobody gets it.
func TestNotificationOfATaskOfAnotherReplica(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	one, _, _ := replicaOf(t, state, taskServer(legacyTask), nil)
	one.call(t, "tools/call", `{"name":"a__x"}`)
	status := mcp.NewNotification("notifications/tasks/status", []byte(`{"taskId":"t1"}`))
	notified := func(w *fixture, a *fakeServer, s *proxy.Session, feed *fakeClient) bool {
		t.Helper()
		w.callAs(t, s, &fakeClient{}, `1`, "tools/list", `{}`) // opens the server for the session
		a.mu.Lock()
		h := a.feed
		a.mu.Unlock()
		before := len(feed.received())
		h.HandleNotification(t.Context(), status)
		return len(feed.received()) > before
	}
	a := taskServer(legacyTask)
	two, bob, bobs := replicaOf(t, state, a, nil)
	if notified(two, a, bob, bobs) {
		t.Error("bob is notified about the task of p")
	}
	two.record.expect(t, "drop to_client notification notifications/tasks/status a t1")
	state.Fail(shared.ErrUnavailable)
	if notified(two, a, two.session, two.feed) {
		t.Error("without the store, p is notified about a task that this replica does not know")
	}
	if !slices.Contains(two.record.reasons, "drop shared state is not available") {
		t.Errorf("the reasons are %q", two.record.reasons)
	}
	state.Fail(nil)
	if !notified(two, a, two.session, two.feed) {
		t.Error("p is not notified about its own task")
	}
	state.Fail(shared.ErrUnavailable)
	if !notified(two, a, two.session, two.feed) {
		t.Error("without the store, p is not notified about a task that this replica knows")
	}
}

// Without the store, a replica refuses the tasks that it does not know itself, and goes on with the
// others.
func TestTaskOfAnotherReplicaWithoutTheStore(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	one, _, _ := replicaOf(t, state, taskServer(legacyTask), nil)
	a := taskServer(legacyTask)
	two, _, _ := replicaOf(t, state, a, nil)
	one.call(t, "tools/call", `{"name":"a__x"}`)
	state.Fail(shared.ErrUnavailable)
	const params = `{"taskId":"a+t1"}`
	const refused = "!-31000 refused: shared state is not available"
	if got := two.call(t, "tasks/get", params); got != refused || len(a.seen()) > 0 {
		t.Errorf("tasks/get: got %s, want %s; the server got %q", got, refused, a.seen())
	}
	if got := two.call(t, "subscriptions/listen",
		`{"notifications":{"taskIds":["a+t1"]}}`); got != refused {
		t.Errorf("subscriptions/listen: got %s, want %s", got, refused)
	}
	if got := two.call(t, "tasks/list", `{}`); strings.Contains(got, "taskId") {
		t.Errorf("tasks/list: got %s, want no task", got)
	}
	two.record.expect(t, "deny to_server request tasks/get a t1",
		"deny to_server request subscriptions/listen a t1", "deny to_client response tasks/list a")
	if got := one.call(t, "tasks/get", params); !strings.Contains(got, "working") {
		t.Errorf("tasks/get where it was created: got %s, want the task", got)
	}
	if got := two.call(t, "prompts/get", `{"name":"a__x"}`); strings.HasPrefix(got, "!") {
		t.Errorf("prompts/get: got %s, want a result", got)
	}
}

// If the owner of a new task cannot be shared, the client does not get the task, and the server is
// asked to cancel it.
func TestTaskWithoutASharedOwnerIsDeniedAndCancelled(t *testing.T) {
	for _, tt := range []struct {
		name, created, call, cancel string
		err                         error
		tool, capabilities, reason  string
	}{
		{"legacy", legacyTask, `{"name":"a__x","task":{},"_meta":{"progressToken":1}}`,
			`{"taskId":"t1","_meta":{}}`, shared.ErrUnavailable, "x", `,"tasks":{"cancel":{}}`,
			"shared state is not available: Gatekit cancels the new task"},
		{"modern", modernTask, `{"name":"a__x","_meta":{"io.modelcontextprotocol/protocolVersion":` +
			`"2026-07-28","io.modelcontextprotocol/logLevel":"info"}}`, `{"taskId":"t1","_meta":` +
			`{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`, shared.ErrUnavailable, "x",
			`,"extensions":{"io.modelcontextprotocol/tasks":{}}`,
			"shared state is not available: Gatekit cancels the new task"},
		{"no tasks/cancel", legacyTask, `{"name":"a__x","task":{}}`, "", shared.ErrUnavailable, "x",
			"", "shared state is not available, and the server does not cancel tasks: " +
				"the new task goes on"},
		{"too large", legacyTask, `{"name":"a__` + strings.Repeat("x", 1<<15) + `"}`,
			`{"taskId":"t1"}`, nil, strings.Repeat("x", 1<<15), `,"tasks":{"cancel":{}}`,
			"the owner of the task does not fit into the shared state: Gatekit cancels the new " +
				"task"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				state := sharedtest.NewFaulty(&shared.Memory{})
				a := taskServer(tt.created)
				tasksOf := a.answer
				a.answer = func(ctx context.Context, m *mcp.Message, c proxy.Handler) string {
					if m.Method == "server/discover" {
						return `{"capabilities":{"tools":{}` + tt.capabilities + `}}`
					}
					return tasksOf(ctx, m, c)
				}
				w, _, _ := replicaOf(t, state, a, nil)
				w.call(t, "server/discover", `{}`)
				state.Fail(tt.err)
				if got := w.call(t, "tools/call", tt.call); got != "!-31000 refused: "+tt.reason {
					t.Errorf("tools/call: got %s, want the reason %s", got, tt.reason)
				}
				synctest.Wait()
				var cancelled []string
				for _, m := range a.seen() {
					if params, ok := strings.CutPrefix(m, "tasks/cancel "); ok {
						cancelled = append(cancelled, params)
					}
				}
				if got := strings.Join(cancelled, "\n"); got != tt.cancel {
					t.Errorf("the server got tasks/cancel %s, want %s", got, tt.cancel)
				}
				w.record.expect(t, "deny to_client response tools/call a "+tt.tool)
				if tt.cancel != "" {
					w.record.expect(t, "own to_server request tasks/cancel a t1",
						"own to_client response tasks/cancel a t1")
				}
				if !slices.Contains(w.record.reasons, "deny "+tt.reason) {
					t.Errorf("the reasons are %q", w.record.reasons)
				}
			})
		})
	}
}

// While one replica learns of a new task, another principal cannot use it at another one. Once the
// client has the id, it can use the task everywhere.
func TestRaceOfCreationAndUse(t *testing.T) {
	state := &shared.Memory{}
	a := taskServer(modernTask)
	two, bob, _ := replicaOf(t, state, a, nil)
	stop := make(chan struct{})
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for {
				if got := two.callAs(t, bob, &fakeClient{}, `1`, "tasks/get",
					`{"taskId":"a+t1"}`); !strings.HasPrefix(got, "!") {
					t.Errorf("bob got %s, want an error", got)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range 100 {
		one, _, _ := replicaOf(t, state, taskServer(modernTask), nil)
		three, _, _ := replicaOf(t, state, taskServer(modernTask), nil)
		one.call(t, "tools/call", `{"name":"a__x"}`)
		if got := three.call(t, "tasks/get", `{"taskId":"a+t1"}`); !strings.Contains(got,
			"working") {
			t.Errorf("the owner got %s at another replica, want the task", got)
		}
	}
	close(stop)
	users.Wait()
	if n := len(a.seen()); n > 0 {
		t.Errorf("%d requests of bob reached the server", n)
	}
}
