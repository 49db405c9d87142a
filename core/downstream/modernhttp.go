package downstream

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/conn"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// postModern serves a POST of a modern client.
func (e *Endpoint) postModern(ctx context.Context, r HTTPRequest, w Reply, m *mcp.Message) {
	from := peer{principal: r.Principal}
	if m.Kind == mcp.Request {
		if refused := checkModern(m, r.Header); refused != nil {
			e.writeReply(w, refused.httpStatus(), e.passRefusal(ctx, from, refused, m))
			return
		}
	}
	entry, _, err := e.principalSessions.acquire(r.Principal.ID(), func() *principalSession {
		return e.newPrincipalSession(r.Principal)
	})
	if err != nil {
		e.writeReply(w, http.StatusServiceUnavailable, e.passRefusal(ctx, from,
			refuse(mcp.CodeInternalError, "%s", err), m))
		return
	}
	defer e.principalSessions.release(entry)
	s := entry.value
	switch {
	case m.Kind == mcp.Notification:
		if m.Method == "notifications/cancelled" {
			e.recordDrop(ctx, s.peer, m,
				"over HTTP a client cancels a request by closing its connection")
		} else {
			s.admitNotification(m).deliver(ctx)
		}
		e.writeReply(w, http.StatusAccepted, pipeline.Passed{})
		return
	case m.Kind != mcp.Request:
		e.recordDrop(ctx, s.peer, m, "the client's revision has no reverse requests")
		e.writeReply(w, http.StatusAccepted, pipeline.Passed{})
		return
	}
	s.stamp(m)
	accept := parseAccept(r.Header)
	refused := checkRevisionAndMethod(m)
	if refused == nil {
		refused = s.paramHeaders.check(m, r.Header)
	}
	if refused == nil && m.Method == "subscriptions/listen" && !accept.stream {
		refused = refuse(mcp.CodeInvalidRequest,
			"a subscription is an event stream: Accept must name text/event-stream")
	}
	if refused != nil {
		e.writeReply(w, refused.httpStatus(), e.passRefusal(ctx, s.peer, refused, m))
		return
	}
	if m.Method == "subscriptions/listen" {
		var cancel context.CancelFunc
		ctx, cancel = streamContext(ctx, r.StreamsEnd)
		defer cancel()
	}
	if id := e.ownedElsewhere(m); id != "" && r.forward(id, m) {
		return
	}
	s.serve(ctx, m, &modernReply{w: w, challenge: r.Challenge, id: m.ID(), accept: accept,
		isSubscription: m.Method == "subscriptions/listen"})
}

// ownedElsewhere returns the id of the parked call that m resumes, if there are other replicas.
func (e *Endpoint) ownedElsewhere(m *mcp.Message) string {
	if e.replica == nil || e.parker == nil || !m.CarriesInput {
		return ""
	}
	return e.parker.ParkedID(m)
}

// principalSession is the session that all modern requests of one principal over HTTP share.
type principalSession struct {
	*modernClientSession
	paramHeaders paramHeaders
	lastID       atomic.Uint64 // id of the latest request in the proxy's session
}

func (e *Endpoint) newPrincipalSession(p *identity.Principal) *principalSession {
	s := &principalSession{modernClientSession: e.newModernSession(
		peer{session: e.principalSessionName(p.ID()), principal: p}, true)}
	s.hold = func() func() {
		entry, ok, _ := e.principalSessions.acquire(p.ID(), nil)
		if !ok {
			return func() {} // the session is being closed
		}
		return func() { e.principalSessions.release(entry) }
	}
	return s
}

