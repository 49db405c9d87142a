package mcp

import "strings"

// IsIdentifier reports whether a pointer into the body of m is the place of an identifier: a name,
// URI or id that a peer sends back or compares, and that is not content. These are the places of
// the catalogue, the roots' URIs, cursors, tokens and ids of requests, and what the protocol
// reserves in _meta.
func IsIdentifier(m *Message, pointer string) bool {
	switch pointer {
	case "/cursor", "/nextCursor", "/progressToken", "/_meta/progressToken", "/requestId",
		"/requestState", "/protocolVersion":
		return true
	}
	if strings.HasPrefix(pointer, reservedPrefix) {
		return true
	}
	at := strings.Split(pointer, "/")[1:]
	if m.Method == "roots/list" && m.Kind == Response && matchesPattern([]string{"roots", "*",
		"uri"}, at) {
		return true
	}
	for _, p := range NamePlaces(m.Method, m.Kind, m.Direction) {
		pattern := strings.Split(p.Pattern, "/")[1:]
		if !p.holdsContentBlocks() {
			if matchesPattern(pattern, at) {
				return true
			}
			continue
		}
		if n := len(pattern) - 1; len(at) > n && matchesPattern(pattern[:n], at[:n]) &&
			m.isURIOfContent(at, n) {
			return true
		}
	}
	return false
}

// matchesPattern reports whether the tokens of a pointer match those of a pattern, in which "*" is
// any token.
func matchesPattern(pattern, at []string) bool {
	if len(pattern) != len(at) {
		return false
	}
	for i, token := range pattern {
		if token != "*" && token != at[i] {
			return false
		}
	}
	return true
}

// isURIOfContent reports whether a pointer, as tokens, is the URI of a content block: the uri of a
// resource_link, or the resource.uri of an embedded resource. The blocks are at the first n tokens,
// or in the content of a tool_result there.
func (m *Message) isURIOfContent(at []string, n int) bool {
	kindOf := func(block []string) string {
		kind, _ := m.Text("/" + strings.Join(block, "/") + "/type")
		return kind
	}
	last := len(at) - 1
	switch {
	case at[last] != "uri":
		return false
	case last > n && at[last-1] == "resource" && kindOf(at[:last-1]) == "resource":
		last--
	case kindOf(at[:last]) != "resource_link":
		return false
	}
	// between the place and the block there are only indices and the content of tool_results
	for i := n; i < last; i++ {
		if at[i] == "content" && kindOf(at[:i]) != "tool_result" || at[i] != "content" &&
			!isIndex(at[i]) {
			return false
		}
	}
	return true
}

func isIndex(token string) bool { return token != "" && strings.Trim(token, "0123456789") == "" }
