package upstream

import (
	"context"

	"gatekit/core/mcp"
)

// Observer is told of what is asked of a server. It must not block. Its methods may be called from
// many goroutines.
type Observer interface {
	// Send is told of a request that is about to be written, in the context of the client's call
	// that it is for. One call may need several: those of a bridge between the eras, or one that is
	// put again. edits are made in it; they are for places under /_meta alone. ended, if it is not
	// nil, is called once, with the answer or with the error for want of one.
	Send(ctx context.Context, m *mcp.Message) (edits []mcp.Edit, ended func(answer *mcp.Message,
		err error))
}

// watched is o as an observer wants it to be written, and what is to be called when it has been
// answered.
func (o outgoing) watched(ctx context.Context, by Observer) (outgoing, func(*mcp.Message, error)) {
	if by == nil {
		return o, unwatched
	}
	edits, ended := by.Send(ctx, o.m)
	if ended == nil {
		ended = unwatched
	}
	return o.marked(edits), ended
}

func unwatched(*mcp.Message, error) {}
