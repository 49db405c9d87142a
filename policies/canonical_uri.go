package policies

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"gatekit/core/mcp"

	"golang.org/x/net/idna"
)

// defaultPorts are the ports that a URI of a scheme has when it names none.
var defaultPorts = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443",
	"ftp": "21"}

// maxHostBytes bounds a host that is converted to ASCII.
const maxHostBytes = 1_000

// canonicalURI returns the one spelling of a URI that rules are held against. It is the form to
// which the URL parsers of the usual SDKs bring it: without blanks around it and without tabs and
// line breaks; the scheme in lower case; for schemes with a host also the host, in ASCII, without
// user, final dot and default port; "/" for "\"; without dot segments and empty segments; with
// percent escapes only where they are needed, in upper case. A file on this machine has no host. It
// returns a text without a scheme as it is.
func canonicalURI(text string) string {
	text = strings.TrimFunc(text, func(r rune) bool { return r <= ' ' || isBlank(r) })
	if strings.ContainsAny(text, "\t\n\r") {
		text = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(text)
	}
	name := schemeName(text)
	if len(name) < 2 { // one letter is a drive
		return text
	}
	scheme, rest, end := strings.ToLower(name), text[len(name)+1:], ""
	if at := strings.IndexAny(rest, "?#"); at >= 0 {
		rest, end = rest[:at], rest[at:]
	}
	special := schemesWithHost[scheme] || scheme == "file"
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
	if drivePrefix.MatchString(host) {
		return "", "/" + host + path
	}
	host = canonicalHost("file", host)
	if host == "localhost" || host == "127.0.0.1" || host == "[::1]" {
		host = ""
	}
	return host, path
}

// canonicalHost returns a host, with its port, as canonicalURI does. It returns a host that is not
// valid in lower case.
func canonicalHost(scheme, text string) string {
	host := strings.ToLower(percentEscape.ReplaceAllStringFunc(text, unescape))
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
		hostKind(host, &host) // an IPv4 address in decimal notation
	}
	if port != "" && port != defaultPorts[scheme] {
		return host + ":" + port
	}
	return host
}

// canonicalPath returns an absolute path without dot segments and empty segments, and with the
// escapes of canonicalEscapes. It keeps a final slash.
func canonicalPath(text string) string {
	text = canonicalEscapes(text)
	clean := cleanPath(text)
	last := text[strings.LastIndexByte(text, '/')+1:]
	if clean != "/" && (last == "" || last == "." || parentSegment.MatchString(last)) {
		clean += "/"
	}
	return clean
}

// canonicalEscapes returns a text in which exactly the characters are percent-encoded that URL
// parsers encode in a path, in upper case, and those that were encoded and have a meaning when they
// are not.
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
			if 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' ||
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

// uriReadings returns a URI as it is written, its canonical spelling, and what a lenient server may
// read it as: of a file: URI, some servers ignore host, query and fragment.
func uriReadings(text string) []string {
	all := []string{text}
	add := func(uri string) {
		if !slices.Contains(all, uri) {
			all = append(all, uri)
		}
	}
	canonical := canonicalURI(text)
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

// canonicalMessage returns a copy of a message in which the URIs of resources have their canonical
// spelling; nil when they already have it. The copy is only for rules: what is forwarded are the
// bytes that came.
func canonicalMessage(m *mcp.Message) (*mcp.Message, error) {
	if !strings.HasPrefix(m.Method, "resources/") && !strings.HasPrefix(m.Method, "skills/") &&
		m.Method != "completion/complete" &&
		m.Method != "subscriptions/listen" && m.Method != "notifications/resources/updated" {
		return nil, nil
	}
	name, request := m.Name, m.Request
	if request != nil {
		c, err := canonicalMessage(request)
		if err != nil {
			return nil, err
		}
		if c != nil {
			request = c
		}
	}
	var edits []mcp.Edit
	edit := func(pointer, uri string) {
		if c := canonicalURI(uri); c != uri {
			edits = append(edits, mcp.Set(pointer, mcp.Quote(c)))
		}
	}
	meth, _ := mcp.LookupMethod(m.Method)
	isRequest := m.Kind == mcp.Request || m.Kind == mcp.Notification
	switch {
	case m.Method == "subscriptions/listen" && isRequest:
		m.Items("/notifications/resourceSubscriptions", func(i int, raw []byte) bool {
			if uri, ok := mcp.NewResponse("", raw).Text(""); ok {
				edit(fmt.Sprintf("/notifications/resourceSubscriptions/%d", i), uri)
			}
			return true
		})
	case m.Method == "completion/complete":
		pointer := ""
		if isRequest {
			pointer = "/ref/uri"
		}
		uri, isURI := "", pointer != ""
		if isURI {
			uri, isURI = m.Text(pointer)
		} else if m.Request != nil {
			_, isURI = m.Request.Text("/ref/uri")
		}
		// a template is not a URI: its braces would be escaped
		if !isURI || strings.Contains(m.Name, "{") {
			break
		}
		if pointer != "" {
			edit(pointer, uri)
		}
		name = canonicalURI(m.Name)
	case m.Kind == mcp.Response && meth.ItemsPointer != "":
		if meth.ItemNamePointer != "/uri" {
			break
		}
		m.Items(meth.ItemsPointer, func(i int, raw []byte) bool {
			if uri, ok := mcp.NewResponse("", raw).Text("/uri"); ok {
				edit(fmt.Sprintf("%s/%d/uri", meth.ItemsPointer, i), uri)
			}
			return true
		})
	default:
		if uri, ok := m.Text("/uri"); ok && isRequest {
			edit("/uri", uri)
		}
		name = canonicalURI(m.Name)
	}
	if len(edits) == 0 && name == m.Name && request == m.Request {
		return nil, nil
	}
	c, err := m.Edit(edits...)
	if err != nil {
		return nil, fmt.Errorf("bring the URIs to their canonical spelling: %w", err)
	}
	copied := *c // without edits, c is m itself
	copied.Name, copied.Request = name, request
	return &copied, nil
}
