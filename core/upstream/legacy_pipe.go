package upstream

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// legacyPipe is a legacy session's connection over a Pipe: all that the server sends is that one
// session's.
type legacyPipe struct {
	*wire
	lane *lane
	feed proxy.Handler
	asks asks
}

func newLegacyPipe(w *wire, l *lane, feed proxy.Handler) *legacyPipe {
	p := &legacyPipe{wire: w, lane: l, feed: feed}
	w.attach(p.take)
	return p
}

func (p *legacyPipe) call(ctx context.Context, r outgoing, c proxy.Handler) (*mcp.Message, error) {
	return p.wire.call(ctx, r, c, p.lane)
}

func (p *legacyPipe) lost() (<-chan struct{}, func() error) {
	return p.gone, func() error { return p.fault }
}

// take routes a message of the server; it runs in the reader.
func (p *legacyPipe) take(m *mcp.Message) {
	switch {
	case m.Kind == mcp.Request:
		p.asked(m)
	case m.Method == "notifications/cancelled":
		p.asks.cancel(m)
	case m.Method == "notifications/progress":
		restored, c, ok := p.calls.progress(m)
		switch {
		case !ok:
			p.log.Debug("dropped progress that nobody waits for", "server", p.name)
		case c == nil:
			p.deliver(restored, func(ctx context.Context) { p.feed.Notify(ctx, restored) })
		default:
			p.deliver(restored, func(context.Context) { c.notify(restored) })
		}
	default:
		p.deliver(m, func(ctx context.Context) { p.feed.Notify(ctx, m) })
	}
}

// deliver puts a step into the session's lane, or ends a connection whose messages nobody takes.
func (p *legacyPipe) deliver(m *mcp.Message, run func(ctx context.Context)) {
	if err := p.lane.add(delivery{size: m.Size(), drop: droppable(m), run: run}); err != nil {
		p.fail(unavailable(p.name, "too much of what it sent is waiting", err))
	}
}

// asked puts a request of the server to the client: on behalf of the call that it belongs to where
// that can be told.
func (p *legacyPipe) asked(m *mcp.Message) {
	caller := p.feed
	if c := p.calls.task(m); c != nil {
		caller = c.caller
	} else if c := p.calls.only(); c != nil {
		caller = c.caller
	}
	ctx, err := p.asks.begin(p.life.ctx, m.ID())
	if err != nil {
		p.reply(refusal(m.ID(), mcp.CodeInternal, err.Error()))
		return
	}
	p.deliver(m, func(context.Context) {
		p.life.run(func(context.Context) {
			answers := caller.Ask(ctx, []*mcp.Message{m})
			if !p.asks.end(m.ID()) {
				return // cancelled by the server, which expects no answer
			}
			if err := p.wire.notify(p.life.ctx, first(answers, m.ID())); err != nil {
				p.log.Debug("answer a server's request", "server", p.name, "error", err)
			}
		})
	})
}

// first is the answer to a request of the server, which must never stay without one.
func first(answers []pipeline.Passed, id mcp.ID) outgoing {
	if len(answers) == 1 && answers[0].Message() != nil {
		return passed(answers[0])
	}
	return refusal(id, mcp.CodeInternal, "the client could not be asked")
}
