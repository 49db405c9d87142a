package bridge

import (
	"bytes"
	"context"
	"sync"
	"time"

	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// parkedCall is a call that is parked whenever its server asks the client. It is also the
// proxy.Client of the call. It forwards messages to the client of the request that waits for the
// call's answer.
type parkedCall struct {
	calls        *ParkedCalls
	session      downstream.ParkerSession
	firstRequest *mcp.Message // the request that began the call; the proxy knows its id
	name         string       // 130 random bits
	cancel       context.CancelFunc

	finished chan struct{} // closed when answer is set
	answer   pipeline.Passed

	closed chan struct{} // closed when no question is put to the client any more
	close  func()        // closes the channel closed, once
	// holds one element when a question was added that the method wait has not seen yet
	questionAdded chan struct{}

	mu             sync.Mutex   // guards the fields below
	client         proxy.Client // of the request that waits for the call; nil if no request waits
	progressToken  []byte       // of the request that waits; nil when it has none
	questions      []*question  // not answered yet
	questionCount  int          // number of all questions so far
	askingServer   string       // the server that asked last, for the record
	askingExchange string       // the exchange of the last question, for the record
	round          int          // number of results so far that asked for input
	timer          *time.Timer  // ends the wait for the client; nil before the first result
}

// newCall is the first request of a call.
type newCall struct {
	*parkedCall
	call *proxy.Call
}

// Run implements downstream.Call.
func (c *newCall) Run(ctx context.Context) pipeline.Passed {
	if ctx.Err() != nil {
		return c.call.Run(ctx)
	}
	var alive context.Context
	alive, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.calls.workers.Run(func() {
		c.answer = c.call.Run(alive)
		c.cancel()
		close(c.finished)
	})
	return c.wait(ctx)
}

// Discard implements downstream.Call.
func (c *newCall) Discard() { c.call.Discard() }

// resumedCall is a request that brings answers to a parked call.
type resumedCall struct {
	*parkedCall
	request *mcp.Message
}

// Run implements downstream.Call.
func (c *resumedCall) Run(ctx context.Context) pipeline.Passed {
	if err := c.calls.proxy.Pipeline().RecordEvent(ctx, c.request, "resume",
		"the request brings answers to a parked call", nil); err != nil {
		c.abandon()
		return c.calls.refuse(ctx, c.session, c.request, mcp.CodeInternalError,
			"the request could not be recorded")
	}
	c.takeAnswers(c.request)
	return c.wait(ctx)
}

// Discard implements downstream.Call. It ends the parked call, whose ticket has been used.
func (c *resumedCall) Discard() { c.abandon() }

// abandon cancels the call. Its open questions are then answered in the client's place.
func (c *parkedCall) abandon() {
	c.close()
	c.cancel()
}

// furtherQuestionsWait is how long a question waits for further questions, so that one result
// contains all of them.
const furtherQuestionsWait = 15 * time.Millisecond

// wait waits until the call is answered or the server asks a question. It returns the answer, or
// the result that asks the client for input.
func (c *parkedCall) wait(ctx context.Context) pipeline.Passed {
	for {
		select {
		case <-c.finished:
			// The call has been answered. A question that is still open is not about the call. Such
			// a question may ask for the roots, for example. The client gets the open questions
			// first. The request that brings the answers then gets the answer to the call.
			if c.answer.Message() != nil && ctx.Err() == nil {
				if result, ok := c.park(ctx); ok {
					return result
				}
			}
			c.close()
			return c.answer
		case <-ctx.Done(): // the client has cancelled its request
			c.abandon()
			<-c.finished
			return c.answer
		case <-c.questionAdded:
		}
		select {
		case <-c.finished:
			continue
		case <-ctx.Done():
			continue
		case <-time.After(furtherQuestionsWait):
		}
		if result, ok := c.park(ctx); ok {
			return result
		}
	}
}

// park returns the result that asks the client for input, and parks the call until the client comes
// back. If the call may not be parked yet, park waits, at most for the time-out of the server. If
// the call cannot be parked, park cancels the call and returns an error as the result. ok is false
// when no question is open any more, when the request's context has ended, or when the call could
// not be parked but has been answered.
func (c *parkedCall) park(ctx context.Context) (result pipeline.Passed, ok bool) {
	result, ok, needs := c.tryPark(ctx, false)
	if needs == nil {
		return result, ok
	}
	if c.isFinished() {
		return pipeline.Passed{}, false
	}
	w := c.calls.enqueue(c, needs.bytes)
	if w == nil {
		return c.fail(ctx, tooManyParked)
	}
	defer c.calls.dequeue(w)
	deadline := time.Now().Add(c.calls.proxy.CallTimeout(needs.server))
	for {
		inTime := w.awaitRoom(ctx, deadline)
		if ctx.Err() != nil || c.isFinished() {
			return pipeline.Passed{}, false
		}
		if result, ok, needs = c.tryPark(ctx, true); needs == nil {
			return result, ok // perhaps no question is open any more
		}
		if !inTime {
			return c.fail(ctx, tooManyParked)
		}
		c.calls.resize(w, needs.bytes) // there are more questions than before
	}
}

// tooManyParked is the reason for a refusal when the limits allow no further parked call.
const tooManyParked = "too many calls wait for answers: answer those, then try again"

// isFinished reports whether the call has been answered.
func (c *parkedCall) isFinished() bool {
	select {
	case <-c.finished:
		return true
	default:
		return false
	}
}

// fail cancels the call because it cannot be parked, and returns an error as the result of the
// call. ok is false when the call has been answered.
func (c *parkedCall) fail(ctx context.Context, reason string) (result pipeline.Passed, ok bool) {
	if c.isFinished() {
		return pipeline.Passed{}, false
	}
	c.abandon()
	return c.calls.refuse(ctx, c.session, c.firstRequest, mcp.CodeInternalError,
		"the server asks for input, but "+reason), true
}

// parkNeeds has the size of a call that waits to be parked, and the server that asks.
type parkNeeds struct {
	bytes  int
	server string // the server that asks
}

// tryPark is like park, but does not wait. If the call may not be parked yet, needs is not nil.
// hasWaited means that the call is one of the waiting calls.
func (c *parkedCall) tryPark(ctx context.Context, hasWaited bool) (result pipeline.Passed, ok bool,
	needs *parkNeeds) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.questions) == 0 {
		return pipeline.Passed{}, false, nil
	}
	if c.round >= c.calls.limits.Rounds {
		result, ok = c.fail(ctx, "has asked too many times during this call")
		return result, ok, nil
	}
	t := ticket{c.name, c.round + 1}
	state, err := c.calls.proxy.SealCallState(c.firstRequest, t)
	if err != nil {
		result, ok = c.fail(ctx, "the call cannot be resumed: its requestState could not be made")
		return result, ok, nil
	}
	bytes := c.firstRequest.Size()
	for _, q := range c.questions {
		bytes += q.passed.Message().Size()
	}
	if !c.calls.keep(c, t, bytes, hasWaited) {
		return pipeline.Passed{}, false, &parkNeeds{bytes, c.questions[0].passed.Message().Server}
	}
	c.round++
	asking := mcp.NewResponse(c.firstRequest.ID(), appendInputRequired(nil, c.questions, state))
	first := c.questions[0].passed.Message()
	c.askingServer, c.askingExchange = first.Server, first.Exchange
	asking.Server, asking.Exchange, asking.CarriesInput = c.askingServer, c.askingExchange, true
	c.client = nil
	c.timer = time.AfterFunc(c.calls.limits.Wait, func() { c.expire(t) })
	return c.calls.passOwn(ctx, c.session, asking, c.firstRequest), true, nil
}

