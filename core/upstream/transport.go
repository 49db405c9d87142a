package upstream

import (
	"context"
	"net/http"

	"gatekit/core/conn"
)

// HTTP is the client side of Streamable HTTP in both eras. The caller sets the headers that MCP
// defines. The transport adds the headers of HTTP (Accept, Content-Type) and the configured headers
// (credentials). The transport may change the header that it gets. The methods may be called from
// many goroutines. The Events of a response must be closed.
type HTTP interface {
	// Post sends one message, which is the concatenation of the parts of body.
	Post(ctx context.Context, header http.Header, body ...[]byte) (*HTTPResponse, error)
	Get(ctx context.Context, header http.Header) (*HTTPResponse, error)
	Delete(ctx context.Context, header http.Header) (*HTTPResponse, error)
}

// HTTPResponse is a server's response over HTTP. Unless the body is an event stream, it was read
// whole, up to the size limit.
type HTTPResponse struct {
	Status int
	Header http.Header
	Body   []byte
	Events EventStream // nil when the body is not an event stream
}

// EventStream reads server-sent events. Next returns io.EOF at the end of the stream, and another
// error when the connection broke. Close drops the connection.
type EventStream interface {
	Next() (conn.Event, error)
	Close() error
}
