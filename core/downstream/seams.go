package downstream

import (
	"context"
	"errors"
	"net/http"
)

// Pipe is a connection that carries whole messages both ways: stdio, or the 2024-11-05 SSE
// transport. transport makes them.
type Pipe interface {
	// Read answers the next line or posted body, owned by the caller; io.EOF when the client is
	// gone. ErrTooLong says that one message was over the limit and has been skipped: the next Read
	// goes on after it. Every other error ends the connection.
	Read(ctx context.Context) ([]byte, error)
	// Write writes one message, which comes in parts (transport takes line breaks out). Safe for
	// many goroutines; whole messages, in the order of the calls. It returns when ctx ends, also
	// while the client does not read.
	Write(ctx context.Context, parts ...[]byte) error
}

// ErrTooLong is a Pipe's word for a message over the limit of bytes.
var ErrTooLong = errors.New("the message is too long")

// Post is one HTTP POST as transport hands it over: method, content type, Origin, Host, size and
// authentication have been checked there.
type Post struct {
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
	Send(e Event) error
	Close() error
}

// Event is one server-sent event.
type Event struct {
	ID    string
	Name  string // "event:" field; "" is message
	Data  []byte
	Retry int // milliseconds; 0 none
}
