package policies

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"gatekit/core/uris"

	"golang.org/x/text/unicode/norm"
)

// canDecodeToTraversal reports whether a text, or any text in JSON, can have a decoding with a
// traversal or a NUL character; see decodeOnce. It reads the text once, and is fast.
//
// It returns false only if all of this holds. Each step of decodeOnce keeps it true, so no decoding
// of the text has a segment "..".
//
//   - There is no NUL character and no percent escape.
//   - Behind "..", and the dots, blanks and quotes that follow it, is neither a slash, a backslash,
//     a semicolon nor the end of the text. The steps remove parameters, which begin with a
//     semicolon, and trim blanks and quotes at the ends. They remove "../" only where it stands.
//   - The text is valid UTF-8, and its other characters stand for none of these characters.
//
// JSON must be valid. With a \u escape in it, the result is true.
func canDecodeToTraversal(text []byte, isJSON bool) bool {
	s := traversalScan{text: text, isJSON: isJSON, isLong: len(text) > maxTextBytes}
	escape, escaped := byte(0), byte(0) // NUL in a text, \u in JSON
	if isJSON {
		escape, escaped = '\\', 'u'
	}
	i := 0
	for ; i+scanBytes < len(text); i += scanBytes {
		if !hasPairs((*[scanBytes + 1]byte)(text[i:]), ones*uint64(escape), ones*uint64(escaped)) {
			continue
		}
		for at := i; at < i+scanBytes; at++ {
			if s.isSuspicious(at) {
				return true
			}
		}
	}
	for ; i < len(text); i++ {
		if s.isSuspicious(i) {
			return true
		}
	}
	return false
}

const (
	scanBytes = 16 // that hasPairs compares
	ones      = 0x0101010101010101
	highBits  = ones << 7
)

// hasPairs reports whether one of the bytes, except the last, is a percent sign, is not ASCII, is a
// dot before a dot, or is escape before escaped. If escaped is 0, any byte may follow escape. The
// parameters escape and escaped have their byte eight times.
func hasPairs(b *[scanBytes + 1]byte, escape, escaped uint64) bool {
	x, y := binary.LittleEndian.Uint64(b[0:8]), binary.LittleEndian.Uint64(b[8:16])
	nextX, nextY := binary.LittleEndian.Uint64(b[1:9]), binary.LittleEndian.Uint64(b[9:17])
	var pairX, pairY uint64
	if escaped != 0 {
		pairX, pairY = nextX^escaped, nextY^escaped
	}
	pairX, pairY = pairX|(x^escape), pairY|(y^escape)
	dotsX, dotsY := (x^ones*'.')|(nextX^ones*'.'), (y^ones*'.')|(nextY^ones*'.')
	percentX, percentY := x^ones*'%', y^ones*'%'
	// Each of these has a high bit if one of its eight bytes is 0.
	return (x|y|(pairX-ones)&^pairX|(pairY-ones)&^pairY|(dotsX-ones)&^dotsX|(dotsY-ones)&^dotsY|
		(percentX-ones)&^percentX|(percentY-ones)&^percentY)&highBits != 0
}

// traversalScan is the state of canDecodeToTraversal.
type traversalScan struct {
	text           []byte
	isJSON, isLong bool
	mapped         int // number of characters for which isHarmlessRune was called
}

// maxMappedRunes bounds the characters whose compatibility forms are computed, which is slow.
const maxMappedRunes = 100

// isSuspicious reports whether the byte at an offset, with those after it, breaks a condition of
// canDecodeToTraversal.
func (s *traversalScan) isSuspicious(at int) bool {
	switch c := s.text[at]; {
	case c == 0:
		return true
	case c == '%':
		return hasHexDigits(s.text[at+1:], 2) ||
			at+1 < len(s.text) && s.text[at+1] == 'u' && hasHexDigits(s.text[at+2:], 4)
	case c == '\\':
		return s.isJSON && at+1 < len(s.text) && s.text[at+1] == 'u'
	case c == '.':
		return at+1 < len(s.text) && s.text[at+1] == '.' && s.mayBeParent(at)
	case c < utf8.RuneSelf, !utf8.RuneStart(c) && s.follows(at):
		return false
	}
	r, size := utf8.DecodeRune(s.text[at:])
	switch {
	case r == utf8.RuneError && size < 2:
		return true
	case isOrdinaryRune(r):
		return false
	}
	s.mapped++
	return s.mapped > maxMappedRunes || !isHarmlessRune(r) ||
		s.isLong && lookAlikes.Replace(string(r)) != string(r)
}

