package downstream

import "gatekit/core/mcp"

// eraOf returns the era of one message. version is the MCP-Protocol-Version header of the request
// that brought the message. It is "" on a pipe. See docs/protocol.md.
func eraOf(m *mcp.Message, version string) mcp.Era {
	switch {
	case isRevision(version) && version >= mcp.Rev20260728,
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

// isRevision reports whether s has the form of a revision: a date such as 2025-11-25. Revisions can
// be compared as strings.
func isRevision(s string) bool {
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

// isLegacyRevision reports whether sessions of the revision begin with initialize.
func isLegacyRevision(revision string) bool { return mcp.EraOf(revision) == mcp.Legacy }

// latestLegacy is the revision that Gatekit offers when a client's initialize asks for an unknown
// revision, or for a revision that does not have initialize.
const latestLegacy = mcp.Rev20251125

// checkMeta refuses a modern request whose params._meta lacks a required field or has a field of
// the wrong type.
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

// isObject reports whether the value at pointer is a JSON object.
func isObject(m *mcp.Message, pointer string) bool {
	raw, ok := m.Get(pointer)
	return ok && len(raw) > 0 && raw[0] == '{'
}

// checkMethod refuses a method of the specification if the revision does not have the method, or if
// only servers send it. It accepts methods that the specification does not define. The proxy
// handles those methods.
func checkMethod(m *mcp.Message, revision string) *refusal {
	known, ok := mcp.LookupMethod(m.Method)
	if ok && (known.Kind != mcp.Request || known.Direction == mcp.ToClient ||
		!known.ExistsIn(revision)) {
		return refuse(mcp.CodeMethodNotFound,
			"method not found: %s is not a request that clients of %s send", m.Method, revision)
	}
	return nil
}
