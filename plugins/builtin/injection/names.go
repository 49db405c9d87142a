package injection

import (
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/plugins/sdk/scan"
)

// deceptiveName reports whether a name, or a URI, has hidden characters, or letters that imitate
// other letters. f is the family of the deception.
func (s *stage) deceptiveName(kind, name string) (f family, bad bool) {
	spans, _ := findHidden(name)
	for _, h := range spans {
		if s.actions[h.family] != actionOff {
			return h.family, true
		}
	}
	if (kind == kindTool || kind == kindPrompt) && s.actions[familyConfusable] != actionOff &&
		isDeceptive(name) {
		return familyConfusable, true
	}
	return 0, false
}

// parameterNames has a score for each name of a parameter that asks the model for what it knows.
var parameterNames = map[string]int{
	"sidenote":               6,
	"side_note":              6,
	"system_prompt":          5,
	"conversation_history":   4,
	"chat_history":           4,
	"full_conversation":      6,
	"previous_messages":      4,
	"chain_of_thought":       5,
	"llm_model_name":         5,
	"model_name_and_version": 5,
	"tools_list":             4,
	"available_tools":        4,
	"list_of_tools":          5,
	"user_credentials":       6,
	"ssh_key":                4,
	"ssh_private_key":        6,
	"private_key_contents":   6,
	"env_file":               4,
	"env_contents":           6,
	"mcp_config":             5,
	"mcp_json":               6,
	"content_of_mcp_json":    7,
	"session_context":        2,
	"auth_context":           3,
}

// inspectParameter scores the name of a parameter.
func (in *inspection) inspectParameter(t scan.Text) {
	score, ok := parameterNames[strings.ToLower(strings.ReplaceAll(t.Value, "-", "_"))]
	if !ok {
		if !strings.Contains(t.Value, "_") || len(t.Value) < minScoredName {
			return
		}
		// Score the words of a name such as content_from_reading_ssh_id_rsa.
		words := strings.ReplaceAll(t.Value, "_", " ")
		in.evaluate(t, in.stage.scorer.score(words, true, in.scratch), nil, 0)
		return
	}
	if in.stage.actions[familyExfiltration] == actionOff {
		return
	}
	in.evaluate(t, scoredText{text: normalizedText{text: t.Value}, score: score,
		hits: []hit{{family: familyExfiltration, name: "parameter", id: idName, score: score}}},
		nil, 0)
}

// maxMentionLength is the length in bytes of the longest tool name that is recognised in a text.
const maxMentionLength = 128

// collectMentions records the words of a text that may be names of tools.
func (item *listedItem) collectMentions(s string) {
	if strings.IndexByte(s, ' ') < 0 {
		return
	}
	for i := 0; i < len(s) && len(item.record.mentions) < maxMentions; {
		if byteClasses[s[i]]&letterByte == 0 || s[i] == '\'' {
			i++
			continue
		}
		from := i
		for i < len(s) && (byteClasses[s[i]]&letterByte != 0 && s[i] != '\'' || s[i] == '-') {
			i++
		}
		if word := s[from:i]; isDistinctive(word) && len(word) <= maxMentionLength {
			item.record.mentions = append(item.record.mentions,
				mention{word, isSteering(s, from, i)})
		}
	}
}

// steeringDistance is how far from the name of a tool, in bytes, the words of isSteering may be.
const steeringDistance = 60

// isSteering reports whether the words around s[from:to], the name of a tool, are about which tool
// to use or how to change its use.
func isSteering(s string, from, to int) bool {
	around := strings.ToLower(s[max(0, from-steeringDistance):min(len(s), to+steeringDistance)])
	return slices.ContainsFunc([]string{"instead", "rather than", "never", "not use", "n't use",
		"not call", "n't call", "always", "must", "replace", "deprecated", "unsafe", "broken",
		"whenever", "every time", "secretly", "bcc", "also call", "recipient"},
		func(phrase string) bool { return strings.Contains(around, phrase) })
}

// isDistinctive reports whether a word looks like the name of a tool: it is not short, and has an
// underscore, a hyphen or a capital inside. A word in which all letters are capitals needs an
// underscore or a hyphen.
func isDistinctive(word string) bool {
	if len(word) < 6 {
		return false
	}
	inner := word[1 : len(word)-1]
	if strings.IndexByte(inner, '_') >= 0 || strings.IndexByte(inner, '-') >= 0 {
		return true
	}
	isCapital := func(r rune) bool { return r >= 'A' && r <= 'Z' }
	return strings.IndexFunc(inner, isCapital) >= 0 && strings.ToUpper(word) != word
}

// compareTool compares a tool with the other tools of the client. It looks for names that look
// alike, and for definitions that mention a tool of another server.
func (s *stage) compareTool(m *mcp.Message, item *listedItem) {
	tool := toolID{m.Server, item.id.name}
	if a := s.actions[familyShadowing]; a != actionOff && item.id.name != "" {
		s.compareLooks(m.Principal.ID(), item, tool, a)
	}
	if a := s.actions[familyReference]; a != actionOff {
		s.compareMentions(m.Principal.ID(), item, tool, a)
	}
}

// compareLooks finds other tools whose names look like the name of the tool. Of two such tools, the
// one with the greater disguiseScore is the impostor, whichever was listed first.
func (s *stage) compareLooks(principal string, item *listedItem, tool toolID, a action) {
	for _, other := range s.memory.lookalikes(principal, tool, item.record.skeletons) {
		mine, theirs := disguiseScore(tool.name), disguiseScore(other.name)
		isSameName := strings.EqualFold(tool.name, other.name)
		isOwn := other.server == tool.server && mine < nonASCIIScore && theirs < nonASCIIScore
		switch {
		case isSameName:
			if other.server != tool.server {
				item.addFinding(familyShadowing, "same-name", "/name")
			}
		case isOwn:
			// The server itself decides how it names its tools.
			item.addFinding(familyShadowing, "lookalike", "/name")
		case a == actionFlag || mine == theirs:
			item.addFinding(familyShadowing, "lookalike", "/name")
		case mine > theirs:
			item.addFinding(familyShadowing, "lookalike", "/name")
			item.escalate(a, familyShadowing, "/name")
			s.memory.markShadowing(principal, tool)
		default:
			item.addFinding(familyShadowing, "lookalike-elsewhere", "/name")
			s.memory.markShadowing(principal, other)
		}
	}
}

// compareMentions finds definitions that mention a tool of another server. It checks the definition
// of this tool, and the definitions of other servers that mention this tool. A definition that only
// mentions the tool gets a finding. A definition that steers the use of the tool is hidden.
func (s *stage) compareMentions(principal string, item *listedItem, tool toolID, a action) {
	for _, m := range item.record.mentions {
		if !s.memory.isForeignTool(principal, tool.server, m.word) {
			continue
		}
		if !m.steers {
			item.addFinding(familyReference, "names-another-servers-tool", "")
			continue
		}
		item.addFinding(familyReference, "steers-another-servers-tool", "")
		if a < actionFlag {
			item.escalate(min(a, actionHide), familyReference, "")
			s.memory.markShadowing(principal, tool)
		}
		break
	}
	for other, steers := range s.memory.toolsMentioning(principal, tool.server, tool.name) {
		item.addFinding(familyReference, "named-by-another-server", "/name")
		if steers && a < actionFlag {
			s.memory.markShadowing(principal, other)
		}
	}
}