// follows reports whether the byte at an offset, which begins no character, belongs to a character
// that begins before it.
func (s *traversalScan) follows(at int) bool {
	for start := at - 1; start >= max(0, at-utf8.UTFMax+1); start-- {
		if utf8.RuneStart(s.text[start]) {
			_, size := utf8.DecodeRune(s.text[start:])
			return start+size > at
		}
	}
	return false
}

// mayBeParent reports whether the ".." at an offset may become a segment by a decoding.
func (s *traversalScan) mayBeParent(at int) bool {
	if s.isLong && at > 0 && (s.text[at-1] == '/' || s.text[at-1] == '\\') {
		return true // see ambiguousPath, which applies to long texts
	}
	for at += 2; at < len(s.text); at++ {
		switch c := s.text[at]; c {
		case '.', ' ', '\t', '\n', '\v', '\f', '\r', '\'':
		case '"':
			if s.isJSON {
				return true // the end of the string
			}
		case '\\':
			if !s.isJSON || at+1 == len(s.text) {
				return true
			}
			at++
			if escaped := s.text[at]; strings.IndexByte(`tnfr"`, escaped) < 0 {
				return escaped != 'b'
			}
		case '/', ';':
			return true
		default:
			return false
		}
	}
	return true
}

// hasHexDigits reports whether a text begins with n hexadecimal digits.
func hasHexDigits(text []byte, n int) bool {
	if len(text) < n {
		return false
	}
	for _, c := range text[:n] {
		if ('0' > c || c > '9') && ('a' > c|0x20 || c|0x20 > 'f') {
			return false
		}
	}
	return true
}

// isOrdinaryRune reports whether a character is one of those frequent ones that isHarmlessRune
// accepts.
func isOrdinaryRune(r rune) bool {
	switch {
	case 0xc0 <= r && r <= 0x131, // Latin
		0x391 <= r && r <= 0x3c9 && r != 0x3a2, // Greek
		0x400 <= r && r <= 0x52f,               // Cyrillic
		0x5d0 <= r && r <= 0x5ea,               // Hebrew
		0x620 <= r && r <= 0x64a,               // Arabic
		0x904 <= r && r <= 0x939,               // Devanagari
		0x2012 <= r && r <= 0x2016,             // dashes
		0x2018 <= r && r <= 0x2022,             // quotation marks, bullets
		0x2190 <= r && r <= 0x21ff,             // arrows
		0x2500 <= r && r <= 0x25ff,             // lines and shapes
		0x3001 <= r && r <= 0x3029,             // punctuation of Chinese and Japanese
		0x3041 <= r && r <= 0x3096,             // Hiragana
		0x30a1 <= r && r <= 0x30fe,             // Katakana
		0x4e00 <= r && r <= 0x9fff,             // Chinese
		0xac00 <= r && r <= 0xd7a3,             // Korean
		0x1f300 <= r && r <= 0x1faff:           // pictograms
		return true
	}
	return false
}

// isHarmlessRune reports whether a character that is not ASCII stays the same in decodeOnce, or
// becomes punctuation that means nothing in paths. It must not be a blank: blanks are trimmed.
func isHarmlessRune(r rune) bool {
	text := string(r)
	decoded := lookAlikes.Replace(norm.NFKC.String(text))
	return !uris.IsBlank(r) && (decoded == text || len(decoded) == 1 &&
		strings.Contains("!#$&()*+,-:<=>?@[]^_{|}", decoded))
}
