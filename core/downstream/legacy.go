package downstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// outlet is where messages leave for a client: its pipe, or one of its streams.
type outlet interface {
	send(ctx context.Context, p pipeline.Passed) error
}

// legacy is a client that opens a session with initialize, on a pipe or over HTTP.
type legacy struct {
	peer
	endpoint  *Endpoint
	feed      outlet // what belongs to no call
	questions questions

	mu       sync.Mutex
	greeting *greeting // of the initialize that was sent last; nil before
	closed   bool
	failed   sync.WaitGroup // sessions whose initialize failed, being closed
}

// greeting is one initialize of the client and what came of it.
type greeting struct {
	session  *proxy.Session
	revision string // that both sides agreed on; valid when done is closed and ok true
	ok       bool
	done     chan struct{} // closed when initialize is answered
	// closed when notifications/initialized has been passed on; nil before the client sent it;
	// guarded by legacy.mu
	ready chan struct{}
}

// admit enters a request, in the order in which the client sent it, and returns its call. The call
// sends what comes before the answer to out.
func (s *legacy) admit(m *mcp.Message, out outlet) Call {
	s.stamp(m)
	switch m.Method {
	case "initialize":
		return s.initialize(m, out)
	case "ping":
		return &pingCall{s.endpoint, s.peer, m}
	}
	s.mu.Lock()
	g, ready := s.greeting, (chan struct{})(nil)
	if g != nil {
		ready = g.ready
	}
	s.mu.Unlock()
	if g == nil {
		return s.refusing(refuse(mcp.CodeInvalidRequest,
			"the session is not initialized: send initialize first"), m)
	}
	// now, so that a notifications/cancelled that comes next finds it
	return &legacyCall{s, g, ready, m, g.session.Begin(m, &legacyClient{s, out})}
}

// legacyCall is a request of a session. It waits until the session is initialized.
type legacyCall struct {
	s     *legacy
	g     *greeting
	ready chan struct{} // greeting.ready, as it was when the request came
	m     *mcp.Message
	call  *proxy.Call
}

func (c *legacyCall) Run(ctx context.Context) pipeline.Passed {
	c.g.await(ctx, c.g.done, c.ready)
	if r := c.g.check(c.m); r != nil {
		c.call.Discard()
		return c.s.endpoint.answer(ctx, c.s.peer, r, c.m)
	}
	return c.call.Run(ctx)
}

func (c *legacyCall) Discard() { c.call.Discard() }

// await waits until each of the channels is closed, those that are nil apart, or ctx ends.
func (g *greeting) await(ctx context.Context, signals ...chan struct{}) {
	for _, c := range signals {
		if c == nil {
			continue
		}
		select {
		case <-c:
		case <-ctx.Done():
			return
		}
	}
}

// check says whether the session can serve m.
func (g *greeting) check(m *mcp.Message) *refusal {
	if !g.good() {
		return refuse(mcp.CodeInvalidRequest, "the session is not initialized: initialize failed")
	}
	return checkMethod(m, g.revision)
}

func (s *legacy) refusing(r *refusal, m *mcp.Message) Call {
	return &refusedCall{s.endpoint, s.peer, r, m}
}

