// Package ssrfguard makes HTTP clients and dialers for hosts that somebody else chose: the
// endpoints that an identity provider's metadata, an MCP server or a token names. A URL that the
// operator configured is trusted only as far as its own host.
//
// # What it promises
//
//   - The address that is connected to is the address that was checked. A name that resolves to
//     another address the next time gains nothing.
//   - Only addresses of the public internet and of the configured networks are connected to. The
//     addresses of cloud metadata services are refused even inside a configured network.
//   - Only https is used. http is used between programs on this machine, and only if the operator
//     configured a loopback URL.
//   - A redirect to another origin is refused, and no proxy is used.
//   - A request that must not be sent twice, such as a POST with a code or a refresh token, has a
//     connection of its own. So it never meets a server that closes an idle connection.
//   - The time for a whole exchange and the size of an answer are bounded.
package ssrfguard

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// Options configure a client.
type Options struct {
	// Configured is the URL that the operator wrote: of an issuer or of a server. If its host is a
	// loopback name or address, the client also connects to loopback addresses, and there also with
	// http.
	Configured string
	Networks   []netip.Prefix // networks that are allowed besides the public internet

	Timeout  time.Duration  // for a whole exchange, with all redirects; 0: 10 s
	MaxBytes int64          // of the body of an answer; 0: 1 MiB
	RootCAs  *x509.CertPool // nil: the certificates that the system trusts
	Resolver *net.Resolver  // nil: the resolver of the system
}

// ErrAddress is the error for an address that is neither public nor in a configured network.
var ErrAddress = errors.New("the address is not allowed")

// ErrURL is the error for a URL with a scheme or an origin that is not allowed.
var ErrURL = errors.New("the URL is not allowed")

// ErrTooLarge is the error of reading the body of an answer that is over the limit.
var ErrTooLarge = errors.New("the answer is too large")

// maxRedirects is the number of redirects within one origin that a client follows.
const maxRedirects = 3

// Client returns a client for the options. Close its idle connections when it is no longer used.
func Client(o Options) (*http.Client, error) {
	configured, err := url.Parse(o.Configured)
	if err != nil {
		return nil, fmt.Errorf("%q is not a URL: %w", o.Configured, err)
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 20
	}
	g := &guard{loopback: IsLoopback(configured.Hostname()), maxBytes: o.MaxBytes}
	networks := o.Networks
	if g.loopback {
		networks = append(networks[:len(networks):len(networks)],
			netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
	}
	dialer := Dialer(networks, o.Timeout, o.Resolver)
	g.base = &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs},
		TLSHandshakeTimeout:    o.Timeout,
		MaxIdleConns:           4,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
	g.fresh = g.base.Clone()
	g.fresh.DisableKeepAlives = true
	return &http.Client{Transport: g, Timeout: o.Timeout, CheckRedirect: checkRedirect}, nil
}

// Dialer returns a dialer that connects only to addresses of the public internet and of these
// networks, and never to those of cloud metadata services. For other addresses, its error is
// ErrAddress. If resolver is nil, the dialer uses the resolver of the system.
func Dialer(networks []netip.Prefix, timeout time.Duration, resolver *net.Resolver) *net.Dialer {
	return &net.Dialer{Timeout: timeout, Resolver: resolver,
		Control: newAddressCheck(networks).control}
}

// IsLoopback reports whether host, without a port, is a loopback address or localhost. It does not
// look up names.
func IsLoopback(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}

// checkRedirect refuses a redirect that leaves the origin of the first request.
func checkRedirect(r *http.Request, via []*http.Request) error {
	first := via[0].URL
	if r.URL.Scheme != first.Scheme || !strings.EqualFold(r.URL.Host, first.Host) {
		return fmt.Errorf("%w: %s redirects to another origin", ErrURL, first.Host)
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("%w: %s redirects more than %d times", ErrURL, first.Host, maxRedirects)
	}
	return nil
}

