package downstream

import (
	"context"
	"strconv"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// reverseRequests holds the requests of servers that one legacy client has not answered yet. The
// client gets ids and progress tokens that Gatekit makes, because different servers use the same
// ids, and an id may be used only once in a session.
type reverseRequests struct {
	mu         sync.Mutex
	lastNumber int                        // of the newest request
	open       map[mcp.ID]*reverseRequest // by the id that the client gets
	tokens     map[mcp.ID]*reverseRequest // by the progress token that the client gets
	reserved   int                        // requests that the client is asked now, or soon
	released   chan struct{}              // closed when reserved falls; nil while nothing waits
}

// reserve waits until the client may be asked n more requests, and reserves them; release ends
// this. The client is asked at most limit requests at a time, or one group of more. The error is
// the cause of ctx.
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
	id          mcp.ID            // that the client gets
	token       mcp.ID            // that the client gets; "" when the server asked for no progress
	serverToken []byte            // the server's progress token
	answer      chan *mcp.Message // has room for one
}

// add adds p to the open requests. It also returns p with the id and the progress token that the
// client gets.
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

// restoreProgressToken returns the client's notifications/progress with the progress token of the
// server. ok is false when the notification belongs to no open request.
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
