package injection

import "strings"

// markFinder finds marks in a text: the delimiters of chats, tags, addresses and pictures. Phrases
// describe only words, so marks are found by functions instead.
type markFinder struct {
	grammar      *grammar
	text         normalizedText
	isDefinition bool
}

// The ids of the hits of marks are negative. The ids of the hits of phrases are not negative.
const (
	idChatML = -1 - iota
	idInst
	idBracket
	idBracketEnd
	idTag
	idTagEnd
	idLabel
	idHeading
	idFence
	idPicture
	idName
)

// markScore is the score of a mark, in content and in definitions.
type markScore struct{ content, definition int }

// promptTags are elements with which a text addresses the model.
var promptTags = map[string]markScore{
	"important":       {5, 5},
	"system":          {3, 6},
	"admin":           {3, 6},
	"instructions":    {2, 2},
	"instruction":     {2, 3},
	"override":        {5, 6},
	"hidden":          {4, 6},
	"secret":          {4, 6},
	"critical":        {4, 5},
	"system-reminder": {6, 7},
	"system_prompt":   {5, 6},
	"system-prompt":   {5, 6},
	"information":     {3, 4},
	"assistant":       {3, 4},
	"sys":             {4, 5},
}

// closingTags are elements in which clients wrap the texts of servers. A text that closes such an
// element pretends that the text after it does not come from the server.
var closingTags = map[string]markScore{
	"tool_result":      {7, 7},
	"tool_results":     {7, 7},
	"function_results": {7, 7},
	"function_result":  {7, 7},
	"tool_response":    {7, 7},
	"tool_output":      {7, 7},
	"user_input":       {5, 6},
	"untrusted":        {6, 6},
	"context":          {2, 3},
	"document":         {1, 3},
	"documents":        {2, 3},
	"system":           {3, 6},
	"admin":            {3, 6},
	"important":        {2, 2},
}

// find looks for a mark that begins with the byte at i, or for a label that ends with it. It
// appends the hit of a mark to hits. It appends an address or a picture to tokens, as a word that
// phrases can name. position is the position of i, counted in words.
func (m *markFinder) find(i, position int, tokens *[]token, hits *[]hit) {
	s := m.text.text
	rest := s[i:]
	add := func(id int, name string, score markScore, n int) {
		h := hit{familyDelimiter, name, id, score.content, int32(position), i, min(i+n, len(s))}
		if m.isDefinition {
			h.score = score.definition
		}
		if id == idPicture {
			h.family = familyExfiltration
		}
		*hits = append(*hits, h)
	}
	word := func(w int32, n int) {
		*tokens = append(*tokens, token{word: w, position: int32(position), from: int32(i),
			to: int32(min(i+n, len(s)))})
	}
	switch s[i] {
	case '<':
		m.readAngle(rest, add)
	case '[':
		m.readBracket(rest, add)
	case '`', '"':
		m.readFence(s, i, add)
	case ':':
		if strings.HasPrefix(rest, "://") {
			word(m.grammar.url, 3)
			return
		}
		m.readLabel(s, i, add)
	case '@':
		if i > 0 && byteClasses[s[i-1]]&letterByte != 0 && isDomain(rest[1:]) {
			word(m.grammar.email, 1)
		}
	case '!':
		if strings.HasPrefix(rest, "![") {
			word(m.grammar.picture, 2)
			m.readPicture(rest, add)
		}
	}
}

// maxDomain is how many bytes are read for the domain of an address.
const maxDomain = 64

// isDomain reports whether s begins with a domain of two labels or more. The number of a version,
// such as v1.2, is none.
func isDomain(s string) bool {
	for i := range min(len(s)-1, maxDomain) {
		switch {
		case s[i] == '.' && i > 0:
			if c := lowerByte[s[i+1]]; c >= 'a' && c <= 'z' || c >= 0x80 {
				return true
			}
		case byteClasses[s[i]]&letterByte == 0 && s[i] != '-':
			return false
		}
	}
	return false
}

// addHit records the hit of a mark of n bytes.
type addHit func(id int, name string, score markScore, n int)

// The number of bytes that are read for a mark, and for the address of a picture.
const (
	maxMark    = 48
	maxPicture = 2048
)

// readAngle reads a mark that begins with "<".
func (m *markFinder) readAngle(rest string, add addHit) {
	rest = rest[:min(len(rest), maxMark)]
	if strings.HasPrefix(rest, "<|") {
		if end := strings.Index(rest, "|>"); end > 2 && isTokenName(rest[2:end]) {
			score := markScore{5, 7}
			switch strings.ToLower(rest[2:end]) {
			case "im_start", "im_end", "eot_id", "start_header_id", "end_header_id", "system",
				"endoftext", "user", "assistant", "end":
				score = markScore{7, 8}
			}
			add(idChatML, "chat-token", score, end+2)
		}
		return
	}
	if len(rest) > 2 && strings.IndexByte("<sSeE", rest[1]) >= 0 {
		for _, token := range []string{"<<sys>>", "<</sys>>", "<start_of_turn>", "<end_of_turn>"} {
			if len(rest) >= len(token) && strings.EqualFold(rest[:len(token)], token) {
				add(idChatML, "chat-token", markScore{7, 8}, len(token))
				return
			}
		}
	}
	name, isClosing := rest[1:], false
	if strings.HasPrefix(name, "/") {
		name, isClosing = name[1:], true
	}
	var b [maxTagLength]byte
	n := 0
	for n < len(name) && n < len(b) && (byteClasses[name[n]] == letterByte && name[n] < 0x80 ||
		name[n] == '-') {
		b[n] = lowerByte[name[n]]
		n++
	}
	if n == 0 || n == len(name) || name[n] != '>' && name[n] != ' ' {
		return
	}
	if isClosing {
		if score, ok := closingTags[string(b[:n])]; ok {
			add(idTagEnd, "closing-tag", score, n+3)
		}
	} else if score, ok := promptTags[string(b[:n])]; ok {
		add(idTag, "tag", score, n+2)
	}
}

