package pii

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/publicsuffix"
)

// The longest parts of an address, in bytes.
const (
	maxLocalPart = 64
	maxDomain    = 253
)

// findEmail looks for an e-mail address around the "@" at i.
func (t *search) findEmail(ctx context.Context, i int) int {
	if !t.enabled[kindEmail] || i == 0 || i+3 >= len(t.text) {
		return 0
	}
	to := t.domainEnd(i + 1)
	if to == 0 {
		return 0
	}
	if t.checkContext(ctx); t.err != nil {
		return len(t.text)
	}
	from := t.localPartStart(i)
	if from == i || t.isURLUserinfo(from) {
		return 0
	}
	domain := strings.ToLower(t.text[i+1 : to])
	if !t.examples && isReservedDomain(domain) ||
		t.isExcluded(strings.ToLower(t.text[from:i]), domain) {
		return to
	}
	// git@github.com:someone/something is the address of a repository.
	if t.text[from:i] == "git" && to < len(t.text) && (t.text[to] == ':' || t.text[to] == '/') {
		return to
	}
	return t.report(kindEmail, "email", from, to)
}

// localPartStart returns the start of the local part that ends before i, or i if there is none.
func (t *search) localPartStart(i int) int {
	s := t.text
	if s[i-1] == '"' { // "john doe"@…
		if n := strings.LastIndexByte(s[max(0, i-1-maxLocalPart):i-1], '"'); n >= 0 {
			from := max(0, i-1-maxLocalPart) + n
			if from < i-2 && strings.IndexByte(s[from:i], '\n') < 0 {
				return from
			}
		}
		return i
	}
	from := i
	for from > 0 && i-from < maxLocalPart && from > t.lastEnd {
		c := s[from-1]
		if isAlnum(c) || strings.IndexByte("._+-'%&~", c) >= 0 {
			from--
			continue
		}
		if c < utf8.RuneSelf {
			break
		}
		r, n := utf8.DecodeLastRuneInString(s[:from])
		if !unicode.In(r, unicode.L, unicode.M, unicode.N) {
			break
		}
		from -= n
	}
	if from > 0 && s[from-1] == '\\' && from < i && strings.IndexByte("nrtbf", s[from]) >= 0 {
		from++ // s[from] belongs to an escape
	}
	for from < i && strings.IndexByte(".-'%&~+", s[from]) >= 0 {
		from++
	}
	if from == i || s[i-1] == '.' || strings.Contains(s[from:i], "..") {
		return i
	}
	return from
}

// domainEnd returns the end of the domain that begins at i, or 0 if there is none.
func (t *search) domainEnd(i int) int {
	s := t.text
	end, label := i, i // label is the start of the last label
	dots, foreign := 0, false
scan:
	for end < len(s) && end-i < maxDomain {
		switch c := s[end]; {
		case isAlnum(c):
			end++
		case c == '-' && end > label:
			end++
		case c == '.' && end > label && s[end-1] != '-':
			end++
			label = end
			dots++
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[end:])
			if !unicode.In(r, unicode.L, unicode.M, unicode.N) {
				break scan
			}
			foreign = true
			end += n
		default:
			break scan
		}
	}
	for end > i && (s[end-1] == '-' || s[end-1] == '.') {
		if s[end-1] == '.' {
			dots--
		}
		end--
	}
	last := strings.LastIndexByte(s[i:end], '.')
	if dots < 1 || last < 1 {
		return 0
	}
	top := s[i+last+1 : end]
	if foreign {
		for k := range len(top) { // a top-level domain beyond ASCII is not looked up
			if top[k] >= utf8.RuneSelf {
				return end
			}
		}
	}
	if strings.HasPrefix(strings.ToLower(top), "xn--") {
		return end
	}
	if len(top) < 2 || !isTopLevelDomain(strings.ToLower(top)) {
		return 0
	}
	return end
}

// isTopLevelDomain reports whether top is a top-level domain of the public suffix list, or one that
// is reserved for private use, examples and tests.
func isTopLevelDomain(top string) bool {
	switch top {
	case "example", "test", "invalid", "localhost", "local", "internal", "lan", "corp", "home":
		return true
	}
	_, listed := publicsuffix.PublicSuffix("x." + top)
	return listed
}

// isReservedDomain reports whether the domain is reserved for examples and tests by RFC 2606 and
// RFC 6761.
func isReservedDomain(domain string) bool {
	labels := strings.Split(domain, ".")
	switch labels[len(labels)-1] {
	case "example", "test", "invalid", "localhost":
		return true
	case "com", "net", "org":
		return labels[len(labels)-2] == "example"
	}
	return false
}

// isExcluded reports whether the option email.exclude has an entry for the address.
func (t *search) isExcluded(local, domain string) bool {
	for _, e := range t.exclude {
		l, d, hasAt := strings.Cut(e, "@")
		switch {
		case !hasAt && (domain == e || strings.HasSuffix(domain, "."+e)),
			hasAt && l == local && (d == "" || d == domain):
			return true
		}
	}
	return false
}

// isURLUserinfo reports whether the user name or password of a URL begins at i. Such a text is a
// secret, not an address.
func (t *search) isURLUserinfo(i int) bool {
	for k := i; k > 0 && i-k < 2*maxLocalPart; k-- {
		switch t.text[k-1] {
		case ' ', '\t', '\n', '\r', '?', '#', '"', '\'', '<', '>', '=', '&':
			return false
		case '/':
			return k > 1 && t.text[k-2] == '/'
		}
	}
	return false
}
