// Package httpconns sends HTTP/1.1 requests to one server in the goroutine of the caller, over TCP
// or TLS, and keeps the connections for later requests.
//
// # Why not http.Transport
//
// http.Transport has two goroutines for each connection: one writes, and one reads. In each call,
// the work is handed over four times between these goroutines and the goroutine of the call. With
// one call at a time, these hand-overs take longer than all parsing. HTTP/2 needs even more of
// them. This package writes and reads in the goroutine of the call. Over TCP, it sends header and
// body with one system call and without a copy. Over TLS, it sends a small request as one record.
// Responses are still parsed by net/http.
//
// Like http.Transport, it sends a request again only if no byte of it was written. It uses no
// connection on which the server has sent anything unasked.
package httpconns

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Options configure Conns. All fields are required.
type Options struct {
	// Dial opens a connection: a *net.TCPConn, or a *tls.Conn on one.
	Dial func(context.Context) (net.Conn, error)
	Keep time.Duration // how long an unused connection is kept
	Idle int           // how many unused connections are kept
	// Header is how many bytes the header of a response may have.
	Header int
}

// Request is a request that Conns sends.
type Request struct {
	// Of has the method of the request. Response.Request is Of.
	Of     *http.Request
	Target string // path and query
	Host   string
	Header http.Header // without Content-Length
	Body   [][]byte    // the body is the concatenation of all parts
}

// Conns keeps connections to one server. Many goroutines may use it.
type Conns struct {
	o Options

	mu     sync.Mutex
	idle   []*conn     // in the order in which they became unused
	timer  *time.Timer // closes expired connections; nil if none is idle
	closed bool        // connections are no longer kept
}

// New returns a Conns without connections.
func New(o Options) *Conns { return &Conns{o: o} }

// Do sends a request and returns the response. Its body must be closed. If the server answers a
// large request before it has read all of it, Do returns the answer. The response and its body end
// with ctx.
func (t *Conns) Do(ctx context.Context, r Request) (*http.Response, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	for {
		c := t.takeIdle()
		isNew := c == nil
		if isNew {
			stream, err := t.o.Dial(ctx)
			if err != nil {
				return nil, err
			}
			if c, err = newConn(t, stream); err != nil {
				return nil, err
			}
		}
		response, written, err := c.do(ctx, r)
		if err == nil || written || isNew || ctx.Err() != nil {
			return response, err
		}
	}
}

// check returns an error if the request could not be written as one request.
func (r Request) check() error {
	for _, word := range [...]string{r.Of.Method, r.Target, r.Host} {
		if strings.ContainsFunc(word, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
			return errors.New("the method, the target or the host of the request has a space or " +
				"a control character")
		}
	}
	for name, values := range r.Header {
		for _, value := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
				// the value may be a secret
				return fmt.Errorf("the header %q has an invalid name or value", name)
			}
		}
	}
	return nil
}

// takeIdle returns a connection that can be used, or nil if there is none.
func (t *Conns) takeIdle() *conn {
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
		c.stream.Close()
	}
}

// putIdle keeps a connection whose response was read to its end.
func (t *Conns) putIdle(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.idle) >= t.o.Idle {
		c.stream.Close()
		return
	}
	c.idleSince = time.Now()
	t.idle = append(t.idle, c)
	if t.timer == nil {
		t.timer = time.AfterFunc(t.o.Keep, t.closeExpired)
	}
}

// closeExpired closes the connections that were not used for too long.
func (t *Conns) closeExpired() {
	t.mu.Lock()
	defer t.mu.Unlock()
	expired := 0
	for expired < len(t.idle) && time.Since(t.idle[expired].idleSince) >= t.o.Keep {
		t.idle[expired].stream.Close()
		expired++
	}
	t.idle = append(t.idle[:0], t.idle[expired:]...)
	clear(t.idle[len(t.idle):cap(t.idle)])
	t.timer = nil
	if len(t.idle) > 0 {
		t.timer = time.AfterFunc(t.o.Keep-time.Since(t.idle[0].idleSince), t.closeExpired)
	}
}

// HasUsable reports whether the next request will be sent on a connection that exists.
func (t *Conns) HasUsable() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.idle, (*conn).isQuiet)
}

// Close closes the idle connections. A connection in use is closed after its response.
func (t *Conns) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, c := range t.idle {
		c.stream.Close()
	}
	t.idle = nil
	if t.timer != nil {
		t.timer.Stop()
	}
}

// maxSerialBody is the maximum size of a request that is written before the response is read. A
// server may answer a larger request before it has read all of it, and then read nothing more.
const maxSerialBody = 128 << 10

// recordSize is the maximum size of a record of TLS.
const recordSize = 16 << 10

