// Package display makes text of a peer safe for error messages, log lines and reasons. The result
// is valid UTF-8 of bounded length. Quote and EscapeLine also escape characters that a terminal
// would act on.
package display

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Clip returns text as valid UTF-8. Text longer than limit bytes is cut between two characters and
// ends in "…", which is not counted in the limit.
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return strings.ToValidUTF8(text[:limit], "\uFFFD") + "…"
}

// Quote returns text in double quotes, after Clip has cut it to limit bytes. It escapes everything
// that is not printable, as in a Go string literal.
func Quote(text string, limit int) string { return strconv.Quote(Clip(text, limit)) }

// EscapeLine returns text on one line, after Clip has cut it to limit bytes. It escapes everything
// that is not printable, as in a Go string literal: line breaks, control characters, and marks that
// change the direction of text. Unlike Quote, EscapeLine neither adds nor escapes quotes.
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
