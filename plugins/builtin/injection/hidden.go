package injection

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"gatekit/plugins/sdk/scan"
	"gatekit/plugins/sdk/scan/eight"
)

// hiddenSpan is a part of a text that models read but people do not see, or that a terminal
// executes.
type hiddenSpan struct {
	scan.Span
	family      family // familyHidden or familyTerminal
	rule        string
	replacement string // the text that replaces the span for actionStrip
}

// findHidden returns the spans of s that hold hidden characters or control characters. It also
// returns the text that the hidden characters encode.
func findHidden(s string) (spans []hiddenSpan, hiddenText string) {
	hiddenText = eachHidden(s, func(h hiddenSpan) { spans = append(spans, h) })
	return spans, hiddenText
}

// eachHidden calls yield for each span of s that holds hidden characters or control characters, in
// order. It returns the text that the hidden characters encode. A large text may have millions of
// spans, so the caller should not keep all of them.
func eachHidden(s string, yield func(hiddenSpan)) (hiddenText string) {
	if plainPrefix(s) == len(s) {
		return ""
	}
	spans := spanMerger{yield: yield}
	defer spans.flush()
	var text strings.Builder
	isRTL, knowsRTL := false, false // whether s has letters that are written from right to left
	var prev rune
	for i := 0; i < len(s); {
		if n := plainPrefix(s[i:]); n > 0 {
			i += n
			prev = rune(s[i-1])
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
		case r < ' ' && r != '\t' && r != '\n' && r != '\r' || r >= 0x7f && r <= 0x9f:
			h := controlSequence(s, i)
			spans.add(h)
			i, prev = h.To, 0
			continue
		case r == 0x1f3f4: // a black flag with tags is the flag of a part of a country
			n = len("\U0001f3f4") + flagTagsLength(s[i+n:])
		case !isInvisible(r):
		case r >= 0xe0000 && r <= 0xe007f:
			if t := r - 0xe0000; t >= ' ' && t < 0x7f {
				text.WriteByte(byte(t))
			}
			spans.addHidden(i, n, "unicode-tags")
		case isVariationSelector(r):
			if isVariationAllowed(prev, r) {
				break
			}
			spans.addHidden(i, n, "variation-selectors")
			if b, ok := selectorByte(r); ok {
				text.WriteByte(b)
			}
		case r == 0x200d || r == 0x200c:
			if !isJoinerAllowed(prev, r, s[i+n:]) {
				spans.addHidden(i, n, "zero-width")
			}
		case r == 0xfeff && i == 0: // a byte order mark
		case r == 0x200b && unicode.In(prev, unicode.Thai, unicode.Lao, unicode.Khmer,
			unicode.Myanmar):
		case r == 0x200e || r == 0x200f || r == 0x061c:
			if !knowsRTL {
				isRTL, knowsRTL = strings.IndexFunc(s, isRightToLeft) >= 0, true
			}
			if !isRTL {
				spans.addHidden(i, n, "bidi")
			}
		case r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
			spans.addHidden(i, n, "bidi")
		case r == 0x00ad:
			spans.addHidden(i, n, "soft-hyphen")
		case r == 0x115f || r == 0x1160 || r == 0x3164 || r == 0xffa0:
			if isHangul(prev) || isHangul(firstRune(s[i+n:])) {
				break // a syllable without one of its parts
			}
			spans.addHidden(i, n, "hangul-filler")
		default:
			spans.addHidden(i, n, "zero-width")
		}
		prev = r
		i += n
	}
	return text.String()
}

// spanMerger calls yield for spans, after it has merged neighbouring spans of the same rule.
type spanMerger struct {
	yield   func(hiddenSpan)
	last    hiddenSpan // not yielded yet, because the next span may extend it
	hasLast bool
}

// add adds a span that is not merged with others.
func (m *spanMerger) add(h hiddenSpan) {
	m.flush()
	m.yield(h)
}

// addHidden adds a span for the n bytes at i. If the last span ends at i and has the same rule,
// addHidden extends that span instead.
func (m *spanMerger) addHidden(i, n int, rule string) {
	if m.hasLast && m.last.To == i && m.last.rule == rule {
		m.last.To += n
		return
	}
	m.flush()
	m.last = hiddenSpan{scan.Span{From: i, To: i + n}, familyHidden, rule, ""}
	m.hasLast = true
}

// flush yields the last span.
func (m *spanMerger) flush() {
	if m.hasLast {
		m.hasLast = false
		m.yield(m.last)
	}
}

