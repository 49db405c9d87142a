package mcp

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// envelopeNames are the names of the members of a JSON-RPC message, in the order of the constants.
var envelopeNames = [...]string{"jsonrpc", "id", "method", "params", "result", "error"}

const (
	memberJSONRPC = iota
	memberID
	memberMethod
	memberParams
	memberResult
	memberError
)

// nameSet holds the protocol names of one level of a message. The key of a name is its folded form.
type nameSet map[string]string

func newNameSet(list ...string) nameSet {
	n := make(nameSet, len(list))
	for _, name := range list {
		n[string(fold(nil, []byte(name)))] = name
	}
	return n
}

// These sets hold the protocol names whose look-alikes are refused. The names in params decide how
// a request is routed and inspected. The names in results belong to values that are inspected, or
// that reach a model. Look-alikes of all other names are accepted.
var (
	envelopeNameSet = newNameSet(envelopeNames[:]...)
	paramsNameSet   = newNameSet("name", "uri", "arguments", "_meta", "cursor", "ref",
		"requestState", "inputResponses", "inputRequests", "taskId", "task",
		"argument", "context", "notifications", "level", "protocolVersion", "capabilities",
		"clientInfo", "requestId", "progressToken",
		"messages", "systemPrompt", "tools", "message", "mode", "url", "requestedSchema",
		"elicitationId")
	resultNameSet = newNameSet("_meta", "tools", "resources", "resourceTemplates", "prompts",
		"content", "structuredContent", "contents", "messages",
		"completion", "nextCursor", "resultType", "inputRequests", "requestState", "task", "tasks",
		"taskId", "capabilities", "serverInfo", "protocolVersion",
		"supportedVersions", "instructions", "action", "roots")
)

// confusableWith returns the name in n that a careless parser could read instead of text. ok is
// false if n has no such name, or if text is exactly that name. A careless parser ignores case as
// Unicode does, trims white space, or ends strings at NUL.
func confusableWith(text []byte, n nameSet) (name string, ok bool) {
	var buf [maxFolded]byte
	name, ok = n[string(fold(buf[:0], text))]
	return name, ok && name != string(text)
}

const maxFolded = 32 // longer than every name of the sets

// fold returns the folded form of text: in lower case, without white space at its ends, and cut at
// NUL. ASCII text is also cut after maxFolded bytes, because no name is as long as that. fold may
// use the memory of dst, which must be empty.
func fold(dst, text []byte) []byte {
	for i, c := range text {
		if c <= ' ' || c >= 0x7f {
			return foldUnicode(text)
		}
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if i < maxFolded {
			dst = append(dst, c)
		}
	}
	return dst
}

// foldUnicode returns the folded form of text. It is for text that contains a space, a control
// character or a character beyond ASCII.
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
		case '\uFB05', '\uFB06': // the ligatures of st, as in requestState
			out = append(out, "st"...)
		default:
			out = utf8.AppendRune(out, unicode.ToLower(unicode.ToUpper(r)))
		}
	}
	return out
}
