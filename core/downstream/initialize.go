package downstream

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// initialization holds the proxy session for an initialize request of a client, and the outcome of
// the request.
type initialization struct {
	proxied  *proxy.Session
	done     chan struct{} // closed when initialize is answered
	ok       bool          // initialize succeeded; valid when done is closed
	revision string        // the revision that both sides agreed on; valid when ok is true
	// closed when notifications/initialized has been delivered; nil until the client has sent that
	// notification; guarded by legacyClientSession.mu
	initialized chan struct{}
}

// succeeded reports whether initialize has been answered with a result.
func (i *initialization) succeeded() bool {
	select {
	case <-i.done:
		return i.ok
	default:
		return false
	}
}

// check refuses a request that the session cannot serve.
func (i *initialization) check(m *mcp.Message) *refusal {
	if !i.succeeded() {
		return refuse(mcp.CodeInvalidRequest, "the session is not initialized: initialize failed")
	}
	return checkMethod(m, i.revision)
}

// beginInitialize opens the proxy's session and returns the call that sends initialize to the
// servers.
func (s *legacyClientSession) beginInitialize(m *mcp.Message, out output) Call {
	wanted, ok := m.Text("/protocolVersion")
	if !ok {
		return s.refusedCall(refuse(mcp.CodeInvalidParams,
			"initialize needs protocolVersion, a string"), m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.init != nil || s.closed {
		return s.refusedCall(refuse(mcp.CodeInvalidRequest,
			"the session is initialized already, or has ended"), m)
	}
	offered := wanted
	if !isLegacyRevision(wanted) {
		offered = latestLegacy
	}
	s.init = &initialization{done: make(chan struct{}),
		proxied: s.endpoint.proxy.Open(proxy.OpenOptions{Session: s.session,
			Principal: s.principal, Revision: offered, HasStream: s.hasStream},
			&legacyClient{s, s.sessionOut})}
	return &initializeCall{s, s.init, m, offered, out}
}

// initializeCall is an initialize request whose proxy session is open.
type initializeCall struct {
	session *legacyClientSession
	init    *initialization
	m       *mcp.Message
	offered string // the revision that is offered to the servers
	out     output
}

// Run implements Call.
func (c *initializeCall) Run(ctx context.Context) pipeline.Passed {
	answer := c.negotiate(ctx)
	c.finish()
	return answer
}

// Discard implements Call.
func (c *initializeCall) Discard() {
	c.session.endpoint.recordDrop(endedContext(), c.session.peer, c.m,
		"cancelled before it was sent")
	c.finish()
}

// negotiate sends initialize to the servers. The revision in their answer becomes the revision of
// the session.
func (c *initializeCall) negotiate(ctx context.Context) pipeline.Passed {
	s, m := c.session, c.m
	if !m.TextEquals("/protocolVersion", c.offered) {
		edited, err := m.Edit(mcp.Set("/protocolVersion", mcp.Quote(c.offered)))
		if err != nil {
			return s.endpoint.passRefusal(ctx, s.peer,
				refuse(mcp.CodeInvalidParams, "initialize: %s", err), m)
		}
		m = edited
	}
	answer := c.init.proxied.Call(ctx, m, &legacyClient{s, c.out})
	if a := answer.Message(); a != nil && a.Kind == mcp.Response {
		c.init.revision, c.init.ok = c.offered, true
		if agreed, _ := a.Text("/protocolVersion"); isLegacyRevision(agreed) {
			c.init.revision = agreed
		}
	}
	return answer
}

// finish wakes the requests and notifications that wait for the answer to initialize. When
// initialize failed, finish closes the proxy's session, and the client may try again.
func (c *initializeCall) finish() {
	s := c.session
	close(c.init.done)
	if c.init.ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed { // if s is closed, legacyClientSession.close closes the proxy's session
		s.init = nil
		s.closingFailed.Go(func() { s.closeProxySession(c.init) })
	}
}
