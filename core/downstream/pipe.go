package downstream

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"gatekit/core/conn"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// pipeConnection is one client on a pipe. The pipe may carry messages of both eras. Each message is
// handled by the rules of its era.
type pipeConnection struct {
	peer
	endpoint *Endpoint
	out      pipeOutput
	legacy   *legacyClientSession

	notifications notificationQueue // notifications of the client other than cancellations
	cancellations notificationQueue // cancellations, which do not wait for other notifications
	calls         sync.WaitGroup    // requests other than subscriptions
	subscriptions sync.WaitGroup    // subscriptions/listen requests

	mu       sync.Mutex           // guards the fields below
	modern   *modernClientSession // nil until the first modern request
	inFlight int                  // requests whose answer has not been written
	// number of modern requests in flight, by their id
	modernInFlight map[mcp.ID]int
	// A call that may be parked outlives its requests. So the proxy knows the call by an id that
	// Gatekit makes.
	lastCallID uint64
	callIDs    map[mcp.ID]mcp.ID // ids of the calls that may be parked, by the id of the request
}

// pipeOutput writes messages to a pipe.
type pipeOutput struct{ conn.Pipe }

func (o pipeOutput) send(ctx context.Context, p pipeline.Passed) error {
	p, write := p.Begin(ctx)
	defer write.End()
	m := p.Message()
	if m == nil {
		return nil
	}
	return o.Write(ctx, m.Parts()...)
}

// drainTimeout is how long calls in flight may still take after the client has closed its side of
// the pipe. A script may write its requests, close its side, and only then read the answers. The
// servers may still have to start. A client that does not want to wait ends the process of Gatekit,
// which ends ctx.
const drainTimeout = 5 * time.Second

// ServePipe serves one client until it is gone or ctx ends. It returns when all goroutines that it
// started have ended. The error is nil when the client closed the pipe.
func (e *Endpoint) ServePipe(ctx context.Context, p conn.Pipe,
	principal *identity.Principal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &pipeConnection{peer: peer{newSessionName("pipe"), principal}, endpoint: e,
		out:            pipeOutput{p},
		notifications:  newNotificationQueue(),
		cancellations:  newNotificationQueue(),
		modernInFlight: map[mcp.ID]int{},
		callIDs:        map[mcp.ID]mcp.ID{},
	}
	c.legacy = &legacyClientSession{peer: c.peer, endpoint: e, sessionOut: c.out}
	var queues sync.WaitGroup
	queues.Go(func() { c.notifications.run(ctx) })
	queues.Go(func() { c.cancellations.run(ctx) })
	err := c.read(ctx)
	if err == nil {
		c.drain(ctx)
	}
	cancel()
	c.legacy.close()
	if s := c.modernSession(); s != nil {
		s.close()
	}
	c.calls.Wait()
	c.subscriptions.Wait()
	queues.Wait()
	return err
}

// read reads and handles messages until the client is gone. It returns an error when a message
// could not be read or an answer could not be written.
func (c *pipeConnection) read(ctx context.Context) error {
	for {
		b, err := c.out.Read(ctx)
		switch {
		case errors.As(err, new(*conn.TooLargeError)):
			err = c.out.send(ctx, c.endpoint.passParseError(ctx, c.peer, err))
		case errors.Is(err, io.EOF):
			return nil
		case err == nil:
			err = c.handle(ctx, b)
		}
		if err != nil {
			return err
		}
	}
}

// via returns the name of the replica that has forwarded the message that was read last, or "".
func (c *pipeConnection) via() string {
	if p, ok := c.out.Pipe.(conn.ForwardedPipe); ok {
		return p.Via()
	}
	return ""
}

