package secrets

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// byteSet is a set of bytes.
type byteSet struct {
	bits [4]uint64
	// the one letter or other character that it holds, in lower case; 0 when it holds others
	char byte
}

func (s *byteSet) add(c byte)      { s.bits[c>>6] |= 1 << (c & 63) }
func (s *byteSet) has(c byte) bool { return s.bits[c>>6]&(1<<(c&63)) != 0 }

// singleChar is what one is to be.
func (s *byteSet) singleChar() (one byte) {
	for c := range byte(utf8.RuneSelf) {
		if !s.has(c) {
			continue
		}
		if one != 0 && one != lower(c) {
			return 0
		}
		one = lower(c)
	}
	return one
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// prefix is how the text of a match begins: its first bytes, each one of a set. A regular
// expression has several when it begins in several ways; each of its matches fits one.
type prefix []*byteSet

const (
	maxPrefixLength = 160
	maxPrefixes     = 64
	unboundedLength = 256 // bytes that an expression without end is taken to be long
	maxContext      = 2048
)

// matchesAt says whether s[at:] begins so.
func (h prefix) matchesAt(s string, at int) bool {
	if at < 0 || at+len(h) > len(s) {
		return false
	}
	for i, set := range h {
		if !set.has(s[at+i]) {
			return false
		}
	}
	return true
}

// longestWord is the longest run of single characters in the head, in lower case, and where it
// stands.
func (h prefix) longestWord() (word string, at int) {
	var run []byte
	for i := 0; i <= len(h); i++ {
		if i < len(h) {
			if c := h[i].char; c != 0 {
				run = append(run, c)
				continue
			}
		}
		if len(run) > len(word) {
			word, at = string(run), i-len(run)
		}
		run = run[:0]
	}
	return word, at
}

// prefixParser reads regular expressions. Sets that are the same are one.
type prefixParser struct{ sets map[[4]uint64]*byteSet }

func (x *prefixParser) intern(s byteSet) *byteSet {
	if x.sets == nil {
		x.sets = make(map[[4]uint64]*byteSet)
	}
	if x.sets[s.bits] == nil {
		s.char = s.singleChar()
		x.sets[s.bits] = &s
	}
	return x.sets[s.bits]
}

// partialPrefix is a head in the making; closed when nothing is known of what comes next.
type partialPrefix struct {
	sets   prefix
	closed bool
}

// prefixes are the ways in which a match of the expression begins. What looks behind or ahead is
// left out: more fits than matches, and never less, but for the two characters beyond ASCII that
// are "k" and "s" without regard to case.
func (x *prefixParser) prefixes(re *syntax.Regexp) []prefix {
	var heads []prefix
	for _, b := range x.extend([]partialPrefix{{}}, re) {
		heads = append(heads, b.sets)
	}
	return heads
}

// extend makes all longer, in place, by what the expression begins with.
func (x *prefixParser) extend(all []partialPrefix, re *syntax.Regexp) []partialPrefix {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText,
		syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return all
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			var s byteSet
			if r >= utf8.RuneSelf {
				return closeAll(all)
			}
			s.add(byte(r))
			if l := lower(byte(r)); re.Flags&syntax.FoldCase != 0 && l >= 'a' && l <= 'z' {
				s.add(l)
				s.add(l - 'a' + 'A')
			}
			all = x.appendSet(all, s)
		}
		return all
	case syntax.OpCharClass:
		s, ascii := classSet(re)
		if !ascii {
			return closeAll(all)
		}
		return x.appendSet(all, s)
	case syntax.OpCapture:
		return x.extend(all, re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			all = x.extend(all, sub)
		}
		return all
	case syntax.OpAlternate:
		return x.extendEach(all, re.Sub)
	case syntax.OpQuest:
		return x.extendEach(all, []*syntax.Regexp{re.Sub[0], {Op: syntax.OpEmptyMatch}})
	case syntax.OpPlus:
		return closeAll(x.extend(all, re.Sub[0]))
	case syntax.OpRepeat:
		for range min(re.Min, maxPrefixLength) {
			all = x.extend(all, re.Sub[0])
		}
		if re.Max == re.Min {
			return all
		}
	}
	return closeAll(all)
}

// extendEach extends all by each of the expressions.
func (x *prefixParser) extendEach(all []partialPrefix, subs []*syntax.Regexp) []partialPrefix {
	var each []partialPrefix
	for _, sub := range subs {
		if len(each)+len(all) > maxPrefixes {
			return closeAll(all)
		}
		branch := make([]partialPrefix, len(all))
		for i, b := range all {
			branch[i] = partialPrefix{slices.Clone(b.sets), b.closed}
		}
		each = append(each, x.extend(branch, sub)...)
	}
	return each
}

func (x *prefixParser) appendSet(all []partialPrefix, s byteSet) []partialPrefix {
	kept := x.intern(s)
	for i := range all {
		if b := &all[i]; len(b.sets) == maxPrefixLength {
			b.closed = true
		} else if !b.closed {
			b.sets = append(b.sets, kept)
		}
	}
	return all
}

func closeAll(all []partialPrefix) []partialPrefix {
	for i := range all {
		all[i].closed = true
	}
	return all
}

// classSet is a class as a set. ascii says that it holds nothing else, "k" and "s" without regard
// to case apart.
func classSet(re *syntax.Regexp) (s byteSet, ascii bool) {
	for i := 0; i < len(re.Rune); i += 2 {
		for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
			switch {
			case r < utf8.RuneSelf:
				s.add(byte(r))
			case r != 'ſ' && r != '\u212A':
				return s, false
			}
		}
	}
	return s, true
}

// maxMatchLength is how many bytes a match of the expression has at most, as far as that is known.
func maxMatchLength(re *syntax.Regexp) (n int) {
	switch re.Op {
	case syntax.OpLiteral:
		n = len(string(re.Rune))
	case syntax.OpCharClass:
		n = utf8.UTFMax
		if _, ascii := classSet(re); ascii {
			n = 1
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n = utf8.UTFMax
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			n += maxMatchLength(sub)
		}
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			n = max(n, maxMatchLength(sub))
		}
	case syntax.OpCapture, syntax.OpQuest:
		n = maxMatchLength(re.Sub[0])
	case syntax.OpRepeat:
		if n = unboundedLength; re.Max >= 0 {
			n = re.Max * maxMatchLength(re.Sub[0])
		}
	case syntax.OpStar, syntax.OpPlus:
		n = unboundedLength
	}
	return min(n, maxContext)
}

// parseRegex is the syntax of an expression, as package regexp reads it.
func parseRegex(expr string) (*syntax.Regexp, error) { return syntax.Parse(expr, syntax.Perl) }

// splitAssignment takes an expression of gitleaks' for "name = value" apart:
// (?i)[\w.-]{0,50}?(?:names)…operator…value. ok is false for another one.
func splitAssignment(expr string) (names, value string, ok bool) {
	_, rest, found := cutLast(expr, nameStart)
	if !found {
		return "", "", false
	}
	names, rest, found = strings.Cut(rest, nameEnd)
	if !found {
		return "", "", false
	}
	rest = strings.TrimPrefix(rest, ")")
	if value, found = strings.CutPrefix(rest, assignOperator+valueStart); !found {
		return "", "", false
	}
	if strings.HasPrefix(expr, "(?i)") {
		value = "(?i)" + value
	}
	return "(?i)" + names, value, true
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
