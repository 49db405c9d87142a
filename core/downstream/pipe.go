package downstream

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"gatekit/core/conn"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// pipe is one connection that carries messages both ways. Both eras may be on it, told apart
// message by message.
type pipe struct {
	peer
	endpoint *Endpoint
	out      pipeOut
	legacy   *legacy

	notices lane           // the client's notifications, in order
	urgent  lane           // its cancellations: they overtake the others
	calls   sync.WaitGroup // requests, subscriptions apart
	listens sync.WaitGroup

	mu     sync.Mutex // guards what follows
	modern *modern    // nil until the first modern request
	// modern requests in flight by id; of more than one all but the first are being refused
	inModern map[mcp.ID]int
	inFlight int // requests whose answer has not been written
	// ids by which the proxy knows calls that may be parked, and so outlive the requests that carry
	// them
	minted  uint64
	carries map[mcp.ID]mcp.ID // the id of such a request -> that of its call
}

// pipeOut writes to the pipe.
type pipeOut struct{ conn.Pipe }

func (o pipeOut) send(ctx context.Context, p pipeline.Passed) error {
	m := p.Message()
	if m == nil {
		return nil
	}
	return o.Write(ctx, m.Parts()...)
}

// lastWords is how long calls in flight may still take when the client has said all it had to say:
// scripts write their requests, close, and read, and the servers may have to start first. Clients
// that want it to be over sooner end the process, and with it ctx.
const lastWords = 5 * time.Second

// ServePipe serves one connection until the client is gone or ctx ends, and returns when all that
// was started for it has ended. The error is nil when the client left in the ordinary way.
func (f *Endpoint) ServePipe(ctx context.Context, p conn.Pipe, principal string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &pipe{peer: peer{newName("pipe"), principal}, endpoint: f, out: pipeOut{p},
		notices: newLane(), urgent: newLane(), inModern: map[mcp.ID]int{},
		carries: map[mcp.ID]mcp.ID{}}
	c.legacy = &legacy{peer: c.peer, endpoint: f, feed: c.out}
	var lanes sync.WaitGroup
	lanes.Go(func() { c.notices.run(ctx) })
	lanes.Go(func() { c.urgent.run(ctx) })
	err := c.read(ctx)
	if err == nil {
		c.settle(ctx)
	}
	cancel()
	c.legacy.close()
	if s := c.opened(); s != nil {
		s.close()
	}
	c.calls.Wait()
	c.listens.Wait()
	lanes.Wait()
	return err
}

func (c *pipe) read(ctx context.Context) error {
	for {
		b, err := c.out.Read(ctx)
		switch {
		case errors.As(err, new(*conn.TooLargeError)):
			err = c.out.send(ctx, c.endpoint.unread(ctx, c.peer, err))
		case errors.Is(err, io.EOF):
			return nil
		case err == nil:
			err = c.take(ctx, b)
		}
		if err != nil {
			return err
		}
	}
}