// serve serves one request and writes its answer.
func (s *principalSession) serve(ctx context.Context, m *mcp.Message, reply *modernReply) {
	delay := time.AfterFunc(streamDelay, reply.openWhenSlow)
	defer delay.Stop()
	call, _ := s.begin(m.WithID(mcp.ID(strconv.FormatUint(s.lastID.Add(1), 10))), reply)
	answer := call.Run(ctx)
	if m.Method == "tools/list" && answer.Message() != nil {
		s.paramHeaders.record(answer.Message())
	}
	if err := reply.finish(answer); err != nil {
		s.endpoint.log.Debug("writing an answer failed", "method", m.Method, "error", err)
	}
}

// streamDelay is how long a request over HTTP may take before its answer becomes a stream, which
// package transport keeps alive. An error after the delay cannot have its own HTTP status.
const streamDelay = 2 * time.Second

var errAnswered = errors.New("the request has been answered")

// modernReply is the proxy.Client of one modern request over HTTP. It writes the answer, and the
// notifications that come before the answer. It opens a stream when the first notification comes.
type modernReply struct {
	askedInResults
	w              Reply
	challenge      Challenge
	id             mcp.ID // of the request, as the client sent it
	accept         acceptedTypes
	isSubscription bool

	mu       sync.Mutex // held while writing, so that messages stay in order
	stream   Stream     // nil until opened
	answered bool
	connErr  error // why the stream could not be opened
}

// Notify implements proxy.Client. The notification is dropped when the client does not accept
// streams.
func (r *modernReply) Notify(_ context.Context, p pipeline.Passed) error {
	p, err := r.restoreSubscriptionID(p)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		return errAnswered
	}
	if !r.accept.stream {
		return nil
	}
	if err := r.openStream(); err != nil {
		return err
	}
	return r.send(p)
}

// openWhenSlow opens the stream when the answer has not come within streamDelay.
func (r *modernReply) openWhenSlow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.accept.stream && !r.answered {
		_ = r.openStream() // the next write returns the error
	}
}

// openStream opens the stream unless it is open. The caller holds r.mu.
func (r *modernReply) openStream() error {
	if r.stream == nil && r.connErr == nil {
		r.stream, r.connErr = r.w.Stream(nil)
	}
	return r.connErr
}

// send writes a message to the stream. The caller holds r.mu.
func (r *modernReply) send(p pipeline.Passed) error {
	return sendEvent(context.Background(), r.stream, "", p)
}

// finish writes the answer. Nothing is written after the answer.
func (r *modernReply) finish(answer pipeline.Passed) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = true
	if answer.Message() != nil {
		answer = answer.WithID(r.id)
		if restored, err := r.restoreSubscriptionID(answer); err == nil {
			answer = restored
		}
	}
	answer, write := answer.Begin(context.Background())
	defer write.End()
	m, status := answer.Message(), http.StatusServiceUnavailable
	challenge := r.challenge.of(answer)
	switch {
	case challenge != nil:
		status = http.StatusForbidden
	case m != nil:
		status = httpStatus(m)
	}
	if r.accept.prefersStream && status == http.StatusOK {
		_ = r.openStream() // r.connErr is checked next
	}
	switch {
	case r.connErr != nil:
		return r.connErr
	case r.stream == nil && m == nil: // cancelled: the client is gone, or the endpoint is closing
		return r.w.Write(status, nil)
	case r.stream == nil:
		return r.w.Write(status, challenge, m.Parts()...)
	case m == nil:
		return r.stream.Close()
	}
	return errors.Join(r.stream.Send(conn.Event{Data: m.Append(make([]byte, 0, m.Size()))}),
		r.stream.Close())
}

// restoreSubscriptionID returns p with the client's id as the subscription id. If p contains no
// subscription id, or if the request is no subscription, it returns p unchanged.
func (r *modernReply) restoreSubscriptionID(p pipeline.Passed) (pipeline.Passed, error) {
	if !r.isSubscription {
		return p, nil
	}
	if _, ok := p.Message().Get(mcp.PointerSubscriptionID); !ok {
		return p, nil
	}
	return p.Edit(mcp.Set(mcp.PointerSubscriptionID, []byte(r.id)))
}
