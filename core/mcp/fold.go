package mcp

import (
	"bytes"
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

// nameSet is the names that matter at one level of a message, by their folded form.
type nameSet map[string]string

func named(list ...string) nameSet {
	n := make(nameSet, len(list))
	for _, name := range list {
		n[string(fold(nil, []byte(name)))] = name
	}
	return n
}

// What requests are routed and judged by, and what of an answer is judged or reaches a model. Not
// all of the specification: a name that matters to nobody may be spelt as its peer likes.
var (
	topNames    = named(envelopeNames[:]...)
	paramsNames = named("name", "uri", "arguments", "_meta", "cursor", "ref", "requestState",
		"inputResponses", "inputRequests", "taskId", "task",
		"argument", "context", "notifications", "level", "protocolVersion", "capabilities",
		"clientInfo", "requestId", "progressToken",
		"messages", "systemPrompt", "tools", "message", "mode", "url", "requestedSchema",
		"elicitationId")
	answerNames = named("_meta", "tools", "resources", "resourceTemplates", "prompts", "content",
		"structuredContent", "contents", "messages",
		"completion", "nextCursor", "resultType", "inputRequests", "requestState", "task", "tasks",
		"taskId", "capabilities", "serverInfo", "protocolVersion",
		"supportedVersions", "instructions", "action", "roots")
)

// alike answers the name of n that a careless reader could take text for, though it is not that
// name: one that ignores case as Unicode does, trims, or ends strings at NUL.
func alike(text []byte, n nameSet) (string, bool) {
	var buf [longest]byte
	name, ok := n[string(fold(buf[:0], text))]
	return name, ok && name != string(text)
}

const longest = 32 // no name is as long

// fold appends to dst text as the most careless reader would have it, or enough of it to be none of
// the names.
func fold(dst, text []byte) []byte {
	for i, c := range text {
		if c <= ' ' || c >= 0x7f {
			return foldUnicode(text)
		}
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if i < longest {
			dst = append(dst, c)
		}
	}
	return dst
}

func foldUnicode(text []byte) []byte {
	blank := func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.C, r) }
	text = bytes.TrimLeftFunc(text, blank)
	if i := bytes.IndexByte(text, 0); i >= 0 {
		text = text[:i]
	}
	text = bytes.TrimRightFunc(text, blank)
	var out []byte
	for _, r := range string(text) {
		switch r {
		case '\uFB05', '\uFB06': // the only ligatures whose letters stand in a name
			out = append(out, "st"...)
		default:
			out = utf8.AppendRune(out, unicode.ToLower(unicode.ToUpper(r)))
		}
	}
	return out
}
