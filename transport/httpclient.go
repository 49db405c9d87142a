package transport

import (
	"bytes"
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
)

// HTTPClientOptions says how a server is reached over HTTP.
type HTTPClientOptions struct {
	Name       string            // of the server, as it is configured: for errors
	URL        string            // http or https, without user and password
	Headers    map[string]string // sent with every request, credentials among them; never logged
	MaxMessage int               // bytes of a body or event; 0 is 16 MiB
	Log        *slog.Logger      // nil: nothing is logged
}

// HTTPClient is the client side of Streamable HTTP towards one server. It is safe for many
// goroutines.
//
//   - It follows no redirect: a message and its credentials go where the configuration says or
//     nowhere. A 3xx is an error that names the target.
//   - It keeps no cookies, takes no compression, and sets no time-out of its own: calls are long,
//     and ctx decides.
//   - It goes through a proxy where HTTPS_PROXY, HTTP_PROXY and NO_PROXY say so, like other
//     programs, never for loopback. That is settled by Dial and logged.
type HTTPClient struct {
	name     string
	url      *url.URL
	headers  http.Header
	max      int
	template http.Request
	http     *http.Transport
}

var _ upstream.HTTP = (*HTTPClient)(nil)

// NewHTTPClient checks r and makes ready; it connects to nobody.
func NewHTTPClient(r HTTPClientOptions) (*HTTPClient, error) {
	fail := func(format string, args ...any) (*HTTPClient, error) {
		return nil, fmt.Errorf("server %q: "+format, append([]any{r.Name}, args...)...)
	}
	u, err := url.Parse(r.URL)
	switch {
	case err != nil:
		// the error itself quotes the URL
		return fail("its url cannot be read: %w", errors.Unwrap(err))
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
		if slices.Contains(ourHeaders, canonical) {
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
	b := &HTTPClient{name: r.Name, url: u, headers: headers, max: r.MaxMessage}
	if b.max <= 0 {
		b.max = defaultMessage
	}
	b.template = http.Request{URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	proxy, err := http.ProxyFromEnvironment(&b.template)
	if err != nil {
		return fail("the proxy that the environment names cannot be used: %w", err)
	}
	b.http = &http.Transport{
		DialContext:         dial,
		TLSHandshakeTimeout: 15 * time.Second,
		ForceAttemptHTTP2:   true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second,
			PingTimeout: 15 * time.Second},
		DisableCompression: true,
		// each call in flight has a connection; closing and opening them costs more than the call
		MaxIdleConnsPerHost:    128,
		IdleConnTimeout:        55 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	if proxy != nil {
		b.http.Proxy = http.ProxyURL(proxy)
		if r.Log != nil {
			r.Log.Info("the server is reached through a proxy", "server", r.Name,
				"proxy", proxy.Host)
		}
	}
	return b, nil
}

// ourHeaders are those that would break the framing, or the protocol, if they were configured.
var ourHeaders = []string{"Accept", "Accept-Encoding", "Connection", "Content-Encoding",
	"Content-Length", "Content-Type", "Cookie", "Expect", "Host", "Last-Event-Id",
	"Mcp-Session-Id", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

var acceptBoth = []string{"application/json, text/event-stream"}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
	})
}

// Post sends one message.
func (b *HTTPClient) Post(ctx context.Context, header http.Header,
	body []byte) (*upstream.HTTPResponse, error) {
	return b.do(ctx, http.MethodPost, b.url, header, body)
}

// Get opens the legacy session's stream.
func (b *HTTPClient) Get(ctx context.Context, header http.Header) (*upstream.HTTPResponse, error) {
	return b.do(ctx, http.MethodGet, b.url, header, nil)
}

// Delete ends a legacy session.
func (b *HTTPClient) Delete(ctx context.Context, header http.Header) (*upstream.HTTPResponse, error) {
	return b.do(ctx, http.MethodDelete, b.url, header, nil)
}

// Close drops the connections that are idle. Those in use end with their calls.
func (b *HTTPClient) Close() error {
	b.http.CloseIdleConnections()
	return nil
}

func (b *HTTPClient) do(ctx context.Context, method string, to *url.URL, header http.Header,
	body []byte) (*upstream.HTTPResponse, error) {
	q := b.template.WithContext(ctx)
	if header == nil {
		header = make(http.Header)
	}
	q.Method, q.URL, q.Header = method, to, header
	for name, values := range b.headers {
		if header[name] == nil { // the protocol's word is the last
			header[name] = values
		}
	}
	if body != nil {
		header["Content-Type"] = typeJSON
		q.Body = payload(body)
		q.ContentLength = int64(len(body))
		// Only for a request of which nothing was written: net/http repeats no other POST, and we
		// none at all.
		q.GetBody = func() (io.ReadCloser, error) { return payload(body), nil }
	}
	if header["Accept"] == nil {
		header["Accept"] = acceptBoth
	}
	r, err := b.http.RoundTrip(q)
	if err != nil {
		return nil, b.failed(ctx, method, to, err)
	}
	if r.StatusCode >= 300 && r.StatusCode < 400 {
		r.Body.Close()
		where := "nowhere"
		if l, err := r.Location(); err == nil {
			where = place(l)
		}
		return nil, b.failed(ctx, method, to,
			fmt.Errorf("it redirects to %s (status %d), which is not followed\nhint: if that is "+
				"the server, put it into the configuration as its url", where, r.StatusCode))
	}
	a := &upstream.HTTPResponse{Status: r.StatusCode, Header: r.Header}
	if r.StatusCode < 300 && mediaType(r.Header.Get("Content-Type")) == "text/event-stream" {
		a.Events = newEvents(r.Body, b.max)
		return a, nil
	}
	a.Body, err = readBody(r.Body, r.ContentLength, b.max, func(int) error { return nil })
	r.Body.Close()
	if err != nil {
		return nil, b.failed(ctx, method, to, err)
	}
	return a, nil
}

func (b *HTTPClient) failed(ctx context.Context, method string, to *url.URL, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("server %q: %s %s: %w", b.name, method, place(to), err)
}

// place is a URL as it may be logged: its query may hold a key.
func place(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// payload is a request's body. Of this type net/http knows that it needs no waiting for, and sends
// header and body in one write.
func payload(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }

// backConn writes what of a payload the buffer of net/http has no room for straight from the
// message, in one call. Otherwise it would be copied in pieces through a buffer that is made for
// each request, or the buffer of every connection would have to hold a message: those of open
// streams, too.
type backConn struct{ *net.TCPConn }

func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 15 * time.Second}).DialContext(ctx,
		network, addr)
	if tcp, ok := c.(*net.TCPConn); ok {
		return backConn{tcp}, nil
	}
	return c, err
}

// ReadFrom is called by net/http with the rest of a body, limited to its Content-Length, which is
// what is left of a payload.
func (c backConn) ReadFrom(r io.Reader) (int64, error) {
	if limited, ok := r.(*io.LimitedReader); ok {
		if rest, ok := limited.R.(io.WriterTo); ok {
			n, err := rest.WriteTo(c.TCPConn)
			limited.N -= n
			return n, err
		}
	}
	return c.TCPConn.ReadFrom(r)
}
