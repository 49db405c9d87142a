package proxy

import (
	"strconv"

	"gatekit/core/mcp"
)

const (
	// tasks of one session; the oldest are forgotten first
	maxClientTasks  = 256
	maxClientTaskID = 1_000 // bytes; a task with a longer id cannot be used
)

// clientTasks are the tasks that the client created to answer servers' requests (2025-11-25: a
// client may run sampling and elicitation as tasks). Only the server that a task was created for
// can use the task. The zero clientTasks is empty and ready.
type clientTasks struct {
	server map[string]string // name of the server by task id
	ids    []string
}

// addClientTask remembers that m, the client's answer to a server, created a task.
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
	if len(t.ids) == maxClientTasks {
		delete(t.server, t.ids[0])
		t.ids = t.ids[1:]
	}
	t.server[id], t.ids = m.Server, append(t.ids, id)
}

// clientTaskServer returns the server that a task of the client was created for, or "".
func (s *Session) clientTaskServer(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clientTasks.server[id]
}

// ownsClientTask reports whether a server's request about a task of the client comes from the
// server that the task was created for. It returns true if the request is not about a task.
func (s *Session) ownsClientTask(set *settings, m *mcp.Message) bool {
	meth, _ := mcp.LookupMethod(m.Method)
	return set.names.disabled || meth.Route != mcp.RouteByTask ||
		s.clientTaskServer(m.Name) == m.Server
}

// filterClientTasks returns the client's answer to a server's tasks/list, without the tasks that
// were created for other servers.
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