// maxTagLength is more than the length of the longest name in promptTags and closingTags.
const maxTagLength = 20

// readBracket reads a mark that begins with "[".
func (m *markFinder) readBracket(rest string, add addHit) {
	rest = rest[:min(len(rest), maxMark)]
	end := strings.IndexByte(rest, ']')
	if end < 0 {
		end = len(rest)
	}
	inner, isClosing := strings.CutPrefix(rest[1:end], "/")
	head, more, _ := strings.Cut(inner, " ")
	head = strings.TrimSuffix(head, ":")
	switch {
	case head == "INST":
		add(idInst, "inst", markScore{7, 8}, end+1)
	case (head == "SYSTEM" || head == "ADMIN") && isClosing:
		add(idBracketEnd, "closing-bracket", markScore{7, 8}, end+1)
	case (head == "SYSTEM" || head == "ADMIN" || head == "OVERRIDE") && more != "":
		add(idBracket, "bracket", markScore{6, 7}, end+1)
	case head == "SYSTEM" || head == "ADMIN" || head == "OVERRIDE":
		add(idBracket, "bracket", markScore{3, 5}, end+1)
	}
}

// readFence reads a fence of three quotes or more that begins at i, and the word after it.
func (m *markFinder) readFence(s string, i int, add addHit) {
	if i > 0 && s[i-1] == s[i] || i+2 >= len(s) || s[i+1] != s[i] || s[i+2] != s[i] {
		return
	}
	rest := strings.TrimLeft(s[i:min(len(s), i+maxMark)], "`\"")
	opened := s[i] == '"' || len(rest) > 0 && rest[0] != '\n'
	rest = strings.ToLower(strings.TrimLeft(rest, " \n"))
	for _, w := range []string{"system", "admin", "override", "ignore"} {
		if after, ok := strings.CutPrefix(rest, w); ok && opened && after != "" &&
			(after[0] == ':' || after[0] == '\n' && s[i] == '`') {
			add(idFence, "fence", markScore{5, 7}, 3)
		}
	}
}

// labelEnds are the last letters of the labels that readLabel knows.
const labelEnds = "eimnrst"

// readLabel reads the first words of a line, up to the colon at i.
func (m *markFinder) readLabel(s string, i int, add addHit) {
	last := i - 1
	for last >= 0 && last > i-32 && (s[last] == ' ' || s[last] == '*') {
		last--
	}
	if last < 0 || s[last] < 0x80 && strings.IndexByte(labelEnds, s[last]|0x20) < 0 {
		return
	}
	line := s[max(0, i-32):i]
	n := strings.LastIndexByte(line, '\n')
	if n < 0 && i > 32 {
		return
	}
	label := strings.Trim(line[n+1:], " *")
	if strings.HasPrefix(line[n+1:], "  ") && label == strings.ToLower(label) {
		return // a member in code or YAML
	}
	if label == "" || strings.IndexByte("#aAhHsSuUnNiIrR", label[0]) < 0 {
		return
	}
	label = strings.ToLower(label)
	isHeading := strings.HasPrefix(label, "#")
	switch strings.TrimLeft(label, "# ") {
	case "human", "assistant", "system", "user", "ai":
		add(idLabel, "chat-label", markScore{4, 5}, 1)
	case "system prompt", "new system prompt", "system message", "system override", "system note",
		"system instruction", "system instructions":
		add(idHeading, "system-label", markScore{5, 7}, 1)
	case "instruction", "instructions", "response":
		if isHeading && i+1 < len(s) && s[i+1] == '\n' {
			add(idHeading, "prompt-heading", markScore{4, 5}, 1)
		}
	}
}

// readPicture reads a picture in Markdown. The query of its address may carry data away.
func (m *markFinder) readPicture(rest string, add addHit) {
	rest = rest[:min(len(rest), maxPicture)]
	i := strings.Index(rest, "](")
	if i < 0 || strings.IndexByte(rest[:i], '\n') >= 0 {
		return
	}
	address := rest[i+2:]
	if end := strings.IndexAny(address, ")\n"); end >= 0 {
		address = address[:end]
	}
	_, query, ok := strings.Cut(address, "?")
	if !ok {
		return
	}
	for pair := range strings.SplitSeq(query, "&") {
		_, value, _ := strings.Cut(pair, "=")
		if value != "" && (strings.IndexByte("{<[", value[0]) >= 0 ||
			strings.HasPrefix(value, "${") ||
			strings.HasPrefix(strings.ToLower(value), "%7b") || isPlaceholder(value)) {
			add(idPicture, "picture-with-data", markScore{8, 9}, i+2+len(address))
			return
		}
	}
}

// isPlaceholder reports whether a value is a word that the model should replace:
// CAPITALS_WITH_UNDERSCORES.
func isPlaceholder(value string) bool {
	capitals := 0
	for i := range len(value) {
		switch c := value[i]; {
		case c >= 'A' && c <= 'Z':
			capitals++
		case c != '_' && (c < '0' || c > '9'):
			return false
		}
	}
	return capitals >= 6 && strings.IndexByte(value, '_') > 0
}

// isTokenName reports whether s may be the name of a chat token.
func isTokenName(s string) bool {
	for i := range len(s) {
		if byteClasses[s[i]]&letterByte == 0 && s[i] != '-' && s[i] != ' ' {
			return false
		}
	}
	return len(s) > 0
}
