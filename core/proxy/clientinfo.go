package proxy

import (
	"bytes"
	"cmp"
	"context"
	"strings"

	"gatekit/core/display"
	"gatekit/core/mcp"
)

// maxClients bounds how many clients of one session are recorded: several clients of one principal
// may share a session.
const maxClients = 32

// maxClientInfo bounds the remembered clientInfo, in bytes.
const maxClientInfo = 1 << 10

// recordedClients remembers which clients of a session were recorded.
type recordedClients struct {
	last  []byte // the last clientInfo, raw
	names map[string]bool
}

// recordClient records each client of the session once. Legacy clients send their clientInfo in
// initialize, modern clients in every request. m must have passed the pipeline, because a stage may
// redact or deny the name of a client like any other content.
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
	client := strings.TrimSpace(cmp.Or(display.Clip(name, 100), "a client without a name") + " " +
		display.Clip(version, 100))
	s.mu.Lock()
	if len(info) <= maxClientInfo {
		s.clients.last = bytes.Clone(info)
	}
	known := s.clients.names[client] || len(s.clients.names) >= maxClients
	if !known {
		if s.clients.names == nil {
			s.clients.names = map[string]bool{}
		}
		s.clients.names[client] = true
	}
	s.mu.Unlock()
	if known {
		return
	}
	event := s.stamp(&mcp.Message{}, mcp.ToServer, nil)
	// If this record fails, the request is forwarded nevertheless, because the request itself is
	// recorded already.
	if err := set.Pipeline.RecordEvent(ctx, event, "connect", client+", "+s.options.Revision,
		nil); err != nil {
		set.Log.Error("client not recorded", "error", err)
	}
}
