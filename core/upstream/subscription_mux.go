package upstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// cancelWait is how long the mux waits for the end of a subscription that it has cancelled. Not all
// servers answer a request that was cancelled.
const cancelWait = 500 * time.Millisecond

// subscriptionMux keeps one subscription at a modern server behind a pipe, for all subscriptions of
// the sessions that share the pipe. The shared subscription asks for everything that any of the
// sessions' subscriptions asks for. The mux hands each session the notifications that its own
// subscription asks for.
//
// # Why one subscription
//
// The stdio server of go-sdk (v1.8.0) has one subscription for a connection: a second subscription
// replaces the first, and when one of the two ends, both end. So the mux cancels its subscription
// and waits for the end before it opens another. Then it notifies the subscribers as if everything
// had changed in between. If a subscription asks for more than is needed, the mux keeps this
// subscription.
type subscriptionMux struct {
	conn  *pipeConn
	begin func()        // starts run, once
	wake  chan struct{} // has one token when the subscribers have changed

	// guards the fields below, the field isAcknowledged of each subscriber, and the fields call and
	// acknowledgement of current
	mu          sync.Mutex
	subscribers []*subscriber       // the youngest last
	current     *sharedSubscription // nil while there is no subscription
}

// subscriber is one subscription of a client.
type subscriber struct {
	request        *mcp.Message
	isRecorded     bool // request is recorded, and was not written yet; only write uses it
	filter         subscriptionFilter
	handler        proxy.Handler
	queue          *orderedQueue // of the client's session
	isAcknowledged bool          // the client has got an acknowledgement
	done           chan reply    // has room for one reply
}

// sharedSubscription is a subscription at the server. It is also the proxy.Handler of its own
// request.
type sharedSubscription struct {
	mux             *subscriptionMux
	opener          *subscriber // the request at the server is a copy of the opener's request
	filter          subscriptionFilter
	call            *pendingCall  // nil until the request is in the call table
	acknowledgement *mcp.Message  // the server's acknowledgement; nil until it came
	ended           chan struct{} // closed when the subscription has ended
	end             reply         // how the subscription ended; read it after ended is closed
}

func newSubscriptionMux(conn *pipeConn) *subscriptionMux {
	mux := &subscriptionMux{conn: conn, wake: make(chan struct{}, 1)}
	mux.begin = sync.OnceFunc(func() { conn.goroutines.Go(mux.run) })
	return mux
}

