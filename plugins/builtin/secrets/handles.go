package secrets

import (
	"hash/maphash"
	"sync/atomic"

	"gatekit/core/mcp"
	"gatekit/plugins/sdk/scan"
)

// handleTable remembers the cursors, ids and handles that servers sent to sessions. Such a value
// may go back to its server, also beside a name such as "token" or "key". The table has a fixed
// size: a new value may replace an old one, which is then judged by its name again. It holds only
// hashes with a random seed. Many goroutines may use it.
type handleTable struct {
	seed  maphash.Seed
	slots []atomic.Uint64
}

const (
	handleSlots     = 1 << 14
	minHandleLength = 8 // bytes
	maxHandleLength = 1024
)

func newHandleTable() *handleTable {
	return &handleTable{maphash.MakeSeed(), make([]atomic.Uint64, handleSlots)}
}

// slot returns the slot of a value, and the number that the slot holds if the value is remembered.
func (t *handleTable) slot(m *mcp.Message, value string) (slot *atomic.Uint64, sum uint64) {
	var h maphash.Hash
	h.SetSeed(t.seed)
	for _, part := range []string{m.Principal.ID(), m.Session, m.Server, value} {
		h.WriteString(part)
		h.WriteByte(0)
	}
	sum = h.Sum64() | 1 // 0 is an empty slot
	return &t.slots[sum>>32%handleSlots], sum
}

// add remembers a value that the server of m sends.
func (t *handleTable) add(m *mcp.Message, value string) {
	slot, sum := t.slot(m, value)
	slot.Store(sum)
}

// has reports whether the server of m sent the value to the session before.
func (t *handleTable) has(m *mcp.Message, value string) bool {
	slot, sum := t.slot(m, value)
	return slot.Load() == sum
}

// isHandle reports whether a value of a server is a cursor, an id or a handle.
func isHandle(t scan.Text) bool {
	if t.Kind != mcp.StringLeaf || len(t.Value) < minHandleLength ||
		len(t.Value) > maxHandleLength {
		return false
	}
	hasDigit := false
	for i := range len(t.Value) {
		class := byteClasses[t.Value[i]]
		if class&(wordByte|valueByte) == 0 || i == 0 && t.Value[i] == '/' {
			return false // a text, a path or a time
		}
		hasDigit = hasDigit || t.Value[i] >= '0' && t.Value[i] <= '9'
	}
	if !hasDigit {
		return false
	}
	switch classifyName(t.MemberName()) {
	case cursorName, attributeName, dataName:
		return true
	}
	return false
}
