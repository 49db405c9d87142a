package secrets

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// set is a set of bytes.
type set struct {
	bits [4]uint64
	// the one letter or other character that it holds, in lower case; 0 when it holds others
	one byte
}

func (s *set) add(c byte)      { s.bits[c>>6] |= 1 << (c & 63) }
func (s *set) has(c byte) bool { return s.bits[c>>6]&(1<<(c&63)) != 0 }

// character is what one is to be.
func (s *set) character() (one byte) {
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

// head is how the text of a match begins: its first bytes, each one of a set. A regular expression
// has several when it begins in several ways; each of its matches fits one.
type head []*set

const (
	longestHead = 160
	mostHeads   = 64
	longestTail = 256 // bytes that an expression without end is taken to be long
	longest     = 2048
)

// fits says whether s[at:] begins so.
func (h head) fits(s string, at int) bool {
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

// word is the longest run of single characters in the head, in lower case, and where it stands.
func (h head) word() (word string, at int) {
	var run []byte
	for i := 0; i <= len(h); i++ {
		if i < len(h) {
			if c := h[i].one; c != 0 {
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

// shapes reads regular expressions. Sets that are the same are one.
type shapes struct{ sets map[[4]uint64]*set }

func (x *shapes) set(s set) *set {
	if x.sets == nil {
		x.sets = make(map[[4]uint64]*set)
	}
	if x.sets[s.bits] == nil {
		s.one = s.character()
		x.sets[s.bits] = &s
	}
	return x.sets[s.bits]
}

// beginning is a head in the making; closed when nothing is known of what comes next.
type beginning struct {
	head   head
	closed bool
}

// heads are the ways in which a match of the expression begins. What looks behind or ahead is left
// out: more fits than matches, and never less, but for the two characters beyond ASCII that are "k"
// and "s" without regard to case.
func (x *shapes) heads(re *syntax.Regexp) []head {
	var heads []head
	for _, b := range x.extend([]beginning{{}}, re) {
		heads = append(heads, b.head)
	}
	return heads
}

// extend makes all longer, in place, by what the expression begins with.
func (x *shapes) extend(all []beginning, re *syntax.Regexp) []beginning {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText,
		syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return all
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			var s set
			if r >= utf8.RuneSelf {
				return closed(all)
			}
			s.add(byte(r))
			if l := lower(byte(r)); re.Flags&syntax.FoldCase != 0 && l >= 'a' && l <= 'z' {
				s.add(l)
				s.add(l - 'a' + 'A')
			}
			all = x.push(all, s)
		}
		return all
	case syntax.OpCharClass:
		s, ascii := classOf(re)
		if !ascii {
			return closed(all)
		}
		return x.push(all, s)
	case syntax.OpCapture:
		return x.extend(all, re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			all = x.extend(all, sub)
		}
		return all
	case syntax.OpAlternate:
		return x.either(all, re.Sub)
	case syntax.OpQuest:
		return x.either(all, []*syntax.Regexp{re.Sub[0], {Op: syntax.OpEmptyMatch}})
	case syntax.OpPlus:
		return closed(x.extend(all, re.Sub[0]))
	case syntax.OpRepeat:
		for range min(re.Min, longestHead) {
			all = x.extend(all, re.Sub[0])
		}
		if re.Max == re.Min {
			return all
		}
	}
	return closed(all)
}

// either extends all by each of the expressions.
func (x *shapes) either(all []beginning, subs []*syntax.Regexp) []beginning {
	var each []beginning
	for _, sub := range subs {
		if len(each)+len(all) > mostHeads {
			return closed(all)
		}
		branch := make([]beginning, len(all))
		for i, b := range all {
			branch[i] = beginning{slices.Clone(b.head), b.closed}
		}
		each = append(each, x.extend(branch, sub)...)
	}
	return each
}

func (x *shapes) push(all []beginning, s set) []beginning {
	kept := x.set(s)
	for i := range all {
		if b := &all[i]; len(b.head) == longestHead {
			b.closed = true
		} else if !b.closed {
			b.head = append(b.head, kept)
		}
	}
	return all
}

func closed(all []beginning) []beginning {
	for i := range all {
		all[i].closed = true
	}
	return all
}

// classOf is a class as a set. ascii says that it holds nothing else, "k" and "s" without regard to
// case apart.
func classOf(re *syntax.Regexp) (s set, ascii bool) {
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

// reach is how many bytes a match of the expression has at most, as far as that is known.
func reach(re *syntax.Regexp) (n int) {
	switch re.Op {
	case syntax.OpLiteral:
		n = len(string(re.Rune))
	case syntax.OpCharClass:
		n = utf8.UTFMax
		if _, ascii := classOf(re); ascii {
			n = 1
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n = utf8.UTFMax
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			n += reach(sub)
		}
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			n = max(n, reach(sub))
		}
	case syntax.OpCapture, syntax.OpQuest:
		n = reach(re.Sub[0])
	case syntax.OpRepeat:
		if n = longestTail; re.Max >= 0 {
			n = re.Max * reach(re.Sub[0])
		}
	case syntax.OpStar, syntax.OpPlus:
		n = longestTail
	}
	return min(n, longest)
}

// parse is the syntax of an expression, as package regexp reads it.
func parse(expr string) (*syntax.Regexp, error) { return syntax.Parse(expr, syntax.Perl) }

// assignment takes an expression of gitleaks' for "name = value" apart:
// (?i)[\w.-]{0,50}?(?:names)…operator…value. ok is false for another one.
func assignment(expr string) (names, value string, ok bool) {
	_, rest, found := cutLast(expr, leading)
	if !found {
		return "", "", false
	}
	names, rest, found = strings.Cut(rest, between)
	if !found {
		return "", "", false
	}
	rest = strings.TrimPrefix(rest, ")")
	if value, found = strings.CutPrefix(rest, operator+opening); !found {
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
