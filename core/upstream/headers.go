package upstream

import (
	"encoding/base64"
	"net/http"
	"strings"

	"gatekit/core/mcp"
)

// modernHeader returns the HTTP headers of a modern request. The headers repeat parts of the body,
// for intermediaries that do not read bodies. If rawName is true, a printable name is not encoded
// in Mcp-Name.
func modernHeader(m *mcp.Message, rawName bool) http.Header {
	h := make(http.Header, 8) // with room for the headers that the transport adds
	if v, ok := m.Text(mcp.PointerProtocolVersion); ok {
		h[mcp.HeaderProtocolVersion] = []string{encodeHeader(v)}
	}
	h[mcp.HeaderMethod] = []string{encodeHeader(m.Method)}
	name, ok := headerName(m)
	switch {
	case !ok:
	case rawName && hasPrintableName(m):
		h[mcp.HeaderName] = []string{name}
	default:
		h[mcp.HeaderName] = []string{encodeHeader(name)}
	}
	return h
}

// headerName returns the name in the body that Mcp-Name repeats. ok is false when the message has
// no such name.
func headerName(m *mcp.Message) (name string, ok bool) {
	pointer, ok := mcp.HeaderNamePointer(m.Method)
	if !ok {
		return "", false
	}
	return m.Text(pointer)
}

// hasPrintableName reports whether Mcp-Name can hold the name of m without encoding.
func hasPrintableName(m *mcp.Message) bool {
	name, ok := headerName(m)
	return ok && strings.IndexFunc(name, func(r rune) bool {
		return r < ' ' && r != '\t' || r == 0x7f
	}) < 0
}

// The prefix and suffix of an encoded header value.
const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

// isEncoded reports whether a header value looks encoded.
func isEncoded(v string) bool {
	return strings.HasPrefix(v, encodedPrefix) && strings.HasSuffix(v, encodedSuffix)
}

// encodeHeader returns v as a header value. It encodes values that are not printable ASCII, that
// begin or end with spaces, or that look encoded.
func encodeHeader(v string) string {
	plain := !isEncoded(v) && strings.Trim(v, " \t") == v
	for i := 0; plain && i < len(v); i++ {
		plain = v[i] >= ' ' && v[i] < 0x7f || v[i] == '\t'
	}
	if plain {
		return v
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(v)) + encodedSuffix
}
