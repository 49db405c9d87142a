package pipeline

import (
	"slices"
	"strings"

	"gatekit/core/mcp"
)

// Wants selects the messages that a stage inspects. Each field must match; an empty field matches
// every message. A method or server that ends in "*" is a prefix, so "*" matches every method or
// server. A message without a method matches all Methods, and a message without a server matches
// all Servers.
type Wants struct {
	Methods    []string
	Kinds      []mcp.Kind
	Directions []mcp.Direction
	Servers    []string
	// OnlyKind has, for a method, the only kind of message that is wanted, for example requests of
	// tools/call but not their results. It restricts the messages that the other fields select.
	OnlyKind map[string]mcp.Kind
}

// includesKind reports whether w selects any message of this kind and direction.
func (w Wants) includesKind(kind mcp.Kind, to mcp.Direction) bool {
	return (len(w.Kinds) == 0 || slices.Contains(w.Kinds, kind)) && (len(w.Directions) == 0 ||
		slices.Contains(w.Directions, to))
}

// includes reports whether w selects m. The caller has checked kind and direction with
// includesKind.
func (w Wants) includes(m *mcp.Message) bool {
	if only, ok := w.OnlyKind[m.Method]; ok && only != m.Kind {
		return false
	}
	return matchesAny(w.Methods, m.Method) && matchesAny(w.Servers, m.Server)
}

// IncludesServer reports whether w selects messages of the server.
func (w Wants) IncludesServer(name string) bool { return matchesAny(w.Servers, name) }

// matchesAny reports whether a pattern matches the name. An empty list of patterns matches every
// name, and the empty name matches every list.
func matchesAny(patterns []string, name string) bool {
	if len(patterns) == 0 || name == "" {
		return true
	}
	for _, p := range patterns {
		if prefix, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(name, prefix) ||
			p == name {
			return true
		}
	}
	return false
}