// expire abandons the call if the client has not come back with the ticket t.
func (c *parkedCall) expire(t ticket) {
	if c.calls.take(t, c.session.Name) == c {
		c.abandon()
	}
}

// takeAnswers delivers the answers in m to the questions. A question whose answer is missing or
// invalid is asked again.
func (c *parkedCall) takeAnswers(m *mcp.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	open := c.questions[:0]
	for _, q := range c.questions {
		asked := q.passed.Message()
		raw, _ := m.Get("/inputResponses/" + q.key)
		answer, err := mcp.ParseEmbeddedResponse(asked.ID(), raw)
		if err != nil || !mcp.IsAnswerTo(answer, asked.Method) {
			open = append(open, q)
			continue
		}
		q.answer <- answer
	}
	if c.questions = open; len(open) > 0 {
		c.notifyWait()
	}
}

// notifyWait wakes the method wait, which then puts the open questions to the client.
func (c *parkedCall) notifyWait() {
	select {
	case c.questionAdded <- struct{}{}:
	default:
	}
}

// progressTokenPointer is the pointer to the progress token of a request.
const progressTokenPointer = "/_meta/progressToken"

// Notify implements proxy.Client. A notification is dropped while no request waits for the call.
func (c *parkedCall) Notify(ctx context.Context, p pipeline.Passed) error {
	c.mu.Lock()
	client, token := c.client, c.progressToken
	c.mu.Unlock()
	if client == nil {
		return nil
	}
	if m := p.Message(); m.Method == "notifications/progress" {
		if token == nil {
			return nil // the request that waits now did not ask for progress
		}
		if raw, _ := m.Get("/progressToken"); !bytes.Equal(raw, token) {
			var err error
			if p, err = p.Edit(mcp.Set("/progressToken", token)); err != nil {
				return err
			}
		}
	}
	return client.Notify(ctx, p)
}

// TakesInputRequests implements proxy.InputRequestClient. It returns true, since a server's result
// that asks for input can be forwarded to the client.
func (c *parkedCall) TakesInputRequests() bool { return true }

// IsWaiting implements proxy.WaitReporter.
func (c *parkedCall) IsWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client != nil
}
