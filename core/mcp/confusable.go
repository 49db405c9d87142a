package mcp

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// envelopeNames are the members of a JSON-RPC message, in the order of the constants.
var envelopeNames = [...]string{"jsonrpc", "id", "method", "params", "result", "error"}

const (
	memberJSONRPC = iota
	memberID
	memberMethod
	memberParams
	memberResult
	memberError
)

// nameSet maps the folded form of each protocol name at one level of a message to the name.
type nameSet map[string]string

func newNameSet(list ...string) nameSet {
	n := make(nameSet, len(list))
	for _, name := range list {
		n[string(fold(nil, []byte(name)))] = name
	}
	return n
}

// Protocol names whose look-alikes are refused: the names by which requests are routed and
// inspected, and the names in results that are inspected or reach a model. Look-alikes of other
// names are accepted.
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

// confusableWith returns the name in n for which a careless parser could take text, although text
// is spelt differently. Such a parser ignores case as Unicode does, trims white space, or ends
// strings at NUL.
func confusableWith(text []byte, n nameSet) (string, bool) {
	var buf [maxFolded]byte
	name, ok := n[string(fold(buf[:0], text))]
	return name, ok && name != string(text)
}

const maxFolded = 32 // longer than every name of the sets

// fold appends the folded form of text to dst: in lower case, without white space at its ends, and
// cut at NUL. ASCII text is cut after maxFolded bytes too, since it is too long to be one of the
// names.
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

// foldUnicode returns the folded form of text that contains other characters than printable ASCII.
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
		case '\uFB05', '\uFB06': // the only ligatures whose letters occur in a name
			out = append(out, "st"...)
		default:
			out = utf8.AppendRune(out, unicode.ToLower(unicode.ToUpper(r)))
		}
	}
	return out
}
