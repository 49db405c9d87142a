package tools

import "strings"

// pattern is a name in which each * stands for any characters, or none.
type pattern struct {
	parts           []string // between the stars
	normalizedParts []string // for a URI: the parts of its normal form
}

func newPattern(text string, isURI bool) pattern {
	p := pattern{parts: strings.Split(text, "*")}
	if isURI {
		p.normalizedParts = strings.Split(normalizeURI(text), "*")
	}
	return p
}

// match reports whether name is the parts, with anything in between.
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

// hides reports whether an item is hidden. A URI is hidden if the URI or its normal form matches
// hide, and is allowed only if both match allow.
func (f *filter) hides(name string) bool {
	normalized := name
	if f.isURI {
		normalized = normalizeURI(name)
	}
	for _, p := range f.hide {
		if match(p.parts, name) || f.isURI && match(p.normalizedParts, normalized) {
			return true
		}
	}
	for _, p := range f.allow {
		if match(p.parts, name) && (!f.isURI || match(p.normalizedParts, normalized)) {
			return false
		}
	}
	return f.hasAllow
}
