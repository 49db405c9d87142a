package downstream

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// Call is one request of a client that has been read and is not answered yet. Exactly one of its
// methods must be called, once. Most implementations run a *proxy.Call. Others resume a parked
// call, refuse the request or answer it here.
type Call interface {
	// Run serves the request and returns the answer. It returns the zero Passed when the request
	// was cancelled, by ctx or by the client, and must not be answered. If ctx has ended before Run
	// is called, no server gets the request.
	Run(ctx context.Context) pipeline.Passed
	// Discard removes the request from the calls in flight. No server gets the request. If it was
	// refused, the refusal is still recorded.
	Discard()
}

// CallParker begins calls during which a server may ask the client, and resumes calls that wait for
// the client's answers. It is needed because legacy servers ask at any time, and modern clients
// cannot be asked during a call. core/bridge implements it.
type CallParker interface {
	// Begin begins the request m of a session, or resumes the call that m brings answers to. It
	// returns the call and the id by which s.Session knows the call: the id of m, if the call is
	// new. The call sends the messages that come before its answer to client. The error is the
	// reason why m must be refused.
	Begin(s ParkerSession, m *mcp.Message, client proxy.Client) (call Call, id mcp.ID, err error)
	// EndSession ends the calls that are parked for a session, by its name.
	EndSession(name string)
}

// ParkerSession describes to a CallParker the session that a modern client's requests share.
type ParkerSession struct {
	Session   *proxy.Session
	Name      string // in the audit log
	Principal string
	// Hold keeps the session from being ended as idle until release is called.
	Hold func() (release func())
}

// refusedCall is a request that Gatekit answers with an error.
type refusedCall struct {
	endpoint *Endpoint
	peer     peer
	refusal  *refusal
	m        *mcp.Message
}

// Run implements Call.
func (c *refusedCall) Run(ctx context.Context) pipeline.Passed {
	return c.endpoint.passRefusal(ctx, c.peer, c.refusal, c.m)
}

// Discard implements Call.
func (c *refusedCall) Discard() { c.Run(endedContext()) }

// pingCall is a ping, which is answered without any server.
type pingCall struct {
	endpoint *Endpoint
	peer     peer
	m        *mcp.Message
}

// Run implements Call.
func (c *pingCall) Run(ctx context.Context) pipeline.Passed {
	if denial, ok := c.endpoint.inspectOwn(ctx, c.peer, c.m); !ok {
		return denial
	}
	return c.endpoint.passOwn(ctx, c.peer, mcp.NewResponse(c.m.ID(), nil), c.m)
}

// Discard implements Call.
func (c *pingCall) Discard() {
	c.endpoint.recordDrop(endedContext(), c.peer, c.m, "cancelled before it was answered")
}

// invalidCall is a member of a batch that cannot be parsed. It is answered with the error.
type invalidCall struct {
	endpoint *Endpoint
	peer     peer
	err      error
}

// Run implements Call.
func (c *invalidCall) Run(ctx context.Context) pipeline.Passed {
	return c.endpoint.passParseError(ctx, c.peer, c.err)
}

// Discard implements Call.
func (c *invalidCall) Discard() { c.Run(endedContext()) }

// endedContext returns a context that has ended. A call that is run with it reaches no server. A
// refused call still returns its refusal.
func endedContext() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}
