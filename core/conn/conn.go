// Package conn holds connections as core sees them: what core/downstream, core/upstream and
// transport have to agree on. It knows neither clients nor servers, and no message.
package conn

import (
	"context"
	"fmt"
	"io"
)

// Pipe is a connection that carries whole messages both ways: stdin and stdout, a child process, or
// the SSE transport of MCP 2024-11-05.
type Pipe interface {
	// Read returns the next message, owned by the caller. The error is io.EOF, or wraps it, when
	// the peer is gone. It is a *TooLargeError when one message was skipped: the next Read returns
	// the message after it. Every other error ends the connection.
	Read(ctx context.Context) ([]byte, error)
	// Write writes one message, which comes in parts. Line breaks between its tokens are removed
	// where the transport needs that. Write may be called by many goroutines; messages are written
	// whole and in the order of the calls. It returns when ctx ends, also while the peer does not
	// read.
	Write(ctx context.Context, parts ...[]byte) error
}

// PipeCloser is a Pipe that its user closes.
type PipeCloser interface {
	Pipe
	// Close ends the connection, and the child process at its other end if there is one. It returns
	// when both have ended.
	io.Closer
}

// TooLargeError reports a message, an event or a body over the limit of bytes. A message or an
// event was skipped, and its connection goes on.
type TooLargeError struct {
	Size  int // bytes, as far as they were counted
	Limit int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("message of %d bytes is over the limit of %d", e.Size, e.Limit)
}

// Event is one server-sent event, its data lines joined by line feeds.
type Event struct {
	ID    string
	Name  string // "event:" field; "" stands for "message"
	Data  []byte // empty when the event only sets Retry, or the ID from which a stream is resumed
	Retry int    // milliseconds before a client reconnects; 0 when the event does not say
}
