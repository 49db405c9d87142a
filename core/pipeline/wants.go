package pipeline

import (
	"slices"
	"strings"

	"gatekit/core/mcp"
)

// Wants says which messages a stage is asked about; an empty list is all. Methods and servers that
// end in "*" are prefixes, so "*" is all, too. A message that has no server yet, or no method that
// is known, is wanted whatever the list says.
type Wants struct {
	Methods    []string
	Kinds      []mcp.Kind
	Directions []mcp.Direction
	Servers    []string
	// OnlyKind are methods of which one kind is wanted and no other: the call of a tool and not its
	// result. It narrows what the rest says.
	OnlyKind map[string]mcp.Kind
}

// sort says whether w wants any message of this kind and direction.
func (w Wants) sort(kind mcp.Kind, to mcp.Direction) bool {
	return (len(w.Kinds) == 0 || slices.Contains(w.Kinds, kind)) && (len(w.Directions) == 0 ||
		slices.Contains(w.Directions, to))
}

// match says whether w wants m, which is of a kind and direction that it wants.
func (w Wants) match(m *mcp.Message) bool {
	if only, ok := w.OnlyKind[m.Method]; ok && only != m.Kind {
		return false
	}
	return listed(w.Methods, m.Method) && listed(w.Servers, m.Server)
}

// IncludesServer says whether w wants messages of the server.
func (w Wants) IncludesServer(name string) bool { return listed(w.Servers, name) }

func listed(patterns []string, name string) bool {
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
