package transport

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"gatekit/core/upstream"
	"gatekit/transport/httpconns"

	"golang.org/x/net/http/httpguts"
)

const (
	maxIdleConns      = 128              // connections of one server that are kept
	idleTimeout       = 55 * time.Second // for which an unused connection is kept
	maxResponseHeader = 64 << 10         // bytes of the header of a response
	// maxDirectBody is the maximum size of a message that is posted without http.Transport.
	maxDirectBody = 128 << 10
)

// HTTPClientOptions configure an HTTPClient.
type HTTPClientOptions struct {
	Name       string            // configured name of the server, for errors
	URL        string            // http or https, without user and password
	Headers    map[string]string // sent with every request; may hold credentials, so never logged
	MaxMessage int               // bytes of a body or event; 0 is 16 MiB
	Log        *slog.Logger      // nil: nothing is logged
	// returns a URL with its secrets replaced, for errors; nil replaces nothing
	Mask func(string) string
}

// HTTPClient sends requests of Streamable HTTP to one server. Many goroutines may use it.
//
//   - It follows no redirect: a message and its credentials are sent only to the configured URL. An
//     answer with a 3xx status is an error that names the target of the redirect.
//   - It keeps no cookies and accepts no compression. It sets no time-out for an answer, since
//     calls may be long. The ctx of the caller bounds them.
//   - It uses the proxy that the variables HTTPS_PROXY, HTTP_PROXY and NO_PROXY select, except for
//     loopback addresses. NewHTTPClient logs the proxy.
type HTTPClient struct {
	name       string
	url        *url.URL
	headers    http.Header
	maxMessage int
	template   http.Request
	mask       func(string) string
	direct     *httpconns.Conns // for most messages; nil if all messages need http
	posted     http.Request     // what direct posts; not changed
	target     string           // path and query of url
	http       *http.Transport
}

var _ upstream.HTTP = (*HTTPClient)(nil)

