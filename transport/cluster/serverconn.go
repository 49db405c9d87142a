package cluster

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// headerNotBegun is the header of an answer that means: the request was not begun. Only serverConn
// writes it.
const headerNotBegun = "Gatekit-Not-Begun"

// notBegun is the answer that a replica sends unasked when it closes a connection that no request
// uses. It is the answer to a request that is on its way.
const notBegun = "HTTP/1.1 503 Service Unavailable\r\n" + headerNotBegun + ": 1\r\n" +
	"Connection: close\r\nContent-Length: 0\r\n\r\n"

// lingerTime is how long a connection stays open after notBegun was sent. If it were closed at
// once, the system would answer a request that arrives then with a reset, and drop notBegun.
const lingerTime = 250 * time.Millisecond

// serverConn is a connection on which another replica sends requests. When the server of net/http
// closes it while a request is on its way, the other replica learns that the request was not begun,
// and sends it elsewhere. HTTP/2 has GOAWAY for this; HTTP/1.1 has nothing.
type serverConn struct {
	*tls.Conn
	conns *serverConns // of which this is one

	mu sync.Mutex
	// idle is true if at least one request was answered, the last answer was written, and no other
	// request has begun.
	idle   bool
	closed bool
}

// begin reports whether a request that was read from the connection may be run. It returns false if
// the other replica was told that it was not begun.
func (c *serverConn) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = false
	return !c.closed
}

// Write implements net.Conn.
func (c *serverConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.idle = false
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *serverConn) Close() error {
	if c.closeIdle() {
		return nil
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	return c.Conn.Close()
}

// closeIdle closes the connection if no request uses it, and reports whether the connection is
// closed. It tells the other replica that a request which arrives now was not begun.
func (c *serverConn) closeIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.idle || c.closed {
		return c.closed
	}
	c.closed = true
	c.Conn.SetWriteDeadline(time.Now().Add(lingerTime))
	c.Conn.Write([]byte(notBegun))
	c.conns.lingering.Add(1)
	time.AfterFunc(lingerTime, func() {
		defer c.conns.lingering.Done()
		c.Conn.Close()
	})
	return true
}

// serverConns are the open connections from other replicas.
type serverConns struct {
	lingering sync.WaitGroup // counts the connections that are to be closed after lingerTime
	leaving   atomic.Bool    // connections are closed when no request uses them; set by leave

	mu   sync.Mutex
	open map[*serverConn]struct{}
}

// serverListener accepts connections from other replicas.
type serverListener struct {
	net.Listener
	secure *tls.Config
	conns  *serverConns
}

// Accept implements net.Listener. The first read of the connection does the handshake.
func (l serverListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &serverConn{Conn: tls.Server(c, l.secure), conns: l.conns}, nil
}

// stateChanged is the ConnState of the http.Server.
func (s *serverConns) stateChanged(c net.Conn, state http.ConnState) {
	conn := c.(*serverConn)
	switch state {
	case http.StateNew:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open == nil {
			s.open = map[*serverConn]struct{}{}
		}
		s.open[conn] = struct{}{}
	case http.StateIdle:
		conn.mu.Lock()
		conn.idle = true
		conn.mu.Unlock()
		if s.leaving.Load() {
			conn.closeIdle()
		}
	case http.StateClosed, http.StateHijacked:
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, conn)
	}
}

// leave closes each connection as soon as no request uses it.
func (s *serverConns) leave() {
	s.leaving.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.closeIdle()
	}
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(ctx context.Context) *serverConn { return ctx.Value(connKey{}).(*serverConn) }
