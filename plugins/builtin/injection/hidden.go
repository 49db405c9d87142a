package injection

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"gatekit/plugins/sdk/scan"
)

// hiddenSpan is a part of a text that a human does not see and a model does, or that a terminal
// obeys.
type hiddenSpan struct {
	scan.Span
	family      family // Hidden or Terminal
	rule        string
	replacement string // what stands in its place when it is stripped
}

// findHidden answers the hidden and the control characters of s, and what is written in hidden
// ones.
func findHidden(s string) (found []hiddenSpan, secret string) {
	if plainPrefix(s) == len(s) {
		return nil, ""
	}
	var said strings.Builder
	rtl := -1 // whether s has letters that are written from right to left; -1: not known
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
			u := controlSequence(s, i)
			found = append(found, u)
			i, prev = u.To, 0
			continue
		case r == 0x1f3f4: // a black flag may be followed by the tags of a part of a country
			n = len("\U0001f3f4") + flagTagsLength(s[i+n:])
		case !isInvisible(r):
		case r >= 0xe0000 && r <= 0xe007f:
			if t := r - 0xe0000; t >= ' ' && t < 0x7f {
				said.WriteByte(byte(t))
			}
			found = appendHidden(found, i, n, "unicode-tags")
		case isVariationSelector(r):
			if isVariationAllowed(prev, r) {
				break
			}
			found = appendHidden(found, i, n, "variation-selectors")
			if b, ok := selectorByte(r); ok {
				said.WriteByte(b)
			}
		case r == 0x200d || r == 0x200c:
			if !isJoinerAllowed(prev, r, s[i+n:]) {
				found = appendHidden(found, i, n, "zero-width")
			}
		case r == 0xfeff && i == 0: // a byte order mark
		case r == 0x200b && unicode.In(prev, unicode.Thai, unicode.Lao, unicode.Khmer,
			unicode.Myanmar):
		case r == 0x200e || r == 0x200f || r == 0x061c:
			if rtl < 0 {
				rtl = 0
				if strings.IndexFunc(s, isRightToLeft) >= 0 {
					rtl = 1
				}
			}
			if rtl == 0 {
				found = appendHidden(found, i, n, "bidi")
			}
		case r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
			found = appendHidden(found, i, n, "bidi")
		case r == 0x00ad:
			found = appendHidden(found, i, n, "soft-hyphen")
		case r == 0x115f || r == 0x1160 || r == 0x3164 || r == 0xffa0:
			if isHangul(prev) || isHangul(firstRune(s[i+n:])) {
				break // a syllable with a part left out
			}
			found = appendHidden(found, i, n, "hangul-filler")
		default:
			found = appendHidden(found, i, n, "zero-width")
		}
		prev = r
		i += n
	}
	return found, said.String()
}

// appendHidden adds n bytes at i, to the last find where they follow it.
func appendHidden(found []hiddenSpan, i, n int, rule string) []hiddenSpan {
	if last := len(found) - 1; last >= 0 && found[last].To == i && found[last].rule == rule {
		found[last].To += n
		return found
	}
	return append(found, hiddenSpan{scan.Span{From: i, To: i + n}, familyHidden, rule, ""})
}

// plainPrefix is how many bytes s begins with that are ASCII and no control characters, but for
// tabs and line ends: most texts are, and need no second look.
func plainPrefix(s string) int {
	for i := range len(s) {
		if c := s[i]; c-' ' >= 0x5f && c != '\n' && c != '\t' && c != '\r' {
			return i
		}
	}
	return len(s)
}

// isInvisible says whether r has no looks of its own: default ignorable characters, and those that
// direct the writing.
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

// isVariationAllowed says whether the variation selector r may follow prev: one behind what has
// variants.
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

// selectorByte is the byte that a variation selector carries in the usual scheme: FE00 is 0, E0100
// is 16.
func selectorByte(r rune) (byte, bool) {
	if r >= 0xe0100 {
		b := byte(r - 0xe0100 + 16)
		return b, b >= ' ' && b < 0x7f
	}
	return 0, false
}

// isEmoji says whether r may begin or go on an emoji: a symbol, or one of the few others.
func isEmoji(r rune) bool {
	return r == 0xa9 || r == 0xae || r == 0x203c || r == 0x2049 || r >= 0x2100 && r <= 0x3299 &&
		unicode.In(r, unicode.So, unicode.Sm, unicode.Lo, unicode.Po, unicode.Pd, unicode.Ll) ||
		r >= 0x1f000 && r <= 0x1faff
}

// isJoinerAllowed says whether a zero width joiner or non-joiner may stand between prev and rest:
// within emoji, and in scripts that it shapes.
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

// flagTagsLength is how many bytes of s are the tags of a flag: three to six letters or digits, and
// the end.
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
