package proxy

import (
	"bytes"
	"cmp"
	"context"
	"strings"

	"gatekit/core/display"
	"gatekit/core/mcp"
)

// maxClients is how many clients of one session are told apart in the record: those of one
// principal may share a session.
const maxClients = 32

// maxClientInfo bounds what is remembered of the last one.
const maxClientInfo = 1 << 10

// recordedClients are the clients that said who they are.
type recordedClients struct {
	last  []byte // its clientInfo as it wrote it
	names map[string]bool
}

// recordClient records which client a session is of, once for each that says its name: in its
// initialize, or with every request. m is one that passed: what a client calls itself is content
// like other, and may be cleared or refused.
func (s *Session) recordClient(ctx context.Context, set *settings, m *mcp.Message) {
	at := mcp.PointerClientInfo
	if m.Method == "initialize" {
		at = "/clientInfo"
	}
	info, ok := m.Get(at)
	if !ok {
		return
	}
	s.mu.Lock()
	same := bytes.Equal(info, s.clients.last)
	s.mu.Unlock()
	if same {
		return
	}
	name, _ := m.Text(at + "/name")
	version, _ := m.Text(at + "/version")
	who := strings.TrimSpace(cmp.Or(display.Clip(name, 100), "a client without a name") + " " +
		display.Clip(version, 100))
	s.mu.Lock()
	if len(info) <= maxClientInfo {
		s.clients.last = bytes.Clone(info)
	}
	known := s.clients.names[who] || len(s.clients.names) >= maxClients
	if !known {
		if s.clients.names == nil {
			s.clients.names = map[string]bool{}
		}
		s.clients.names[who] = true
	}
	s.mu.Unlock()
	if known {
		return
	}
	event := s.stamp(&mcp.Message{}, mcp.ToServer, "")
	// its request will not move either
	if err := set.Pipeline.RecordEvent(ctx, event, "connect", who+", "+s.options.Revision,
		nil); err != nil {
		set.Log.Error("record who connects", "error", err)
	}
}
