package upstream

import (
	"context"
	"fmt"
	"net/http"
)

// Pipe is a connection to a server that carries whole messages both ways: a child process, or the
// 2024-11-05 SSE transport. transport makes them.
type Pipe interface {
	// Read answers the next message, owned by the caller. io.EOF (or an error that wraps it and
	// says how the child ended) when the server is gone. *TooLarge is a message that was skipped:
	// reading goes on after it.
	Read(ctx context.Context) ([]byte, error)
	// Write writes one message, which comes in parts (transport takes line breaks out). Safe for
	// many goroutines.
	Write(ctx context.Context, parts ...[]byte) error
	// Close ends the server: closes stdin, waits, TERM, waits, KILL. It returns when it is gone.
	Close() error
}

// TooLarge says that the server sent a message over the limit. It was skipped. From HTTP it is the
// error of a Post or Get whose body was too large, and from Events of an event: the stream goes on.
type TooLarge struct{ Size int } // bytes, as far as they were counted

func (e *TooLarge) Error() string {
	return fmt.Sprintf("a message of %d bytes is over the limit", e.Size)
}

// HTTP is the client side of Streamable HTTP without any knowledge of an era: headers of the
// protocol are set by the caller, those of HTTP (Accept, Content-Type) and of the configuration
// (credentials) by transport, to which a header belongs once it was handed over. Its methods may be
// called from many goroutines. An Answer that is an event stream must be closed.
type HTTP interface {
	Post(ctx context.Context, header http.Header, body []byte) (*Answer, error)
	Get(ctx context.Context, header http.Header) (*Answer, error)
	Delete(ctx context.Context, header http.Header) (*Answer, error)
}

// Answer is what a server answered. The body was read whole and bounded, unless it is an event
// stream.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Events Events // nil when it is no event stream
}

// Events reads server-sent events. Next answers io.EOF at the end and another error when the
// connection broke. Closing drops the connection.
type Events interface {
	Next() (Event, error)
	Close() error
}

// Event is one server-sent event, its data lines joined. An empty Data is a priming event.
type Event struct {
	ID    string
	Name  string // "" is message
	Data  []byte
	Retry int // milliseconds, 0 when absent
}
