package downstream

import (
	"context"
	"errors"
	"net/http"
	"time"

	"gatekit/core/conn"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// HTTPRequest is one POST, GET or DELETE request to the MCP endpoint. Package transport has checked
// its Host, Origin, content type and size, and has authenticated the client.
type HTTPRequest struct {
	Header    http.Header
	Body      []byte              // of a POST; belongs to the Endpoint
	Principal *identity.Principal // the user who sends the request; nil is the local user
	// StreamsEnd is when the event streams of the request end, because its authentication is no
	// longer valid then. Calls go on, and the client can resume a legacy stream with a new token.
	// The zero time means never.
	StreamsEnd time.Time
	Challenge  Challenge
	// Via is the name of the replica that forwards the request; "" if the client sent it here.
	Via string
	// Forward sends the request, with the body, to the replica that made id, which answers it, and
	// returns true. If that replica cannot answer, the answer is an error for the JSON-RPC request
	// with the id request; "" if the body has no single request. If this replica made id, or no
	// replica did, Forward returns false and does nothing. It does the same if the request has no
	// session, and the replica that made id is gone. nil: there is no other replica.
	Forward func(id string, body []byte, request mcp.ID) bool
}

// forward is Forward of a request that may have none. m is the message of the request, or nil.
func (r HTTPRequest) forward(id string, m *mcp.Message) bool {
	if r.Forward == nil {
		return false
	}
	request := mcp.ID("")
	if m != nil && m.Kind == mcp.Request {
		request = m.ID()
	}
	return r.Forward(id, r.Body, request)
}

// Challenge returns the headers of an answer with status 403 to a request that needs the scopes and
// whose access token lacks some of them. A nil Challenge means that the client cannot get scopes.
type Challenge func(scopes []string) http.Header

// of returns the headers of the answer, if a policy denied the request for its scopes and the
// client can get scopes. Otherwise it returns nil.
func (c Challenge) of(answer pipeline.Passed) http.Header {
	denial := answer.Denial()
	if c == nil || denial == nil || len(denial.Scopes) == 0 {
		return nil
	}
	return c(denial.Scopes)
}

var errAuthenticationExpired = errors.New("the client's authentication has expired")

// streamContext returns a context that ends with ctx, and at the time of StreamsEnd.
func streamContext(ctx context.Context, streamsEnd time.Time) (context.Context,
	context.CancelFunc) {
	if streamsEnd.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, streamsEnd, errAuthenticationExpired)
}

// Reply sends the answer to an HTTPRequest. Exactly one of its methods must be called, once.
type Reply interface {
	// Write sends a whole answer. The body of the answer is the concatenation of all parts in body.
	// It may be empty. The content type is application/json unless header names another type.
	Write(status int, header http.Header, body ...[]byte) error
	// Stream begins an event stream, with status 200.
	Stream(header http.Header) (Stream, error)
}

// Stream is an open event stream to a client. Package transport sends keep-alive comments on it.
type Stream interface {
	// Send writes one event and flushes it. It is safe for many goroutines. An error means that the
	// client is gone.
	Send(e conn.Event) error
	Close() error
}