// settle lets calls finish for a moment.
func (c *pipe) settle(ctx context.Context) {
	over := make(chan struct{})
	go func() { // ends with the calls, which ServePipe waits for
		defer close(over)
		c.calls.Wait()
	}()
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// take handles what was read. The error is that of writing.
func (c *pipe) take(ctx context.Context, b []byte) error {
	if mcp.IsBatch(b) {
		return c.batch(ctx, b)
	}
	m, err := c.endpoint.limits.Message.Parse(b)
	switch {
	case err != nil:
		return c.out.send(ctx, c.endpoint.unread(ctx, c.peer, err))
	case m.Kind != mcp.Request:
		return c.hear(ctx, m)
	}
	call := c.admit(m)
	group := &c.calls
	if m.Method == "subscriptions/listen" {
		group = &c.listens
	}
	if call == nil {
		return c.out.send(ctx, c.endpoint.answer(ctx, c.peer, tooMany, m))
	}
	group.Add(1)
	c.endpoint.workers.Run(func() {
		defer group.Done()
		defer c.leave(m)
		answer := call.Run(ctx)
		if err := c.out.send(ctx, answer); err != nil {
			c.endpoint.log.Debug("answer a request", "session", c.session, "method", m.Method,
				"error", err)
			return
		}
		if a := answer.Message(); m.Method == "subscriptions/listen" && a != nil &&
			a.Kind == mcp.Response {
			c.endListen(ctx, m)
		}
	})
	return nil
}

var tooMany = refuse(mcp.CodeInternalError,
	"too many requests in flight: wait for an answer, then try again")

// admit enters a request and returns its call, nil when there are too many. leave must be called
// when the answer has been written, and not before: so a client that does not read cannot send
// requests for ever.
func (c *pipe) admit(m *mcp.Message) Call {
	isModern := eraOf(m, "") == mcp.Modern
	c.mu.Lock()
	if c.inFlight >= c.endpoint.limits.InFlight {
		c.mu.Unlock()
		return nil
	}
	c.inFlight++
	if isModern {
		c.inModern[m.ID()]++
	}
	c.mu.Unlock()
	if isModern {
		return c.admitModern(m)
	}
	return c.legacy.admit(m, c.out)
}

func (c *pipe) leave(m *mcp.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	if n := c.inModern[m.ID()]; n > 1 {
		c.inModern[m.ID()] = n - 1
	} else {
		delete(c.inModern, m.ID())
	}
}

func (c *pipe) admitModern(m *mcp.Message) Call {
	c.stamp(m)
	r := checkModern(m, nil)
	if r == nil {
		r = checkServed(m)
	}
	if r != nil {
		return &refusedCall{c.endpoint, c.peer, r, m}
	}
	c.mu.Lock()
	if c.modern == nil {
		c.modern = c.endpoint.newModern(c.peer, false)
	}
	own := m
	if c.endpoint.parker != nil && mcp.CanRequestInput(m) {
		if c.inModern[m.ID()] > 1 {
			c.mu.Unlock()
			return &refusedCall{c.endpoint, c.peer, refuse(mcp.CodeInvalidRequest,
				"a request with this id is in flight"), m}
		}
		c.minted++
		own = m.WithID(mcp.ID(`"gatekit-` + strconv.FormatUint(c.minted, 10) + `"`))
	}
	c.mu.Unlock()
	// now, so that a notifications/cancelled that comes next finds it
	call, id := c.modern.begin(own, modernPipe{out: c.out})
	if own == m {
		return call
	}
	c.mu.Lock()
	c.carries[m.ID()] = id
	c.mu.Unlock()
	return &carriedCall{c, call, m.ID()}
}

// carriedCall is a request that carries a call which the proxy knows by another id.
type carriedCall struct {
	pipe *pipe
	call Call
	id   mcp.ID // of the request
}

func (c *carriedCall) Run(ctx context.Context) pipeline.Passed {
	defer c.forget()
	return c.call.Run(ctx).WithID(c.id)
}

func (c *carriedCall) Discard() {
	c.call.Discard()
	c.forget()
}

func (c *carriedCall) forget() {
	c.pipe.mu.Lock()
	delete(c.pipe.carries, c.id)
	c.pipe.mu.Unlock()
}

// called is a notifications/cancelled in which the id of a request has become that of the call that
// it carries, where that is another.
func (c *pipe) called(m *mcp.Message) *mcp.Message {
	id, _ := m.Get("/requestId")
	c.mu.Lock()
	call := c.carries[mcp.ID(id)]
	c.mu.Unlock()
	if call == "" {
		return m
	}
	if edited, err := m.Edit(mcp.Set("/requestId", []byte(call))); err == nil {
		return edited
	}
	return m
}

// opened is what modern requests share, nil before the first.
func (c *pipe) opened() *modern {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.modern
}

// endListen tells the client once more that a subscription is over: its specification asks for this
// notification in one place, for the result in another.
func (c *pipe) endListen(ctx context.Context, m *mcp.Message) {
	n := mcp.NewNotification("notifications/cancelled", append(append([]byte(`{"requestId":`),
		m.ID()...), '}'))
	if err := c.out.send(ctx, c.endpoint.own(ctx, c.peer, n, nil)); err != nil {
		c.endpoint.log.Debug("end a subscription", "session", c.session, "error", err)
	}
}

// hear takes what is no request.
func (c *pipe) hear(ctx context.Context, m *mcp.Message) error {
	c.stamp(m)
	if m.Kind != mcp.Notification {
		c.legacy.answered(ctx, m)
		return nil
	}
	take := c.legacy.admitNotice
	if s := c.opened(); s != nil && c.isModern(m) {
		take, m = s.admitNotice, c.called(m)
	}
	if m.Method == "notifications/cancelled" {
		return c.urgent.put(ctx, take(m))
	}
	return c.notices.put(ctx, take(m))
}

// isModern says whether a notification belongs to the modern requests. Those have few, and nothing
// in them has to say so.
func (c *pipe) isModern(m *mcp.Message) bool {
	if m.Method == "notifications/cancelled" {
		id, _ := m.Get("/requestId")
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.inModern[mcp.ID(id)] > 0
	}
	return eraOf(m, "") == mcp.Modern || !c.legacy.greeted()
}

// lane does things one after another.
type lane chan func(context.Context)

func newLane() lane { return make(lane, 64) }

// put waits while the lane is full: the client that fills it is not read from.
func (l lane) put(ctx context.Context, f func(context.Context)) error {
	select {
	case l <- f:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l lane) run(ctx context.Context) {
	for {
		select {
		case f := <-l:
			f(ctx)
		case <-ctx.Done():
			return
		}
	}
}
