package downstream

import (
	"net/http"

	"gatekit/core/conn"
)

// HTTPRequest is one POST, GET or DELETE request to the MCP endpoint. transport has checked its
// Host, Origin, content type and size, and has authenticated it.
type HTTPRequest struct {
	Header    http.Header
	Body      []byte // of a POST; owned by the receiver
	Principal string // the user who sends the request; "" is the local user
}

// Reply sends the answer to an HTTPRequest. Exactly one of its methods must be called, once.
type Reply interface {
	// Write sends a whole answer. Its body comes in parts, none for no body. The content type is
	// application/json unless header has another.
	Write(status int, header http.Header, body ...[]byte) error
	// Stream begins an event stream, with status 200.
	Stream(header http.Header) (Stream, error)
}

// Stream is an open event stream to a client. transport sends keep-alive comments on it.
type Stream interface {
	// Send writes one event and flushes it. It is safe for many goroutines. After an error the
	// client is gone.
	Send(e conn.Event) error
	Close() error
}