// plainPrefix returns the length of the longest prefix of s in ASCII without control characters,
// except for tabs and line ends. For most texts, that is all of s.
func plainPrefix(s string) int {
	for i := 0; ; {
		if i+8 <= len(s) {
			x := eight.Load(s, i)
			flags := eight.Below(x, ' ') | eight.Equal(x, 0x7f) | eight.NonASCII(x)
			if flags == 0 {
				i += 8
				continue
			}
			i += eight.First(flags)
		}
		for i < len(s) && (s[i] >= ' ' && s[i] < 0x7f) {
			i++
		}
		if i == len(s) || s[i] != '\n' && s[i] != '\t' && s[i] != '\r' {
			return i
		}
		i++
	}
}

// isInvisible reports whether r has no glyph of its own: r is default ignorable (a property of
// Unicode), or controls the direction of writing.
func isInvisible(r rune) bool {
	switch {
	case r < 0xad:
		return false
	case r == 0xad, r == 0x34f, r == 0x61c, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5,
		r == 0x3164, r == 0xfeff, r == 0xffa0,
		r >= 0x180b && r <= 0x180f, r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e,
		r >= 0x2060 && r <= 0x206f,
		r >= 0xfe00 && r <= 0xfe0f, r >= 0xfff0 && r <= 0xfffb, r >= 0x1bca0 && r <= 0x1bca3,
		r >= 0x1d173 && r <= 0x1d17a, r >= 0xe0000 && r <= 0xe0fff:
		return true
	}
	return false
}

func isVariationSelector(r rune) bool {
	return r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef ||
		r >= 0x180b && r <= 0x180f && r != 0x180e
}

// isVariationAllowed reports whether the variation selector r may follow prev, which must be a
// character with variants.
func isVariationAllowed(prev, r rune) bool {
	switch {
	case prev == 0 || isVariationSelector(prev) || isInvisible(prev):
		return false
	case r == 0xfe0f || r == 0xfe0e:
		return prev >= '0' && prev <= '9' || prev == '#' || prev == '*' || isEmoji(prev)
	case r >= 0xe0100, r >= 0xfe00 && r <= 0xfe02 && unicode.Is(unicode.Han, prev):
		return unicode.Is(unicode.Han, prev)
	case r >= 0x180b && r <= 0x180f:
		return unicode.In(prev, unicode.Mongolian, unicode.Phags_Pa)
	}
	return r == 0xfe00 && unicode.In(prev, unicode.Sm, unicode.Myanmar, unicode.Phags_Pa)
}

// selectorByte returns the printable ASCII byte that a variation selector carries in the usual
// encoding, in which FE00 is 0 and E0100 is 16.
func selectorByte(r rune) (byte, bool) {
	if r >= 0xe0100 {
		b := byte(r - 0xe0100 + 16)
		return b, b >= ' ' && b < 0x7f
	}
	return 0, false
}

// isEmoji reports whether r may be part of an emoji. Most such characters are symbols; a few are
// letters or punctuation.
func isEmoji(r rune) bool {
	return r == 0xa9 || r == 0xae || r == 0x203c || r == 0x2049 || r >= 0x2100 && r <= 0x3299 &&
		unicode.In(r, unicode.So, unicode.Sm, unicode.Lo, unicode.Po, unicode.Pd, unicode.Ll) ||
		r >= 0x1f000 && r <= 0x1faff
}

// isJoinerAllowed reports whether r, a zero-width joiner or non-joiner, may stand between prev and
// rest: within an emoji, or in a script whose letters r shapes.
func isJoinerAllowed(prev, r rune, rest string) bool {
	next := firstRune(rest)
	if r == 0x200d && (isEmoji(prev) || prev == 0xfe0f) {
		return isEmoji(next)
	}
	return isShapedScript(prev) && (isShapedScript(next) || r == 0x200d || next == ' ')
}

func isShapedScript(r rune) bool {
	return r >= 0x600 && unicode.In(r, unicode.Arabic, unicode.Syriac, unicode.Mongolian,
		unicode.Nko, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati,
		unicode.Oriya, unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam,
		unicode.Sinhala, unicode.Khmer, unicode.Myanmar, unicode.Tibetan)
}

func isRightToLeft(r rune) bool {
	return r >= 0x590 && unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac,
		unicode.Thaana, unicode.Nko)
}

func isHangul(r rune) bool {
	return r != 0x115f && r != 0x1160 && r != 0x3164 && r != 0xffa0 && unicode.Is(unicode.Hangul, r)
}

// flagTagsLength returns how many bytes at the beginning of s are the tags of a flag: three to six
// letters or digits, and the cancel tag.
func flagTagsLength(s string) int {
	n := 0
	for i, r := range s {
		switch t := r - 0xe0000; {
		case t == 0x7f && n >= 3:
			return i + utf8.RuneLen(r)
		case n < 6 && (t >= 'a' && t <= 'z' || t >= '0' && t <= '9'):
			n++
		default:
			return 0
		}
	}
	return 0
}

func firstRune(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}
