// Package display makes text that a peer chose fit for error messages, log lines and reasons: valid
// UTF-8, of bounded length and, when it is quoted, without characters that a terminal would act on.
package display

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Clip returns text as valid UTF-8. Text longer than limit bytes is cut between two characters and
// ends in "…", which comes on top of the limit.
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return strings.ToValidUTF8(text[:limit], "\uFFFD") + "…"
}

// Quote returns text clipped to limit bytes, in double quotes, with everything that is not
// printable escaped as in a Go string literal.
func Quote(text string, limit int) string { return strconv.Quote(Clip(text, limit)) }

// EscapeLine returns text clipped to limit bytes, on one line: everything that is not printable,
// such as line breaks, control characters and marks that change the direction of text, is escaped
// as in a Go string literal. Unlike Quote, it neither adds nor escapes quotes.
func EscapeLine(text string, limit int) string {
	var b strings.Builder
	for _, r := range Clip(text, limit) {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		escaped := strconv.QuoteRune(r)
		b.WriteString(escaped[1 : len(escaped)-1])
	}
	return b.String()
}
