package upstream

import (
	"context"
	"net/http"

	"gatekit/core/conn"
)

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
	Next() (conn.Event, error)
	Close() error
}
