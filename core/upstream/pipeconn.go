package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// cancelWithin bounds how long telling a server that a call was given up may take, and answering
// its ping.
const cancelWithin = 5 * time.Second

// heldMessages is what a server may send before a session has taken its connection.
const heldMessages = 256

// wire is a connection over a Pipe, whatever the era: one reader, answers found by their minted
// ids, everything else handed to route.
type wire struct {
	name   string
	pipe   Pipe
	limits mcp.Limits
	log    *slog.Logger
	life   *life
	watch  Observer    // nil when nobody watches
	modern atomic.Bool // it answers server/discover, and has no ping
	calls  calls
	own    replies
	union  *union // of a modern server's subscriptions

	// guards route and held; held while route runs, so that messages stay in order
	routing sync.Mutex
	route   func(m *mcp.Message)
	held    []*mcp.Message

	once  sync.Once
	gone  chan struct{} // closed when the connection is of no use any more
	fault error         // why; read it after gone
	ended func() error  // runs end, once
	left  func()        // tells the Upstream, once
}

// openWire takes over p, a connection to the server, and reads it. Until attach is called, what the
// server sends on its own waits.
func (u *Upstream) openWire(p Pipe) *wire {
	w := &wire{name: u.o.Name, pipe: p, limits: u.o.Limits, log: u.log, watch: u.o.Observer,
		life: newLife(), gone: make(chan struct{})}
	u.enter(w)
	w.ended = sync.OnceValue(w.end)
	w.union = newUnion(w)
	w.life.run(w.read)
	return w
}

// attach hands route all requests (but ping) and notifications of the server, first those that have
// been waiting. route must not block.
func (w *wire) attach(route func(m *mcp.Message)) {
	w.routing.Lock()
	defer w.routing.Unlock()
	w.route = route
	for _, m := range w.held {
		route(m)
	}
	w.held = nil
}

func (w *wire) read(ctx context.Context) {
	invalid := 0 // in a row
	for invalid <= maxInvalid {
		b, err := w.pipe.Read(ctx)
		if errors.As(err, new(*TooLarge)) {
			invalid++
			w.unreadable(err)
			continue
		}
		if err != nil {
			w.fail(unavailable(w.name, "the connection to it ended", err))
			return
		}
		for m, err := range messages(w.limits, b) {
			if err != nil {
				invalid++
				w.unreadable(err)
				continue
			}
			invalid = 0
			w.incoming(m)
		}
	}
	w.fail(unavailable(w.name,
		fmt.Sprintf("it sent more than %d messages in a row that cannot be read", maxInvalid), nil))
}

// messages yields the messages in b: one, or those of a batch, each with the error that says why it
// is none.
func messages(limits mcp.Limits, b []byte) func(yield func(*mcp.Message, error) bool) {
	return func(yield func(*mcp.Message, error) bool) {
		if !mcp.IsBatch(b) {
			m, err := limits.Parse(b)
			if err == nil {
				m.To = mcp.ToClient
			}
			yield(m, err)
			return
		}
		ms, errs, err := limits.ParseBatch(b)
		if err != nil {
			yield(nil, err)
			return
		}
		for i, m := range ms {
			if m != nil {
				m.To = mcp.ToClient
				err = nil
			} else {
				err = errs[i]
			}
			if !yield(m, err) {
				return
			}
		}
	}
}

// unreadable notes a message that is none, and fails the call that it would have answered.
func (w *wire) unreadable(err error) {
	w.log.Warn("a server sent what is no message", "server", w.name, "error", err)
	id := meantFor(err)
	if c := w.calls.only(); c != nil && errors.As(err, new(*TooLarge)) {
		id = c.id // as far as can be told
	}
	if c := w.calls.take(id); c != nil {
		c.finish(reply{err: illegible(w.name, err)})
	}
}

// meantFor is the id of the call that an unreadable message would have answered, "" when there is
// none.
func meantFor(err error) mcp.ID {
	if parse := (*mcp.ParseError)(nil); errors.As(err, &parse) {
		return parse.Answers
	}
	return ""
}