// subscribe serves a subscriptions/listen. It returns when the server ends the subscription or when
// ctx ends. In the second case the error is context.Cause(ctx).
func (mux *subscriptionMux) subscribe(ctx context.Context, o Outgoing, h proxy.Handler,
	q *orderedQueue) (*mcp.Message, error) {
	s := &subscriber{request: o.m, isRecorded: o.isRecorded, filter: parseFilter(o.m), handler: h,
		queue: q, done: make(chan reply, 1)}
	mux.begin()
	mux.mu.Lock()
	mux.subscribers = append(mux.subscribers, s)
	if mux.current != nil && mux.current.acknowledgement != nil &&
		mux.current.filter.covers(s.filter) {
		mux.acknowledge(s, mux.current.acknowledgement)
	}
	mux.mu.Unlock()
	mux.wakeRun()
	defer mux.wakeRun()
	defer mux.remove(s)
	select {
	case r := <-s.done:
		if r.m == nil {
			return nil, r.err
		}
		return withSubscription(r.m, s.request.ID()).WithID(s.request.ID()), nil
	case <-mux.conn.gone:
		return nil, mux.conn.fault
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (mux *subscriptionMux) wakeRun() {
	select {
	case mux.wake <- struct{}{}:
	default:
	}
}

func (mux *subscriptionMux) remove(s *subscriber) {
	mux.mu.Lock()
	defer mux.mu.Unlock()
	mux.subscribers = slices.DeleteFunc(mux.subscribers, func(other *subscriber) bool {
		return other == s
	})
}

// run opens, replaces and cancels the subscription at the server as the subscribers need it, until
// the connection is closed.
func (mux *subscriptionMux) run(ctx context.Context) {
	var ended <-chan struct{} // of the current subscription
	for {
		select {
		case <-mux.wake:
		case <-ended:
		case <-mux.conn.gone:
			return
		case <-ctx.Done():
			return
		}
		mux.mu.Lock()
		current := mux.current
		mux.mu.Unlock()
		if current != nil {
			select {
			case <-current.ended:
				mux.endSubscribers(current)
			default:
			}
		}
		ended = mux.adjust(ctx)
	}
}

// endSubscribers ends the subscribers of a subscription that the server has ended. When the server
// never acknowledged the subscription, only the subscriber whose request was refused ends.
func (mux *subscriptionMux) endSubscribers(ended *sharedSubscription) {
	mux.mu.Lock()
	defer mux.mu.Unlock()
	mux.current = nil
	mux.subscribers = slices.DeleteFunc(mux.subscribers, func(s *subscriber) bool {
		ends := ended.acknowledgement != nil || s == ended.opener
		if ends {
			s.queue.after(func() { s.finish(ended.end) })
		}
		return ends
	})
}

// finish ends a subscriber, unless the subscriber has ended already.
func (s *subscriber) finish(r reply) {
	select {
	case s.done <- r:
	default:
	}
}

// adjust cancels the current subscription when no subscriber needs it, or when the subscription
// asks for too little. Then it opens the subscription that is needed. It returns a channel that is
// closed when that subscription has ended, or nil when none is needed.
func (mux *subscriptionMux) adjust(ctx context.Context) (ended <-chan struct{}) {
	mux.mu.Lock()
	current, needed := mux.current, subscriptionFilter{}
	var youngest *subscriber
	for _, s := range mux.subscribers {
		needed.add(s.filter)
		youngest = s
	}
	if youngest != nil && current != nil && current.filter.covers(needed) {
		mux.mu.Unlock()
		return current.ended
	}
	mux.current = nil
	mux.mu.Unlock()
	if current != nil {
		current.cancel(ctx)
	}
	if youngest == nil {
		return nil
	}
	return mux.open(ctx, youngest, needed).ended
}

// open opens a subscription with a copy of the opener's request.
func (mux *subscriptionMux) open(ctx context.Context, opener *subscriber,
	needed subscriptionFilter) *sharedSubscription {
	s := &sharedSubscription{mux: mux, opener: opener, filter: needed, ended: make(chan struct{})}
	c, err := s.write(ctx)
	if err != nil {
		s.end = reply{err: notStarted(mux.conn.name, err)}
		close(s.ended)
		return s
	}
	mux.conn.goroutines.Go(func(context.Context) {
		select {
		case s.end = <-c.done:
		case <-mux.conn.gone:
			s.end = reply{err: mux.conn.fault}
		}
		close(s.ended)
	})
	return s
}

// write writes the opener's request, with the filter of s.
func (s *sharedSubscription) write(ctx context.Context) (*pendingCall, error) {
	conn, m := s.mux.conn, s.opener.request
	s.mux.mu.Lock()
	s.mux.current = s
	s.mux.mu.Unlock()
	if !s.opener.filter.covers(s.filter) {
		wider, err := m.Edit(mcp.Set("/notifications", s.filter.encode()))
		if err != nil {
			return nil, fmt.Errorf("set the filter of a subscription: %w", err)
		}
		m = wider
	}
	c, err := conn.calls.begin(ctx, nil, m, s, nil)
	s.mux.mu.Lock()
	s.call = c
	s.mux.mu.Unlock()
	if err != nil {
		return nil, err
	}
	isRecorded := s.opener.isRecorded && m == s.opener.request
	s.opener.isRecorded = false // the request is recorded again when it is written again
	addressed, err := conn.records().record(ctx, Outgoing{m: m, isRecorded: isRecorded})
	if err == nil {
		addressed, err = c.address(addressed)
	}
	if err == nil {
		err = conn.write(ctx, addressed)
	}
	if err != nil {
		conn.calls.take(c.id)
		return nil, fmt.Errorf("write the subscription: %w", err)
	}
	return c, nil
}

// cancel cancels a subscription, and waits for its end for cancelWait at most.
func (s *sharedSubscription) cancel(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cancelWait)
	defer cancel()
	select {
	case <-s.ended:
		return
	default:
	}
	if s.call == nil {
		return // the request was not written
	}
	conn := s.mux.conn
	conn.tryWrite(ctx, cancellation(nil, s.call.id, s.call.request))
	select {
	case <-s.ended:
	case <-ctx.Done():
		if c := conn.calls.take(s.call.id); c != nil {
			c.finish(reply{err: context.Cause(ctx)})
		}
	}
}

// HandleNotification implements proxy.Handler. It runs in the reader of the pipe and does not
// block.
func (s *sharedSubscription) HandleNotification(_ context.Context, m *mcp.Message) {
	mux := s.mux
	mux.mu.Lock()
	defer mux.mu.Unlock()
	if mux.current != s {
		return
	}
	if m.Method == "notifications/subscriptions/acknowledged" {
		if s.acknowledgement != nil {
			return // a second acknowledgement is ignored
		}
		s.acknowledgement = m
		for _, sub := range mux.subscribers {
			switch {
			case !s.filter.covers(sub.filter): // run opens another subscription for sub
			case sub.isAcknowledged:
				mux.reportMissed(sub)
			default:
				mux.acknowledge(sub, m)
			}
		}
		return
	}
	hasExact := s.filter.hasEntryFor(m)
	for _, sub := range mux.subscribers {
		isServed := sub.isAcknowledged || s.filter.covers(sub.filter)
		if isServed && sub.filter.wants(m, hasExact) {
			mux.deliver(sub, withSubscription(m, sub.request.ID()))
		}
	}
}

// Consume implements proxy.Handler. It does nothing, because the bridge does not use this handler.
func (s *sharedSubscription) Consume(context.Context, *mcp.Message, string, string) error {
	return nil
}

// HandleRequests implements proxy.Handler. It returns empty answers, because servers send no
// requests on a subscription.
func (s *sharedSubscription) HandleRequests(_ context.Context,
	ms []*mcp.Message) []pipeline.Passed {
	return make([]pipeline.Passed, len(ms))
}

// IsWaiting implements proxy.Handler.
func (s *sharedSubscription) IsWaiting() bool { return true }

// ReportActivity implements proxy.Handler.
func (s *sharedSubscription) ReportActivity() {}

// acknowledge hands a subscriber its part of the server's acknowledgement. mux.mu is held.
func (mux *subscriptionMux) acknowledge(s *subscriber, ack *mcp.Message) {
	s.isAcknowledged = true
	var edits []mcp.Edit
	for name, granted := range parseFilter(ack) {
		pointer := "/notifications/" + mcp.EscapePointer(name)
		switch kept := granted.intersect(s.filter[name]); {
		case len(kept.values) == len(granted.values):
		case len(kept.values) == 0:
			edits = append(edits, mcp.Remove(pointer))
		default:
			edits = append(edits, mcp.Set(pointer, kept.encode()))
		}
	}
	part, err := ack.Edit(edits...)
	if err != nil {
		mux.conn.log.Warn("a server's acknowledgement of a subscription cannot be edited",
			"server", mux.conn.name, "error", err)
		return
	}
	mux.deliver(s, withSubscription(part, s.request.ID()))
}

// reportMissed notifies a subscriber of everything that may have changed while there was no
// subscription. mux.mu is held.
func (mux *subscriptionMux) reportMissed(s *subscriber) {
	for _, name := range slices.Sorted(maps.Keys(s.filter)) {
		var missed []*mcp.Message
		if feature, ok := strings.CutSuffix(name, "ListChanged"); ok {
			missed = append(missed,
				mcp.NewNotification("notifications/"+feature+"/list_changed", nil))
		} else if name == "resourceSubscriptions" {
			for _, uri := range s.filter[name].values {
				missed = append(missed, mcp.NewNotification("notifications/resources/updated",
					slices.Concat([]byte(`{"uri":`), []byte(uri), []byte(`}`))))
			}
		}
		for _, m := range missed {
			m.Direction = mcp.ToClient
			m, err := m.Edit(mcp.Set(mcp.PointerSubscriptionID, []byte(s.request.ID())))
			if err == nil {
				mux.deliver(s, m)
			}
		}
	}
}

// deliver hands a notification to a subscriber, through its session's queue. mux.mu is held.
func (mux *subscriptionMux) deliver(s *subscriber, m *mcp.Message) {
	d := delivery{size: m.Size(),
		run: func(ctx context.Context) { s.handler.HandleNotification(ctx, m) }}
	if err := s.queue.add(d); err != nil {
		s.finish(reply{err: unavailable(mux.conn.name,
			"too many of the server's messages wait for the client", err)})
	}
}
