package proxy

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Observer is notified of the calls of clients. An Observer cannot change a call, and must not
// block. Many goroutines may call its methods.
type Observer interface {
	// StartCall is called with a request before it is inspected. The call runs in the returned
	// context, which must be derived from ctx; ctx has the values of the client's own context.
	// ended, if not nil, is called once with the client's answer, or with the zero Passed when
	// there is none.
	StartCall(ctx context.Context, m *mcp.Message, o OpenOptions) (inner context.Context,
		ended func(pipeline.Passed))
}

// WithValues returns ctx with the values of another context added. When the other context ends, the
// returned one does not: a call may outlive the connection that it came by.
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
