package upstream

import (
	"context"

	"gatekit/core/mcp"
)

// Observer is notified of each request to a server. It must not block. Its methods may be called
// from many goroutines.
type Observer interface {
	// Send is called with a request that is about to be written. ctx is the context of the client's
	// call. One call may need several requests: a bridge may translate the call into several
	// requests, or a request may be sent again. Gatekit makes the returned edits in the request;
	// every edit must be under /_meta. The returned function, if not nil, is called once, with the
	// answer or the error.
	Send(ctx context.Context, m *mcp.Message) (edits []mcp.Edit, ended func(answer *mcp.Message,
		err error))
}

// observe calls an observer, which may be nil. It returns o with the observer's edits, and the
// function to call with the answer or the error.
func observe(ctx context.Context, observer Observer,
	o Outgoing) (Outgoing, func(*mcp.Message, error)) {
	if observer == nil {
		return o, ignoreEnd
	}
	edits, ended := observer.Send(ctx, o.m)
	if ended == nil {
		ended = ignoreEnd
	}
	return o.withMeta(edits), ended
}

func ignoreEnd(*mcp.Message, error) {}
