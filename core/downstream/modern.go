package downstream

import (
	"context"
	"net/http"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// modernClientSession is a session of the proxy for modern requests. All modern requests of one
// pipe share one session. All modern requests of one principal over HTTP also share one session.
// The clients do not know of the session.
type modernClientSession struct {
	peer
	endpoint *Endpoint
	proxied  *proxy.Session
	hold     func() (release func()) // keeps the session from being closed as idle
}

// newModernSession opens a session. shared means that several clients may use the session: all
// clients of one principal over HTTP. These clients have no streams other than the streams of their
// requests.
func (e *Endpoint) newModernSession(p peer, shared bool) *modernClientSession {
	o := proxy.OpenOptions{Session: p.session, Principal: p.principal, Revision: mcp.Rev20260728,
		Shared: shared}
	if shared {
		o.HasStream = func() bool { return false }
	}
	return &modernClientSession{peer: p, endpoint: e, hold: func() func() { return func() {} },
		proxied: e.proxy.Open(o, discardingClient{})}
}

// close ends the session and waits for its calls.
func (s *modernClientSession) close() {
	if p := s.endpoint.parker; p != nil {
		p.EndSession(s.session)
	}
	if err := s.proxied.Close(); err != nil {
		s.endpoint.log.Warn("closing the session of modern requests failed", "session", s.session,
			"error", err)
	}
}

// begin begins the request m. It returns the call, and the id under which the proxy's session knows
// the call. If m resumes a parked call, that id is not the id of m.
func (s *modernClientSession) begin(m *mcp.Message, client proxy.Client) (call Call, id mcp.ID) {
	if s.endpoint.parker == nil {
		return s.proxied.Begin(m, client), m.ID()
	}
	call, id, err := s.endpoint.parker.Begin(ParkerSession{Session: s.proxied, Name: s.session,
		Principal: s.principal.ID(), Hold: s.hold}, m, client)
	if err != nil {
		return &refusedCall{s.endpoint, s.peer, refuse(mcp.CodeInvalidParams, "%s", err), m}, m.ID()
	}
	return call, id
}

// admitNotification returns a notification that is ready to be delivered. The specification lets
// modern clients send only notifications/cancelled, and only on a pipe. Over HTTP a client cancels
// a request by closing its connection.
func (s *modernClientSession) admitNotification(m *mcp.Message) notification {
	s.stamp(m)
	if _, known := mcp.LookupMethod(m.Method); known && m.Method != "notifications/cancelled" {
		return &droppedNotification{s.endpoint, s.peer, m,
			"the client's revision has no such notification"}
	}
	return &modernNotification{s, m}
}

// modernNotification is a notification of a modern client.
type modernNotification struct {
	session *modernClientSession
	m       *mcp.Message
}

func (n *modernNotification) deliver(ctx context.Context) { n.session.proxied.Notify(ctx, n.m) }

// checkModern refuses a modern request whose fields or HTTP headers are invalid. It checks them in
// the order that docs/protocol.md gives. header is nil on a pipe. If m contains answers to a
// server's questions, checkModern sets m.CarriesInput.
func checkModern(m *mcp.Message, header http.Header) *refusal {
	if r := checkMeta(m); r != nil {
		return r
	}
	if header != nil {
		if r := checkHeaders(m, header); r != nil {
			return r
		}
	}
	_, answers := m.Get("/inputResponses")
	_, state := m.Get("/requestState")
	m.CarriesInput = answers || state
	return nil
}

// checkRevisionAndMethod refuses a modern request if its revision is not supported, or if the
// revision does not have its method. It must be called after checkModern.
func checkRevisionAndMethod(m *mcp.Message) *refusal {
	if !m.TextEquals(mcp.PointerProtocolVersion, mcp.Rev20260728) {
		want, _ := m.Text(mcp.PointerProtocolVersion)
		return refuseRevision(mcp.CodeUnsupportedVersion, mcp.Revisions(), want)
	}
	return checkMethod(m, mcp.Rev20260728)
}

// askedInResults implements the methods of proxy.Client that are the same for all modern clients. A
// modern client can be asked only in a result.
type askedInResults struct{}

// TakesInputRequests implements proxy.InputRequestClient.
func (askedInResults) TakesInputRequests() bool { return true }

// SendRequests implements proxy.Client.
func (askedInResults) SendRequests(context.Context, []pipeline.Passed) ([]*mcp.Message, error) {
	return nil, proxy.ErrOutsideCall
}

// discardingClient is the client of a modern session for messages outside of any request. It
// discards notifications, because modern clients get notifications only for their requests.
type discardingClient struct{ askedInResults }

func (discardingClient) Notify(context.Context, pipeline.Passed) error { return nil }

// modernPipeClient is the client of one modern request on a pipe.
type modernPipeClient struct {
	askedInResults
	out output
}

func (c modernPipeClient) Notify(ctx context.Context, p pipeline.Passed) error {
	return c.out.send(ctx, p)
}
