package config

import (
	"net/url"
	"slices"
	"strings"
)

// minMasked is the length of the shortest value that is masked. Shorter values, such as "1" or
// "debug", are likely to be parts of ordinary words.
const minMasked = 6

// publicKeys are the keys whose values are not secret, even if a part of a value is substituted.
// The values are paths and addresses, which errors must name.
var publicKeys = []string{"file", "files", "data", "anchor", "cwd", "command", "http", "ca", "cert"}

// noteSubstituted records a substituted value for Config.Substituted, unless the value belongs to
// one of the publicKeys. The parameter name is the full name of the key, as errors show it.
func (l *loader) noteSubstituted(value, name string) {
	key := name[strings.LastIndexByte(name, '.')+1:]
	key, _, _ = strings.Cut(key, "[")
	if slices.Contains(publicKeys, key) {
		return
	}
	for line := range strings.SplitSeq(value, "\n") {
		line = strings.TrimSpace(line)
		forms := []string{line, url.PathEscape(line), url.QueryEscape(line),
			(&url.URL{Path: line}).EscapedPath()}
		if decoded, err := url.PathUnescape(line); err == nil {
			forms = append(forms, decoded)
		}
		for _, form := range forms {
			if len(form) >= minMasked && !slices.Contains(l.substituted, form) {
				l.substituted = append(l.substituted, form)
			}
		}
	}
}

// NewMask returns a Replacer that replaces the values by "[redacted]", the longest first, because a
// value may contain another value.
func NewMask(values []string) *strings.Replacer {
	values = slices.Clone(values)
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, v := range values {
		pairs = append(pairs, v, redacted)
	}
	return strings.NewReplacer(pairs...)
}

// Substituted returns the values that ${env:…} and ${file:…} have put into the configuration, for
// NewMask. It also returns URL-escaped forms of the values. It leaves out values of less than six
// bytes, and parts of paths and addresses (file, command, http and similar keys).
func (c *Config) Substituted() []string {
	if c.source == nil {
		return nil
	}
	return slices.Clone(c.source.substituted)
}
