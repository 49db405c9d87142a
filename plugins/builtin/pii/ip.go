package pii

import (
	"context"
	"net/netip"
	"strings"
)

// findIPv4 looks for an IPv4 address at i. ok reports whether four octets with points between them
// begin at i. These octets are no other kind of number, even if they are not reported as an
// address. to is the end of the octets.
func (t *search) findIPv4(ctx context.Context, i int) (to int, ok bool) {
	s := t.text
	var octets [4]int
	k := i
	for n := range octets {
		from := k
		for k < len(s) && k-from < 4 && isDigit(s[k]) {
			octets[n] = octets[n]*10 + int(s[k]-'0')
			k++
		}
		if k == from || k-from > 3 {
			return 0, false
		}
		if k-from > 1 && s[from] == '0' {
			// Some programs read the octet 010 as ten, others as eight. In most texts, such an
			// octet is part of a version.
			octets[n] = 256
		}
		if n < 3 {
			if k >= len(s) || s[k] != '.' {
				return 0, false
			}
			k++
		}
	}
	if !isWordEnd(s, k) || k+1 < len(s) && (s[k] == '.' || s[k] == '-') && isAlnum(s[k+1]) ||
		!isWordStart(s, i) || i > 0 && s[i-1] == '.' {
		return 0, false
	}
	for _, o := range octets {
		if o > 255 {
			return 0, false
		}
	}
	if !t.enabled[kindIP] {
		return k, true
	}
	if t.checkContext(ctx); t.err != nil {
		return len(s), true
	}
	addr := netip.AddrFrom4([4]byte{byte(octets[0]), byte(octets[1]), byte(octets[2]),
		byte(octets[3])})
	if !t.isReportable(addr) || !t.isLikelyAddress(i, k, octets) {
		return k, true
	}
	return t.report(kindIP, "ip", i, k), true
}

// isLikelyAddress reports whether the octets in t.text[i:end] are more likely an address than the
// four parts of a version.
func (t *search) isLikelyAddress(i, end int, octets [4]int) bool {
	s := t.text
	if i > 1 && s[i-1] == '/' && s[i-2] == '/' {
		return true // the host of a URL
	}
	isCompared := i > 1 && strings.IndexByte("=<>~!", s[i-1]) >= 0 &&
		strings.IndexByte(" =<>~!", s[i-2]) >= 0 // as in lib>=1.2.3.4
	isSuffix := i > 0 && strings.IndexByte("-_^~", s[i-1]) >= 0
	evidence := t.contextEvidence(i, end, topicIP, topicVersion)
	switch {
	case evidence == supports:
		return true
	case evidence == contradicts || isCompared || isSuffix:
		return false
	}
	if end+1 < len(s) && (s[end] == ':' || s[end] == '/') && isDigit(s[end+1]) {
		return true // a port or the length of a prefix
	}
	return max(octets[0], octets[1], octets[2], octets[3]) > 63 // versions seldom have such parts
}

// findIPv6 looks for an IPv6 address around the colon at i, which is the first in its word.
func (t *search) findIPv6(ctx context.Context, i int) int {
	s := t.text
	if i+1 >= len(s) || s[i+1] != ':' && (byteClasses[s[i+1]]&hexByte == 0 || i == 0 ||
		byteClasses[s[i-1]]&hexByte == 0) {
		return 0
	}
	from := i
	for from > 0 && i-from < 5 && byteClasses[s[from-1]]&hexByte != 0 {
		from--
	}
	end, colons := i, 0
	for end < len(s) && end-from < 46 && (byteClasses[s[end]]&hexByte != 0 || s[end] == ':' ||
		s[end] == '.') {
		if s[end] == ':' {
			colons++
		}
		end++
	}
	if i-from > 4 || colons < 2 || !isWordStart(s, from) {
		return end
	}
	if t.checkContext(ctx); t.err != nil {
		return len(s)
	}
	for end > from && (s[end-1] == '.' || s[end-1] == ':' && (end < from+2 || s[end-2] != ':')) {
		end--
	}
	if !isWordEnd(s, end) || end < len(s) && s[end] == '_' {
		return end
	}
	addr, err := netip.ParseAddr(s[from:end])
	if err != nil || !addr.Is6() || !t.enabled[kindIP] || !t.isReportable(addr) {
		return end
	}
	return t.report(kindIP, "ip", from, end)
}

// specialPurpose are the blocks of the IANA special-purpose address registries for which
// [netip.Addr] has no method.
var specialPurpose = func() (p []netip.Prefix) {
	for _, s := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
		"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "3fff::/20",
	} {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}()

// isReportable reports whether the address may belong to somebody: a public IPv4 address, also
// within NAT64, or an IPv6 address of 2000::/3. With the option ip.private, other addresses are
// reportable, too.
func (t *search) isReportable(a netip.Addr) bool {
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	a = a.Unmap()
	public := !a.IsPrivate() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast() &&
		!a.IsUnspecified() && (a.Is4() || globalUnicast.Contains(a))
	for _, p := range specialPurpose {
		public = public && !p.Contains(a)
	}
	if public || !t.private {
		return public
	}
	// Words such as "abc::def" are valid IPv6 addresses. Of the addresses that are not public, only
	// those with a known prefix are reported.
	return a.Is4() && !a.IsUnspecified() || a.IsPrivate() || a.IsLinkLocalUnicast() ||
		a.IsLoopback() || a.Is6() && globalUnicast.Contains(a)
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
)
