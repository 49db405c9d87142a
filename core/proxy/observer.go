package proxy

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Observer is notified of the calls of clients. An Observer cannot change a call, and must not
// block. Many goroutines may call its methods.
type Observer interface {
	// StartCall is called before the request m is inspected. The call runs in the context inner,
	// which must be derived from ctx. ctx has the values of the client's own context. If ended is
	// not nil, it is called once with the answer for the client, or with the zero Passed if the
	// client gets no answer.
	StartCall(ctx context.Context, m *mcp.Message, o OpenOptions) (inner context.Context,
		ended func(pipeline.Passed))
}

// WithValues returns ctx with the values of a second context added. The end of the second context
// does not end the returned context, because a call may outlive the connection of its client.
func WithValues(ctx, second context.Context) context.Context {
	return mergedValues{ctx, second}
}

type mergedValues struct {
	context.Context
	second context.Context
}

func (v mergedValues) Value(key any) any {
	if value := v.Context.Value(key); value != nil {
		return value
	}
	return v.second.Value(key)
}
