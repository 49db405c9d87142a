package mcp

import "strings"

// IsIdentifier reports whether the value at a pointer into the body of m is an identifier. An
// identifier is a name, URI or id that a peer sends back or compares; it is not content.
// Identifiers are the names at all [NamePlaces], the URIs of roots, cursors, tokens, ids of
// requests, and values under reserved keys of _meta.
func IsIdentifier(m *Message, pointer string) bool {
	switch pointer {
	case "/cursor", "/nextCursor", "/progressToken", "/_meta/progressToken", "/requestId",
		"/requestState", "/protocolVersion":
		return true
	}
	if strings.HasPrefix(pointer, reservedPrefix) {
		return true
	}
	tokens := strings.Split(pointer, "/")[1:]
	if m.Method == "roots/list" && m.Kind == Response && matchesPattern([]string{"roots", "*",
		"uri"}, tokens) {
		return true
	}
	for _, p := range NamePlaces(m.Method, m.Kind, m.Direction) {
		pattern := strings.Split(p.Pattern, "/")[1:]
		if !p.holdsContentBlocks() {
			if matchesPattern(pattern, tokens) {
				return true
			}
			continue
		}
		if n := len(pattern) - 1; len(tokens) > n && matchesPattern(pattern[:n],
			tokens[:n]) && m.isURIOfContent(tokens, n) {
			return true
		}
	}
	return false
}

// matchesPattern reports whether the tokens of a pointer match the tokens of a pattern. In a
// pattern, "*" matches any token.
func matchesPattern(pattern, pointer []string) bool {
	if len(pattern) != len(pointer) {
		return false
	}
	for i, token := range pattern {
		if token != "*" && token != pointer[i] {
			return false
		}
	}
	return true
}

// isURIOfContent reports whether a pointer, split into tokens, locates the URI of a content block.
// The URI is the uri of a resource_link or the resource.uri of an embedded resource. The first n
// tokens locate one content block or an array of content blocks. The content of a tool_result block
// is also searched for content blocks.
func (m *Message) isURIOfContent(tokens []string, n int) bool {
	kindOf := func(block []string) string {
		kind, _ := m.Text("/" + strings.Join(block, "/") + "/type")
		return kind
	}
	last := len(tokens) - 1
	switch {
	case tokens[last] != "uri":
		return false
	case last > n && tokens[last-1] == "resource" && kindOf(tokens[:last-1]) == "resource":
		last--
	case kindOf(tokens[:last]) != "resource_link":
		return false
	}
	// each token of tokens[n:last] must be an index, or the member content of a tool_result
	for i := n; i < last; i++ {
		if tokens[i] == "content" && kindOf(tokens[:i]) != "tool_result" ||
			tokens[i] != "content" && !isIndex(tokens[i]) {
			return false
		}
	}
	return true
}

func isIndex(token string) bool { return token != "" && strings.Trim(token, "0123456789") == "" }
