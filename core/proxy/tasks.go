package proxy

import (
	"context"
	"strconv"

	"gatekit/core/mcp"
)

// isOthersTask says that the request is about a task of another principal, and records it: the client is
// told that there is no such task, the record knows better.
func (call *Call) isOthersTask(server, id string) bool {
	if !call.session.proxy.tasks.BelongsToOther(server, id, call.request.Principal) {
		return false
	}
	m := *call.request
	m.Server, m.Name = server, id
	if err := call.settings.Pipeline.RecordEvent(context.Background(), &m,
		"deny", "the task is another principal's", nil); err != nil {
		call.settings.Log.Error("record a refused request", "method", m.Method, "error", err)
	}
	return true
}

// filterTasks is a server's tasks/list without the tasks of others.
func (p *Proxy) filterTasks(m *mcp.Message) (*mcp.Message, error) {
	var edits []mcp.Edit
	m.Items("/tasks", func(i int, raw []byte) bool {
		if id, _ := mcp.NewResponse("", raw).Text("/taskId"); p.tasks.BelongsToOther(m.Server, id,
			m.Principal) {
			edits = append(edits, mcp.Remove("/tasks/"+strconv.Itoa(i)))
		}
		return true
	})
	if edits == nil {
		return m, nil
	}
	return m.Edit(edits...)
}

// maxClientTasks bounds the tasks of one session that the client made for servers. The oldest are
// forgotten first: nobody can reach them any more.
const (
	maxClientTasks  = 256
	maxClientTaskID = 1_000 // bytes: a task with a longer id cannot be reached
)

// clientTasks are the tasks that the client made when it answered servers' requests (2025-11-25: a
// client may run sampling and elicitation as tasks), so that another server cannot reach them. The
// zero minted is empty and ready.
type clientTasks struct {
	server map[string]string // by task id
	oldest []string
}

// addClientTask remembers for which server the client made the task that m, its answer, speaks of.
func (s *Session) addClientTask(m *mcp.Message) {
	id, _ := mcp.CreatedTaskID(m)
	if id == "" || len(id) > maxClientTaskID {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.clientTasks
	if _, taken := t.server[id]; taken {
		return
	}
	if t.server == nil {
		t.server = map[string]string{}
	}
	if len(t.oldest) == maxClientTasks {
		delete(t.server, t.oldest[0])
		t.oldest = t.oldest[1:]
	}
	t.server[id], t.oldest = m.Server, append(t.oldest, id)
}

// clientTaskServer is the server that a task of the client was made for, "" when nobody knows.
func (s *Session) clientTaskServer(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clientTasks.server[id]
}

// ownsClientTask says whether a reverse request that names a task of the client comes from the server that
// the task was made for.
func (s *Session) ownsClientTask(set *settings, m *mcp.Message) bool {
	meth, _ := mcp.LookupMethod(m.Method)
	return set.names.disabled || meth.Route != mcp.RouteByTask || s.clientTaskServer(m.Name) == m.Server
}

// filterClientTasks is the client's answer to a server's tasks/list without the tasks that were made for
// others.
func (s *Session) filterClientTasks(set *settings, m *mcp.Message) (*mcp.Message, error) {
	if set.names.disabled || m.Method != "tasks/list" {
		return m, nil
	}
	var edits []mcp.Edit
	m.Items("/tasks", func(i int, raw []byte) bool {
		id, _ := mcp.NewResponse("", raw).Text("/taskId")
		if s.clientTaskServer(id) != m.Server {
			edits = append(edits, mcp.Remove("/tasks/"+strconv.Itoa(i)))
		}
		return true
	})
	return m.Edit(edits...)
}
