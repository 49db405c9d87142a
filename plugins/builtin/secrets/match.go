package secrets

import (
	"math"
	"strings"
)

// span is the part of a text from byte from up to byte to.
type span struct{ from, to int }

func (s span) substring(text string) string { return text[s.from:s.to] }

// detection is a secret in a text.
type detection struct {
	rule string
	span span
	weak bool // another rule's finding in the same place is better
}

// window is a part of a text that a rule's expression is held against.
type window struct {
	rule *rule
	span
}

// maxJoinedWindow is how long windows may become when they are joined: so long that little is
// looked at twice.
const maxJoinedWindow = 2048

// find appends what the rules find in s. It stops, with what it has, when stop says so: between
// windows.
func (set *ruleset) find(s string, stop func() bool, into []detection) []detection {
	if len(s) < 8 {
		return into
	}
	var windows windowSet
	var done map[*rule]int // where its finder has been
	set.automaton.scan(s, func(end int, words []int32) bool {
		for _, w := range words {
			begin := end - set.wordLengths[w]
			for i := range set.anchors[w] {
				a := &set.anchors[w][i]
				if at, ok := a.window(s, begin, end); ok {
					if a.rule.finder != nil {
						if begin < done[a.rule] {
							continue
						}
						if stop() {
							return false
						}
						secrets, until := a.rule.finder(s, begin)
						if done == nil {
							done = make(map[*rule]int)
						}
						done[a.rule] = until
						for _, at := range secrets {
							if !set.isAllowed(a.rule, s, at, at) {
								into = append(into, detection{a.rule.id, at, false})
							}
						}
						continue
					}
					windows.add(window{a.rule, at})
				}
			}
		}
		return true
	})
	for _, w := range windows.windows {
		if stop() {
			return into
		}
		into = set.matchWindow(s, w, stop, into)
	}
	return into
}

// windowSet are what is to be looked at. Those of one rule that overlap are joined, so that no part
// of a text is looked at more than a few times for a rule.
type windowSet struct {
	windows []window
	last    map[*rule]int
}

func (all *windowSet) add(w window) {
	if n, ok := all.last[w.rule]; ok {
		if last := &all.windows[n]; w.from >= last.from && w.from <= last.to &&
			w.to-last.from <= max(maxJoinedWindow, 2*(w.to-w.from)) {
			last.to = max(last.to, w.to)
			return
		}
	} else if all.last == nil {
		all.last = make(map[*rule]int)
	}
	all.last[w.rule] = len(all.windows)
	all.windows = append(all.windows, w)
}

// window says whether the word at s[begin:end] can be of a match, and where that is.
func (a *anchor) window(s string, begin, end int) (window span, ok bool) {
	switch at := begin - a.offset; a.kind {
	case matchStart:
		return clampSpan(s, at-1, at+a.rule.maxLength+1), a.prefix.matchesAt(s, at) &&
			(a.rule.precededBy == "" ||
				isPrecededBy(s, at, a.rule.precededBy))
	case assignedName:
		if !a.prefix.matchesAt(s, at) {
			return span{}, false
		}
		value, ok := a.rule.findValue(s, at+len(a.prefix))
		return clampSpan(s, at-52, value+a.rule.maxLength+1), ok
	}
	return clampSpan(s, begin-a.rule.keywordRadius, end+a.rule.keywordRadius), true
}

// isPrecededBy says whether word stands in the six lines before at.
func isPrecededBy(s string, at int, word string) bool {
	before := s[max(0, at-maxContext):at]
	for range 6 {
		n := strings.LastIndexByte(before, '\n')
		if strings.Contains(before[n+1:], word) {
			return true
		}
		if n < 0 {
			return false
		}
		before = before[:n]
	}
	return false
}

func clampSpan(s string, from, to int) span { return span{max(from, 0), min(to, len(s))} }

// findValue says whether what follows a name that ends at i can be an assignment of a value that
// the rule is about, and where the value begins at the latest.
func (r *rule) findValue(s string, i int) (value int, ok bool) {
	for far := i + 25; i < len(s) && byteClasses[s[i]]&gapByte != 0; i++ {
		if i == far {
			return 0, false
		}
	}
	if i == len(s) || byteClasses[s[i]]&operatorByte == 0 {
		return 0, false
	}
	i++
	last := i
	for far := i + 10; last < len(s) && last < far &&
		byteClasses[s[last]]&(operatorByte|openingByte) != 0; last++ {
	}
	if r.ignoresWords && !hasNonWordByte(s, last) {
		return 0, false
	}
	for ; i <= last; i++ {
		for _, h := range r.valuePrefixes {
			if h.matchesAt(s, i) {
				return last, true
			}
		}
	}
	return 0, false
}

