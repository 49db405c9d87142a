package proxy

import (
	"context"
	"strconv"

	"gatekit/core/mcp"
)

// denyIfOthersTask reports whether the request is about a task of another principal. If so,
// denyIfOthersTask records a denial, and the caller must answer that the task is unknown.
func (call *Call) denyIfOthersTask(server, id string) bool {
	if !call.session.proxy.tasks.BelongsToOther(server, id, call.request.Principal.ID()) {
		return false
	}
	m := *call.request
	m.Server, m.Name = server, id
	if err := call.settings.Pipeline.RecordEvent(context.Background(), &m,
		"deny", "the task belongs to another principal", nil); err != nil {
		call.settings.Log.Error("denied request not recorded", "method", m.Method, "error", err)
	}
	return true
}

// filterTasks returns m, a server's answer to tasks/list, without the tasks of other principals.
func (p *Proxy) filterTasks(m *mcp.Message) (*mcp.Message, error) {
	var edits []mcp.Edit
	m.Items("/tasks", func(i int, raw []byte) bool {
		if id, _ := mcp.NewResponse("", raw).Text("/taskId"); p.tasks.BelongsToOther(m.Server, id,
			m.Principal.ID()) {
			edits = append(edits, mcp.Remove("/tasks/"+strconv.Itoa(i)))
		}
		return true
	})
	if edits == nil {
		return m, nil
	}
	return m.Edit(edits...)
}
