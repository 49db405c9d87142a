package config

import (
	"net/url"
	"slices"
	"strings"
)

// minMasked is the length of the shortest value that Mask replaces. Shorter ones, such as "1" or
// "debug", are parts of ordinary words.
const minMasked = 6

// publicKeys are the keys whose values are no secrets, even if a part of them is substituted: paths
// and addresses, which errors must name.
var publicKeys = []string{"file", "files", "data", "anchor", "cwd", "command", "http", "ca", "cert"}

// noteSubstituted keeps a substituted value for Config.Mask, unless it is a part of a path or an
// address.
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

// newMask returns a replacer of the values, nil if there are none.
func newMask(values []string) *strings.Replacer {
	if len(values) == 0 {
		return nil
	}
	// replace the longest first: a value may contain another
	values = slices.Clone(values)
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, v := range values {
		pairs = append(pairs, v, redacted)
	}
	return strings.NewReplacer(pairs...)
}

// Mask returns text in which "[redacted]" replaces what ${env:…} and ${file:…} have put into the
// configuration, also in escaped form. It replaces no values of less than six bytes, and no parts
// of paths and addresses (file, command, http and the like).
func (c *Config) Mask(text string) string {
	if c.source == nil || c.source.mask == nil {
		return text
	}
	return c.source.mask.Replace(text)
}
