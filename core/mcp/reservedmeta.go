package mcp

import (
	"slices"
	"strings"
)

// ReservedMetaPrefix begins every key that the specification reserves in _meta.
const ReservedMetaPrefix = "io.modelcontextprotocol/"

// RemoveReservedMeta returns the edits that remove the reserved keys, and the keys in more, from
// the _meta of m. A _meta without any other key is removed as a whole.
func RemoveReservedMeta(m *Message, more ...string) []Edit {
	var removals []Edit
	keepsOthers := false
	m.Members("/_meta", func(name string, _ []byte) bool {
		if strings.HasPrefix(name, ReservedMetaPrefix) || slices.Contains(more, name) {
			removals = append(removals, Remove("/_meta/"+EscapePointer(name)))
		} else {
			keepsOthers = true
		}
		return true
	})
	if len(removals) > 0 && !keepsOthers {
		return []Edit{Remove("/_meta")}
	}
	return removals
}
