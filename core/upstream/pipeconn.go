package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"gatekit/core/conn"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
)

// maxHeldMessages is how many messages of a server are held until a session uses the connection.
const maxHeldMessages = 256

// pipeConn is a connection over a Pipe, in either era. One goroutine reads the connection. This
// goroutine matches answers to their calls by id, and hands all other messages to the session's
// route function.
type pipeConn struct {
	name       string // of the server
	pipe       conn.PipeCloser
	limits     mcp.Limits
	log        *slog.Logger
	observer   Observer    // may be nil
	modern     atomic.Bool // Ready sends server/discover instead of ping
	goroutines *taskgroup.Group
	calls      callTable
	replies    backgroundWrites
	recorder   atomic.Pointer[recorder]
	// the server has answered a request on this connection
	hasAnswered atomic.Bool
	// why a write failed before the server answered anything; nil if none failed
	writeFault atomic.Pointer[error]

	// guards the next two fields; it is locked while route runs, so that messages stay in order
	routing sync.Mutex
	route   func(m *mcp.Message) // nil until a session uses the connection
	held    []*mcp.Message       // messages that wait for route

	failed    sync.Once
	onFail    func(err error) // called once, before gone is closed
	gone      chan struct{}   // closed when the connection has failed or is closed
	fault     error           // why the connection is gone; read it after gone is closed
	closeOnce func() error    // runs end, once
	slot      *processSlot    // released when the process has ended; nil if it does not count
	lease     Lease           // of the process
}

// newPipeConn returns a connection over p. Nothing is read until start is called. onFail is called
// once, when the connection has failed or is closed.
func newPipeConn(o *Options, p conn.PipeCloser, onFail func(err error)) *pipeConn {
	c := &pipeConn{name: o.Name, pipe: p, limits: o.Limits, log: o.Log, observer: o.Observer,
		goroutines: taskgroup.New(), onFail: onFail, gone: make(chan struct{})}
	c.recorder.Store(&recorder{opts: o})
	c.closeOnce = sync.OnceValue(c.end)
	return c
}

// leased returns how long the process may be used.
func (c *pipeConn) leased() Lease { return c.lease }

// start begins to read the connection, until it fails or is closed.
func (c *pipeConn) start() { c.goroutines.Go(c.read) }

// attach sets route as the function that gets the server's notifications and requests, except ping.
// It first calls route with the messages that came before. session and principal name the client's
// session and principal. Both may be "". route must not block.
func (c *pipeConn) attach(session string, principal *identity.Principal,
	route func(m *mcp.Message)) {
	c.routing.Lock()
	defer c.routing.Unlock()
	c.recorder.Store(&recorder{c.recorder.Load().opts, session, principal})
	c.route = route
	for _, m := range c.held {
		route(m)
	}
	c.held = nil
}

func (c *pipeConn) read(ctx context.Context) {
	invalid := 0 // invalid messages in a row
	for invalid <= maxInvalid {
		b, err := c.pipe.Read(ctx)
		if errors.As(err, new(*conn.TooLargeError)) {
			invalid++
			c.invalidMessage(err)
			continue
		}
		if err != nil {
			c.fail(unavailable(c.name, "the connection ended", err))
			return
		}
		for m, err := range messages(c.limits, b) {
			if err != nil {
				invalid++
				c.invalidMessage(err)
				continue
			}
			invalid = 0
			c.incoming(m)
		}
	}
	c.fail(unavailable(c.name, fmt.Sprintf(
		"the server sent more than %d invalid messages in a row", maxInvalid), nil))
}

// invalidMessage logs an invalid message, and fails the call that it would have answered.
func (c *pipeConn) invalidMessage(err error) {
	c.log.Warn("invalid message from a server", "server", c.name, "error", err)
	id := answeredID(err)
	if only := c.calls.onlyCall(); only != nil && errors.As(err, new(*conn.TooLargeError)) {
		id = only.id // the message was most likely the answer to this call
	}
	if answered := c.calls.take(id); answered != nil {
		answered.finish(reply{err: invalidAnswer(c.name, err)})
	}
}

func (c *pipeConn) incoming(m *mcp.Message) {
	switch {
	case isAnswer(m):
		c.answer(m)
	case m.Kind == mcp.Request && m.Method == "ping":
		c.replyTo(m, func() Outgoing { return c.records().pong(m) })
	default:
		c.routing.Lock()
		defer c.routing.Unlock()
		switch {
		case c.route != nil:
			c.route(m)
		case len(c.held) < maxHeldMessages:
			c.held = append(c.held, m)
		default:
			c.records().dropQuickly(m, "too many messages before a session uses the connection")
		}
	}
}

// answer finishes the call that m answers, when all messages that were read before m have been
// delivered.
func (c *pipeConn) answer(m *mcp.Message) {
	id := m.ID()
	if id == "" {
		if answered := c.calls.forErrorWithoutID(); answered != nil && m.Kind == mcp.Error {
			id = answered.id
		}
	}
	answered := c.calls.take(id)
	if answered == nil {
		c.drop(m, "answers no request in flight")
		return
	}
	c.hasAnswered.Store(true)
	c.calls.keepTaskToken(answered, m)
	finish := func() { answered.finish(reply{m: answered.restored(m)}) }
	if answered.queue == nil {
		finish()
		return
	}
	answered.queue.after(finish)
}

