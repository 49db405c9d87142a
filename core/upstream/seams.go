package upstream

import (
	"context"
	"net/http"

	"gatekit/core/conn"
)

// HTTP is the client side of Streamable HTTP without any knowledge of an era: headers of the
// protocol are set by the caller, those of HTTP (Accept, Content-Type) and of the configuration
// (credentials) by transport, to which a header belongs once it was handed over. Its methods may be
// called from many goroutines. A body over the limit is a *conn.TooLargeError. An Answer that is an
// event stream must be closed.
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
// connection broke. A *conn.TooLargeError is for one event, which was skipped. Closing drops the
// connection.
type Events interface {
	Next() (conn.Event, error)
	Close() error
}
