package process

import (
	"cmp"
	"slices"
	"strings"
)

// minSecret is the minimum length of a value that is replaced. Shorter values, such as "1" or
// "debug", are parts of ordinary words.
const minSecret = 6

// masker replaces secret values in text. The zero masker replaces nothing.
type masker struct{ values []string }

// newMasker returns a masker for the given values. If a value has several lines, each line is
// replaced on its own.
func newMasker(secrets []string) masker {
	var m masker
	for _, s := range secrets {
		for line := range strings.SplitSeq(s, "\n") {
			if line = strings.TrimSpace(line); len(line) >= minSecret {
				m.values = append(m.values, line)
			}
		}
	}
	return m
}

// mask returns text with the values replaced. If cut is set, text was cut at its end. Then mask
// also replaces an end of text that may be the beginning of a value.
func (m masker) mask(text string, cut bool) string {
	type span struct{ from, to int }
	var found []span // in text; values may overlap
	for _, v := range m.values {
		for from := 0; ; from++ {
			n := strings.Index(text[from:], v)
			if n < 0 {
				break
			}
			from += n
			found = append(found, span{from, from + len(v)})
		}
		// An end of less than 4 bytes is kept: it may be part of an ordinary word.
		for n := len(v) - 1; cut && n >= 4; n-- {
			if strings.HasSuffix(text, v[:n]) {
				found = append(found, span{len(text) - n, len(text)})
				break
			}
		}
	}
	slices.SortFunc(found, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var b strings.Builder
	masked := 0 // end of the last value
	for _, s := range found {
		if s.from >= masked {
			b.WriteString(text[masked:s.from])
			b.WriteString("[redacted]")
		}
		masked = max(masked, s.to)
	}
	b.WriteString(text[masked:])
	return b.String()
}
