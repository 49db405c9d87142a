package downstream

import (
	"net/http"

	"gatekit/core/conn"
)

// HTTPRequest is one POST, GET or DELETE request to the MCP endpoint. Package transport has checked
// its Host, Origin, content type and size, and has authenticated the client.
type HTTPRequest struct {
	Header    http.Header
	Body      []byte // of a POST; belongs to the Endpoint
	Principal string // the user who sends the request; "" is the local user
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
