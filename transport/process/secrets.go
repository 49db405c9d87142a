package process

import (
	"slices"
	"strings"
)

// minSecret is the length of the shortest value that is looked for. Shorter ones, such as "1" or
// "debug", are parts of ordinary words.
const minSecret = 6

// masker replaces secret values in text. The zero masker replaces nothing.
type masker struct {
	values   []string // the longest first
	replacer *strings.Replacer
}

// newMasker returns a masker for the given values. The lines of a value of several lines are
// replaced one by one.
func newMasker(secrets []string) masker {
	var m masker
	for _, s := range secrets {
		for line := range strings.SplitSeq(s, "\n") {
			if line = strings.TrimSpace(line); len(line) >= minSecret {
				m.values = append(m.values, line)
			}
		}
	}
	if len(m.values) == 0 {
		return m
	}
	slices.SortFunc(m.values, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, v := range m.values {
		pairs = append(pairs, v, "[redacted]")
	}
	m.replacer = strings.NewReplacer(pairs...)
	return m
}

// mask returns text with the values replaced. With cut, the text was cut at its end, and what may
// be the beginning of a value there is replaced, too.
func (m masker) mask(text string, cut bool) string {
	if m.replacer == nil {
		return text
	}
	text = m.replacer.Replace(text)
	if !cut {
		return text
	}
	for _, v := range m.values {
		for n := len(v) - 1; n >= 4; n-- {
			if before, ok := strings.CutSuffix(text, v[:n]); ok {
				return before + "[redacted]"
			}
		}
	}
	return text
}
