package secrets

import (
	"regexp"
	"strings"
)

// finder finds what no expression finds well. at is where the rule's keyword is; until is up to
// where s need not be looked at again.
type finder func(s string, at int) (secrets []span, until int)

var finders = map[string]finder{
	"private-key":            findPrivateKey,
	"kubernetes-secret-yaml": findKubernetesSecret,
	"url-password":           findURLPassword,
}

// pemBegin is a line that begins a private key; RFC 4716 has four dashes and blanks.
var pemBegin = regexp.MustCompile(
	`^(?i:-----BEGIN[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)?-----|---- BEGIN[ A-Z0-9_-]{0,60}PRIVATE KEY ----)`)

// pemEnd ends one.
var pemEnd = regexp.MustCompile(
	`(?i)-----END[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)?-----|---- END[ A-Z0-9_-]{0,60}PRIVATE KEY ----`)

// keyMaterial is what a key begins with below its first line: headers and base64, in lines that may
// be escaped or joined.
var keyMaterial = regexp.MustCompile(
	`^(?:[\s>|"'+,]|\\+[nrt"]|[A-Za-z][\w-]*: [^\n\\]*)*([A-Za-z0-9+/=]{16,})`)

// findPrivateKey is the key that begins at at, from its BEGIN line to its END line. Where that is
// missing, the key was cut off, and nobody can say what still belongs to it: all the rest of s is
// taken. A BEGIN line that nothing follows is no key, but words about one.
func findPrivateKey(s string, at int) (secrets []span, until int) {
	head := pemBegin.FindString(s[at:min(len(s), at+128)])
	if head == "" {
		return nil, at
	}
	body := at + len(head)
	if !keyMaterial.MatchString(s[body:min(len(s), body+maxContext)]) {
		return nil, body
	}
	until = len(s)
	if end := pemEnd.FindStringIndex(s[body:]); end != nil {
		until = body + end[1]
	}
	return []span{{at, until}}, until
}

// yamlEntry is a line of a mapping in YAML.
var yamlEntry = regexp.MustCompile(`^([ \t]*)([\w.-]+):[ \t]*(.*?)[ \t\r]*$`)

// findKubernetesSecret are the values below data: and stringData: in the YAML document around at.
func findKubernetesSecret(s string, at int) (values []span, until int) {
	from, to := 0, len(s)
	if n := strings.LastIndex(s[:at], "\n---"); n >= 0 {
		from = n + 1
	}
	if n := strings.Index(s[at:], "\n---"); n >= 0 {
		to = at + n
	}
	inside := -1 // indentation of data:
	for line := from; line < to; {
		end := to
		if n := strings.IndexByte(s[line:to], '\n'); n >= 0 {
			end = line + n
		}
		text := s[line:end]
		indent := len(text) - len(strings.TrimLeft(text, " \t"))
		m := yamlEntry.FindStringSubmatchIndex(text)
		switch {
		case strings.TrimSpace(text) == "":
		case inside >= 0 && indent > inside:
			value := span{line + indent, end} // a line of a longer value
			if m != nil {
				value = span{line + m[6], line + m[7]}
			}
			if v := strings.Trim(value.substring(s), `"'`); len(v) > 2 && !strings.HasPrefix(v,
				"{{") &&
				v != ">-" && v != "|-" {
				values = append(values, trimQuotes(s, value))
			}
		default:
			inside = -1
			if m != nil && m[6] == m[7] && (text[m[4]:m[5]] == "data" ||
				text[m[4]:m[5]] == "stringData") {
				inside = indent
			}
		}
		line = end + 1
	}
	return values, to
}

// findURLPassword is the password of the URL whose "://" is at at.
func findURLPassword(s string, at int) (password []span, until int) {
	if at == 0 || byteClasses[s[at-1]]&(wordByte|valueByte) == 0 {
		return nil, at
	}
	at += len("://")
	authority := s[at:min(len(s), at+400)]
	if n := strings.IndexAny(authority, " \t\r\n/?#\"'`<>\\"); n >= 0 {
		authority = authority[:n]
	}
	host := strings.LastIndexByte(authority, '@')
	user := strings.IndexByte(authority, ':')
	if user < 0 || host < user+4 || host+1 == len(authority) {
		return nil, at
	}
	return []span{{at + user + 1, at + host}}, at + host
}
