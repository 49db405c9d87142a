package audit

import (
	"regexp"
	"strings"

	"gatekit/core/mcp"
)

// nameWithoutQuery returns the name of a message as it is recorded. In a URI, the query and the
// fragment often hold a token. So a keyed hash replaces them: "https://host/path?…1f0e". Equal URIs
// have equal names. Without a hasher, "…" alone replaces the query and the fragment.
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

// withoutQueries returns a text in which recordedURI replaces uri. The text may also quote uri in
// another spelling, for example in the canonical spelling. So withoutQueries also removes the query
// and the fragment from every URI in the text that has the scheme of uri.
func withoutQueries(text, uri, recordedURI string) string {
	if text == "" {
		return ""
	}
	scheme, _, _ := strings.Cut(uri, ":")
	uris := regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(scheme) + `:[^\s"?#]*[?#][^\s"]+`)
	return uris.ReplaceAllStringFunc(strings.ReplaceAll(text, uri, recordedURI),
		func(match string) string {
			at := strings.IndexAny(match, "?#") + 1
			if strings.HasPrefix(match[at:], "…") {
				return match
			}
			return match[:at] + "…"
		})
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
