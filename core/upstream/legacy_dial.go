package upstream

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// legacyConn is one connection of a legacy session: a process, an SSE stream, or a session over
// Streamable HTTP.
type legacyConn interface {
	// send writes a request and waits for its answer.
	send(ctx context.Context, o Outgoing, h proxy.Handler) (*mcp.Message, error)
	notify(ctx context.Context, o Outgoing) error
	// lost returns a channel that is closed when the connection has failed or is closed. After
	// that, the function why returns the reason.
	lost() (gone <-chan struct{}, why func() error)
	// hasSessionStream reports for this connection what LegacySession.HasSessionStream reports for
	// a session.
	hasSessionStream() bool
	leased() Lease
	Close() error
}

// isLost reports whether a connection has failed or is closed.
func isLost(conn legacyConn) bool {
	gone, _ := conn.lost()
	select {
	case <-gone:
		return true
	default:
		return false
	}
}

// legacyDialer opens the connections of one legacy session.
type legacyDialer struct {
	*connector
	queue     *orderedQueue // of the session
	client    proxy.OpenOptions
	principal string        // the process counts towards the limit of this principal
	owner     processOwner  // the session; nil when its process does not count
	feed      proxy.Handler // gets the messages that belong to no call
}

// dial opens a connection and sends initialize on it. The connection stays open even if the answer
// is an error message. When dial returns an error, no connection is open.
func (d *legacyDialer) dial(ctx context.Context, initialize Outgoing,
	h proxy.Handler) (legacyConn, *mcp.Message, error) {
	if err := d.closingLimit.wait(ctx); err != nil {
		return nil, nil, err
	}
	dial := d.opts.Dial
	if dial.HTTP == nil {
		var slot *processSlot
		if d.owner != nil {
			var err error
			if slot, err = d.takeSlot(ctx, d.principal, d.owner); err != nil {
				return nil, nil, err
			}
		}
		conn, err := d.process(ctx, mcp.Legacy, d.client.Principal, slot)
		if err != nil {
			return nil, nil, err
		}
		return d.initializePipe(ctx, conn, initialize, h)
	}
	if !d.prefersSSE() {
		conn := newLegacyHTTP(d.opts, d.queue, d.client, d.feed)
		answer, err := conn.send(ctx, initialize, h)
		if dial.SSE == nil || !conn.isUnsupported() {
			return d.initialized(ctx, conn, answer, err)
		}
		fallback, sseErr := d.sse(ctx)
		if sseErr != nil {
			d.opts.Log.Info("HTTP+SSE fallback failed", "server", d.opts.Name, "error", sseErr)
			return d.initialized(ctx, conn, answer, err)
		}
		d.discard(conn)
		return d.initializePipe(ctx, fallback, initialize, h)
	}
	conn, err := d.sse(ctx)
	if err != nil {
		return nil, nil, err
	}
	return d.initializePipe(ctx, conn, initialize, h)
}

func (d *legacyDialer) initializePipe(ctx context.Context, conn *pipeConn, initialize Outgoing,
	h proxy.Handler) (legacyConn, *mcp.Message, error) {
	p := newLegacyPipe(conn, d.queue, d.client, d.feed, d.opts.ReverseRequests)
	answer, err := p.send(ctx, initialize, h)
	return d.initialized(ctx, p, answer, err)
}

// initialized returns the results of dial after initialize was sent. If initialize failed without
// an answer, initialized closes the connection. There is no other way to cancel initialize.
func (d *legacyDialer) initialized(ctx context.Context, conn legacyConn, answer *mcp.Message,
	err error) (legacyConn, *mcp.Message, error) {
	if err != nil {
		d.abandon(ctx, conn)
		return nil, nil, err
	}
	return conn, answer, nil
}

// abandon closes a connection that no session will use. It waits until the connection is closed or
// ctx ends. For this reason, the old process has usually ended when the client tries again.
func (d *legacyDialer) abandon(ctx context.Context, conn legacyConn) {
	c := d.closingLimit.counted(conn)
	d.discardLater(c)
	select {
	case <-c.closed:
	case <-ctx.Done():
	}
}
