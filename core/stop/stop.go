package stop

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gatekit/core/display"
	"gatekit/core/mcp"
)

// Limits of one stop.
const (
	maxText = 500  // bytes of a reason, and of the name of who stopped
	maxName = 4096 // bytes of a server, principal or session
)

// Scope selects the messages that a stop refuses. A message must match all fields that are not
// empty. The zero Scope selects every message.
type Scope struct {
	Server    string `json:"server,omitempty"`    // configured name
	Principal string `json:"principal,omitempty"` // ID of the principal
	Session   string `json:"session,omitempty"`   // as the audit log names it
}

// Covers reports whether the scope selects a message. A message that belongs to several servers,
// such as a merged list, belongs to no single server.
func (s Scope) Covers(m *mcp.Message) bool {
	return (s.Server == "" || s.Server == m.Server) &&
		(s.Session == "" || s.Session == m.Session) &&
		(s.Principal == "" || s.Principal == m.Principal.ID())
}

// String returns the scope for people: everything, or server "files", principal "token:ci".
func (s Scope) String() string {
	var parts []string
	for _, f := range []struct{ name, value string }{
		{"server", s.Server}, {"principal", s.Principal}, {"session", s.Session}} {
		if f.value != "" {
			parts = append(parts, f.name+" "+display.Quote(f.value, 200))
		}
	}
	if parts == nil {
		return "everything"
	}
	return strings.Join(parts, ", ")
}

// Stop refuses the messages of a scope until it is resumed.
type Stop struct {
	Scope
	At     time.Time `json:"at"`
	By     string    `json:"by"` // who stopped, for people: user id 1000, the admin endpoint
	Reason string    `json:"reason"`
	// Shared is set when the other replicas know of the stop. If they do not any more, one of them
	// has ended it.
	Shared bool `json:"shared,omitempty"`
}

// Validate returns an error if s cannot be stored.
func (s *Stop) Validate() error {
	if strings.TrimSpace(s.Reason) == "" {
		return errors.New("a stop needs a reason\nhint: --reason \"the agent deletes files\"")
	}
	if s.By == "" || s.At.IsZero() {
		return errors.New("a stop needs its time and who stopped")
	}
	for _, f := range []struct {
		name, value string
		limit       int
	}{{"reason", s.Reason, maxText}, {"name of who stopped", s.By, maxText},
		{"server", s.Server, maxName}, {"principal", s.Principal, maxName},
		{"session", s.Session, maxName}} {
		switch {
		case len(f.value) > f.limit:
			return fmt.Errorf("the %s has %d bytes; at most %d are stored", f.name, len(f.value),
				f.limit)
		case !utf8.ValidString(f.value) || strings.ContainsFunc(f.value, unicode.IsControl):
			return fmt.Errorf("the %s must be one line of text without control characters",
				f.name)
		}
	}
	return nil
}