// conn is one connection. One request at a time uses it.
type conn struct {
	conns     *Conns
	stream    net.Conn
	hasTLS    bool
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

func newConn(t *Conns, stream net.Conn) (*conn, error) {
	c := &conn{conns: t, stream: stream}
	c.in = bufio.NewReader(c)
	c.probe = func(fd uintptr) {
		var b [1]byte
		_, c.probeErr = syscall.Read(int(fd), b[:])
	}
	if encrypted, ok := stream.(*tls.Conn); ok {
		c.hasTLS, stream = true, encrypted.NetConn()
	}
	tcp, ok := stream.(syscall.Conn)
	err := errors.New("the connection has no file descriptor")
	if ok {
		c.raw, err = tcp.SyscallConn()
	}
	if err != nil {
		c.stream.Close()
	}
	return c, err
}

// Read reads from the connection, at most maxRead bytes. Only c.in uses it.
func (c *conn) Read(p []byte) (int, error) {
	if c.maxRead <= 0 {
		return 0, fmt.Errorf("the header of the response exceeded %d bytes", c.conns.o.Header)
	}
	n, err := c.stream.Read(p[:min(len(p), c.maxRead)])
	c.maxRead -= n
	return n, err
}

// isQuiet reports whether the connection is open and the server has sent nothing since the last
// response. Unasked bytes could be taken for the response to the next request.
func (c *conn) isQuiet() bool {
	if c.in.Buffered() > 0 {
		return false
	}
	err := c.raw.Control(c.probe)
	return err == nil && errors.Is(c.probeErr, syscall.EAGAIN)
}

// do sends a request and reads the header of the response. written reports whether the server may
// have got a part of the request. After an error, the connection is closed.
func (c *conn) do(ctx context.Context, r Request) (response *http.Response, written bool,
	err error) {
	size := 0
	for _, part := range r.Body {
		size += len(part)
	}
	stop := context.AfterFunc(ctx, func() { c.stream.SetDeadline(time.Unix(1, 0)) })
	b := &body{conn: c, stop: stop}
	w := &b.write
	if size <= maxSerialBody {
		w.do(ctx, c, r, size)
	} else {
		w.ended = make(chan struct{})
		go func() {
			defer close(w.ended)
			w.do(ctx, c, r, size)
		}()
	}
	if w.ended != nil || w.n > 0 {
		// If the write failed, the server may have sent the reason before it closed the connection.
		response, err = c.readHeader(r.Of)
	}
	if err != nil || w.ended == nil && w.n == 0 {
		stop()
		c.stream.Close()
		if w.ended != nil {
			<-w.ended
		}
		return nil, w.n > 0, cmp.Or(w.err, err)
	}
	b.body, b.reusable = response.Body, !response.Close && response.StatusCode >= 200
	if response.Body == http.NoBody {
		b.end(true)
	}
	response.Body = b
	return response, true, nil
}

// write is the write of one request.
type write struct {
	n     int64 // bytes that were written
	err   error
	ended chan struct{} // closed when n and err are set; nil if do has returned already
}

// do writes the request, whose body has size bytes.
func (w *write) do(ctx context.Context, c *conn, r Request, size int) {
	w.n, w.err = c.write(r, size)
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.WroteRequest != nil &&
		w.n > 0 {
		trace.WroteRequest(httptrace.WroteRequestInfo{Err: w.err})
	}
}

// isWhole reports whether the whole request was written.
func (w *write) isWhole() bool {
	if w.ended != nil {
		select {
		case <-w.ended:
		default:
			return false
		}
	}
	return w.err == nil
}

// write writes the request, and returns the number of bytes that were written.
func (c *conn) write(r Request, size int) (int64, error) {
	head := bytes.NewBuffer(append(c.head[:0], r.Of.Method...))
	for _, text := range []string{" ", r.Target, " HTTP/1.1\r\nHost: ", r.Host, "\r\n"} {
		head.WriteString(text)
	}
	if err := r.Header.Write(head); err != nil {
		return 0, err
	}
	if size > 0 || r.Of.Method == http.MethodPost {
		fmt.Fprintf(head, "Content-Length: %d\r\n", size)
	}
	head.WriteString("\r\n")
	c.parts = append(append(c.parts[:0], nil), r.Body...)
	if c.hasTLS { // each write is at least one record and one system call
		for i := 1; i < len(c.parts); i++ {
			n := min(len(c.parts[i]), max(0, recordSize-head.Len()))
			head.Write(c.parts[i][:n])
			c.parts[i] = c.parts[i][n:]
		}
	}
	c.head = head.Bytes()
	c.parts[0] = c.head
	c.out = slices.DeleteFunc(c.parts, func(p []byte) bool { return len(p) == 0 })
	n, err := c.out.WriteTo(c.stream)
	clear(c.parts)
	return n, err
}

// readHeader reads the header of the response. It skips informational responses.
func (c *conn) readHeader(of *http.Request) (*http.Response, error) {
	c.maxRead = c.conns.o.Header
	for {
		response, err := http.ReadResponse(c.in, of)
		if err != nil {
			return nil, err
		}
		if response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			c.maxRead = math.MaxInt // the reader of the body has a limit of its own
			return response, nil
		}
	}
}

// body is the body of a response. At its end, it gives the connection back. If it is closed before,
// it closes the connection.
type body struct {
	conn     *conn
	body     io.Reader
	stop     func() bool // ends the effect of the call's context, unless it has ended
	write    write
	reusable bool // the server lets the connection be used again
	ended    atomic.Bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil {
		b.end(err == io.EOF)
	}
	return n, err
}

// Close implements io.Closer. It may be called during Read, which then returns an error.
func (b *body) Close() error {
	b.end(false)
	return nil
}

// end gives the connection back if the whole body was read, and otherwise closes it.
func (b *body) end(whole bool) {
	if b.ended.Swap(true) {
		return
	}
	if b.stop() && whole && b.reusable && b.write.isWhole() {
		b.conn.conns.putIdle(b.conn)
	} else {
		b.conn.stream.Close()
	}
}