// NewHTTPClient checks the options and returns a client. It opens no connection.
func NewHTTPClient(r HTTPClientOptions) (*HTTPClient, error) {
	fail := func(format string, args ...any) (*HTTPClient, error) {
		return nil, fmt.Errorf("server %q: "+format, append([]any{r.Name}, args...)...)
	}
	u, err := url.Parse(r.URL)
	switch {
	case err != nil:
		// The text of err quotes the URL, which may contain a secret.
		return fail("its url is invalid: %w", errors.Unwrap(err))
	case u.Scheme != "http" && u.Scheme != "https":
		return fail("its url must begin with http:// or https://, not %q", u.Scheme)
	case u.Host == "":
		return fail("its url has no host")
	case u.User != nil:
		return fail("its url holds a user name or password\nhint: put them into headers, as " +
			"Authorization")
	}
	u.Fragment, u.RawFragment = "", ""
	headers := http.Header{"User-Agent": {"gatekit"}}
	for name, value := range r.Headers {
		canonical := http.CanonicalHeaderKey(name)
		if slices.Contains(reservedHeaders, canonical) {
			return fail("header %s cannot be configured: the transport sets it", canonical)
		}
		if !isToken(name) || strings.ContainsFunc(value, func(c rune) bool {
			return c < ' ' && c != '\t' || c == 0x7f
		}) {
			return fail("header %q is not valid: its name must be a word and its value without "+
				"control characters", name)
		}
		headers[canonical] = []string{strings.TrimSpace(value)}
	}
	b := &HTTPClient{name: r.Name, url: u, headers: headers, maxMessage: r.MaxMessage,
		mask: r.Mask, posted: http.Request{Method: http.MethodPost, URL: u}, target: u.RequestURI()}
	if b.mask == nil {
		b.mask = func(url string) string { return url }
	}
	if b.maxMessage <= 0 {
		b.maxMessage = defaultMaxMessage
	}
	b.template = http.Request{URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	proxy, err := http.ProxyFromEnvironment(&b.template)
	if err != nil {
		return fail("the proxy that the environment names cannot be used: %w", err)
	}
	b.http = &http.Transport{
		DialContext:         dialTCP,
		TLSHandshakeTimeout: 15 * time.Second,
		ForceAttemptHTTP2:   true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second,
			PingTimeout: 15 * time.Second},
		DisableCompression: true,
		// Each call in progress over HTTP/1.1 needs a connection. Opening a connection takes longer
		// than a call, so the connections of many calls are kept.
		MaxIdleConnsPerHost:    maxIdleConns,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
	if proxy == nil {
		b.direct = newDirect(u)
	}
	if proxy != nil {
		b.http.Proxy = http.ProxyURL(proxy)
		if r.Log != nil {
			r.Log.Info("server is reached through a proxy", "server", r.Name,
				"proxy", proxy.Host)
		}
	}
	return b, nil
}

// newDirect returns connections on which messages are posted to the URL without http.Transport. It
// returns nil for URLs that need http.Transport: with TLS, which may lead to HTTP/2, and with a
// host that net/http changes.
func newDirect(u *url.URL) *httpconns.Conns {
	if u.Scheme != "http" || !httpguts.ValidHostHeader(u.Host) ||
		strings.Contains(u.Host, "%") { // the zone of an IPv6 address is not sent
		return nil
	}
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80"))
	return httpconns.New(httpconns.Options{
		Dial: func(ctx context.Context) (net.Conn, error) {
			c, err := dialTCP(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			return c.(clientConn).TCPConn, nil
		},
		Keep: idleTimeout, Idle: maxIdleConns, Header: maxResponseHeader})
}

// reservedHeaders are headers that cannot be configured, since they would break the framing or the
// protocol.
var reservedHeaders = []string{"Accept", "Accept-Encoding", "Connection", "Content-Encoding",
	"Content-Length", "Content-Type", "Cookie", "Expect", "Host", "Last-Event-Id",
	"Mcp-Session-Id", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

var acceptBoth = []string{"application/json, text/event-stream"}

// isToken reports whether s is a valid name of a header (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
	})
}

// Post sends one message.
func (b *HTTPClient) Post(ctx context.Context, header http.Header,
	body ...[]byte) (*upstream.HTTPResponse, error) {
	size := 0
	for _, part := range body {
		size += len(part)
	}
	if b.direct == nil || size > maxDirectBody {
		return b.roundTrip(ctx, http.MethodPost, b.url, header, slices.Concat(body...))
	}
	header = b.withConfiguredHeaders(header)
	header["Content-Type"] = typeJSON
	r, err := b.direct.Do(ctx, httpconns.Request{Of: &b.posted, Target: b.target, Host: b.url.Host,
		Header: header, Body: body})
	if err != nil {
		return nil, b.requestError(ctx, http.MethodPost, b.url, err)
	}
	return b.readResponse(ctx, http.MethodPost, b.url, r)
}

// Get opens the stream of a legacy session.
func (b *HTTPClient) Get(ctx context.Context, header http.Header) (*upstream.HTTPResponse, error) {
	return b.roundTrip(ctx, http.MethodGet, b.url, header, nil)
}

// Delete ends a legacy session.
func (b *HTTPClient) Delete(ctx context.Context,
	header http.Header) (*upstream.HTTPResponse, error) {
	return b.roundTrip(ctx, http.MethodDelete, b.url, header, nil)
}

// Close closes the idle connections. A connection in use is closed when its call ends.
func (b *HTTPClient) Close() error {
	b.http.CloseIdleConnections()
	if b.direct != nil {
		b.direct.Close()
	}
	return nil
}

