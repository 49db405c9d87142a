package mcp

import (
	"slices"
	"strings"
)

// ReservedMetaPrefix begins every key that the specification reserves in _meta.
const ReservedMetaPrefix = "io.modelcontextprotocol/"

// gatekitMetaPrefix begins every key in _meta that belongs to Gatekit.
const gatekitMetaPrefix = "gatekit/"

// trustMetaSet has the keys in _meta that a receiver could believe: they claim who acts, and for
// whom. docs/protocol.md lists them.
var trustMetaSet = newNameSet("tenant", "tenantId", "tenant_id", "actor", "actorId", "actor_id",
	"principal", "baggage")

// RemoveReservedMeta returns the edits that remove the reserved keys and the extraKeys from the
// _meta of m. If no other key would be left, the edits remove the whole _meta.
func RemoveReservedMeta(m *Message, extraKeys ...string) []Edit {
	return removeMeta(m, func(key string) bool {
		return strings.HasPrefix(key, ReservedMetaPrefix) || slices.Contains(extraKeys, key)
	})
}

// RemoveTrustMeta returns the edits that remove from the _meta of m the keys that no peer may set.
// If no other key would be left, the edits remove the whole _meta. The result keys has the removed
// keys, in their usual spelling and without duplicates. It has "gatekit/…" in place of all keys
// that belong to Gatekit.
func RemoveTrustMeta(m *Message) (edits []Edit, keys []string) {
	edits = removeMeta(m, func(key string) bool {
		usual, ok := trustMetaKey(key)
		if ok && !slices.Contains(keys, usual) {
			keys = append(keys, usual)
		}
		return ok
	})
	return edits, keys
}

// IsTrustMeta reports whether key is one of the keys in _meta that no peer may set.
func IsTrustMeta(key string) bool {
	_, ok := trustMetaKey(key)
	return ok
}

// trustMetaKey returns the usual spelling of a key in _meta that no peer may set. ok is false for
// all other keys. ok is also true for a key that only a careless parser would read as a key that no
// peer may set.
func trustMetaKey(key string) (usual string, ok bool) {
	var buf [maxFolded]byte
	folded := fold(buf[:0], []byte(key))
	if strings.HasPrefix(string(folded), gatekitMetaPrefix) {
		return gatekitMetaPrefix + "…", true
	}
	usual, ok = trustMetaSet[string(folded)]
	return usual, ok
}

// removeMeta returns the edits that remove from the _meta of m the keys for which isRemoved returns
// true. If no other key would be left, the edits remove the whole _meta.
func removeMeta(m *Message, isRemoved func(key string) bool) []Edit {
	var removals []Edit
	keepsOthers := false
	m.Members("/_meta", func(key string, _ []byte) bool {
		if isRemoved(key) {
			removals = append(removals, Remove("/_meta/"+EscapePointer(key)))
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
