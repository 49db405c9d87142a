// Package uris reads URIs as the servers and clients of MCP read them. Two URIs that look different
// may reach the same resource. Such URIs have the same canonical spelling, or share another
// reading. Policies, built-in plugins and the proxy compare these readings.
//
// No function of this package makes a URI that is sent: messages keep the URI that the peer wrote.
package uris

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

var (
	percentEscape = regexp.MustCompile(`%[0-9A-Fa-f]{2}|%u[0-9A-Fa-f]{4}`)
	drivePrefix   = regexp.MustCompile(`^/*[A-Za-z]:`)
	parentSegment = regexp.MustCompile(`^(\.\.[. ]* +|\.\.|\.{4,})$`)
)

// Scheme returns the scheme of a URI, or "".
func Scheme(text string) string {
	name, _, ok := strings.Cut(text, ":")
	if !ok || name == "" {
		return ""
	}
	for i, c := range []byte(name) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || !('0' <= c && c <= '9' || c == '+' || c == '.' || c == '-')) {
			return ""
		}
	}
	return name
}

// AlwaysHasHost reports whether every URI of a scheme has a host. The scheme is in lower case.
func AlwaysHasHost(scheme string) bool {
	switch scheme {
	case "http", "https", "ws", "wss", "ftp", "sse":
		return true
	}
	return false
}

// HasDrive reports whether a path begins with the letter of a drive, such as "C:" or "/C:".
func HasDrive(path string) bool { return drivePrefix.MatchString(path) }

// IsBlank reports whether servers may trim a character from the ends of a path. JavaScript also
// trims the byte order mark.
func IsBlank(r rune) bool { return unicode.IsSpace(r) || r == '\ufeff' }

// IsParent reports whether a segment of a path is "..", another spelling that some systems accept
// for "..", or a text that becomes ".." when a filter removes "../".
func IsParent(segment string) bool { return parentSegment.MatchString(segment) }

// CleanPath returns an absolute path without ".", ".." and the other segments for which IsParent
// returns true.
func CleanPath(text string) string {
	segments := strings.Split(text, "/")
	for i, s := range segments {
		if IsParent(s) {
			segments[i] = ".."
		}
	}
	return path.Clean("/" + strings.Join(segments, "/"))
}

// Unescape returns a text whose percent escapes are decoded once. It also decodes the form %uXXXX
// of JavaScript.
func Unescape(text string) string {
	return percentEscape.ReplaceAllStringFunc(text, unescape)
}

// unescape returns the byte, or the character, that a percent escape stands for.
func unescape(e string) string {
	var n rune
	if _, err := fmt.Sscanf(strings.TrimLeft(e, "%u"), "%x", &n); err != nil {
		return e
	}
	if e[1] == 'u' {
		return string(n)
	}
	return string([]byte{byte(n)})
}

// IPv4 returns the IPv4 addresses as which parsers may read a host. A number that begins with 0 may
// be octal or decimal, so there may be two addresses, and the octal reading comes first. isAddress
// is true if the last label of the host is a number. Such a host is an address or invalid.
func IPv4(host string) (addresses []netip.Addr, isAddress bool) {
	labels := strings.Split(host, ".")
	last := labels[len(labels)-1]
	if _, ok := parseNumber(last, false); !ok && (last == "" || last[0] < '0' || last[0] > '9') {
		return nil, false
	}
	for _, octal := range []bool{true, false} {
		if a, ok := parseIPv4(labels, octal); ok {
			addresses = append(addresses, a)
		}
	}
	return addresses, true
}

// parseIPv4 parses an IPv4 address like inet_aton: it has one to four numbers, and the last number
// fills the remaining bytes.
func parseIPv4(labels []string, octal bool) (netip.Addr, bool) {
	if len(labels) > 4 {
		return netip.Addr{}, false
	}
	var all uint64
	for i, l := range labels {
		n, ok := parseNumber(l, octal)
		if !ok {
			return netip.Addr{}, false
		}
		if i == len(labels)-1 {
			if n >= 1<<(8*(4-i)) {
				return netip.Addr{}, false
			}
			all |= n
		} else {
			if n > 255 {
				return netip.Addr{}, false
			}
			all |= n << (8 * (3 - i))
		}
	}
	return netip.AddrFrom4([4]byte{byte(all >> 24), byte(all >> 16), byte(all >> 8), byte(all)}),
		true
}

// parseNumber parses a number of an IPv4 address.
func parseNumber(s string, octal bool) (uint64, bool) {
	base := 10
	switch {
	case strings.HasPrefix(s, "0x"):
		if s, base = s[2:], 16; s == "" {
			s = "0"
		}
	case octal && len(s) > 1 && s[0] == '0':
		base = 8
	}
	n, err := strconv.ParseUint(s, base, 64)
	return n, err == nil && !strings.HasPrefix(s, "+")
}
