package proxy

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Observer is told of the calls of clients. It changes none, and must not block. Its methods may be
// called from many goroutines.
type Observer interface {
	// StartCall is told of a request before anything is done about it, m not yet judged. What is
	// done for it is done in the context that Begin answers, which must be made of ctx: that has
	// the values of the client's own context. ended, if it is not nil, is called once with what the
	// client gets: the zero Passed when that is nothing.
	StartCall(ctx context.Context, m *mcp.Message, o OpenOptions) (inner context.Context,
		ended func(pipeline.Passed))
}

// WithValues is ctx, which has also the values of another context, whose end is nothing to it: a
// call outlives the connection that it came by, and is still that client's.
func WithValues(ctx, from context.Context) context.Context { return mergedValues{ctx, from} }

type mergedValues struct {
	context.Context
	from context.Context
}

func (v mergedValues) Value(key any) any {
	if value := v.Context.Value(key); value != nil {
		return value
	}
	return v.from.Value(key)
}
