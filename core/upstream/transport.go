package upstream

import (
	"context"
	"fmt"
	"net/http"
)

// Pipe is a connection to a server that carries whole messages both ways: a child process, or the
// 2024-11-05 SSE transport. Package transport implements it.
type Pipe interface {
	// Read returns the next message, owned by the caller. The error is io.EOF, or wraps io.EOF and
	// says how the child ended, when the server is gone. *TooLarge stands for a message that was
	// skipped: the caller can go on reading.
	Read(ctx context.Context) ([]byte, error)
	// Write writes one message, given in parts. The transport removes line breaks. Write may be
	// called from many goroutines.
	Write(ctx context.Context, parts ...[]byte) error
	// Close ends the server: it closes stdin, waits, sends TERM, waits, and sends KILL. It returns
	// when the server is gone.
	Close() error
}

// TooLarge is the error for a message over the size limit, which was skipped. Post and Get return
// it for a body, an event stream for an event; the stream goes on after it.
type TooLarge struct{ Size int } // in bytes, as far as they were counted

func (e *TooLarge) Error() string {
	return fmt.Sprintf("a message of %d bytes is over the limit", e.Size)
}

// HTTP is the client side of Streamable HTTP, the same in both eras. The caller sets the headers of
// the protocol; the transport adds those of HTTP (Accept, Content-Type) and of the configuration
// (credentials). A header belongs to the transport once it was handed over. The methods may be
// called from many goroutines. An Answer that holds an event stream must be closed.
type HTTP interface {
	Post(ctx context.Context, header http.Header, body []byte) (*Answer, error)
	Get(ctx context.Context, header http.Header) (*Answer, error)
	Delete(ctx context.Context, header http.Header) (*Answer, error)
}

// Answer is a server's response over HTTP. Its body was read whole, up to the size limit, unless it
// is an event stream.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Events Events // nil when the body is not an event stream
}

// Events reads server-sent events. Next returns io.EOF at the end of the stream, and another error
// when the connection broke. Close drops the connection.
type Events interface {
	Next() (Event, error)
	Close() error
}

// Event is one server-sent event, its data lines joined. An event without data is a priming event:
// it only gives the client an id to resume from.
type Event struct {
	ID    string
	Name  string // "" means "message"
	Data  []byte
	Retry int // in milliseconds; 0 when absent
}
