package transport

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"
)

const (
	maxIdleConns      = 128              // connections of one server that are kept
	idleTimeout       = 55 * time.Second // for which an unused connection is kept
	maxResponseHeader = 64 << 10         // bytes of the header of a response
	// maxDirectBody is the maximum size of a request that httpConns sends. A server may answer a
	// large request before it has read the whole request. Only http.Transport reads the answer
	// while it still writes.
	maxDirectBody = 128 << 10
)

// httpConns posts messages to one server over plain HTTP/1.1. It keeps its connections for later
// messages.
//
// # Why not http.Transport
//
// http.Transport has two goroutines for each connection: one writes, and one reads. In each call,
// the work is handed over four times between these goroutines and the goroutine of the call. With
// one call at a time, these hand-overs take longer than all parsing. httpConns writes and reads in
// the goroutine of the call, and sends header and body with one system call and without a copy.
// Responses are still parsed by net/http. Everything else is left to http.Transport: TLS, HTTP/2,
// proxies, large messages, and requests other than POST.
//
// Like http.Transport, httpConns sends a message again only if no byte of it was written. It uses
// no connection on which the server has sent anything unasked.
type httpConns struct {
	addr    string        // host and port to connect to
	start   string        // of each request: the request line and the header Host
	request *http.Request // with the method and the URL, for http.ReadResponse
	keep    time.Duration // how long an unused connection is kept

	mu     sync.Mutex
	idle   []*httpConn // in the order in which they became unused
	timer  *time.Timer // closes expired connections; nil if none is idle
	closed bool        // connections are no longer kept
}

// newHTTPConns returns an httpConns that posts to the URL. It returns nil if http.Transport must be
// used.
func newHTTPConns(u *url.URL, hasProxy bool) *httpConns {
	if u.Scheme != "http" || hasProxy || !httpguts.ValidHostHeader(u.Host) ||
		strings.Contains(u.Host, "%") { // the zone of an IPv6 address is not sent
		return nil
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	return &httpConns{
		addr:    net.JoinHostPort(u.Hostname(), port),
		start:   "POST " + u.RequestURI() + " HTTP/1.1\r\nHost: " + u.Host + "\r\n",
		request: &http.Request{Method: http.MethodPost, URL: u},
		keep:    idleTimeout,
	}
}

// post sends a message and returns the response. Its body must be closed.
func (t *httpConns) post(ctx context.Context, header http.Header,
	body [][]byte) (*http.Response, error) {
	for name, values := range header {
		for _, value := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
				// the value may be a secret
				return nil, fmt.Errorf("the header %q has an invalid name or value", name)
			}
		}
	}
	for {
		c := t.takeIdle()
		isNew := c == nil
		if isNew {
			var err error
			if c, err = t.dial(ctx); err != nil {
				return nil, err
			}
		}
		response, written, err := c.post(ctx, header, body)
		if err == nil || written || isNew || ctx.Err() != nil {
			return response, err
		}
	}
}

func (t *httpConns) dial(ctx context.Context) (*httpConn, error) {
	tcp, err := dialTCP(ctx, "tcp", t.addr)
	if err != nil {
		return nil, err
	}
	return newHTTPConn(t, tcp.(clientConn).TCPConn)
}

// takeIdle returns a connection that can be used, or nil if there is none.
func (t *httpConns) takeIdle() *httpConn {
	for {
		t.mu.Lock()
		if len(t.idle) == 0 {
			t.mu.Unlock()
			return nil
		}
		last := len(t.idle) - 1
		c := t.idle[last]
		t.idle[last] = nil
		t.idle = t.idle[:last]
		t.mu.Unlock()
		if c.isQuiet() {
			return c
		}
		c.tcp.Close()
	}
}

// putIdle keeps a connection whose response was read to its end.
func (t *httpConns) putIdle(c *httpConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.idle) >= maxIdleConns {
		c.tcp.Close()
		return
	}
	c.idleSince = time.Now()
	t.idle = append(t.idle, c)
	if t.timer == nil {
		t.timer = time.AfterFunc(t.keep, t.closeExpired)
	}
}

// closeExpired closes the connections that were not used for too long.
func (t *httpConns) closeExpired() {
	t.mu.Lock()
	defer t.mu.Unlock()
	expired := 0
	for expired < len(t.idle) && time.Since(t.idle[expired].idleSince) >= t.keep {
		t.idle[expired].tcp.Close()
		expired++
	}
	t.idle = append(t.idle[:0], t.idle[expired:]...)
	clear(t.idle[len(t.idle):cap(t.idle)])
	t.timer = nil
	if len(t.idle) > 0 {
		t.timer = time.AfterFunc(t.keep-time.Since(t.idle[0].idleSince), t.closeExpired)
	}
}

// close closes the idle connections. A connection in use is closed after its response.
func (t *httpConns) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, c := range t.idle {
		c.tcp.Close()
	}
	t.idle = nil
	if t.timer != nil {
		t.timer.Stop()
	}
}

