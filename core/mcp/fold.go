package mcp

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// envelopeNames are the members of a JSON-RPC message, in the order of the constants.
var envelopeNames = [...]string{"jsonrpc", "id", "method", "params", "result", "error"}

const (
	atJSONRPC = iota
	atID
	atMethod
	atParams
	atResult
	atError
)

// paramsNames are the members of params that routing and policies go by.
var paramsNames = []string{"name", "uri", "arguments", "_meta", "cursor", "ref", "requestState", "inputResponses", "taskId", "task"}

// alike answers the name of names that a careless reader could take text for, though it is not that name: one that ignores case as Unicode does,
// trims, or ends strings at NUL.
func alike(text []byte, names []string) (string, bool) {
	for _, n := range names {
		if string(text) == n {
			return "", false
		}
	}
	if plain(text) {
		for _, n := range names {
			if len(n) == len(text) && strings.EqualFold(n, string(text)) {
				return n, true
			}
		}
		return "", false
	}
	folded := fold(text)
	for _, n := range names {
		if string(folded) == strings.ToLower(n) {
			return n, true
		}
	}
	return "", false
}

// plain says that text has printing ASCII characters only.
func plain(text []byte) bool {
	for _, c := range text {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// fold is text as the most careless reader would have it.
func fold(text []byte) []byte {
	careless := func(r rune) bool {
		return unicode.IsSpace(r) || unicode.Is(unicode.C, r)
	}
	text = bytes.TrimLeftFunc(text, careless)
	if i := bytes.IndexByte(text, 0); i >= 0 {
		text = text[:i]
	}
	text = bytes.TrimRightFunc(text, careless)
	var out []byte
	for _, r := range string(text) {
		switch r {
		case '\uFB05', '\uFB06': // the only ligatures whose letters stand in a name above
			out = append(out, "st"...)
		default:
			out = utf8.AppendRune(out, unicode.ToLower(unicode.ToUpper(r)))
		}
	}
	return out
}
