package proxy

import (
	"context"
	"strconv"

	"gatekit/core/mcp"
)

// foreign says that the request is about a task of another principal, and records it: the client is
// told that there is no such task, the record knows better.
func (x *Call) foreign(server, id string) bool {
	if !x.s.proxy.tasks.BelongsToOther(server, id, x.m.Principal) {
		return false
	}
	m := *x.m
	m.Server, m.Name = server, id
	if err := x.c.Pipeline.RecordEvent(context.Background(), &m,
		"deny", "the task is another principal's", nil); err != nil {
		x.c.Log.Error("record a refused request", "method", m.Method, "error", err)
	}
	return true
}

// ownTasks is a server's tasks/list without the tasks of others.
func (p *Proxy) ownTasks(m *mcp.Message) (*mcp.Message, error) {
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

// maxMinted bounds the tasks of one session that the client made for servers. The oldest are
// forgotten first: nobody can reach them any more.
const (
	maxMinted   = 256
	maxMintedID = 1_000 // bytes: a task with a longer id cannot be reached
)

// minted are the tasks that the client made when it answered servers' requests (2025-11-25: a
// client may run sampling and elicitation as tasks), so that another server cannot reach them. The
// zero minted is empty and ready.
type minted struct {
	server map[string]string // by task id
	oldest []string
}

// mint remembers for which server the client made the task that m, its answer, speaks of.
func (s *Session) mint(m *mcp.Message) {
	id, _ := mcp.CreatedTaskID(m)
	if id == "" || len(id) > maxMintedID {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.minted
	if _, taken := t.server[id]; taken {
		return
	}
	if t.server == nil {
		t.server = map[string]string{}
	}
	if len(t.oldest) == maxMinted {
		delete(t.server, t.oldest[0])
		t.oldest = t.oldest[1:]
	}
	t.server[id], t.oldest = m.Server, append(t.oldest, id)
}

// minter is the server that a task of the client was made for, "" when nobody knows.
func (s *Session) minter(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.minted.server[id]
}

// owns says whether a reverse request that names a task of the client comes from the server that
// the task was made for.
func (s *Session) owns(set *settings, m *mcp.Message) bool {
	meth, _ := mcp.LookupMethod(m.Method)
	return set.names.bare || meth.Route != mcp.RouteByTask || s.minter(m.Name) == m.Server
}

// ownTasks is the client's answer to a server's tasks/list without the tasks that were made for
// others.
func (s *Session) ownTasks(set *settings, m *mcp.Message) (*mcp.Message, error) {
	if set.names.bare || m.Method != "tasks/list" {
		return m, nil
	}
	var edits []mcp.Edit
	m.Items("/tasks", func(i int, raw []byte) bool {
		id, _ := mcp.NewResponse("", raw).Text("/taskId")
		if s.minter(id) != m.Server {
			edits = append(edits, mcp.Remove("/tasks/"+strconv.Itoa(i)))
		}
		return true
	})
	return m.Edit(edits...)
}
