package tools

import (
	"encoding/hex"
	"strings"
)

// pattern is a name in which each * stands for any characters, or none.
type pattern struct {
	parts []string // between the stars
	plain []string // of a URI's pattern: the same in normal form
}

func newPattern(text string, uri bool) pattern {
	p := pattern{parts: strings.Split(text, "*")}
	if uri {
		p.plain = strings.Split(normal(text), "*")
	}
	return p
}

// match says whether the whole name is what parts stand for.
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

// filter is what of one kind clients may know, and what they are told of it.
type filter struct {
	given   bool // there is a section for it
	uris    bool // the names are URIs
	limited bool // there is an allow list
	allow   []pattern
	hide    []pattern
	changes map[string]change
}

// filters says whether anything of the kind may be hidden.
func (f *filter) filters() bool { return f.limited || len(f.hide) > 0 }

// hidden says whether clients may not know name. A URI is hidden when its spelling is, or its
// normal form, and allowed when both are.
func (f *filter) hidden(name string) bool {
	plain := name
	if f.uris {
		plain = normal(name)
	}
	for _, p := range f.hide {
		if match(p.parts, name) || f.uris && match(p.plain, plain) {
			return true
		}
	}
	for _, p := range f.allow {
		if match(p.parts, name) && (!f.uris || match(p.plain, plain)) {
			return false
		}
	}
	return f.limited
}

// normal is a URI as servers may well understand it: without blanks, scheme and host in lower case,
// percent-encoding decoded, slashes for backslashes, no dot segments and no empty ones (RFC 3986
// 6.2.2), and one form for files of this machine (RFC 8089).
func normal(uri string) string {
	uri = strings.Map(func(r rune) rune {
		if r <= ' ' {
			return -1 // as URL parsers of browsers do with tabs and line ends
		}
		return r
	}, uri)
	end := len(uri)
	if i := strings.IndexAny(uri, "?#"); i >= 0 {
		end = i
	}
	scheme, rest, ok := strings.Cut(uri[:end], ":")
	if ok {
		scheme = strings.ToLower(scheme) + ":"
	} else {
		scheme, rest = "", scheme
	}
	rest = strings.ReplaceAll(decoded(rest), `\`, "/")
	host := ""
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		i := strings.IndexByte(after, '/')
		if i < 0 {
			i = len(after)
		}
		host, rest = "//"+strings.ToLower(after[:i]), after[i:]
	}
	if scheme == "file:" && (host == "" || host == "//localhost") && strings.HasPrefix(rest, "/") {
		host = "//"
	}
	return scheme + host + straight(rest) + decoded(uri[end:])
}

// decoded is s with what is percent-encoded decoded, once, and what only looks like it left alone.
func decoded(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.WriteByte(c[0])
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// straight is path without segments that are "." or empty, and without "..", which takes the one
// before it along.
func straight(path string) string {
	segments := strings.Split(path, "/")
	kept := segments[:0]
	for i, s := range segments {
		first, last := i == 0, i == len(segments)-1
		switch {
		case s == "..":
			if len(kept) > 0 && kept[len(kept)-1] != "" {
				kept = kept[:len(kept)-1]
			}
		case s != "." && s != "" || first:
			kept = append(kept, s)
		}
		if last && !first && (s == "." || s == ".." || s == "") {
			kept = append(kept, "")
		}
	}
	return strings.Join(kept, "/")
}
