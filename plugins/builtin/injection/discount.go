package injection

import (
	"cmp"
	"slices"
	"strings"
)

// How many words before and after the beginning of a hit are searched for words about attacks.
const (
	wordsBefore = 18
	wordsAfter  = 24
)

// discount lowers the scores of hits that are quoted, or that have words about attacks nearby,
// since texts about attacks quote attacks.
func (g *grammar) discount(s string, tokens []token, hits []hit, isDefinition bool) {
	for i := range hits {
		h := &hits[i]
		attack, about := 0, 0
		first, _ := slices.BinarySearchFunc(tokens, h.position-wordsBefore,
			func(t token, position int32) int { return cmp.Compare(t.position, position) })
		for _, t := range tokens[first:] {
			if t.position > h.position+wordsAfter {
				break
			}
			from := int(t.from)
			isOfHit := from >= h.from && from < h.to
			isOfAddress := from > 0 && (s[from-1] == '.' || s[from-1] == '@' || s[from-1] == '/')
			switch {
			case isOfHit || isOfAddress:
			case g.isMember(t.word, g.attack):
				attack++
			case g.isMember(t.word, g.about):
				about++
			}
		}
		from := h.from
		for from < h.to && s[from] == '\'' { // a word may begin with an apostrophe
			from++
		}
		h.score = discountedScore(h, isQuoted(s, from), attack, about, isDefinition)
		if h.family == familyOverride && g.isStatement(s, tokens, h) {
			h.score /= 2
		}
	}
}

// isStatement reports whether the words before a hit make it a statement, such as "agents forget
// earlier instructions" or "you can ignore the instructions above", and not a command. A comma, a
// colon or a new line between them ends the statement.
func (g *grammar) isStatement(s string, tokens []token, h *hit) bool {
	next := h.from
	for n := int32(1); n <= 2; n++ {
		i, ok := slices.BinarySearchFunc(tokens, h.position-n,
			func(t token, position int32) int { return cmp.Compare(t.position, position) })
		if !ok || int(tokens[i].to) > next || strings.TrimLeft(s[tokens[i].to:next], " ") != "" {
			return false
		}
		if n == 1 && g.isMember(tokens[i].word, g.subject) {
			return true
		}
		if n == 2 {
			return g.isMember(tokens[i].word, g.wish)
		}
		if s[tokens[i].from:tokens[i].to] != "to" {
			return false
		}
		next = int(tokens[i].from)
	}
	return false
}

// discountedScore returns the discounted score of a hit. attack and about are the numbers of words
// nearby that belong to the classes ATTACK and ABOUT. A definition has no reason to speak of
// attacks, so only quotations score less in a definition.
func discountedScore(h *hit, quoted bool, attack, about int, isDefinition bool) int {
	switch {
	case quoted && attack+about > 0:
		return 0
	case isDefinition:
		return h.score
	case quoted && h.family == familyDelimiter: // probably the name of a token
		return h.score / 2
	case attack > 3:
		return h.score / 4
	case attack > 1:
		return h.score / 2
	}
	return h.score
}

// Limits of the search for quotation marks, in bytes.
const (
	maxQuoteDistance = 240  // from a mark to the quoted place
	maxQuoteLine     = 2000 // of the line before the quoted place
)

// isQuoted reports whether s[i] is within quotation marks or a code span on its own line. The
// strings of JSON do not count as quotations, since most results are JSON.
func isQuoted(s string, i int) bool {
	line := s[max(0, i-maxQuoteLine):i]
	if n := strings.LastIndexByte(line, '\n'); n >= 0 {
		line = line[n+1:]
	}
	rest := s[i:min(len(s), i+maxQuoteDistance)]
	for _, mark := range []string{`"`, "`"} {
		open := strings.LastIndex(line, mark)
		if open < 0 || len(line)-open > maxQuoteDistance || strings.Count(line, mark)%2 == 0 ||
			!strings.Contains(rest, mark) {
			continue
		}
		before := strings.TrimRight(line[:open], " ")
		if mark == "`" || before == "" || !strings.HasSuffix(before, `":`) &&
			strings.IndexByte("[{,", before[len(before)-1]) < 0 {
			return true
		}
	}
	near := line[max(0, len(line)-maxQuoteDistance):]
	isOpen := func(open, close string) bool {
		return strings.Count(near, open) > strings.Count(near, close) &&
			strings.Contains(rest, close)
	}
	if isOpen("“", "”") || isOpen("«", "»") || isOpen("„", "“") {
		return true
	}
	closed := strings.Count(near, "' ") + strings.Count(near, "',") + strings.Count(near, "'.")
	return strings.Count(near, " '") > closed && strings.Contains(rest, "'")
}
