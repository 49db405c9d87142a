package policies

import (
	"slices"
	"strings"

	"gatekit/core/mcp"
)

// tools returns the value of input.tools: the tools of m's server whose arguments or output m may
// contain.
//
//   - For a tools/call and its answer, this is the called tool.
//   - For a message about a task, this is the tool that created the task, in any session.
//   - For other requests and notifications of the server, for the client's notifications and
//     answers, and for methods that the specification does not define, these are all tools of the
//     server that the session has called. The protocol does not always tell to which call such a
//     message belongs, a server can send the message late, and a cancelled call has no answer.
//
// known is false when m is about a task that Gatekit does not know. Any tool may have created such
// a task, perhaps before a restart of Gatekit.
func (s *session) tools(m *mcp.Message) (names []string, known bool) {
	meth, defined := mcp.LookupMethod(m.Method)
	isAnswer := m.Kind == mcp.Response || m.Kind == mcp.Error
	// whether m belongs to a request or notification that the server sent to the client
	reverse := isAnswer == (m.Direction == mcp.ToServer)
	switch {
	case m.Method == "tools/call":
		return []string{m.Name}, true
	case meth.NamePointer == "/taskId" && !reverse && m.Kind != mcp.Notification:
		return s.taskTools(m, []string{m.Name})
	case m.Method == "tasks/list" && m.Kind == mcp.Response && !reverse:
		return s.taskTools(m, taskIDs(m))
	case defined && !reverse && m.Kind != mcp.Notification:
		return nil, true // m is about a prompt, a resource or a list, and not about a tool
	}
	names, known = s.calledTools(m.Server), true
	add := func(id string) {
		var more []string
		more, known = s.taskTools(m, []string{id})
		names = append(names, more...)
	}
	if id, ok := m.Text(mcp.PointerRelatedTask + "/taskId"); ok {
		add(id)
	}
	if meth.NamePointer == "/taskId" && m.Direction == mcp.ToClient &&
		m.Kind == mcp.Notification {
		// The notification may come before the answer that creates the task.
		if tool, created := s.taskTool(m, m.Name); created {
			names = append(names, tool)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), known
}

// taskTools returns the tools that created the tasks. known is false when Gatekit does not know one
// of the tasks.
func (s *session) taskTools(m *mcp.Message, ids []string) (names []string, known bool) {
	known = true
	for _, id := range ids {
		tool, created := s.taskTool(m, id)
		if !created {
			known = false
		} else if !slices.Contains(names, tool) {
			names = append(names, tool)
		}
	}
	return names, known
}

// taskTool returns the tool that created a task of the principal of m. known is false when Gatekit
// does not know the task.
func (s *session) taskTool(m *mcp.Message, id string) (tool string, known bool) {
	tool, known = s.store.tasks.Name(m.Server, id, m.Principal.ID())
	if !known && s.store.Tasks != nil {
		return s.store.Tasks.Name(m.Server, id, m.Principal.ID())
	}
	return tool, known
}

// taskIDs returns the ids of the tasks in a list.
func taskIDs(m *mcp.Message) (ids []string) {
	m.Items("/tasks", func(_ int, raw []byte) bool {
		if id, ok := mcp.NewResponse("", raw).Text("/taskId"); ok {
			ids = append(ids, id)
		}
		return true
	})
	return ids
}

// calledTools returns the tools of a server that the session has called.
func (s *session) calledTools(server string) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.calls {
		// keys of other kinds begin with a method, which contains a slash; see callKey
		if name, ok := strings.CutPrefix(key, server+" "); ok {
			names = append(names, name)
		}
	}
	return names
}
