package upstream

import (
	"context"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// modernPipe is a connection to a modern server over a Pipe. The sessions of one principal share
// the connection. Every message of the server belongs to a call of one of these sessions.
type modernPipe struct {
	*pipeConn
	subscriptions *subscriptionMux
}

// newModernPipe returns a modernPipe that owns conn.
func newModernPipe(conn *pipeConn, principal *identity.Principal) *modernPipe {
	p := &modernPipe{conn, newSubscriptionMux(conn)}
	conn.modern.Store(true)
	conn.attach("", principal, p.route)
	return p
}

// send writes a request and waits for its answer. h gets the messages that the server sends for the
// request, through the queue q.
func (p *modernPipe) send(ctx context.Context, o Outgoing, h proxy.Handler,
	q *orderedQueue) (*mcp.Message, error) {
	if o.m.Method == "subscriptions/listen" {
		return p.subscriptions.subscribe(ctx, o, h, q)
	}
	return p.pipeConn.send(ctx, o, h, q)
}

// route handles a request or notification of the server. It runs in the reader and does not block.
func (p *modernPipe) route(m *mcp.Message) {
	if m.Kind == mcp.Request {
		p.replyTo(m, func() Outgoing {
			return p.records().refusal(m, mcp.CodeMethodNotFound,
				"servers do not send requests in this revision")
		})
		return
	}
	c, restored, reason := p.findCall(m)
	if c == nil {
		p.drop(m, reason)
		return
	}
	m = restored
	if c.queue == nil {
		c.notify(m)
		return
	}
	d := delivery{size: m.Size(), run: func(context.Context) { c.notify(m) }}
	if isDroppable(m) {
		d.recordDrop = func() { p.records().dropQuickly(m, tooSlow) }
	}
	err := c.queue.add(d)
	if err != nil && p.calls.take(c.id) != nil {
		c.finish(reply{err: unavailable(p.name,
			"too many of the server's messages wait for the client", err)})
		p.reply(cancellation(err, c.id, c.request))
	}
}

// findCall returns the call that a notification belongs to, and the notification with the ids that
// the client gave. If no call gets the notification, the call is nil, and reason is the reason for
// the audit log.
func (p *modernPipe) findCall(m *mcp.Message) (c *pendingCall, restored *mcp.Message,
	reason string) {
	subscription, hasSubscription := m.Get(mcp.PointerSubscriptionID)
	switch {
	case m.Method == "notifications/progress":
		restored, c, ok := p.calls.progress(m)
		if ok && c != nil {
			return c, restored, ""
		}
	case m.Method == "notifications/cancelled":
		raw, _ := m.Get("/requestId")
		c := p.calls.find(mcp.ID(raw))
		if c != nil && c.request.Method == "subscriptions/listen" {
			if c = p.calls.take(c.id); c != nil {
				// The mux ends the subscription after the notifications that were read earlier.
				c.finish(reply{m: c.subscriptionResult()})
			}
			return nil, nil, "ends a subscription"
		}
	case hasSubscription:
		c := p.calls.find(mcp.ID(subscription))
		if c != nil && c.request.Method == "subscriptions/listen" {
			return c, c.withClientSubscription(m), ""
		}
	default:
		// Over a pipe, a log message names no call. Only a call that asked for log messages can get
		// it. Any call except a subscription can get a notification of another kind. When several
		// sessions have calls that could get m, it is not clear which session m is for, and no call
		// gets m.
		c := p.calls.oldest(func(c *pendingCall) bool {
			_, wantsLogs := c.request.Get(mcp.PointerLogLevel)
			return c.request.Method != "subscriptions/listen" && (wantsLogs ||
				m.Method != "notifications/message")
		})
		if c != nil {
			return c, m, ""
		}
	}
	return nil, nil, "belongs to no request in flight"
}
