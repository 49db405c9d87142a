package uris

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/idna"
)

// defaultPorts has, by scheme, the port of a URI that names no port.
var defaultPorts = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443",
	"ftp": "21"}

// maxHostBytes bounds a host that is converted to ASCII.
const maxHostBytes = 1_000

// Canonical returns the canonical spelling of a URI. The URL parsers of the usual SDKs bring a URI
// into the same form:
//
//   - There are no blanks around the URI, and no tabs or line breaks in it.
//   - The scheme is in lower case.
//   - A file: URI, and a URI whose scheme always has a host, has "/" for each "\". The host is in
//     lower case and ASCII, without user, final dot and default port.
//   - A file: URI of this machine has no host.
//   - An absolute path has no dot segments and no empty segments.
//   - Percent escapes are in upper case, and stand only where they are needed.
//
// For a text without a scheme, only the first item of this list applies.
func Canonical(text string) string {
	text = strings.TrimFunc(text, func(r rune) bool { return r <= ' ' || IsBlank(r) })
	if strings.ContainsAny(text, "\t\n\r") {
		text = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(text)
	}
	name := Scheme(text)
	if len(name) < 2 { // one letter is a drive
		return text
	}
	scheme, rest, end := strings.ToLower(name), text[len(name)+1:], ""
	if at := strings.IndexAny(rest, "?#"); at >= 0 {
		rest, end = rest[:at], rest[at:]
	}
	special := AlwaysHasHost(scheme) || scheme == "file"
	if special {
		rest = strings.ReplaceAll(rest, `\`, "/")
	}
	host, hasHost := "", false
	switch {
	case scheme == "file":
		host, rest = fileHost(rest)
		hasHost = true
	case special:
		rest, hasHost = strings.TrimLeft(rest, "/"), true
		host, rest = cutHost(rest)
		host = canonicalHost(scheme, host)
	case strings.HasPrefix(rest, "//"):
		host, rest = cutHost(rest[2:])
		hasHost = true
	}
	switch {
	case hasHost && (rest != "" || special):
		rest = "//" + host + canonicalPath(rest)
	case hasHost:
		rest = "//" + host
	case strings.HasPrefix(rest, "/"):
		rest = canonicalPath(rest)
	default:
		rest = canonicalEscapes(rest)
	}
	return scheme + ":" + rest + canonicalEscapes(end)
}

// cutHost cuts a text after the host, which ends before the first "/".
func cutHost(text string) (host, path string) {
	if at := strings.IndexByte(text, '/'); at >= 0 {
		return text[:at], text[at:]
	}
	return text, ""
}

// fileHost returns the host and the path of a file: URI without its scheme. The host is "" for this
// machine.
func fileHost(rest string) (host, path string) {
	path = rest
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		host, path = cutHost(after)
	}
	if HasDrive(host) {
		return "", "/" + host + path
	}
	host = canonicalHost("file", host)
	if host == "localhost" || host == "127.0.0.1" || host == "[::1]" {
		host = ""
	}
	return host, path
}

// canonicalHost returns the canonical spelling of a host and its port; see Canonical. If the
// host is invalid, canonicalHost converts it to lower case, but not to ASCII.
func canonicalHost(scheme, text string) string {
	host := strings.ToLower(Unescape(text))
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = host[at+1:]
	}
	port := ""
	if at := strings.LastIndexByte(host, ':'); at > strings.LastIndexByte(host, ']') {
		host, port = host[:at], host[at+1:]
	}
	if strings.HasPrefix(host, "[") {
		if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
			host = "[" + a.String() + "]"
		}
	} else if len(host) <= maxHostBytes {
		if ascii, err := idna.New(idna.MapForLookup(), idna.BidiRule(),
			idna.StrictDomainName(false)).ToASCII(host); err == nil {
			host = strings.ToLower(ascii)
		}
		host = strings.TrimSuffix(host, ".")
		if all, _ := IPv4(host); len(all) > 0 {
			host = all[0].String()
		}
	}
	if port != "" && port != defaultPorts[scheme] {
		return host + ":" + port
	}
	return host
}

// canonicalPath returns an absolute path without dot segments and empty segments. Its percent
// escapes are those of canonicalEscapes. canonicalPath keeps a final slash.
func canonicalPath(text string) string {
	text = canonicalEscapes(text)
	clean := CleanPath(text)
	last := text[strings.LastIndexByte(text, '/')+1:]
	if clean != "/" && (last == "" || last == "." || IsParent(last)) {
		clean += "/"
	}
	return clean
}

// canonicalEscapes returns a text with canonical percent escapes, whose hexadecimal digits are in
// upper case. It encodes the characters that URL parsers encode in a path. It decodes the escapes
// of letters, digits and "-._~", and keeps all other escapes.
func canonicalEscapes(text string) string {
	isPlain := func(c byte) bool {
		return c > ' ' && c < 0x7f && strings.IndexByte("\"<>^`{|}%", c) < 0
	}
	first := 0
	for first < len(text) && isPlain(text[first]) {
		first++
	}
	if first == len(text) {
		return text
	}
	var b strings.Builder
	b.WriteString(text[:first])
	for i := first; i < len(text); i++ {
		c := text[i]
		if c == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]) {
			c = unescape(text[i : i+3])[0]
			if isHex(c) && strings.Contains(b.String()[max(0, b.Len()-2):], "%") {
				// After a "%" that begins no escape, the decoded digit would make one.
				b.WriteString(strings.ToUpper(text[i : i+3]))
			} else if 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' ||
				strings.IndexByte("-._~", c) >= 0 {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, "%%%02X", c)
			}
			i += 2
			continue
		}
		if isPlain(c) || c == '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

// Readings returns a URI as it is written and in its canonical spelling. For a file: URI, it
// also returns the spellings without query, fragment and host, because some servers ignore these
// parts.
func Readings(text string) []string {
	all := []string{text}
	add := func(uri string) {
		if !slices.Contains(all, uri) {
			all = append(all, uri)
		}
	}
	canonical := Canonical(text)
	add(canonical)
	if rest, ok := strings.CutPrefix(canonical, "file://"); ok {
		if at := strings.IndexAny(rest, "?#"); at >= 0 {
			rest = rest[:at]
		}
		add("file://" + rest)
		_, path := cutHost(rest)
		add("file://" + path)
	}
	return all
}
