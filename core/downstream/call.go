package downstream

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// Call is one request that was read from a client and is not answered yet. Exactly one of its
// methods must be called, once. Most implementations run a *proxy.Call. Other implementations
// resume a parked call, refuse the request, or answer the request without a server.
type Call interface {
	// Run serves the request and returns the answer. If the request must not be answered, because
	// the client or ctx has cancelled it, Run returns the zero Passed. If ctx has ended before Run
	// is called, no server gets the request.
	Run(ctx context.Context) pipeline.Passed
	// Discard removes the request from the calls in flight. No server gets the request. If Gatekit
	// has refused the request, the refusal is still recorded.
	Discard()
}

// CallParker begins calls during which a server may ask the client, and resumes calls that wait for
// the client's answers. It is needed because a legacy server can ask at any time, but a modern
// client cannot be asked during a call. core/bridge implements CallParker.
type CallParker interface {
	// Begin begins the request m of a session. If m contains the answers that a parked call waits
	// for, Begin resumes the parked call instead. It returns the call, and the id by which
	// s.Session knows the call. The id of a new call is the id of m. client gets the messages that
	// the call sends before its answer. The error is the reason why m must be refused.
	Begin(s ParkerSession, m *mcp.Message, client proxy.Client) (call Call, id mcp.ID, err error)
	// ParkedID returns the id of the parked call that m resumes, or "" if m resumes none. The call
	// may be parked on another replica.
	ParkedID(m *mcp.Message) string
	// EndSession ends the parked calls of the session with the given name.
	EndSession(name string)
}

// ParkerSession describes a session of modern requests to a CallParker.
type ParkerSession struct {
	Session   *proxy.Session
	Name      string // in the audit log
	Principal string // the ID of the session's principal
	// Hold keeps the session from being closed as idle until release is called.
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

// pingCall is a ping. Gatekit itself answers it.
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

// invalidCall stands for an invalid message in a batch. Its answer is the parse error.
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

// endedContext returns a context that has ended. A call that runs with this context reaches no
// server. A refused call still returns its refusal.
func endedContext() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}
