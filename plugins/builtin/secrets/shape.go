package secrets

import (
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// set is a set of bytes.
type set [4]uint64

func (s *set) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *set) has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }

// letter is the one letter or other character that s holds, in lower case; ok is false when it holds others.
func (s *set) letter() (c byte, ok bool) {
	for b := range utf8.RuneSelf {
		if !s.has(byte(b)) {
			continue
		}
		l := lower(byte(b))
		if ok && l != c {
			return 0, false
		}
		c, ok = l, true
	}
	return c, ok
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// head is how the text of a match begins: its first bytes, each one of a set. A regular expression has several when it begins in several ways; each of its matches fits one.
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
			if c, ok := h[i].letter(); ok {
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
type shapes struct{ sets map[set]*set }

func (x *shapes) set(s set) *set {
	if x.sets == nil {
		x.sets = make(map[set]*set)
	}
	if x.sets[s] == nil {
		x.sets[s] = &s
	}
	return x.sets[s]
}

// beginning is a head in the making; closed when nothing is known of what comes next.
type beginning struct {
	head   head
	closed bool
}

// heads are the ways in which a match of the expression begins. What looks behind or ahead is left out: more fits than matches, and never less, but for the two characters beyond
// ASCII that are "k" and "s" without regard to case.
func (x *shapes) heads(re *syntax.Regexp) []head {
	var heads []head
	for _, b := range x.extend([]beginning{{}}, re) {
		heads = append(heads, b.head)
	}
	return heads
}

func (x *shapes) extend(all []beginning, re *syntax.Regexp) []beginning {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
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
		each = append(each, x.extend(all, sub)...)
		if len(each) > mostHeads {
			return closed(all)
		}
	}
	return each
}

func (x *shapes) push(all []beginning, s set) []beginning {
	pushed := make([]beginning, len(all))
	for i, b := range all {
		if b.closed = b.closed || len(b.head) == longestHead; !b.closed {
			b.head = append(b.head[:len(b.head):len(b.head)], x.set(s))
		}
		pushed[i] = b
	}
	return pushed
}

func closed(all []beginning) []beginning {
	done := make([]beginning, len(all))
	for i, b := range all {
		done[i] = beginning{b.head, true}
	}
	return done
}

// classOf is a class as a set. ascii says that it holds nothing else, "k" and "s" without regard to case apart.
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

// assignment takes an expression of gitleaks' for "name = value" apart: (?i)[\w.-]{0,50}?(?:names)…operator…value. ok is false for another one.
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
