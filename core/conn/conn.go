// Package conn declares the types of connections that core/downstream, core/upstream and transport
// share. A connection carries bytes; the package does not read the messages in them.
package conn

import (
	"context"
	"fmt"
	"io"
)

// Pipe is a connection that carries whole messages both ways: stdin and stdout, a child process, or
// the SSE transport of MCP 2024-11-05.
type Pipe interface {
	// Read returns the next message. The caller owns its bytes. When the peer is gone, the error is
	// or wraps io.EOF. When a message was too large and was skipped, the error is a *TooLargeError,
	// and the next Read returns the message after it. Every other error ends the connection.
	Read(ctx context.Context) ([]byte, error)
	// Write writes one message: all parts, one after the other. If the transport does not allow
	// line breaks between the JSON tokens of a message, Write removes them. Many goroutines may
	// call Write; messages are written whole and in the order of the calls. Write returns when ctx
	// ends, even if the peer does not read.
	Write(ctx context.Context, parts ...[]byte) error
}

// ForwardedPipe is a Pipe of a client whose messages other replicas may have forwarded.
type ForwardedPipe interface {
	Pipe
	// Via returns the name of the replica that has forwarded the message that Read returned last,
	// or "" if the client sent it here. Only the goroutine that calls Read may call Via.
	Via() string
}

// PipeCloser is a Pipe that its user has to close.
type PipeCloser interface {
	Pipe
	// Close ends the connection, and the child process at its other end if there is one. Close
	// returns when both have ended.
	io.Closer
}

// TooLargeError reports that a message, an event or a body has more bytes than the limit. After a
// message or an event that is too large, the connection can still be used.
type TooLargeError struct {
	Size  int // bytes that were counted; the rest may not have been read
	Limit int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("message of %d bytes is over the limit of %d", e.Size, e.Limit)
}

// Event is one server-sent event. Its data lines are joined by line feeds.
type Event struct {
	ID    string
	Name  string // "event:" field; "" stands for "message"
	Data  []byte // empty when the event only sets Retry or the ID
	Retry int    // milliseconds before a client reconnects; 0 when the event does not say
}
