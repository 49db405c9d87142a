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

// parkedCall is a call that is parked whenever its server asks the client. It is the proxy.Client
// of the call. It forwards messages to the client of the request that is waiting for the call.
type parkedCall struct {
	calls        *ParkedCalls
	session      downstream.ParkerSession
	firstRequest *mcp.Message // the first request, under the id that the proxy knows
	name         string       // 130 random bits
	cancel       context.CancelFunc

	finished chan struct{} // closed when answer is set
	answer   pipeline.Passed

	closed chan struct{} // closed when no question is put to the client any more
	close  func()        // closes the channel closed, once
	// holds one element when questions were added since wait last looked
	questionAdded chan struct{}

	mu             sync.Mutex   // guards what follows
	client         proxy.Client // of the request that waits for the call; nil while none waits
	progressToken  []byte       // of that request; nil when it has none
	questions      []*question  // not answered yet
	questionCount  int          // all questions so far
	askingServer   string       // the server that asked last, for the record
	askingExchange string       // the exchange of that question, for the record
	round          int          // number of results that asked so far
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

// abandon cancels the call, and answers its open questions in the client's place.
func (c *parkedCall) abandon() {
	c.close()
	c.cancel()
}

// furtherQuestionsWait is how long a question waits for further questions, so that one result can
// ask all of them.
const furtherQuestionsWait = 15 * time.Millisecond

// wait waits until the call is answered or there is something to ask, and returns the answer or the
// result that asks.
func (c *parkedCall) wait(ctx context.Context) pipeline.Passed {
	for {
		select {
		case <-c.finished:
			// The call has been answered. A question that is still open does not concern the call;
			// it may ask for the roots, for example. It is put to the client first. The request
			// that brings its answer then gets the answer to the call.
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

// park returns the result that asks the client, and parks the call until the client comes back.
// When the call cannot be parked, it is cancelled and the result is an error. ok is false when no
// question is open any more, or when the call could not be parked but has been answered.
func (c *parkedCall) park(ctx context.Context) (result pipeline.Passed, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.questions) == 0 {
		return pipeline.Passed{}, false
	}
	fail := func(reason string) (pipeline.Passed, bool) {
		select {
		case <-c.finished:
			return pipeline.Passed{}, false
		default:
		}
		c.abandon()
		return c.calls.refuse(ctx, c.session, c.firstRequest, mcp.CodeInternalError,
			"the server asks for input, but "+reason), true
	}
	if c.round++; c.round > c.calls.limits.Rounds {
		return fail("has asked too many times during this call")
	}
	t := ticket{c.name, c.round}
	state, err := c.calls.proxy.SealCallState(c.firstRequest, t)
	if err != nil {
		return fail("the call cannot be resumed: its requestState could not be made")
	}
	bytes := c.firstRequest.Size()
	for _, q := range c.questions {
		bytes += q.passed.Message().Size()
	}
	if !c.calls.keep(c, t, bytes) {
		return fail("too many calls wait for answers: answer those, then try again")
	}
	asking := mcp.NewResponse(c.firstRequest.ID(), appendInputRequired(nil, c.questions, state))
	first := c.questions[0].passed.Message()
	c.askingServer, c.askingExchange = first.Server, first.Exchange
	asking.Server, asking.Exchange, asking.CarriesInput = c.askingServer, c.askingExchange, true
	c.client = nil
	c.timer = time.AfterFunc(c.calls.limits.Wait, func() { c.expire(t) })
	return c.calls.passOwn(ctx, c.session, asking, c.firstRequest), true
}

// expire abandons the call when its client has not come back with the ticket.
func (c *parkedCall) expire(t ticket) {
	if c.calls.take(t, c.session.Name) == c {
		c.abandon()
	}
}

// takeAnswers hands the answers in m to the questions. Questions whose answer is missing or invalid
// are asked again.
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

// notifyWait wakes wait, so that it puts the open questions to the client.
func (c *parkedCall) notifyWait() {
	select {
	case c.questionAdded <- struct{}{}:
	default:
	}
}

// progressTokenPointer is the pointer to the progress token of a request.
const progressTokenPointer = "/_meta/progressToken"

// Notify implements proxy.Client. While no request waits, the notification is dropped.
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

// TakesInputRequests implements proxy.InputRequestClient: a server's result that asks for input is
// forwarded to the client.
func (c *parkedCall) TakesInputRequests() bool { return true }

// IsWaiting implements proxy.WaitReporter.
func (c *parkedCall) IsWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client != nil
}
