package downstream

import (
	"net/http"

	"gatekit/core/conn"
)

// HTTPRequest is one HTTP POST as transport hands it over: method, content type, Origin, Host, size
// and authentication have been checked there.
type HTTPRequest struct {
	Header    http.Header
	Body      []byte // owned by the receiver
	Principal string
}

// Reply is how the answer to a request leaves. Exactly one of its methods is called, once.
type Reply interface {
	// Write sends a whole answer, whose body comes in parts; none for no body. A JSON body gets its
	// content type from transport unless header has one.
	Write(status int, header http.Header, body ...[]byte) error
	// Stream opens text/event-stream with status 200.
	Stream(header http.Header) (Stream, error)
}

// Stream is an open text/event-stream towards a client. transport sends keep-alive comments by
// itself.
type Stream interface {
	// Send writes one event and flushes it. Safe for many goroutines. An error means the client is
	// gone.
	Send(e conn.Event) error
	Close() error
}