// hasNonWordByte says whether the run of characters at i that a value may have holds others than
// letters, and not only at its end.
func hasNonWordByte(s string, i int) bool {
	for ; i < len(s) && byteClasses[s[i]]&wordByte != 0; i++ {
	}
	return i < len(s) && byteClasses[s[i]]&valueByte != 0
}

// Classes of bytes in an assignment: see leading, between, operator and opening.
const (
	gapByte byte = 1 << iota
	operatorByte
	openingByte
	wordByte
	valueByte
)

var byteClasses = func() (of [256]byte) {
	for c := range 256 {
		c := byte(c)
		letter, digit := lower(c) >= 'a' && lower(c) <= 'z', c >= '0' && c <= '9'
		blank := c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'
		put := func(is bool, class byte) {
			if is {
				of[c] |= class
			}
		}
		quote := c == '\'' || c == '"' || c == '\\'
		put(letter || digit || blank || quote || c == '_' || c == '.' || c == '-', gapByte)
		put(c == '=' || c == '>' || c == ':' || c == '|' || c == '?' || c == ',', operatorByte)
		put(blank || quote || c == '`' || c == '=', openingByte)
		put(letter || c == '_' || c == '.' || c == '-', wordByte)
		put(digit || c == '=' || c == '+' || c == '/', valueByte)
	}
	return of
}()

// matchWindow holds the rule's expression against the window. A match that goes on beyond the
// window makes it longer; beyond farthest, a secret is taken to go on as it was.
func (set *ruleset) matchWindow(s string, w window, stop func() bool,
	into []detection) []detection {
	re := w.rule.regex()
	for !stop() {
		grown := false
		first := len(into)
		for _, m := range re.FindAllStringSubmatchIndex(w.substring(s), -1) {
			over := m[1] == w.to-w.from && w.to < len(s)
			if over && w.to-w.from < maxWindow {
				w.to, grown = min(len(s), w.to+(w.to-w.from)), true // it may go on
				break
			}
			if m[0] == 0 && w.from > 0 {
				continue // it may begin before: then another window has it
			}
			match := span{w.from + m[0], w.from + m[1]}
			secret := trimQuotes(s, secretSpan(w.rule.secretGroup, m, w.from))
			for w.rule.isGeneric() && secret.from < secret.to && s[secret.to-1] == '.' {
				secret.to-- // the end of a sentence
			}
			for over && secret.to < len(s) && byteClasses[s[secret.to]]&(wordByte|valueByte) != 0 {
				secret.to++
			}
			if secret.from == secret.to || set.isAllowed(w.rule, s, match, secret) {
				continue
			}
			into = append(into, detection{w.rule.id, secret, w.rule.isGeneric()})
		}
		if !grown {
			return into
		}
		into = into[:first]
	}
	return into
}

// maxWindow is how long a window may become because of what is found in it.
const maxWindow = 64 << 10

// secretSpan is where the secret of a match is, in bytes of the text.
func secretSpan(group int, m []int, from int) span {
	switch {
	case group > 0 && 2*group+1 < len(m):
		if m[2*group] >= 0 {
			return span{from + m[2*group], from + m[2*group+1]}
		}
	case group == 0:
		for i := 2; i+1 < len(m); i += 2 {
			if m[i] >= 0 && m[i+1] > m[i] {
				return span{from + m[i], from + m[i+1]}
			}
		}
	}
	return span{from + m[0], from + m[1]}
}

// trimQuotes leaves quotes and blanks around a secret where they are.
func trimQuotes(s string, at span) span {
	blank := func(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }
	for at.from < at.to && blank(s[at.from]) {
		at.from++
	}
	for at.to > at.from && blank(s[at.to-1]) {
		at.to--
	}
	if c := s[at.from:at.to]; len(c) > 2 && (c[0] == '"' || c[0] == '\'') && c[len(c)-1] == c[0] {
		return span{at.from + 1, at.to - 1}
	}
	return at
}

func (set *ruleset) isAllowed(r *rule, s string, match, secret span) bool {
	if r.entropy > 0 && entropy(secret.substring(s)) <= r.entropy {
		return true
	}
	for i := range set.allowlists {
		if set.allowlists[i].allows(s, match, secret) {
			return true
		}
	}
	for i := range r.allowlists {
		if r.allowlists[i].allows(s, match, secret) {
			return true
		}
	}
	return false
}

// entropy is Shannon's, in bits a byte.
func entropy(s string) (bits float64) {
	var counts [256]int
	for i := range len(s) {
		counts[s[i]]++
	}
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(s))
			bits -= p * math.Log2(p)
		}
	}
	return bits
}
