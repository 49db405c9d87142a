package downstream

import (
	"gatekit/core/mcp"
)

// eraOf is the era of one message (protocol.md 4.1). version is the MCP-Protocol-Version that came
// with it, "" on a pipe.
func eraOf(m *mcp.Message, version string) mcp.Era {
	switch {
	case isDate(version) && version >= mcp.Rev20260728,
		m.Method == "server/discover", m.Method == "subscriptions/listen":
		return mcp.Modern
	case m.Method == "":
		return mcp.Legacy
	}
	if _, ok := m.Get(mcp.PointerProtocolVersion); ok {
		return mcp.Modern
	}
	return mcp.Legacy
}

// isDate says whether s is written like a revision; those compare as strings.
func isDate(s string) bool {
	if len(s) != len("2006-01-02") {
		return false
	}
	for i := range len(s) {
		if dash := i == 4 || i == 7; dash != (s[i] == '-') || !dash && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return true
}

// isLegacy says whether it is a revision that begins with initialize.
func isLegacy(revision string) bool { return mcp.EraOf(revision) == mcp.Legacy }

// latestLegacy is what a client is offered that asks for a revision nobody knows in a handshake
// that newer ones do not have.
const latestLegacy = mcp.Rev20251125

// checkMeta holds a modern request's own fields against the specification: the first of the checks
// after its era.
func checkMeta(m *mcp.Message) *refusal {
	if raw, _ := m.Get(mcp.PointerProtocolVersion); len(raw) == 0 || raw[0] != '"' {
		return refuse(mcp.CodeInvalidParams, "params._meta must hold %q, a string",
			mcp.MetaProtocolVersion)
	}
	if !isObject(m, mcp.PointerCapabilities) {
		return refuse(mcp.CodeInvalidParams, "params._meta must hold %q, an object",
			mcp.MetaCapabilities)
	}
	if _, ok := m.Get(mcp.PointerClientInfo); ok && !isObject(m, mcp.PointerClientInfo) {
		return refuse(mcp.CodeInvalidParams, "%q in params._meta must be an object",
			mcp.MetaClientInfo)
	}
	if _, ok := m.Get(mcp.PointerLogLevel); ok {
		level, _ := m.Text(mcp.PointerLogLevel)
		if mcp.LogLevelRank(level) < 0 {
			return refuse(mcp.CodeInvalidParams,
				"%q in params._meta must be a level, from debug to emergency", mcp.MetaLogLevel)
		}
	}
	return nil
}

func isObject(m *mcp.Message, pointer string) bool {
	raw, ok := m.Get(pointer)
	return ok && len(raw) > 0 && raw[0] == '{'
}

// checkMethod refuses what the specification knows and the revision has not, or the other side
// sends. What it does not know is for the proxy to decide.
func checkMethod(m *mcp.Message, revision string) *refusal {
	known, ok := mcp.LookupMethod(m.Method)
	if ok && (known.Kind != mcp.Request || known.Direction == mcp.ToClient ||
		!known.ExistsIn(revision)) {
		return refuse(mcp.CodeMethodNotFound,
			"method not found: %s is not a request that clients of %s send", m.Method, revision)
	}
	return nil
}