// fail first marks the connection as unusable, and then ends its calls. This order matters: a
// client that sends another request after a failed call gets another connection. The owner must
// still close this connection.
func (c *pipeConn) fail(err error) {
	c.failed.Do(func() {
		c.fault = err
		c.onFail(err)
		close(c.gone)
		c.calls.close(err)
	})
}

// lost implements legacyConn.
func (c *pipeConn) lost() (gone <-chan struct{}, why func() error) {
	return c.gone, func() error { return c.fault }
}

// send writes a request and waits for its answer. h gets the messages that the server sends for the
// request, through the queue q.
func (c *pipeConn) send(ctx context.Context, o Outgoing, h proxy.Handler,
	q *orderedQueue) (answer *mcp.Message, err error) {
	o, ended := observe(ctx, c.observer, o)
	defer func() { ended(answer, err) }()
	begun, err := c.calls.begin(ctx, nil, o.m, h, q)
	if err != nil {
		return nil, notStarted(c.name, err)
	}
	if o, err = begun.address(o); err != nil {
		c.calls.take(begun.id)
		return nil, unavailable(c.name, "the request could not be given its id", err)
	}
	return c.await(ctx, begun, o)
}

// await writes a request and waits for its answer. When ctx ends, the error is context.Cause(ctx).
// await then cancels the request at the server, unless the request is an initialize or no client
// waits for it.
func (c *pipeConn) await(ctx context.Context, begun *pendingCall,
	o Outgoing) (*mcp.Message, error) {
	isOwn := begun.handler == nil && !o.isRecorded // then no handler records the answer
	o, err := c.records().record(ctx, o)
	if err != nil {
		c.calls.take(begun.id)
		return nil, err
	}
	// When ctx ends during the write, the request may still be written. It is cancelled below.
	if err := c.write(ctx, o); err != nil && ctx.Err() == nil {
		c.calls.take(begun.id)
		if errors.As(err, new(*pipeline.DeniedError)) {
			return nil, err
		}
		return nil, unavailable(c.name, "the request could not be written", err)
	}
	select {
	case r := <-begun.done:
		if isOwn {
			c.records().receiveOwn(r.m, o.m)
		}
		return r.m, r.err
	case <-ctx.Done():
		cause := context.Cause(ctx)
		inFlight := c.calls.take(begun.id) != nil
		if inFlight && begun.handler != nil && begun.request.Method != "initialize" {
			c.reply(cancellation(cause, begun.id, begun.request))
		}
		return nil, cause
	}
}

// notify writes a notification, or an answer to a request of the server.
func (c *pipeConn) notify(ctx context.Context, o Outgoing) error {
	o, err := c.records().record(ctx, o)
	if err != nil {
		return err
	}
	if err := c.write(ctx, o); err != nil {
		return unavailable(c.name, "the message could not be written", err)
	}
	return nil
}

// write writes one message to the pipe, unless an operator has stopped the message.
func (c *pipeConn) write(ctx context.Context, o Outgoing) error {
	o, write, err := c.records().beginWrite(ctx, o)
	if err != nil {
		return err
	}
	defer write.End()
	err = c.pipe.Write(ctx, o.parts()...)
	if err != nil && ctx.Err() == nil && !c.hasAnswered.Load() {
		c.writeFault.CompareAndSwap(nil, &err)
	}
	return err
}

// reply writes o in the background.
func (c *pipeConn) reply(o Outgoing) {
	c.replies.run(c.goroutines, shortWriteTimeout, func(ctx context.Context) { c.tryWrite(ctx, o) })
}

// replyTo sends the answer to a request of the server, in the background. The function answer
// inspects and records the request, and returns the message to write.
func (c *pipeConn) replyTo(m *mcp.Message, answer func() Outgoing) {
	if !c.replies.run(c.goroutines, shortWriteTimeout, func(ctx context.Context) {
		c.tryWrite(ctx, answer())
	}) {
		c.records().dropQuickly(m, "too many answers wait for the server to read them")
	}
}

// drop inspects and records a message that reaches no client. It works in the background, so that
// the reader does not wait for the stages.
func (c *pipeConn) drop(m *mcp.Message, reason string) {
	if !c.replies.run(c.goroutines, shortWriteTimeout, func(context.Context) {
		c.records().drop(m, reason)
	}) {
		c.records().dropQuickly(m, reason)
	}
}

// records returns the recorder of the connection's messages.
func (c *pipeConn) records() recorder { return *c.recorder.Load() }

// tryWrite writes o. A failure is only logged.
func (c *pipeConn) tryWrite(ctx context.Context, o Outgoing) {
	if err := c.notify(ctx, o); err != nil && ctx.Err() == nil {
		c.log.Debug("writing to a server failed", "server", c.name, "error", err)
	}
}

// Close closes the pipe, which ends a process, and waits for all goroutines. It may be called more
// than once.
func (c *pipeConn) Close() error { return c.closeOnce() }

func (c *pipeConn) end() error {
	fault := closingError(c.name)
	// A write may find out that a process has exited before the reader does.
	if err := c.writeFault.Load(); err != nil && !c.hasAnswered.Load() {
		fault = unavailable(c.name, "the connection ended", *err)
	}
	c.fail(fault)
	err := c.pipe.Close()
	c.slot.release()
	c.goroutines.Close()
	return err
}

// isGone reports whether the connection has failed or is closed.
func (c *pipeConn) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}
