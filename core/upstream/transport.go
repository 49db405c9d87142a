package upstream

import (
	"context"
	"net/http"

	"gatekit/core/conn"
)

// HTTP is the client side of Streamable HTTP, the same in both eras. The caller sets the headers of
// the protocol; the transport adds the headers of HTTP (Accept, Content-Type) and of the
// configuration (credentials). The transport owns the header that it is called with. The methods
// may be called from many goroutines. The Events of a response must be closed.
type HTTP interface {
	Post(ctx context.Context, header http.Header, body []byte) (*HTTPResponse, error)
	Get(ctx context.Context, header http.Header) (*HTTPResponse, error)
	Delete(ctx context.Context, header http.Header) (*HTTPResponse, error)
}

// HTTPResponse is a server's response over HTTP. Its body was read whole, up to the size limit,
// unless it is an event stream.
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
