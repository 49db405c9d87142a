package downstream

import (
	"context"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// output sends messages to a client: on its pipe, or on one of its streams.
type output interface {
	send(ctx context.Context, p pipeline.Passed) error
}

// legacyClientSession is the session of a client that sends initialize, on a pipe or over HTTP.
type legacyClientSession struct {
	peer
	endpoint   *Endpoint
	sessionOut output // for messages outside of any call
	// reports whether a connection reads the stream for messages outside of any call; nil on a pipe
	hasStream func() bool
	reverse   reverseRequests

	mu sync.Mutex // guards the fields below
	// the client's latest initialize; nil if the client has sent none, or if it failed
	init          *initialization
	closed        bool
	closingFailed sync.WaitGroup // counts proxy sessions being closed after initialize failed
}

// admit begins a request and returns its call. admit must be called in the order in which the
// client sent the requests. out gets the messages that the call sends before its answer.
func (s *legacyClientSession) admit(m *mcp.Message, out output) Call {
	s.stamp(m)
	switch m.Method {
	case "initialize":
		return s.beginInitialize(m, out)
	case "ping":
		return &pingCall{s.endpoint, s.peer, m}
	}
	s.mu.Lock()
	init, initialized := s.init, (chan struct{})(nil)
	if init != nil {
		initialized = init.initialized
	}
	s.mu.Unlock()
	if init == nil {
		return s.refusedCall(refuse(mcp.CodeInvalidRequest,
			"the session is not initialized: send initialize first"), m)
	}
	// The call begins here, so that a notifications/cancelled that comes next finds the call.
	call := init.proxied.Begin(m, &legacyClient{s, out})
	return &legacyCall{s, init, initialized, m, call}
}

func (s *legacyClientSession) refusedCall(r *refusal, m *mcp.Message) Call {
	return &refusedCall{s.endpoint, s.peer, r, m}
}

// legacyCall is a request of a session. It waits until the session is initialized.
type legacyCall struct {
	session     *legacyClientSession
	init        *initialization
	initialized chan struct{} // the value of init.initialized when the request came
	m           *mcp.Message
	call        *proxy.Call
}

// Run implements Call.
func (c *legacyCall) Run(ctx context.Context) pipeline.Passed {
	waitForAll(ctx, c.init.done, c.initialized)
	if r := c.init.check(c.m); r != nil {
		c.call.Withdraw()
		return c.session.endpoint.passRefusal(ctx, c.session.peer, r, c.m)
	}
	return c.call.Run(ctx)
}

// Discard implements Call.
func (c *legacyCall) Discard() { c.Run(endedContext()) }

// waitForAll waits until all channels are closed, or until ctx ends. A channel may be nil; then
// waitForAll ignores the channel.
func waitForAll(ctx context.Context, channels ...chan struct{}) {
	for _, c := range channels {
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

// admitNotification returns a notification that is ready to be delivered. admitNotification must be
// called in the order in which the client sent the notifications.
func (s *legacyClientSession) admitNotification(m *mcp.Message) notification {
	s.stamp(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.init == nil {
		return &droppedNotification{s.endpoint, s.peer, m, reasonNotInitialized}
	}
	n := &legacyNotification{session: s, init: s.init, m: m}
	if m.Method == "notifications/initialized" && s.init.initialized == nil {
		// The next requests wait until the notification is delivered. Servers refuse requests that
		// come before the notification.
		s.init.initialized = make(chan struct{})
		n.delivered = s.init.initialized
	}
	return n
}

// reasonNotInitialized is the reason, in the audit log, why a notification was dropped.
const reasonNotInitialized = "the session is not initialized"

// legacyNotification is a notification of a session. It waits until initialize is answered.
type legacyNotification struct {
	session   *legacyClientSession
	init      *initialization
	m         *mcp.Message
	delivered chan struct{} // closed by deliver; may be nil
}

func (n *legacyNotification) deliver(ctx context.Context) {
	if n.delivered != nil {
		defer close(n.delivered)
	}
	s, m := n.session, n.m
	waitForAll(ctx, n.init.done)
	if !n.init.succeeded() {
		s.endpoint.recordDrop(ctx, s.peer, m, reasonNotInitialized)
		return
	}
	if m.Method == "notifications/progress" {
		restored, ok := s.reverse.restoreProgressToken(m)
		if !ok {
			s.endpoint.recordDrop(ctx, s.peer, m, "no reverse request in flight has this token")
			return
		}
		m = restored
	}
	n.init.proxied.Notify(ctx, m)
}

// handleAnswer handles the client's answer to a reverse request.
func (s *legacyClientSession) handleAnswer(ctx context.Context, m *mcp.Message) {
	if !s.reverse.deliver(m) {
		s.endpoint.recordDrop(ctx, s.peer, m, "no reverse request in flight has this id")
	}
}

// hasInitialize reports whether the client has sent initialize.
func (s *legacyClientSession) hasInitialize() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.init != nil
}

// revision returns the revision that the session has agreed on. It returns "" when the session is
// not initialized.
func (s *legacyClientSession) revision() string {
	s.mu.Lock()
	init := s.init
	s.mu.Unlock()
	if init == nil || !init.succeeded() {
		return ""
	}
	return init.revision
}

// close cancels the session's calls and closes its connections with servers.
func (s *legacyClientSession) close() {
	s.mu.Lock()
	init := s.init
	s.closed = true
	s.mu.Unlock()
	if init != nil {
		s.closeProxySession(init)
	}
	s.closingFailed.Wait()
}

func (s *legacyClientSession) closeProxySession(init *initialization) {
	if err := init.proxied.Close(); err != nil {
		s.endpoint.log.Warn("closing a client's session failed", "session", s.session,
			"error", err)
	}
}
