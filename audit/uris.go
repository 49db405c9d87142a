package audit

import (
	"strings"

	"gatekit/core/mcp"
)

// nameWithoutQuery returns the name of a message as a record has it. In a URI, the query and the
// fragment often hold a token. So a keyed hash replaces them: "https://host/path?…1f0e". Equal URIs
// have equal names. Without a hasher, "?…" replaces them.
func nameWithoutQuery(m *mcp.Message, h *ValueHasher) string {
	at := strings.IndexAny(m.Name, "?#")
	if at < 0 || !isURI(m.Name[:at]) {
		return m.Name
	}
	if at > 0 && m.Name[at-1] == '{' {
		return m.Name // a template: {?page}
	}
	query := m.Name[at+1:]
	if query == "" {
		return m.Name
	}
	hash := ""
	if h != nil {
		hash = h.Hash(query)
	}
	return m.Name[:at+1] + "…" + hash
}

// isURI reports whether text begins with a scheme and a colon.
func isURI(text string) bool {
	scheme, _, found := strings.Cut(text, ":")
	if !found || scheme == "" {
		return false
	}
	for i, c := range []byte(strings.ToLower(scheme)) {
		isLetter := 'a' <= c && c <= 'z'
		isOther := '0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'
		if !isLetter && (i == 0 || !isOther) {
			return false
		}
	}
	return true
}
