package secrets

import (
	"context"
	"strings"
)

// span is the part text[from:to] of a text.
type span struct{ from, to int }

func (s span) substring(text string) string { return text[s.from:s.to] }

// detection is a secret in a text.
type detection struct {
	rule string
	span span
	weak bool // the detection of a more specific rule in the same place is preferred
}

// minTextLength is the length of the shortest text, in bytes, that is searched.
const minTextLength = 8

// find appends the secrets in s to found. When ctx ends, it returns early with part of the secrets.
func (set *ruleset) find(ctx context.Context, s string, found []detection) []detection {
	if len(s) < minTextLength {
		return found
	}
	var windows windowSet
	var searched map[*rule]int // the index up to which each rule's finder has searched s
	set.words.scan(s, func(begin, end int, word int32) bool {
		for i := range set.anchors[word] {
			a := &set.anchors[word][i]
			r := a.rule
			at, ok := a.window(s, begin, end)
			switch {
			case !ok || r.finder != nil && begin < searched[r]:
				continue
			case r.finder == nil:
				windows.add(window{r, at})
				continue
			case ctx.Err() != nil:
				return false
			}
			secrets, until := r.finder(s, begin)
			if searched == nil {
				searched = make(map[*rule]int)
			}
			searched[r] = until
			for _, secret := range secrets {
				if !set.isAllowed(r, s, secret, secret) {
					found = append(found, detection{r.id, secret, r.isGeneric()})
				}
			}
		}
		return true
	})
	for _, w := range windows.windows {
		if ctx.Err() != nil {
			return found
		}
		found = set.matchWindow(ctx, s, w, found)
	}
	return found
}

// window is a part of a text that is matched against the regex of a rule.
type window struct {
	rule *rule
	span
}

// The greatest lengths of windows, in bytes.
const (
	maxJoinedWindow = 2048     // of overlapping windows that are joined to one
	maxWindow       = 64 << 10 // of a window that grows because a match goes on beyond it
)

// windowSet is the windows of one text. Overlapping windows of one rule are joined, so that no part
// of the text is matched more than a few times for a rule.
type windowSet struct {
	windows []window
	last    map[*rule]int // the index in windows of each rule's last window
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

// window returns the part of s to match against the rule's regex. The anchor's word is at
// s[begin:end]. ok is false if no match can hold this word, or be near it.
func (a *anchor) window(s string, begin, end int) (w span, ok bool) {
	r := a.rule
	switch start := begin - a.offset; a.kind {
	case matchStart:
		return clampSpan(s, start-1, start+r.maxLength+1), a.prefix.matchesAt(s, start) &&
			(r.precededBy == "" || isPrecededBy(s, start, r.precededBy))
	case assignedName:
		if !a.prefix.matchesAt(s, start) {
			return span{}, false
		}
		value, ok := r.findValue(s, start+len(a.prefix))
		return clampSpan(s, start-maxBeforeName, value+r.maxLength+1), ok
	}
	return clampSpan(s, begin-r.keywordRadius, end+r.keywordRadius), true
}

// maxBeforeName is how many bytes a window has before the name of an assignment: more than
// nameStart can match.
const maxBeforeName = 52

func clampSpan(s string, from, to int) span { return span{max(from, 0), min(to, len(s))} }

// isPrecededBy reports whether word is in the line of s[at] or in the five lines before it.
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

// matchWindow appends the matches of the window's rule to found. A match that reaches the window's
// end may go on beyond it, so the window is doubled and matched again. A window of maxWindow bytes
// is not doubled. Instead, a secret at its end is extended over all following bytes that a value
// may have.
func (set *ruleset) matchWindow(ctx context.Context, s string, w window,
	found []detection) []detection {
	re := w.rule.regex()
	before := len(found)
	for ctx.Err() == nil {
		grown := false
		for _, m := range re.FindAllStringSubmatchIndex(w.substring(s), -1) {
			reachesEnd := m[1] == w.to-w.from && w.to < len(s)
			if reachesEnd && w.to-w.from < maxWindow {
				w.to, grown = min(len(s), w.to+(w.to-w.from)), true
				break
			}
			if m[0] == 0 && w.from > 0 {
				continue // the match may begin before the window; then another window has it
			}
			match := span{w.from + m[0], w.from + m[1]}
			secret := trimQuotes(s, secretSpan(w.rule.secretGroup, m, w.from))
			for w.rule.isGeneric() && secret.from < secret.to && s[secret.to-1] == '.' {
				secret.to-- // the end of a sentence
			}
			for reachesEnd && secret.to < len(s) &&
				byteClasses[s[secret.to]]&(wordByte|valueByte) != 0 {
				secret.to++
			}
			if secret.from == secret.to || set.isAllowed(w.rule, s, match, secret) ||
				w.rule.readsName && !w.rule.acceptsAssignment(s, match, secret) {
				continue
			}
			found = append(found, detection{w.rule.id, secret, w.rule.isGeneric()})
		}
		if !grown {
			return found
		}
		found = found[:before]
	}
	return found
}

// acceptsAssignment reports whether the match of an assignment may be one of a secret of the rule.
// The generic rule needs a name for secrets. The other rules need the name of their service, and
// accept every name but those of cursors, attributes and data. After a comma, the value must be in
// quotes, since a comma is also in prose.
func (r *rule) acceptsAssignment(s string, match, secret span) bool {
	name := s[match.from:max(match.from, secret.from)]
	if n := strings.IndexAny(name, "=>:|?,"); n >= 0 {
		if name[n] == ',' && strings.IndexByte("\"'`", name[len(name)-1]) < 0 {
			return false
		}
		name = name[:n]
	}
	kind := classifyName(strings.Trim(name, " \t\r\n'\"\\.-"))
	return kind == secretName || kind == unknownName && !r.isGeneric()
}

// secretSpan returns the span of the secret in a match: see [rule.secretGroup]. m holds the
// indexes of the match and its groups, which are relative to from.
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

// trimQuotes returns the span without the blanks and quotes around a secret.
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

// isAllowed reports whether a match of the rule is no secret: it has too little entropy, or an
// allow list of the rule or of all rules accepts it.
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
