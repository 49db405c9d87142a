package upstream

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// legacyPipe is a legacy session's connection over a Pipe. All messages of the server are for this
// session.
type legacyPipe struct {
	*pipeConn
	queue    *orderedQueue
	feed     proxy.Handler // gets the messages that belong to no call
	requests serverRequests
}

// newLegacyPipe takes over conn for a session. The server's messages go to feed or to the handlers
// of calls, in order, by way of q. limit is how many requests of the server are passed to the
// client at a time.
func newLegacyPipe(conn *pipeConn, q *orderedQueue, o proxy.OpenOptions, feed proxy.Handler,
	limit int) *legacyPipe {
	p := &legacyPipe{pipeConn: conn, queue: q, feed: feed, requests: newServerRequests(limit)}
	conn.attach(o.Session, o.Principal, p.route)
	return p
}

func (p *legacyPipe) send(ctx context.Context, o Outgoing, h proxy.Handler) (*mcp.Message, error) {
	return p.pipeConn.send(ctx, o, h, p.queue)
}

// hasSessionStream implements legacyConn: a pipe is one stream for all calls.
func (p *legacyPipe) hasSessionStream() bool { return true }

// route handles a request or notification of the server. It runs in the reader and does not block.
func (p *legacyPipe) route(m *mcp.Message) {
	switch {
	case m.Kind == mcp.Request:
		p.serverRequest(m)
	case m.Method == "notifications/cancelled":
		if !p.requests.cancel(m) {
			p.enqueue(m, func(ctx context.Context) { p.feed.HandleNotification(ctx, m) })
		}
	case m.Method == "notifications/progress":
		restored, c, ok := p.calls.progress(m)
		switch {
		case !ok:
			p.enqueue(m, func(context.Context) { p.records().drop(m, unknownToken) })
		case c == nil:
			p.enqueue(restored, func(ctx context.Context) {
				p.feed.HandleNotification(ctx, restored)
			})
		default:
			p.enqueue(restored, func(context.Context) { c.notify(restored) })
		}
	default:
		p.enqueue(m, func(ctx context.Context) { p.feed.HandleNotification(ctx, m) })
	}
}

// enqueue adds a delivery to the session's queue. When the queue is full, the connection ends.
func (p *legacyPipe) enqueue(m *mcp.Message, run func(ctx context.Context)) {
	d := delivery{size: m.Size(), run: run}
	if isDroppable(m) {
		d.recordDrop = func() { p.records().dropQuickly(m, tooSlow) }
	}
	if err := p.queue.add(d); err != nil {
		p.fail(unavailable(p.name, "too many of the server's messages wait for the client", err))
	}
}

// serverRequest hands a request of the server to the handler of its call, and writes the answer.
// When it is not clear which call the request belongs to, feed gets the request.
func (p *legacyPipe) serverRequest(m *mcp.Message) {
	h := p.feed
	if c := p.calls.forTask(m); c != nil {
		h = c.handler
	} else if c := p.calls.onlyCall(); c != nil {
		h = c.handler
	}
	ctx, err := p.requests.begin(p.goroutines.Context(), m)
	if err != nil {
		p.replyTo(m, func() Outgoing {
			return p.records().refusal(m, mcp.CodeInternalError, err.Error())
		})
		return
	}
	p.enqueue(m, func(context.Context) {
		p.goroutines.Go(func(connCtx context.Context) {
			answers := p.requests.handle(ctx, m, h)
			if !p.requests.end(m.ID()) {
				return // the server has cancelled the request and expects no answer
			}
			if err := p.notify(connCtx, firstAnswer(answers, m)); err != nil {
				p.log.Debug("answering a server's request failed", "server", p.name,
					"error", err)
			}
		})
	})
}
