package format

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// appendVisible appends s. It replaces each unprintable character by an escape such as \n, \x1b or
// \u202e, so that no character of s can affect a terminal, end the line or change the direction of
// text. A backslash is not escaped, because the text is for people and is never decoded.
func appendVisible(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(b, fmt.Sprintf(`\x%02x`, s[i])...)
		case strconv.IsPrint(r):
			b = append(b, s[i:i+size]...)
		default:
			quoted := strconv.QuoteRune(r)
			b = append(b, quoted[1:len(quoted)-1]...)
		}
		i += size
	}
	return b
}

// Visible returns s with unprintable characters escaped, so that none of them can affect a
// terminal, end the line or change the direction of text.
func Visible(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return r == utf8.RuneError || !strconv.IsPrint(r)
	}) {
		return s
	}
	return string(appendVisible(nil, s))
}

// VisibleJSON returns a JSON text in one line, with unprintable characters escaped. The decoded
// value is the same.
func VisibleJSON(text []byte) []byte { return appendVisibleJSON(nil, text) }

// appendVisibleJSON appends a JSON text with unprintable characters escaped. Tabs and line breaks
// become spaces: in JSON, they are only between tokens, where an escape would be invalid.
func appendVisibleJSON(b, text []byte) []byte {
	unwritten := 0 // start of the text that is not appended yet
	for i := 0; i < len(text); {
		if ' ' <= text[i] && text[i] < 0x7f {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if strconv.IsPrint(r) && !(r == utf8.RuneError && size == 1) {
			i += size
			continue
		}
		b = append(b, text[unwritten:i]...)
		i += size
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			b = append(b, ' ')
		case r > 0xffff:
			r -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		unwritten = i
	}
	return append(b, text[unwritten:]...)
}
