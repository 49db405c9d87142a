package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// minMasked is the length of the shortest value that is masked. Shorter values, such as "1" or
// "debug", are likely to be parts of ordinary words.
const minMasked = 6

// publicKey matches the full names of the keys whose values are not secret, even if a part of a
// value is substituted. The values are paths, addresses and certificates, which errors must name.
// It matches whole names, because the user chooses the names of variables, headers and settings of
// plugins. Of a plugin's command, only the program is public: the arguments may be secrets.
var publicKey = regexp.MustCompile(strings.ReplaceAll(`^(`+strings.Join([]string{
	`(listen|admin)\.http`,
	`listen\.(public_url|tls\.cert|tls\.key|auth\.mtls\.ca)`,
	`listen\.auth\.issuer\[\d+\]\.issuer`,
	`cluster\.(name|listen|advertise|ca|cert|key)`,
	`shared\.(url|user|ca|prefix)`,
	`server\.NAME\.(command|cwd|auth\.issuer)`,
	`tokens\.file`,
	`plugin "NAME": command\[0\]`,
	`policy\.(files|data)\[\d+\]`,
	`policy\.service\.NAME\.ca`,
	`audit\.(file|anchor)`,
	`audit\.sink "NAME": (ca|cert)`,
	`telemetry\.ca`,
}, "|")+`)$`, "NAME", `[\w-]+`))

// noteSubstituted records a substituted value for Config.Substituted, unless the value belongs to a
// publicKey. The parameter name is the full name of the key, as errors show it.
func (l *loader) noteSubstituted(value, name string) {
	if publicKey.MatchString(name) {
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

// Mask replaces secret values in texts. It may be used by many goroutines.
type Mask struct {
	values   []string
	replacer *strings.Replacer // of the values; it changes every text that contains one
}

// NewMask returns a Mask for the values, which must not be empty.
func NewMask(values []string) *Mask {
	m := &Mask{values: slices.Clone(values)}
	var pairs []string
	for _, v := range values {
		pairs = append(pairs, v, redacted)
	}
	m.replacer = strings.NewReplacer(pairs...)
	return m
}

// Replace returns the text with "[redacted]" in place of each value. Values that overlap are
// replaced together, so that no part of a value stays.
func (m *Mask) Replace(text string) string {
	if m.replacer.Replace(text) == text {
		return text // nearly all texts
	}
	type span struct{ from, to int }
	var found []span
	for _, v := range m.values {
		for from := 0; ; from++ { // a value may overlap with itself
			at := strings.Index(text[from:], v)
			if at < 0 {
				break
			}
			from += at
			found = append(found, span{from, from + len(v)})
		}
	}
	slices.SortFunc(found, func(a, b span) int { return a.from - b.from })
	var b strings.Builder
	end := 0 // of the last replaced part
	for i, s := range found {
		if i == 0 || s.from >= end {
			b.WriteString(text[end:s.from])
			b.WriteString(redacted)
		}
		end = max(end, s.to)
	}
	b.WriteString(text[end:])
	return b.String()
}

// Substituted returns the values that ${env:…} and ${file:…} have put into the configuration, for
// NewMask. It also returns URL-escaped forms of the values. It leaves out values of less than six
// bytes, and the values of keys that are known to hold paths, addresses and certificates, such as
// audit.file, listen.http and the command of a server.
func (c *Config) Substituted() []string {
	if c.source == nil {
		return nil
	}
	return slices.Clone(c.source.substituted)
}