// httpConn is one connection. One call at a time uses it.
type httpConn struct {
	conns     *httpConns
	tcp       *net.TCPConn
	raw       syscall.RawConn
	in        *bufio.Reader // reads with Read
	maxRead   int           // how many bytes Read may still read
	head      []byte        // of the request; the memory is used again
	parts     [][]byte      // of the request; the memory is used again
	out       net.Buffers   // the parts that are not written yet
	idleSince time.Time

	probe    func(fd uintptr) // reads a byte without waiting, and sets probeErr
	probeErr error
}

func newHTTPConn(t *httpConns, tcp *net.TCPConn) (*httpConn, error) {
	c := &httpConn{conns: t, tcp: tcp}
	c.in = bufio.NewReader(c)
	c.probe = func(fd uintptr) {
		var b [1]byte
		_, c.probeErr = syscall.Read(int(fd), b[:])
	}
	var err error
	if c.raw, err = tcp.SyscallConn(); err != nil {
		tcp.Close()
	}
	return c, err
}

// Read reads from the connection, at most maxRead bytes. Only c.in uses it.
func (c *httpConn) Read(p []byte) (int, error) {
	if c.maxRead <= 0 {
		return 0, fmt.Errorf("the header of the response exceeded %d bytes",
			maxResponseHeader)
	}
	n, err := c.tcp.Read(p[:min(len(p), c.maxRead)])
	c.maxRead -= n
	return n, err
}

// isQuiet reports whether the connection is open and the server has sent nothing since the last
// response. Unasked bytes could be taken for the response to the next request.
func (c *httpConn) isQuiet() bool {
	if c.in.Buffered() > 0 {
		return false
	}
	err := c.raw.Control(c.probe)
	return err == nil && errors.Is(c.probeErr, syscall.EAGAIN)
}

// post sends a message and reads the header of the response. written reports whether the server may
// have got a part of the message. After an error, the connection is closed.
func (c *httpConn) post(ctx context.Context, header http.Header,
	body [][]byte) (response *http.Response, written bool, err error) {
	stop := context.AfterFunc(ctx, func() { c.tcp.SetDeadline(time.Unix(1, 0)) })
	n, writeErr := c.write(header, body)
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.WroteRequest != nil &&
		n > 0 {
		trace.WroteRequest(httptrace.WroteRequestInfo{Err: writeErr})
	}
	if n == 0 {
		err = writeErr
	} else {
		// If the write failed, the server may have sent the reason before it closed the connection.
		response, err = c.readHeader()
	}
	if err != nil {
		stop()
		c.tcp.Close()
		return nil, n > 0, cmp.Or(writeErr, err)
	}
	b := &httpBody{conn: c, body: response.Body, stop: stop, reusable: writeErr == nil &&
		!response.Close && response.StatusCode >= 200}
	if response.Body == http.NoBody {
		b.end(true)
	}
	response.Body = b
	return response, true, nil
}

// write writes the request, and returns the number of bytes that were written.
func (c *httpConn) write(header http.Header, body [][]byte) (int64, error) {
	size := 0
	for _, part := range body {
		size += len(part)
	}
	head := bytes.NewBuffer(append(c.head[:0], c.conns.start...))
	if err := header.Write(head); err != nil {
		return 0, err
	}
	fmt.Fprintf(head, "Content-Length: %d\r\n\r\n", size)
	c.head = head.Bytes()
	c.parts = append(append(c.parts[:0], c.head), body...)
	c.out = c.parts
	n, err := c.out.WriteTo(c.tcp)
	clear(c.parts)
	return n, err
}

// readHeader reads the header of the response. It skips informational responses.
func (c *httpConn) readHeader() (*http.Response, error) {
	c.maxRead = maxResponseHeader
	for {
		response, err := http.ReadResponse(c.in, c.conns.request)
		if err != nil {
			return nil, err
		}
		if response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			c.maxRead = math.MaxInt // the reader of the body has a limit of its own
			return response, nil
		}
	}
}

// httpBody is the body of a response. At its end, it gives the connection back. If it is closed
// before, it closes the connection.
type httpBody struct {
	conn     *httpConn
	body     io.Reader
	stop     func() bool // ends the effect of the call's context, unless it has ended
	reusable bool        // the connection may be used again
	ended    atomic.Bool
}

// Read implements io.Reader.
func (b *httpBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil {
		b.end(err == io.EOF)
	}
	return n, err
}

// Close implements io.Closer. It may be called during Read, which then returns an error.
func (b *httpBody) Close() error {
	b.end(false)
	return nil
}

// end gives the connection back if the whole body was read, and otherwise closes it.
func (b *httpBody) end(whole bool) {
	if b.ended.Swap(true) {
		return
	}
	if b.stop() && whole && b.reusable {
		b.conn.conns.putIdle(b.conn)
	} else {
		b.conn.tcp.Close()
	}
}
