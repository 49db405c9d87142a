package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"gatekit/transport/httpconns"
)

// Times and numbers of the connections to other replicas.
const (
	dialTimeout = 2 * time.Second
	openTimeout = 5 * time.Second // for the connection and the handshake of TLS
	keepTime    = 55 * time.Second
	maxIdle     = 64  // connections to one replica that are kept
	maxOwners   = 256 // replicas whose connections are kept
)

// owners keeps the connections to the other replicas. The zero value has none.
type owners struct {
	mu    sync.Mutex
	known map[string]*httpconns.Conns // by address
}

// conns returns the connections to the replica at the address.
func (o *owners) conns(address string,
	dial func(ctx context.Context, address string) (net.Conn, error)) *httpconns.Conns {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.known[address]
	if c == nil {
		if len(o.known) >= maxOwners {
			o.closeLocked()
		}
		if o.known == nil {
			o.known = map[string]*httpconns.Conns{}
		}
		c = httpconns.New(httpconns.Options{Keep: keepTime, Idle: maxIdle, Header: maxHeaderBytes,
			Dial: func(ctx context.Context) (net.Conn, error) { return dial(ctx, address) }})
		o.known[address] = c
	}
	return c
}

// close closes the connections that no request uses.
func (o *owners) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closeLocked()
}

func (o *owners) closeLocked() {
	for _, c := range o.known {
		c.Close()
	}
	o.known = nil
}

// dialError means that no connection was opened, so that nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// dial opens a connection to the replica at the address, and checks its certificate.
func (r *Replica) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	dialer := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive,
		Control: limitUnacknowledged}
	plain, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, &dialError{err}
	}
	secure := r.client
	if host, _, err := net.SplitHostPort(address); err == nil {
		secure = secure.Clone()
		secure.ServerName = host
	}
	c := tls.Client(plain, secure)
	if err := c.HandshakeContext(ctx); err != nil {
		plain.Close()
		return nil, &dialError{fmt.Errorf("open a connection to %s: %w", address, err)}
	}
	return c, nil
}

// lostAfter is how long the other end of a connection may acknowledge nothing.
const lostAfter = 20 * time.Second

// keepAlive finds out that the other end of a connection without traffic is lost.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second,
	Count: 2}
