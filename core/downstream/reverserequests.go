package downstream

import (
	"context"
	"strconv"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// reverseRequests holds the requests of servers that one legacy client has not answered yet. The
// client gets ids and progress tokens that Gatekit makes. Different servers may use the same id,
// but an id may be used only once in a session.
type reverseRequests struct {
	mu         sync.Mutex
	lastNumber int                        // number in the id of the newest request
	open       map[mcp.ID]*reverseRequest // by the id that the client gets
	tokens     map[mcp.ID]*reverseRequest // by the progress token that the client gets
	reserved   int                        // how many requests are open or about to be sent
	released   chan struct{}              // closed when reserved falls; nil while nothing waits
}

// reserve waits until n more requests may be sent to the client, and reserves room for them. The
// caller must call release when the requests are answered or cancelled. limit is how many requests
// may be open at the client at a time. If n exceeds limit, the requests are sent only when the
// client has no other open request. The error is context.Cause(ctx).
func (rs *reverseRequests) reserve(ctx context.Context, n, limit int) (release func(), err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for rs.reserved > 0 && rs.reserved+n > limit {
		if rs.released == nil {
			rs.released = make(chan struct{})
		}
		released := rs.released
		rs.mu.Unlock()
		select {
		case <-released:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		rs.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	rs.reserved += n
	return func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		rs.reserved -= n
		if rs.released != nil {
			close(rs.released)
			rs.released = nil
		}
	}, nil
}

// reverseRequest is one request of a server.
type reverseRequest struct {
	request     *mcp.Message      // with the server's id
	id          mcp.ID            // the id that the client gets
	token       mcp.ID            // the progress token that the client gets; "" for none
	serverToken []byte            // the server's progress token
	answer      chan *mcp.Message // has room for one answer
}

// add adds p to the open requests. It returns the open request, and p with the id and the progress
// token that the client gets.
func (rs *reverseRequests) add(p pipeline.Passed) (*reverseRequest, pipeline.Passed, error) {
	r := &reverseRequest{request: p.Message(), answer: make(chan *mcp.Message, 1)}
	rs.mu.Lock()
	rs.lastNumber++
	number := strconv.Itoa(rs.lastNumber)
	rs.mu.Unlock()
	r.id = mcp.ID(mcp.Quote("gatekit-" + number))
	renamed := p.WithID(r.id)
	if token, ok := r.request.Get("/_meta/progressToken"); ok {
		r.token, r.serverToken = r.id, token
		var err error
		renamed, err = renamed.Edit(mcp.Set("/_meta/progressToken", []byte(r.token)))
		if err != nil {
			return nil, renamed, err
		}
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.open == nil {
		rs.open, rs.tokens = map[mcp.ID]*reverseRequest{}, map[mcp.ID]*reverseRequest{}
	}
	rs.open[r.id] = r
	if r.token != "" {
		rs.tokens[r.token] = r
	}
	return r, renamed, nil
}

// deliver delivers the client's answer m, and reports whether its request is open.
func (rs *reverseRequests) deliver(m *mcp.Message) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.open[m.ID()]
	if r == nil {
		return false
	}
	rs.removeLocked(r)
	r.answer <- m
	return true
}

// remove removes r and reports whether the client has answered it.
func (rs *reverseRequests) remove(r *reverseRequest) (answered bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	answered = rs.open[r.id] != r
	rs.removeLocked(r)
	return answered
}

// removeLocked removes r. The caller holds rs.mu.
func (rs *reverseRequests) removeLocked(r *reverseRequest) {
	delete(rs.open, r.id)
	delete(rs.tokens, r.token)
}

// restoreProgressToken returns m, a notifications/progress of the client, with the progress token
// of the server. ok is false when m belongs to no open request.
func (rs *reverseRequests) restoreProgressToken(m *mcp.Message) (restored *mcp.Message, ok bool) {
	token, _ := m.Get("/progressToken")
	rs.mu.Lock()
	r := rs.tokens[mcp.ID(token)]
	rs.mu.Unlock()
	if r == nil {
		return nil, false
	}
	restored, err := m.Edit(mcp.Set("/progressToken", r.serverToken))
	if err != nil {
		return nil, false
	}
	restored.Server, restored.Exchange = r.request.Server, r.request.Exchange
	return restored, true
}