// guard is an http.RoundTripper that checks URLs and bounds answers. Its base checks addresses.
type guard struct {
	base     *http.Transport // keeps connections
	fresh    *http.Transport // opens a connection for each request
	loopback bool            // loopback addresses are allowed, and http with them
	maxBytes int64
}

// RoundTrip sends a request if its URL is allowed.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.checkURL(r.URL); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	base := g.base
	if !canBeRepeated(r) {
		base = g.fresh
	}
	response, err := base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = &limitedBody{ReadCloser: response.Body, left: g.maxBytes}
	return response, nil
}

// canBeRepeated reports whether net/http sends the request again if the server closes an idle
// connection while the request is sent. The client cannot know whether the server has read it, so
// net/http does not repeat a POST unless its header has the key Idempotency-Key.
func canBeRepeated(r *http.Request) bool {
	_, isIdempotent := r.Header["Idempotency-Key"]
	return isIdempotent || r.Method == http.MethodGet || r.Method == http.MethodHead
}

// CloseIdleConnections closes the connections that are not in use.
func (g *guard) CloseIdleConnections() { g.base.CloseIdleConnections() }

func (g *guard) checkURL(u *url.URL) error {
	switch {
	case u.User != nil:
		return fmt.Errorf("%w: it contains a user name", ErrURL)
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && g.loopback && IsLoopback(u.Hostname()):
		return nil
	case u.Scheme == "http":
		return fmt.Errorf("%w: %s is asked for over http, only https is allowed", ErrURL, u.Host)
	}
	return fmt.Errorf("%w: its scheme is not https", ErrURL)
}

// limitedBody is a body whose reader gets ErrTooLarge instead of the bytes over the limit.
type limitedBody struct {
	io.ReadCloser
	left int64 // bytes that may still be read; -1 after too many
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, ErrTooLarge
	}
	if int64(len(p)) > b.left+1 { // one byte more, to detect a body over the limit
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, ErrTooLarge
	}
	return n, err
}

// alwaysRefused are the networks of cloud metadata services, which give credentials to everybody
// who can connect. No identity provider has an address in them.
var alwaysRefused = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),     // AWS, Azure, Google Cloud and others; link-local
	netip.MustParsePrefix("fe80::/10"),          // link-local
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS
	netip.MustParsePrefix("fd20:ce::/32"),       // Google Cloud
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle Cloud
}

// sixToFour is the prefix of addresses that hold an IPv4 address in the bytes 2 to 5.
var sixToFour = netip.MustParsePrefix("2002::/16")

// addressCheck decides which addresses may be connected to.
type addressCheck struct{ guardian *ssrf.Guardian }

func newAddressCheck(networks []netip.Prefix) addressCheck {
	var v4, v6 []netip.Prefix
	for _, p := range networks {
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	return addressCheck{ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...),
		ssrf.WithAllowedV6Prefixes(v6...))}
}

// control has the type of net.Dialer.Control. It is called with the address that is connected to.
func (c addressCheck) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAddress, err)
	}
	return c.check(to.Addr())
}

// check returns an error if the address is not allowed. Where an IPv6 address holds an IPv4 address
// to which a gateway forwards, both must be allowed.
func (c addressCheck) check(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	for _, p := range alwaysRefused {
		if p.Contains(addr) {
			return fmt.Errorf("%w: %s is in %s, which is never allowed", ErrAddress, addr, p)
		}
	}
	if err := c.guardian.SafeAddr(addr); err != nil {
		return fmt.Errorf("%w: %s is not public and not in networks: %w", ErrAddress, addr, err)
	}
	if addr.Is6() {
		b := addr.As16()
		switch {
		case ssrf.IPv6NAT64Prefix.Contains(addr):
			return c.check(netip.AddrFrom4([4]byte(b[12:])))
		case sixToFour.Contains(addr):
			return c.check(netip.AddrFrom4([4]byte(b[2:6])))
		}
	}
	return nil
}