// drain waits for the calls in flight, but no longer than drainTimeout.
func (c *pipeConnection) drain(ctx context.Context) {
	drained := make(chan struct{})
	go func() { // ends with the calls, which ServePipe waits for
		defer close(drained)
		c.calls.Wait()
	}()
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// handle handles the bytes of one message or batch. It returns an error when an answer could not be
// written, or when ctx has ended.
func (c *pipeConnection) handle(ctx context.Context, b []byte) error {
	if mcp.IsBatch(b) {
		return c.handleBatch(ctx, b)
	}
	m, err := c.endpoint.limits.Message.Parse(b)
	if err != nil {
		return c.out.send(ctx, c.endpoint.passParseError(ctx, c.peer, err))
	}
	m.Via = c.via()
	if m.Kind != mcp.Request {
		return c.handleNonRequest(ctx, m)
	}
	call := c.admitRequest(m)
	if call == nil {
		return c.out.send(ctx, c.endpoint.passRefusal(ctx, c.peer, tooManyInFlight, m))
	}
	group := &c.calls
	if m.Method == "subscriptions/listen" {
		group = &c.subscriptions
	}
	group.Add(1)
	c.endpoint.workers.Run(func() {
		defer group.Done()
		c.serve(ctx, m, call)
	})
	return nil
}

// serve runs the call of request m and writes its answer.
func (c *pipeConnection) serve(ctx context.Context, m *mcp.Message, call Call) {
	defer c.release(m)
	answer := call.Run(ctx)
	if err := c.out.send(ctx, answer); err != nil {
		c.endpoint.log.Debug("writing an answer failed", "session", c.session, "method", m.Method,
			"error", err)
		return
	}
	if a := answer.Message(); m.Method == "subscriptions/listen" && a != nil &&
		a.Kind == mcp.Response {
		c.notifySubscriptionEnd(ctx, m)
	}
}

// notifySubscriptionEnd notifies the client that the subscription of request m has ended. The
// client has already got a result that means the same. The specification demands the notification
// in one place, and the result in another place.
func (c *pipeConnection) notifySubscriptionEnd(ctx context.Context, m *mcp.Message) {
	n := mcp.NewNotification("notifications/cancelled", append(append([]byte(`{"requestId":`),
		m.ID()...), '}'))
	if err := c.out.send(ctx, c.endpoint.passOwn(ctx, c.peer, n, nil)); err != nil {
		c.endpoint.log.Debug("notifying of a subscription's end failed", "session", c.session,
			"error", err)
	}
}

var tooManyInFlight = refuse(mcp.CodeInternalError,
	"too many requests in flight: wait for an answer, then try again")

// admitRequest begins a request and returns its call. It returns nil when too many requests are in
// flight. The caller must call release after the answer has been written, and not before. So a
// client that does not read its answers cannot send more and more requests.
func (c *pipeConnection) admitRequest(m *mcp.Message) Call {
	isModern := eraOf(m, "") == mcp.Modern
	c.mu.Lock()
	if c.inFlight >= c.endpoint.limits.InFlight {
		c.mu.Unlock()
		return nil
	}
	c.inFlight++
	if isModern {
		c.modernInFlight[m.ID()]++
	}
	c.mu.Unlock()
	if m.Method != "subscriptions/listen" {
		c.endpoint.requests.add()
	}
	if isModern {
		return c.admitModern(m)
	}
	return c.legacy.admit(m, c.out)
}

// release removes a request from the requests in flight.
func (c *pipeConnection) release(m *mcp.Message) {
	if m.Method != "subscriptions/listen" {
		defer c.endpoint.requests.done()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	if n := c.modernInFlight[m.ID()]; n > 1 {
		c.modernInFlight[m.ID()] = n - 1
	} else {
		delete(c.modernInFlight, m.ID())
	}
}

// admitModern begins a modern request and returns its call.
func (c *pipeConnection) admitModern(m *mcp.Message) Call {
	c.stamp(m)
	refused := checkModern(m, nil)
	if refused == nil {
		refused = checkRevisionAndMethod(m)
	}
	if refused != nil {
		return &refusedCall{c.endpoint, c.peer, refused, m}
	}
	c.mu.Lock()
	if c.modern == nil {
		c.modern = c.endpoint.newModernSession(c.peer, false)
	}
	own := m // m with the id under which the proxy knows the call
	if c.endpoint.parker != nil && mcp.AllowsInputRequests(m) {
		if c.modernInFlight[m.ID()] > 1 {
			c.mu.Unlock()
			return &refusedCall{c.endpoint, c.peer, refuse(mcp.CodeInvalidRequest,
				"a request with this id is in flight"), m}
		}
		c.lastCallID++
		own = m.WithID(mcp.ID(`"gatekit-` + strconv.FormatUint(c.lastCallID, 10) + `"`))
	}
	c.mu.Unlock()
	// The call begins here, so that a notifications/cancelled that comes next finds the call.
	call, id := c.modern.begin(own, modernPipeClient{out: c.out})
	if own == m {
		return call
	}
	c.mu.Lock()
	c.callIDs[m.ID()] = id
	c.mu.Unlock()
	return &renamedCall{c, call, m.ID()}
}

// renamedCall is a request whose call the proxy knows by another id.
type renamedCall struct {
	pipe *pipeConnection
	call Call
	id   mcp.ID // of the request
}

// Run implements Call.
func (c *renamedCall) Run(ctx context.Context) pipeline.Passed {
	defer c.forget()
	return c.call.Run(ctx).WithID(c.id)
}

// Discard implements Call.
func (c *renamedCall) Discard() {
	c.call.Discard()
	c.forget()
}

// forget removes the id of the call.
func (c *renamedCall) forget() {
	c.pipe.mu.Lock()
	delete(c.pipe.callIDs, c.id)
	c.pipe.mu.Unlock()
}

// modernSession returns the session of modern requests, or nil before the first modern request.
func (c *pipeConnection) modernSession() *modernClientSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.modern
}

// handleNonRequest handles a notification or an answer. The error is context.Cause(ctx).
func (c *pipeConnection) handleNonRequest(ctx context.Context, m *mcp.Message) error {
	c.stamp(m)
	if m.Kind != mcp.Notification {
		c.legacy.handleAnswer(ctx, m)
		return nil
	}
	var n notification
	if s := c.modernSession(); s != nil && c.isModern(m) {
		n = s.admitNotification(c.withCallID(m))
	} else {
		n = c.legacy.admitNotification(m)
	}
	if m.Method == "notifications/cancelled" {
		return c.cancellations.put(ctx, n)
	}
	return c.notifications.put(ctx, n)
}

// isModern reports whether a notification is about modern requests. A modern notification need not
// name its revision.
func (c *pipeConnection) isModern(m *mcp.Message) bool {
	if m.Method == "notifications/cancelled" {
		id, _ := m.Get("/requestId")
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.modernInFlight[mcp.ID(id)] > 0
	}
	return eraOf(m, "") == mcp.Modern || !c.legacy.hasInitialize()
}

// withCallID returns a notifications/cancelled with the id under which the proxy knows the
// cancelled call. It returns any other notification unchanged.
func (c *pipeConnection) withCallID(m *mcp.Message) *mcp.Message {
	id, _ := m.Get("/requestId")
	c.mu.Lock()
	callID := c.callIDs[mcp.ID(id)]
	c.mu.Unlock()
	if callID == "" {
		return m
	}
	if edited, err := m.Edit(mcp.Set("/requestId", []byte(callID))); err == nil {
		return edited
	}
	return m
}
