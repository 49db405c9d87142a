package upstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"gatekit/core/backoff"
	"gatekit/core/conn"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/taskgroup"
)

// keepProbedFor is how long the probed process is kept for a session to use it.
const keepProbedFor = 30 * time.Second

// maxStatusConns is how many connections status returns. The number is limited because Ready sends
// a request on each connection.
const maxStatusConns = 8

// connector opens the connections to one server over pipes, and keeps a list of the connections in
// use.
type connector struct {
	opts         *Options
	goroutines   *taskgroup.Group
	closingLimit closingLimit
	counters     processCounters
	answers      initializeAnswers

	mu     sync.Mutex
	closed bool
	conns  map[*pipeConn]struct{} // the connections in use
	probed *pipeConn              // the probed process; nil after a session has taken the process
	// whose process it is, if processes belong to principals
	probedFor string
	// the probed process knows server/discover, and will refuse initialize
	probedIsModern bool
	usesSSE        bool // the URL speaks the 2024-11-05 transport and not Streamable HTTP
	// why the last connection failed or could not be opened; nil if another connection was opened
	// since, or if Gatekit closed the connection
	fault error
	// why the last process that was started never answered anything; nil if the process answered
	startFault error
}

// process returns a connection to a process for a session or principal: the probed process, if it
// can serve the era, or a new process. The connection holds the slot, which may be nil.
func (c *connector) process(ctx context.Context, era mcp.Era, who *identity.Principal,
	slot *processSlot) (*pipeConn, error) {
	if conn := c.takeProbed(era, who.ID()); conn != nil {
		if !conn.isGone() && !conn.lease.hasEnded() {
			conn.slot = slot
			return conn, nil
		}
		c.discard(conn)
	}
	conn, err := c.start(ctx, who)
	if err != nil {
		slot.release()
		return nil, err
	}
	conn.slot = slot
	return conn, nil
}

// start starts a process for a principal.
func (c *connector) start(ctx context.Context, who *identity.Principal) (*pipeConn, error) {
	var p conn.PipeCloser
	var lease Lease
	var err error
	if c.opts.Dial.PipeFor != nil {
		p, lease, err = c.opts.Dial.PipeFor(ctx, who)
	} else {
		p, err = c.opts.Dial.Pipe(ctx)
	}
	if refused, ok := errors.AsType[*CredentialsError](err); ok {
		return nil, unavailable(c.opts.Name, refused.Reason, err) // the server is not at fault
	}
	if err != nil {
		err = unavailable(c.opts.Name, "the process could not be started", err)
		c.mu.Lock()
		c.fault, c.startFault = err, err
		c.mu.Unlock()
		return nil, err
	}
	return c.open(p, lease), nil
}

// sse opens a connection over the 2024-11-05 transport, and remembers whether that succeeded.
func (c *connector) sse(ctx context.Context) (*pipeConn, error) {
	p, err := c.opts.Dial.SSE(ctx)
	c.mu.Lock()
	c.usesSSE = err == nil
	c.mu.Unlock()
	if err != nil {
		return nil, unavailable(c.opts.Name, "the HTTP+SSE stream could not be opened", err)
	}
	return c.open(p, Lease{}), nil
}

// prefersSSE reports whether the server was last reached over the 2024-11-05 transport.
func (c *connector) prefersSSE() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usesSSE
}

// open starts to read p. The connection counts as in use until it fails or is closed.
func (c *connector) open(p conn.PipeCloser, lease Lease) *pipeConn {
	var conn *pipeConn
	conn = newPipeConn(c.opts, p, func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.conns, conn)
		isClosed := errors.Is(err, taskgroup.ErrClosed)
		if !isClosed {
			c.fault = err
		}
		if conn.hasAnswered.Load() {
			c.startFault = nil
		} else if !isClosed {
			c.startFault = err
		}
	})
	conn.lease = lease
	c.mu.Lock()
	if c.conns == nil {
		c.conns = make(map[*pipeConn]struct{})
	}
	c.conns[conn] = struct{}{}
	c.fault = nil
	c.mu.Unlock()
	conn.start()
	return conn
}

// keepProbed keeps the probed process until a session takes it. When the connector is closed,
// keepProbed does not keep the process, and returns false.
func (c *connector) keepProbed(conn *pipeConn, isModern bool, principal string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.probed, c.probedIsModern, c.probedFor = conn, isModern, principal
	return true
}

// markProbedModern records that the probed process is modern. If conn is no longer kept as the
// probed process, markProbedModern does nothing.
func (c *connector) markProbedModern(conn *pipeConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probed == conn {
		c.probedIsModern = true
	}
}

// takeProbed returns the probed process if it can serve the era and the principal, and no session
// has taken it. Otherwise it returns nil.
func (c *connector) takeProbed(era mcp.Era, principal string) *pipeConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probed == nil || c.probedIsModern != (era == mcp.Modern) ||
		c.opts.Dial.PipeFor != nil && c.probedFor != principal {
		return nil
	}
	conn := c.probed
	c.probed = nil
	return conn
}

// expireProbed waits for keepProbedFor, or until ctx ends. It returns true if no session has taken
// the probed process by then. The caller must then close the process.
func (c *connector) expireProbed(ctx context.Context, conn *pipeConn) bool {
	backoff.Sleep(ctx, keepProbedFor)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probed != conn {
		return false
	}
	c.probed = nil
	return true
}

// discard closes a connection that is no longer used. A failure is only logged.
func (c *connector) discard(conn closer) {
	if err := conn.Close(); err != nil {
		c.opts.Log.Debug("closing a connection failed", "server", c.opts.Name, "error", err)
	}
}

// discardLater closes a connection that is no longer used, and does not wait until it is closed.
func (c *connector) discardLater(conn closer) {
	if !c.goroutines.Go(func(context.Context) { c.discard(conn) }) {
		c.discard(conn)
	}
}

// status returns some of the connections that are in use. When there are none, it returns the
// fields fault and startFault.
func (c *connector) status() (conns []*pipeConn, fault, startFault error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		if len(conns) < maxStatusConns {
			conns = append(conns, conn)
		}
	}
	if len(conns) > 0 {
		return conns, nil, nil
	}
	return nil, c.fault, c.startFault
}

// close closes the process that was probed. After that, no probed process is kept. Sessions close
// their connections themselves.
func (c *connector) close() error {
	c.mu.Lock()
	c.closed = true
	conn := c.probed
	c.probed = nil
	c.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}
