package auth_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"gatekit/test/issuertest"
	"gatekit/transport/auth"
)

// closingListener closes each connection at the first byte after its nth answer, as a server that
// no longer waits for requests on an idle connection. If after is 0, it closes none.
type closingListener struct {
	net.Listener
	after    int
	accepted atomic.Int32
}

func (l *closingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.accepted.Add(1)
	return &closingConn{Conn: c, after: l.after}, nil
}

type closingConn struct {
	net.Conn
	after   int
	answers atomic.Int32
}

func (c *closingConn) Write(p []byte) (int, error) {
	c.answers.Add(1)
	return c.Conn.Write(p)
}

func (c *closingConn) Read(p []byte) (int, error) {
	isLast := c.after > 0 && int(c.answers.Load()) >= c.after
	n, err := c.Conn.Read(p)
	if isLast && n > 0 {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// Questions about tokens share a connection, and are asked again if the issuer closes it.
func TestIntrospectionOverAnIdleConnection(t *testing.T) {
	for _, tt := range []struct {
		name        string
		after       int
		connections int32 // for three questions after the first one
	}{
		{"that is kept", 0, 0},
		{"that the issuer closes", 1, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := issuertest.New("")
			s := httptest.NewUnstartedServer(i)
			l := &closingListener{Listener: s.Listener, after: tt.after}
			s.Listener = l
			s.Start()
			t.Cleanup(s.Close)
			i.URL = s.URL
			a, err := auth.New(auth.Options{Resource: resource, Path: "/mcp",
				Issuers: []auth.Issuer{{Issuer: i.URL, Audience: []string{resource}, Opaque: true,
					Introspect: &auth.Introspect{ID: "gatekit", Secret: "s3:cret"}}}})
			if err != nil {
				t.Fatal(err)
			}
			for n := range 4 {
				if n == 1 {
					l.accepted.Store(0)
				}
				if got := status(a, i.Opaque(i.Claims(resource, nil))); got != http.StatusOK {
					t.Errorf("token %d: got status %d, want 200", n+1, got)
				}
			}
			if n := l.accepted.Load(); n != tt.connections || i.Introspections() != 4 {
				t.Errorf("%d connections, %d questions; want %d and 4", n, i.Introspections(),
					tt.connections)
			}
		})
	}
}
