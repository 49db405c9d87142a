package injection

import (
	"cmp"
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"gatekit/plugins/sdk/scan/eight"
)

// normalizedText is a text in the form in which its words are looked up: in lower case (except for
// ASCII letters), with compatibility forms and accents resolved, and without invisible characters.
type normalizedText struct {
	text    string
	offsets []offsetEntry // in order; nil if text is the original
}

// offsetEntry maps an offset in the normalized text (at) to the offset in the original (from). The
// bytes after these offsets correspond one to one, up to the next entry.
type offsetEntry struct{ at, from int32 }

// originalOffset returns the offset in the original text that corresponds to the offset i in the
// normalized text.
func (p normalizedText) originalOffset(i int) int {
	n, found := slices.BinarySearchFunc(p.offsets, i, func(m offsetEntry, i int) int {
		return cmp.Compare(int(m.at), i)
	})
	if !found {
		n--
	}
	if n < 0 {
		return i
	}
	return int(p.offsets[n].from) + i - int(p.offsets[n].at)
}

// normalize returns the normalized text of s. ASCII letters keep their case, since the lexicon
// ignores it and some marks are written in capitals only.
func normalize(s string) normalizedText {
	i := eight.ASCIIPrefix(s)
	if i == len(s) {
		return normalizedText{text: s}
	}
	b := append(make([]byte, 0, len(s)+16), s[:i]...)
	var offsets []offsetEntry
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		before := len(b)
		switch {
		case isIndicSign(r):
			b = append(b, s[i:i+n]...)
		case isInvisible(r) || unicode.Is(unicode.Mn, r):
		case r == '’' || r == 'ʼ' || r == '‘':
			b = append(b, '\'')
		case isIdeographic(r) || r >= 0xac00 && r <= 0xd7a3:
			b = append(b, s[i:i+n]...)
		default:
			b = appendNormalized(b, r)
		}
		i += n
		if len(b)-before != n {
			offsets = append(offsets, offsetEntry{int32(len(b)), int32(i)})
		}
		more := eight.ASCIIPrefix(s[i:])
		b = append(b, s[i:i+more]...)
		i += more
	}
	return normalizedText{string(b), offsets}
}

// appendNormalized appends r decomposed and without accents, in lower case except for ASCII
// letters: a fullwidth capital is appended as the ASCII capital.
func appendNormalized(b []byte, r rune) []byte {
	// Capitals in squares and circles; not all of them have a decomposition.
	if r >= 0x1f130 && r <= 0x1f189 {
		return append(b, byte('A'+(r-0x1f130)%32%26))
	}
	if d := norm.NFKD.PropertiesString(string(r)).Decomposition(); d != nil {
		for _, r := range string(d) {
			if r >= utf8.RuneSelf {
				r = unicode.ToLower(r)
			}
			if !unicode.Is(unicode.Mn, r) || isIndicSign(r) {
				b = utf8.AppendRune(b, r)
			}
		}
		return b
	}
	return utf8.AppendRune(b, unicode.ToLower(r))
}

// isIdeographic reports whether r is of a script that does not separate words by spaces.
func isIdeographic(r rune) bool {
	return r >= 0x3041 && r <= 0x30ff || r >= 0x3400 && r <= 0x9fff || r >= 0xf900 && r <= 0xfaff ||
		r >= 0x20000 && r <= 0x323af
}

// isIndicSign reports whether r is a mark of an Indic script that a word cannot do without, such as
// a vowel. A dot below a letter (nukta) is often left out, and does not count.
func isIndicSign(r rune) bool {
	return r >= 0x0900 && r <= 0x0dff && r != 0x093c && unicode.IsMark(r)
}
