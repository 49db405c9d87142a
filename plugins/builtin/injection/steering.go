package injection

import (
	"strings"

	"gatekit/core/mcp"
	"gatekit/plugins/sdk/scan"
)

// Limits of inspectSteering.
const (
	callDistance     = 80 // bytes from a word such as "call" or "retry" to the name of a tool
	maxToolLookups   = 64 // in one text
	maxSteeringWords = 16 // words such as "call" in one text that are followed up
)

// inspectSteering looks for texts of a result that ask for the call of a listed tool. A tool of
// another server is enough. A tool of the server itself counts only if the text says "retry" and
// the result is not an error, since servers name their own tools in results and errors.
func (in *inspection) inspectSteering(m *mcp.Message, t scan.Text, scored scoredText) {
	s := in.stage
	a := s.actions[familySteering]
	if a == actionOff || m.Direction != mcp.ToClient || m.Kind == mcp.Request {
		return
	}
	words := &s.scorer.concepts
	lookups, calls := 0, 0
	for i, tok := range scored.tokens {
		if !words.calls[tok.word] && !words.retries[tok.word] {
			continue
		}
		if calls++; calls > maxSteeringWords {
			return
		}
		text := scored.text.text
		around := text[max(0, int(tok.from)-callDistance):min(len(text), int(tok.to)+callDistance)]
		for name := range toolNames(around) {
			if lookups++; lookups > maxToolLookups {
				return
			}
			own, other := s.memory.listsTool(m.Principal.ID(), m.Server, name)
			rule := ""
			switch {
			case other && !own:
				rule = "asks-for-another-servers-tool"
			case own && m.Kind == mcp.Response && name != calledTool(m) && !isErrorResult(m) &&
				hasRetry(words, scored.tokens, i):
				rule = "retry-with-another-tool"
			default:
				continue
			}
			in.addFinding(familySteering, rule, t.Pointer())
			if a < actionFlag {
				in.escalate(a, familySteering, t.Pointer())
			}
			return
		}
	}
}

// toolNames yields the words of a text that look like names of tools, without the prefix that
// Gatekit adds to the name of a server's tool.
func toolNames(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := 0; i < len(s); {
			if !isNameByte(s[i]) {
				i++
				continue
			}
			from := i
			for i < len(s) && isNameByte(s[i]) {
				i++
			}
			word := s[from:i]
			if _, name, ok := strings.Cut(word, "__"); ok {
				word = name
			}
			if len(word) <= maxMentionLength && isDistinctive(word) && !yield(word) {
				return
			}
		}
	}
}

func isNameByte(c byte) bool { return c == '-' || c != '\'' && byteClasses[c]&letterByte != 0 }

// hasRetry reports whether a word such as "again" is near tokens[i].
func hasRetry(words *conceptGrammar, tokens []token, i int) bool {
	const distance = 12
	at := tokens[i].position
	for j := i; j >= 0 && tokens[j].position >= at-distance; j-- {
		if words.retries[tokens[j].word] {
			return true
		}
	}
	for j := i + 1; j < len(tokens) && tokens[j].position <= at+distance; j++ {
		if words.retries[tokens[j].word] {
			return true
		}
	}
	return false
}

// calledTool returns the name of the tool whose result m is, or "".
func calledTool(m *mcp.Message) string {
	if m.Request == nil || m.Method != "tools/call" {
		return ""
	}
	name, _ := m.Request.Text("/name")
	return name
}

// isErrorResult reports whether m is the result of a tool that failed.
func isErrorResult(m *mcp.Message) bool {
	raw, _ := m.Get("/isError")
	return string(raw) == "true"
}
