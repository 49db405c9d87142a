package pipeline

import (
	"slices"
	"strings"

	"gatekit/core/mcp"
)

// Wants selects the messages that a stage inspects; an empty list selects all. Methods and servers
// that end in "*" are prefixes, so "*" is all, too. A message without a server, or without a known
// method, is selected whatever the list contains.
type Wants struct {
	Methods    []string
	Kinds      []mcp.Kind
	Directions []mcp.Direction
	Servers    []string
	// OnlyKind has, by method, the only kind that is wanted, for example calls of tools without
	// their results. It narrows the other fields.
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
