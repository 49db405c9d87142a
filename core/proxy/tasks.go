package proxy

import (
	"gatekit/core/mcp"
)

// maxMinted bounds the tasks of one session that the client made for servers.
const maxMinted = 256

// mint remembers which server a task belongs to that the client made when it answered m's request (2025-11-25: a client may run sampling and
// elicitation as tasks), so that another server cannot reach it.
func (s *Session) mint(set *settings, m *mcp.Message) {
	if set.names.bare {
		return
	}
	id, ok := m.Text("/task/taskId")
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.minted == nil {
		s.minted = map[string]string{}
	}
	if _, taken := s.minted[id]; !taken && len(s.minted) < maxMinted {
		s.minted[id] = m.Server
	}
}

// owns says whether a reverse request that names a task of the client comes from the server that the task was made for.
func (s *Session) owns(set *settings, m *mcp.Message) bool {
	meth, _ := mcp.Lookup(m.Method)
	if set.names.bare || meth.Route != mcp.ByTask {
		return true
	}
	id, _ := m.Text(meth.NameAt)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.minted[id] == m.Server
}
