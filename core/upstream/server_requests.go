package upstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// Limits of the requests of one server.
const (
	maxWaitingRequests = 1024     // requests that wait for their turn
	maxUnansweredBytes = 32 << 20 // of all requests that the client has not answered
)

// turnInterval is how often a request that waits for its turn reports activity for the client's
// call. Without these reports, the call would time out.
const turnInterval = 5 * time.Second

// serverRequests holds the requests of a legacy server that the client has not answered. A limited
// number of requests is passed to the client at a time; the other requests wait for their turn.
type serverRequests struct {
	// has one element for each request that was passed to the client and is not answered yet
	turns chan struct{}

	mu         sync.Mutex
	unanswered map[mcp.ID]serverRequest
	bytes      int // the size of all requests in unanswered
}

// serverRequest is one request of a server that has not been answered.
type serverRequest struct {
	cancel context.CancelCauseFunc
	bytes  int
}

// newServerRequests returns an empty serverRequests. It passes at most limit requests to the client
// at a time.
func newServerRequests(limit int) serverRequests {
	return serverRequests{turns: make(chan struct{}, limit),
		unanswered: make(map[mcp.ID]serverRequest)}
}

// begin adds a request. The returned context ends when the server cancels the request.
func (r *serverRequests) begin(ctx context.Context, m *mcp.Message) (context.Context, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, isUsed := r.unanswered[m.ID()]; isUsed {
		return nil, errors.New("a request with this id has not been answered yet")
	}
	if len(r.unanswered) >= cap(r.turns)+maxWaitingRequests ||
		len(r.unanswered) > 0 && r.bytes+m.Size() > maxUnansweredBytes {
		return nil, errors.New("too many requests wait for the client")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r.unanswered[m.ID()] = serverRequest{cancel, m.Size()}
	r.bytes += m.Size()
	return ctx, nil
}

// handle hands a request to h when its turn has come, and returns the answers of h. Even if ctx
// ends before the turn comes, h gets the request, because every request must be inspected and
// recorded.
func (r *serverRequests) handle(ctx context.Context, m *mcp.Message,
	h proxy.Handler) []pipeline.Passed {
	if r.awaitTurn(ctx, h) {
		defer func() { <-r.turns }()
	}
	return h.HandleRequests(ctx, []*mcp.Message{m})
}

// awaitTurn waits until one more request may be passed to the client. It returns false when ctx
// ends first.
func (r *serverRequests) awaitTurn(ctx context.Context, h proxy.Handler) bool {
	select {
	case r.turns <- struct{}{}:
		return true
	default:
	}
	ticker := time.NewTicker(turnInterval)
	defer ticker.Stop()
	for {
		h.ReportActivity()
		select {
		case r.turns <- struct{}{}:
			return true
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}

// end removes a request. It reports whether the request must be answered, which means that the
// server has not cancelled it.
func (r *serverRequests) end(id mcp.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	request, ok := r.unanswered[id]
	if ok {
		r.removeLocked(id)
		request.cancel(nil)
	}
	return ok
}

// removeLocked removes a request. The caller holds r.mu.
func (r *serverRequests) removeLocked(id mcp.ID) {
	r.bytes -= r.unanswered[id].bytes
	delete(r.unanswered, id)
}

// cancel ends the request that a server's notifications/cancelled names. It returns false when no
// such request waits for an answer. Otherwise the handler of the request inspects the notification.
func (r *serverRequests) cancel(m *mcp.Message) bool {
	raw, _ := m.Get("/requestId")
	r.mu.Lock()
	defer r.mu.Unlock()
	request, ok := r.unanswered[mcp.ID(raw)]
	if ok {
		r.removeLocked(mcp.ID(raw))
		request.cancel(&proxy.WithdrawnError{Notification: m})
	}
	return ok
}
