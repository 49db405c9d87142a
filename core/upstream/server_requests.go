package upstream

import (
	"context"
	"errors"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// maxServerRequests is how many requests of one server may wait for the client.
const maxServerRequests = 64

// serverRequests holds the requests of a legacy server that wait for the client's answer.
type serverRequests struct {
	mu      sync.Mutex
	waiting map[mcp.ID]context.CancelCauseFunc
}

// begin enters a request. The returned context ends when the server cancels the request.
func (r *serverRequests) begin(ctx context.Context, id mcp.ID) (context.Context, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = make(map[mcp.ID]context.CancelCauseFunc)
	}
	if r.waiting[id] != nil {
		return nil, errors.New("a request with this id has not been answered yet")
	}
	if len(r.waiting) >= maxServerRequests {
		return nil, errors.New("too many requests wait for the client")
	}
	ctx, r.waiting[id] = context.WithCancelCause(ctx)
	return ctx, nil
}

// end removes a request. It reports whether the request must be answered, which means that the
// server has not cancelled it.
func (r *serverRequests) end(id mcp.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	cancel, ok := r.waiting[id]
	if ok {
		delete(r.waiting, id)
		cancel(nil)
	}
	return ok
}

// cancel ends the request that a server's notifications/cancelled names, if it is waiting.
func (r *serverRequests) cancel(m *mcp.Message) {
	raw, _ := m.Get("/requestId")
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel, ok := r.waiting[mcp.ID(raw)]; ok {
		delete(r.waiting, mcp.ID(raw))
		cancel(&proxy.CancelledError{})
	}
}
