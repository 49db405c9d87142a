package process

import (
	"slices"
	"strings"
)

// minSecret is the minimum length of a value that is replaced. Shorter values, such as "1" or
// "debug", are parts of ordinary words.
const minSecret = 6

// masker replaces secret values in text. The zero masker replaces nothing.
type masker struct {
	values   []string // the longest value first
	replacer *strings.Replacer
}

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

// mask returns text with the values replaced. If cut is set, text was cut at its end. Then mask
// also replaces an end of text that may be the beginning of a value.
func (m masker) mask(text string, cut bool) string {
	if m.replacer == nil {
		return text
	}
	text = m.replacer.Replace(text)
	if !cut {
		return text
	}
	for _, v := range m.values {
		// An end of less than 4 bytes is kept: it may be part of an ordinary word.
		for n := len(v) - 1; n >= 4; n-- {
			if before, ok := strings.CutSuffix(text, v[:n]); ok {
				return before + "[redacted]"
			}
		}
	}
	return text
}
