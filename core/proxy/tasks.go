package proxy

import (
	"context"
	"errors"
	"strconv"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/shared"
	"gatekit/core/tasks"
)

// sharedUnavailable is the reason of a denial when it is not known whether the principal owns a
// task, or has answered a question before.
const sharedUnavailable = "shared state is not available"

// denyIfForeignTask reports whether the request is about a task that the principal must not use.
// The denial is recorded, and the caller must answer that the task is unknown. If it is not known
// whether the principal may use the task, denyIfForeignTask denies the request, and returns the
// error for the client.
func (call *Call) denyIfForeignTask(ctx context.Context, server, id string) (bool, error) {
	tasks := call.session.proxy.tasks
	foreign, err := tasks.Foreign(ctx, server, call.request.Principal.ID(), id)
	if err == nil && !foreign[id] {
		return false, nil
	}
	m := *call.request
	m.Server, m.Name = server, id
	if err != nil {
		call.settings.Log.Error("owner of a task not known", "server", server, "error", err)
		return false, call.denyOwn(ctx, &m, sharedUnavailable)
	}
	if err := call.settings.Pipeline.RecordEvent(context.Background(), &m, "deny",
		whyForeign(tasks), nil); err != nil {
		call.settings.Log.Error("denied request not recorded", "method", m.Method, "error", err)
	}
	return true, nil
}

// whyForeign returns the reason why a principal must not use a task.
func whyForeign(o *tasks.Owners) string {
	switch {
	case o.State != nil:
		return "no replica has seen the principal create the task"
	case o.IsReplica:
		return "this replica has not seen the principal create the task"
	}
	return "the task belongs to another principal"
}

// addTask notes that the principal of the call owns the task that the server's answer m has
// created. If the other replicas cannot learn of it, addTask denies m, and cancels the task if the
// server can do that.
func (call *Call) addTask(ctx context.Context, srv *sessionServer, m *mcp.Message,
	id string) error {
	err := call.session.proxy.tasks.Create(context.WithoutCancel(ctx), m.Server, id,
		m.Principal.ID(), m.Name, keptFor(m))
	if err == nil {
		return nil
	}
	call.settings.Log.Error("owner of a new task not shared", "server", m.Server, "error", err)
	reason := sharedUnavailable
	if errors.Is(err, shared.ErrFull) {
		reason = "the owner of the task does not fit into the shared state"
	}
	cancel, _ := mcp.LookupMethod("tasks/cancel")
	switch {
	case srv.lacksMethod(cancel):
		reason += ", and the server does not cancel tasks: the new task goes on"
	default:
		call.cancelTask(srv, id)
		reason += ": Gatekit cancels the new task"
	}
	return call.denyOwn(ctx, m, reason)
}

// keptFor returns how long the server keeps the task that m has created, as the server says, or 0.
func keptFor(m *mcp.Message) time.Duration {
	raw, ok := m.Get("/task/ttl") // 2025-11-25
	if !ok {
		raw, _ = m.Get("/ttlMs")
	}
	ms, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0
	}
	const year = 365 * 24 * time.Hour
	return time.Duration(min(max(ms, 0), float64(year.Milliseconds()))) * time.Millisecond
}

// cancelTask cancels a task at the server, in the background. The request and its answer are
// recorded.
func (call *Call) cancelTask(srv *sessionServer, id string) {
	params := object(textField("taskId", id))
	if meta, ok := call.request.Get("/_meta"); ok { // a modern request needs it
		params = object(textField("taskId", id), field("_meta", meta))
	}
	m, err := mcp.NewRequest(call.request.ID(), "tasks/cancel", params).Edit(
		mcp.Remove("/_meta/progressToken"), mcp.Remove(mcp.PointerLogLevel))
	if err != nil {
		call.settings.Log.Error("task not cancelled", "server", srv.name, "error", err)
		return
	}
	m = call.session.stamp(m, mcp.ToServer, call.request)
	m.Server, m.Name = srv.name, id
	call.session.runInBackground(func(ctx context.Context) {
		idle, _ := call.settings.timeouts(srv.name)
		ctx, cancel := context.WithTimeout(ctx, idle)
		defer cancel()
		answer, err := call.askOwn(ctx, srv, m)
		if err == nil && answer.Kind == mcp.Error {
			err = errors.New(errorText(answer))
		}
		if err != nil {
			call.settings.Log.Warn("task not cancelled", "server", srv.name, "error", err)
		}
	})
}

// askOwn sends a request of Gatekit's own to a server, and returns the answer. Both are recorded.
func (call *Call) askOwn(ctx context.Context, srv *sessionServer, m *mcp.Message) (*mcp.Message,
	error) {
	passed := call.settings.Pipeline.PassOwn(ctx, m)
	if passed.Message() == nil {
		return nil, errors.New("the request could not be recorded")
	}
	server, err := srv.open(ctx)
	if err != nil {
		return nil, err
	}
	h := &serverHandler{session: call.session, server: srv, client: call.session.feed,
		request: call.request, sent: passed.Message()}
	answer, err := server.Call(ctx, passed, h)
	if err != nil {
		return nil, err
	}
	return answer, h.Consume(ctx, answer, "own", "answers a request of Gatekit's own")
}

// filterTasks returns m, a server's answer to tasks/list, without the tasks that the principal must
// not use.
func (call *Call) filterTasks(ctx context.Context, m *mcp.Message) (*mcp.Message, error) {
	var ids []string // in the order of the list
	m.Items("/tasks", func(_ int, raw []byte) bool {
		id, _ := mcp.NewResponse("", raw).Text("/taskId")
		ids = append(ids, id)
		return true
	})
	foreign, err := call.session.proxy.tasks.Foreign(ctx, m.Server, m.Principal.ID(), ids...)
	if err != nil {
		call.settings.Log.Error("owners of tasks not known", "server", m.Server, "error", err)
		return nil, call.denyOwn(ctx, m, sharedUnavailable)
	}
	var edits []mcp.Edit
	for i, id := range ids {
		if foreign[id] {
			edits = append(edits, mcp.Remove("/tasks/"+strconv.Itoa(i)))
		}
	}
	if edits == nil {
		return m, nil
	}
	return m.Edit(edits...)
}

// whyNotNotified returns the reason why the client must not get a notification of the server about
// a task, or "".
func (h *serverHandler) whyNotNotified(ctx context.Context, m *mcp.Message) (reason string) {
	meth, _ := mcp.LookupMethod(m.Method)
	if meth.NamePointer != "/taskId" {
		return ""
	}
	tasks := h.session.proxy.tasks
	foreign, err := tasks.Foreign(ctx, m.Server, m.Principal.ID(), m.Name)
	switch {
	case err != nil:
		return sharedUnavailable
	case foreign[m.Name]:
		return whyForeign(tasks)
	}
	return ""
}
