package pii

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/publicsuffix"
)

const (
	maxLocalPart = 64  // bytes of what is before the "@"
	maxDomain    = 253 // and behind it
)

// findEmail looks for an e-mail address around the "@" at i.
func (t *search) findEmail(i int) int {
	if !t.enabled[kindEmail] || i == 0 || i+3 >= len(t.text) {
		return 0
	}
	to := t.domainEnd(i + 1)
	if to == 0 {
		return 0
	}
	if t.checkContext(); t.err != nil {
		return len(t.text)
	}
	from := t.localPartStart(i)
	if from == i || t.isURLUserinfo(from) {
		return 0
	}
	domain := strings.ToLower(t.text[i+1 : to])
	if !t.examples && isReservedDomain(domain) || t.isExcluded(strings.ToLower(t.text[from:i]),
		domain) {
		return to
	}
	// git@github.com:someone/something is where a repository is.
	if t.text[from:i] == "git" && to < len(t.text) && (t.text[to] == ':' || t.text[to] == '/') {
		return to
	}
	return t.report(kindEmail, "email", from, to)
}

// localPartStart answers where the local part begins that ends before i; i when there is none.
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
		from++ // the letter is of an escape
	}
	for from < i && strings.IndexByte(".-'%&~+", s[from]) >= 0 {
		from++
	}
	if from == i || s[i-1] == '.' || strings.Contains(s[from:i], "..") {
		return i
	}
	return from
}

// domainEnd answers where the domain ends that begins at i; 0 when there is none.
func (t *search) domainEnd(i int) int {
	s := t.text
	end, label, dots, foreign := i, i, 0, false // label is where the last one begins
	last := 0                                   // where what ends in a whole label ends
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
	if last = strings.LastIndexByte(s[i:end], '.'); dots < 1 || last < 1 {
		return 0
	}
	top := s[i+last+1 : end]
	if foreign {
		for k := range len(top) { // a name in letters of a script of its own needs no list
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

// isTopLevelDomain says whether there is, or was, a top-level domain of this name, or it is one of
// those that are reserved.
func isTopLevelDomain(top string) bool {
	switch top {
	case "example", "test", "invalid", "localhost", "local", "internal", "lan", "corp", "home":
		return true
	}
	_, listed := publicsuffix.PublicSuffix("x." + top)
	return listed
}

// isReservedDomain says whether the domain is one that nobody has: RFC 2606, RFC 6761.
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

// isExcluded says whether the options leave the address out.
func (t *search) isExcluded(local, domain string) bool {
	for _, e := range t.exclude {
		l, d, is := strings.Cut(e, "@")
		switch {
		case !is && (domain == e || strings.HasSuffix(domain, "."+e)),
			is && l == local && (d == "" || d == domain):
			return true
		}
	}
	return false
}

// isURLUserinfo says whether what begins at i is the name or password in a URL: a secret, and no
// address.
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
