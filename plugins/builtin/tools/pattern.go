package tools

import (
	"strings"

	"gatekit/core/uris"
)

// pattern is a name in which each * stands for any characters, or none.
type pattern struct {
	text      string     // as it is configured
	spellings [][]string // the parts between the stars, for each spelling of the pattern
}

func newPattern(text string, isURI bool) pattern {
	p := pattern{text, [][]string{strings.Split(text, "*")}}
	if isURI {
		canonical := uris.Canonical(text)
		if strings.HasSuffix(text, "*") {
			// https://* has no path, so its canonical spelling gets one
			canonical = strings.TrimSuffix(canonical, "/")
		}
		for _, c := range []string{canonical, decodedURI(text)} {
			p.spellings = append(p.spellings, strings.Split(c, "*"))
		}
	}
	return p
}

// matches reports whether a name matches a spelling of the pattern.
func (p pattern) matches(name string) bool {
	for _, parts := range p.spellings {
		if match(parts, name) {
			return true
		}
	}
	return false
}

// decodedURI returns the canonical spelling of a URI as it is read by servers that decode percent
// escapes before they split the path. It also resolves the dot segments of a URI without host, such
// as memo:a/../b.
func decodedURI(text string) string {
	text = uris.Canonical(text)
	end := len(text)
	if at := strings.IndexAny(text, "?#"); at >= 0 {
		end = at
	}
	scheme := text[:len(uris.Scheme(text))]
	rest := strings.TrimPrefix(text[len(scheme):end], ":")
	rest = strings.ReplaceAll(uris.Unescape(rest), `\`, "/")
	if !strings.HasPrefix(rest, "/") {
		isFolder := strings.HasSuffix(rest, "/")
		rest = strings.TrimPrefix(uris.CleanPath(rest), "/")
		if isFolder && rest != "" {
			rest += "/"
		}
	}
	if scheme != "" {
		scheme += ":"
	}
	return uris.Canonical(scheme + rest + text[end:])
}

// match reports whether name consists of the parts, in their order, with any characters in between.
func match(parts []string, name string) bool {
	first, rest := parts[0], parts[1:]
	if len(rest) == 0 {
		return name == first
	}
	name, ok := strings.CutPrefix(name, first)
	last := rest[len(rest)-1]
	for _, part := range rest[:len(rest)-1] {
		if ok {
			_, name, ok = strings.Cut(name, part)
		}
	}
	return ok && strings.HasSuffix(name, last)
}

// filter decides which items of one kind clients see, and how.
type filter struct {
	item       string // tool, prompt or resource, for reasons
	isURI      bool   // the names are URIs
	configured bool   // the configuration has a section for the kind
	hasAllow   bool   // there is an allow list
	allow      []pattern
	hide       []pattern
	changes    map[string]change // by name or URI
}

// hidesAny reports whether the filter can hide an item.
func (f *filter) hidesAny() bool { return f.hasAllow || len(f.hide) > 0 }

// hides reports whether an item is hidden. A URI is hidden if one of its readings matches hide. It
// is allowed only if one pattern of allow matches the URI, its canonical spelling and its decoded
// spelling.
func (f *filter) hides(name string) bool {
	if !f.isURI {
		for _, p := range f.hide {
			if p.matches(name) {
				return true
			}
		}
		for _, p := range f.allow {
			if p.matches(name) {
				return false
			}
		}
		return f.hasAllow
	}
	decoded := decodedURI(name)
	readings := append(uris.Readings(name), uris.Readings(decoded)...)
	for _, p := range f.hide {
		for _, r := range readings {
			if p.matches(r) {
				return true
			}
		}
	}
	canonical := uris.Canonical(name)
	for _, p := range f.allow {
		if p.matches(name) && p.matches(canonical) && p.matches(decoded) {
			return false
		}
	}
	return f.hasAllow
}