// initialize opens the proxy's session and returns the call that puts the request to it.
func (s *legacy) initialize(m *mcp.Message, out outlet) Call {
	want, ok := m.Text("/protocolVersion")
	if !ok {
		return s.refusing(refuse(mcp.CodeInvalidParams,
			"initialize needs protocolVersion, a string"), m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.greeting != nil || s.closed {
		return s.refusing(refuse(mcp.CodeInvalidRequest,
			"the session is initialized already, or has ended"), m)
	}
	offer := want
	if !isLegacy(want) {
		offer = latestLegacy
	}
	g := &greeting{done: make(chan struct{})}
	g.session = s.endpoint.proxy.Open(proxy.OpenOptions{Session: s.session, Principal: s.principal,
		Revision: offer}, &legacyClient{s, s.feed})
	s.greeting = g
	return &initializeCall{s, g, m, offer, out}
}

// initializeCall is an initialize, for which the proxy's session has been opened.
type initializeCall struct {
	s     *legacy
	g     *greeting
	m     *mcp.Message
	offer string // the revision that the servers are offered
	out   outlet
}

func (c *initializeCall) Run(ctx context.Context) pipeline.Passed {
	answer := c.negotiate(ctx)
	c.finish()
	return answer
}

func (c *initializeCall) Discard() { c.finish() }

// finish lets those go on that wait for the session. One that was not initialized is closed.
func (c *initializeCall) finish() {
	s, g := c.s, c.g
	close(g.done)
	if g.ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed { // else close ends it
		s.greeting = nil // the client may try again
		s.failed.Go(func() { s.end(g) })
	}
}

// negotiate asks the servers. The revision that the client gets is theirs.
func (c *initializeCall) negotiate(ctx context.Context) pipeline.Passed {
	s, g, m, offer := c.s, c.g, c.m, c.offer
	if want, _ := m.Text("/protocolVersion"); want != offer {
		edited, err := m.Edit(mcp.Set("/protocolVersion", mcp.Quote(offer)))
		if err != nil {
			return s.endpoint.answer(ctx, s.peer, refuse(mcp.CodeInvalidParams, "initialize: %s",
				err),
				m)
		}
		m = edited
	}
	answer := g.session.Call(ctx, m, &legacyClient{s, c.out})
	if a := answer.Message(); a != nil && a.Kind == mcp.Response {
		g.revision, g.ok = offer, true
		if agreed, _ := a.Text("/protocolVersion"); isLegacy(agreed) {
			g.revision = agreed
		}
	}
	return answer
}

// admitNotice is admit for notifications.
func (s *legacy) admitNotice(m *mcp.Message) func(ctx context.Context) {
	s.stamp(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.greeting
	if g == nil {
		return func(ctx context.Context) {
			s.endpoint.drop(ctx, s.peer, m,
				"the session is not initialized")
		}
	}
	passedOn := func() {}
	if m.Method == "notifications/initialized" && g.ready == nil {
		ready := make(chan struct{})
		g.ready = ready // requests that come next wait for it: servers refuse them before
		passedOn = func() { close(ready) }
	}
	return func(ctx context.Context) {
		defer passedOn()
		g.await(ctx, g.done)
		if !g.good() {
			s.endpoint.drop(ctx, s.peer, m, "the session is not initialized")
			return
		}
		if m.Method == "notifications/progress" {
			ours, ok := s.questions.progress(m)
			if !ok {
				s.endpoint.drop(ctx, s.peer, m, "no reverse request in flight has this token")
				return
			}
			m = ours
		}
		g.session.Notify(ctx, m)
	}
}

// greeted says whether the client has sent initialize.
func (s *legacy) greeted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.greeting != nil
}

// revision is what the session agreed on; "" when it is not initialized.
func (s *legacy) revision() string {
	s.mu.Lock()
	g := s.greeting
	s.mu.Unlock()
	if g == nil || !g.good() {
		return ""
	}
	return g.revision
}

// good says whether initialize has succeeded.
func (g *greeting) good() bool {
	select {
	case <-g.done:
		return g.ok
	default:
		return false
	}
}

// answered takes a client's answer to a reverse request.
func (s *legacy) answered(ctx context.Context, m *mcp.Message) {
	if !s.questions.answer(m) {
		s.endpoint.drop(ctx, s.peer, m, "no reverse request in flight has this id")
	}
}

// close ends the session: calls in flight are cancelled, and the servers closed.
func (s *legacy) close() {
	s.mu.Lock()
	g := s.greeting
	s.closed = true
	s.mu.Unlock()
	if g != nil {
		s.end(g)
	}
	s.failed.Wait()
}

func (s *legacy) end(g *greeting) {
	if err := g.session.Close(); err != nil {
		s.endpoint.log.Warn("close a client's session", "session", s.session, "error", err)
	}
}

// legacyClient is the client for one call, or for what belongs to none.
type legacyClient struct {
	*legacy
	out outlet
}

func (c *legacyClient) Notify(ctx context.Context, p pipeline.Passed) error {
	return c.out.send(ctx, p)
}

// SendRequests puts reverse requests to the client, all at once.
func (c *legacyClient) SendRequests(ctx context.Context,
	ps []pipeline.Passed) ([]*mcp.Message, error) {
	limit := c.endpoint.limits.ReverseTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("the client did not answer within %v", limit))
	defer cancel()
	asked := make([]*question, 0, len(ps))
	defer func() {
		for _, q := range asked {
			if c.questions.forget(q) {
				c.withdraw(q)
			}
		}
	}()
	for _, p := range ps {
		q, put, err := c.questions.ask(p)
		if err != nil {
			return nil, err
		}
		asked = append(asked, q)
		if err := c.put(ctx, put); err != nil {
			return nil, fmt.Errorf("write to the client: %w", err)
		}
	}
	answers := make([]*mcp.Message, len(asked))
	for i, q := range asked {
		select {
		case a := <-q.answer:
			answers[i] = a.WithID(q.m.ID())
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return answers, nil
}

// put sends what is about a reverse request: on the stream of the call, or, where that has been
// answered meanwhile, on the one that belongs to none.
func (c *legacyClient) put(ctx context.Context, p pipeline.Passed) error {
	err := c.out.send(ctx, p)
	if errors.Is(err, errOver) {
		err = c.feed.send(ctx, p)
	}
	return err
}

// withdraw tells the client that nobody waits for its answer any more.
func (c *legacyClient) withdraw(q *question) {
	n := mcp.NewNotification("notifications/cancelled", append(append([]byte(`{"requestId":`),
		q.id...), '}'))
	n.Server, n.Exchange = q.m.Server, q.m.Exchange
	ctx, cancel := context.WithTimeout(context.Background(), withdrawWait)
	defer cancel()
	if err := c.put(ctx, c.endpoint.own(ctx, c.peer, n, nil)); err != nil {
		c.endpoint.log.Debug("withdraw a reverse request", "session", c.session, "error", err)
	}
}

// withdrawWait bounds the writing of a cancellation to a client that may be gone.
const withdrawWait = time.Second
