package pii

import (
	"sort"
	"strings"
	"unicode/utf8"

	"gatekit/plugins/sdk/scan"
	"gatekit/plugins/sdk/scan/eight"
)

// offsetMap maps indexes in a folded text to indexes in the original text. It is nil if both texts
// are the same.
type offsetMap []offsetEntry

// offsetEntry applies to the folded text from the index at on, until the next entry: the folded
// byte at i was at i+offset in the original text.
type offsetEntry struct {
	at, offset int
	// replaced means that the folded byte at-1 replaces a rune. If false, a rune was removed there.
	replaced bool
}

// original returns the span of the original text that was folded to s.
func (p offsetMap) original(s scan.Span) scan.Span {
	if len(p) == 0 {
		return s
	}
	// An entry at s.To applies to the text after the span, so the last byte of the span decides.
	return scan.Span{From: s.From + p.offsetAt(s.From),
		To: s.To - 1 + p.offsetAt(s.To-1) + p.width(s.To-1)}
}

// offsetAt returns the offset of the folded byte at i.
func (p offsetMap) offsetAt(i int) int {
	n := sort.Search(len(p), func(n int) bool { return p[n].at > i })
	if n == 0 {
		return 0
	}
	return p[n-1].offset
}

// width returns how many bytes of the original were folded to the byte at i.
func (p offsetMap) width(i int) int {
	n := sort.Search(len(p), func(n int) bool { return p[n].at > i })
	if n < len(p) && p[n].at == i+1 && p[n].replaced {
		return 1 + p[n].offset - p.offsetAt(i)
	}
	return 1
}

// fold returns s with spaces, hyphens, digits and letters that look like ASCII replaced by ASCII,
// and without invisible characters.
func fold(s string) (string, offsetMap) {
	i := eight.ASCIIPrefix(s)
	if i == len(s) {
		return s, nil
	}
	var (
		b    strings.Builder
		p    offsetMap
		from int // the start of the part of s that is not yet in b
	)
	for i < len(s) {
		if s[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		to, ok := foldRune(r)
		if !ok {
			i += n
			continue
		}
		b.WriteString(s[from:i])
		if to != 0 {
			b.WriteByte(to)
		}
		i += n
		from = i
		p = append(p, offsetEntry{at: b.Len(), offset: i - b.Len(), replaced: to != 0})
	}
	if p == nil {
		return s, nil
	}
	b.WriteString(s[from:])
	return b.String(), p
}

// scriptZeros are the zeros of other scripts. The other nine digits of a script follow its zero.
var scriptZeros = []rune{0x660, 0x6F0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6,
	0xD66, 0xE50, 0xED0}

// foldRune returns the ASCII byte that r is folded to, or 0 if r is removed. ok is false if r
// stays.
func foldRune(r rune) (to byte, ok bool) {
	switch {
	case r > 0xAD && r < 0x660, r > 0x3000 && r < 0xFE58: // most letters beyond ASCII
		return 0, false
	case r == 0xA0, r >= 0x2000 && r <= 0x200A, r == 0x202F, r == 0x205F, r == 0x3000:
		return ' ', true
	case r >= 0x2010 && r <= 0x2015, r == 0x2212, r == 0xFE58, r == 0xFE63:
		return '-', true
	case r == 0xAD, r >= 0x200B && r <= 0x200F, r >= 0x202A && r <= 0x202E,
		r >= 0x2060 && r <= 0x2064, r >= 0x2066 && r <= 0x2069, r == 0xFEFF:
		return 0, true
	case r >= 0xFF01 && r <= 0xFF5E:
		return byte(r - 0xFF01 + '!'), true
	case r >= 0x660 && r < 0xEE0:
		for _, zero := range scriptZeros {
			if r >= zero && r < zero+10 {
				return byte(r - zero + '0'), true
			}
		}
	}
	return 0, false
}