// roundTrip sends a request and returns the response. It reads the whole body, unless the body is
// an event stream.
func (b *HTTPClient) roundTrip(ctx context.Context, method string, to *url.URL, header http.Header,
	body []byte) (*upstream.HTTPResponse, error) {
	q := b.template.WithContext(ctx)
	header = b.withConfiguredHeaders(header)
	q.Method, q.URL, q.Header = method, to, header
	if body != nil {
		header["Content-Type"] = typeJSON
		q.Body = payload(body)
		q.ContentLength = int64(len(body))
		// net/http calls GetBody to repeat a POST that the server has certainly not processed: no
		// byte of it was written, or the server refused its HTTP/2 stream. It repeats no other
		// POST.
		q.GetBody = func() (io.ReadCloser, error) { return payload(body), nil }
	}
	r, err := b.http.RoundTrip(q)
	if err != nil {
		return nil, b.requestError(ctx, method, to, err)
	}
	return b.readResponse(ctx, method, to, r)
}

// withConfiguredHeaders adds the configured headers and the header Accept to header, which may be
// nil.
func (b *HTTPClient) withConfiguredHeaders(header http.Header) http.Header {
	if header == nil {
		header = make(http.Header)
	}
	for name, values := range b.headers {
		if header[name] == nil { // headers of the protocol take precedence
			header[name] = values
		}
	}
	if header["Accept"] == nil {
		header["Accept"] = acceptBoth
	}
	return header
}

// readResponse reads the body of a response, unless the body is an event stream.
func (b *HTTPClient) readResponse(ctx context.Context, method string, to *url.URL,
	r *http.Response) (*upstream.HTTPResponse, error) {
	if r.StatusCode >= 300 && r.StatusCode < 400 {
		r.Body.Close()
		target := "nowhere"
		if l, err := r.Location(); err == nil {
			target = b.redactedURL(l)
		}
		return nil, b.requestError(ctx, method, to,
			fmt.Errorf("the server redirects to %s (status %d), which is not followed\nhint: if "+
				"that is the server, configure it as the url", target, r.StatusCode))
	}
	a := &upstream.HTTPResponse{Status: r.StatusCode, Header: r.Header}
	if r.StatusCode < 300 && mediaType(r.Header.Get("Content-Type")) == "text/event-stream" {
		a.Events = newEventReader(r.Body, b.maxMessage)
		return a, nil
	}
	var err error
	a.Body, err = readBody(r.Body, r.ContentLength, b.maxMessage, func(int) error { return nil })
	r.Body.Close()
	if err != nil {
		return nil, b.requestError(ctx, method, to, err)
	}
	return a, nil
}

// requestError returns the error of a request, or the cause of ctx when ctx has ended.
func (b *HTTPClient) requestError(ctx context.Context, method string, to *url.URL,
	err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("server %q: %s %s: %w", b.name, method, b.redactedURL(to), err)
}

// redactedURL returns a URL for logs and errors. It has no query, which may contain a key, and the
// function mask has replaced its secrets.
func (b *HTTPClient) redactedURL(u *url.URL) string {
	return b.mask((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String())
}

// payload returns the body of a request. net/http knows that reading a body of this type does not
// block, so it sends header and body in one write.
func payload(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }

// clientConn is a connection to a server. When a body does not fit into the buffer of net/http,
// clientConn writes the rest of the body directly from the message, in one call. Otherwise net/http
// would copy the rest in pieces, through a buffer that it allocates for each request. A larger
// buffer for every connection would cost memory, even for connections with open streams.
type clientConn struct{ *net.TCPConn }

// dialTCP is the DialContext of the transport.
func dialTCP(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 15 * time.Second,
		Control: checkDial}).DialContext(ctx, network, addr)
	if tcp, ok := c.(*net.TCPConn); ok {
		return clientConn{tcp}, nil
	}
	return c, err
}

// ReadFrom writes r to the connection. net/http calls it with the rest of a payload, limited to the
// Content-Length.
func (c clientConn) ReadFrom(r io.Reader) (int64, error) {
	if limited, ok := r.(*io.LimitedReader); ok {
		if rest, ok := limited.R.(io.WriterTo); ok {
			n, err := rest.WriteTo(c.TCPConn)
			limited.N -= n
			return n, err
		}
	}
	return c.TCPConn.ReadFrom(r)
}