func (w *wire) incoming(m *mcp.Message) {
	switch {
	case m.Kind == mcp.Response || m.Kind == mcp.Error:
		w.answer(m)
	case m.Kind == mcp.Request && m.Method == "ping":
		w.reply(pong(m.ID()))
	default:
		w.routing.Lock()
		defer w.routing.Unlock()
		switch {
		case w.route != nil:
			w.route(m)
		case len(w.held) < heldMessages:
			w.held = append(w.held, m)
		default:
			w.log.Debug("dropped what a server sent before anybody listens", "server", w.name,
				"method", m.Method)
		}
	}
}

// answer finishes the call that m answers, after what was read before it.
func (w *wire) answer(m *mcp.Message) {
	id := m.ID()
	if id == "" {
		if c := w.calls.unnamed(); c != nil && m.Kind == mcp.Error {
			id = c.id
		}
	}
	c := w.calls.take(id)
	if c == nil {
		w.log.Debug("dropped an answer that nobody waits for", "server", w.name, "id", id)
		return
	}
	w.calls.keep(c, m)
	finish := func() { c.finish(reply{m: c.answered(m)}) }
	if c.lane == nil {
		finish()
		return
	}
	c.lane.after(finish)
}

// fail ends the connection: the use of it, and then its calls, so that what follows a call that
// failed goes to another. Its owner has still to close it.
func (w *wire) fail(err error) {
	w.once.Do(func() {
		w.fault = err
		w.left()
		close(w.gone)
		w.calls.fail(err)
	})
}

// ask writes a request and waits for its answer. When ctx ends, the server is told and ctx's cause
// is the error.
func (w *wire) ask(ctx context.Context, c *call, o outgoing) (*mcp.Message, error) {
	// When ctx ends first, the request leaves nevertheless (or has left in part), and is cancelled
	// like one that was written.
	if err := w.pipe.Write(ctx, o.parts()...); err != nil && ctx.Err() == nil {
		w.calls.take(c.id)
		return nil, unavailable(w.name, "the request could not be written to it", err)
	}
	select {
	case r := <-c.done:
		return r.m, r.err
	case <-ctx.Done():
		cause := context.Cause(ctx)
		switch {
		case w.calls.take(c.id) == nil || c.caller == nil || c.m.Method == "initialize":
		default:
			w.reply(cancellation(cause, c))
		}
		return nil, cause
	}
}

// call passes a client's request on; caller gets what the server sends for it.
func (w *wire) call(ctx context.Context, o outgoing, caller proxy.Handler,
	l *lane) (answer *mcp.Message, err error) {
	o, ended := o.watched(ctx, w.watch)
	defer func() { ended(answer, err) }()
	c, err := w.calls.begin(ctx, nil, o.m, caller, l)
	if err != nil {
		return nil, refused(w.name, err)
	}
	if o, err = o.addressed(c); err != nil {
		w.calls.take(c.id)
		return nil, unavailable(w.name, "the request could not be addressed", err)
	}
	return w.ask(ctx, c, o)
}

// notify writes a notification.
func (w *wire) notify(ctx context.Context, o outgoing) error {
	if err := w.pipe.Write(ctx, o.parts()...); err != nil {
		return unavailable(w.name, "the notification could not be written to it", err)
	}
	return nil
}

// reply writes o without anybody waiting for it.
func (w *wire) reply(o outgoing) {
	w.own.run(w.life, cancelWithin, func(ctx context.Context) { w.write(ctx, o) })
}

// write writes o, of whose failure nobody has to hear.
func (w *wire) write(ctx context.Context, o outgoing) {
	if err := w.pipe.Write(ctx, o.parts()...); err != nil && ctx.Err() == nil {
		w.log.Debug("write to a server", "server", w.name, "error", err)
	}
}

// Close ends the server at the other end and waits for everything. It may be called more than once.
func (w *wire) Close() error { return w.ended() }

func (w *wire) end() error {
	w.fail(unavailable(w.name, "it is being closed", errClosed))
	err := w.pipe.Close()
	w.life.end()
	return err
}
