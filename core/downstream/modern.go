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
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// modern is what requests that stand alone share: those of one pipe, or of one principal over HTTP.
type modern struct {
	peer
	endpoint *Endpoint
	session  *proxy.Session
	hold     func() (release func()) // keeps the session from ending because it is idle
}

func (f *Endpoint) newModern(p peer, shared bool) *modern {
	m := &modern{peer: p, endpoint: f, hold: func() func() { return func() {} }}
	m.session = f.proxy.Open(proxy.OpenOptions{Session: p.session, Principal: p.principal,
		Revision: mcp.Rev20260728, Shared: shared}, nowhere{})
	return m
}

func (s *modern) close() {
	if p := s.endpoint.parker; p != nil {
		p.EndSession(s.peer.session)
	}
	if err := s.session.Close(); err != nil {
		s.endpoint.log.Warn("close the session of modern requests", "session", s.session,
			"error", err)
	}
}

// begin enters a request and returns its call and the id by which the proxy's session knows the
// call. A request that resumes a call does not get its own id there.
func (s *modern) begin(m *mcp.Message, client proxy.Client) (call Call, id mcp.ID) {
	if s.endpoint.parker == nil {
		return s.session.Begin(m, client), m.ID()
	}
	call, id, err := s.endpoint.parker.Begin(ModernSession{Session: s.session, Name: s.peer.session,
		Principal: s.principal, Hold: s.hold}, m, client)
	if err != nil {
		return &refusedCall{s.endpoint, s.peer, refuse(mcp.CodeInvalidParams, "%s", err), m}, m.ID()
	}
	return call, id
}

// admitNotice takes a notification of a client that has no session. Cancellations are the only ones
// that its revision has, and only on a pipe: over HTTP a request is cancelled by closing its
// connection, whatever else a client may send.
func (s *modern) admitNotice(m *mcp.Message) func(context.Context) {
	s.stamp(m)
	return func(ctx context.Context) {
		if _, known := mcp.LookupMethod(m.Method); known && m.Method != "notifications/cancelled" {
			s.endpoint.drop(ctx, s.peer, m, "the client's revision has no such notification")
			return
		}
		s.session.Notify(ctx, m)
	}
}

// checkModern holds a request against the rules of its era, in the order of protocol.md 3.12;
// header is nil on a pipe. What passes is marked for the proxy.
func checkModern(m *mcp.Message, header http.Header) *refusal {
	if r := checkMeta(m); r != nil {
		return r
	}
	if header != nil {
		if r := checkHeaders(m, header); r != nil {
			return r
		}
	}
	_, answers := m.Get("/inputResponses")
	_, state := m.Get("/requestState")
	m.CarriesInput = answers || state
	return nil
}

// checkServed is what comes next.
func checkServed(m *mcp.Message) *refusal {
	if !m.TextEquals(mcp.PointerProtocolVersion, mcp.Rev20260728) {
		want, _ := m.Text(mcp.PointerProtocolVersion)
		return refuseVersion(mcp.CodeUnsupportedVersion, mcp.Revisions(), want)
	}
	return checkMethod(m, mcp.Rev20260728)
}

// rounds is what modern clients have in common: they are asked inside results.
type rounds struct{}

func (rounds) TakesInputRequests() bool { return true }

func (rounds) SendRequests(context.Context, []pipeline.Passed) ([]*mcp.Message, error) {
	return nil, proxy.ErrOutsideCall
}

// nowhere is the feed of modern requests: what belongs to no request has no place in their
// protocol. Subscriptions are requests.
type nowhere struct{ rounds }

func (nowhere) Notify(context.Context, pipeline.Passed) error { return nil }

// modernPipe is the client of a request on a pipe.
type modernPipe struct {
	rounds
	out outlet
}

func (c modernPipe) Notify(ctx context.Context, p pipeline.Passed) error {
	return c.out.send(ctx, p)
}

// principal is all that one principal asks over HTTP without a session.
type principal struct {
	*modern
	params params // headers that its tools want
	last   atomic.Uint64
}

func (f *Endpoint) newPrincipal(name string) *principal {
	p := &principal{modern: f.newModern(peer{session: newName("principal"), principal: name}, true)}
	p.hold = func() func() {
		row, ok, _ := f.principals.use(name, nil)
		if !ok {
			return func() {} // it is ending
		}
		return func() { f.principals.release(row) }
	}
	return p
}

// call answers one request over HTTP, and writes the answer.
func (p *principal) call(ctx context.Context, m *mcp.Message, w Reply, accept acceptance) {
	reply := &modernReply{w: w, id: m.ID(), accept: accept,
		listen: m.Method == "subscriptions/listen"}
	quiet := time.AfterFunc(openAfter, reply.open)
	defer quiet.Stop()
	call, _ := p.begin(m.WithID(mcp.ID(strconv.FormatUint(p.last.Add(1), 10))), reply)
	answer := call.Run(ctx)
	if m.Method == "tools/list" && answer.Message() != nil {
		p.params.learn(answer.Message())
	}
	if err := reply.finish(answer); err != nil {
		p.endpoint.log.Debug("answer a request", "method", m.Method, "error", err)
	}
}

// openAfter is how long a request over HTTP is silent before its answer becomes a stream, which
// transport then keeps alive. An error that comes later than that cannot have its own HTTP status.
const openAfter = 2 * time.Second

var errAnswered = errors.New("the request has been answered")

// modernReply is the client of a request over HTTP: its answer, and before that, on a stream that
// is opened when it is needed, its notifications.
type modernReply struct {
	rounds
	w      Reply
	id     mcp.ID // that the client gave
	accept acceptance
	listen bool

	mu     sync.Mutex // held while writing, so that nothing overtakes
	stream Stream     // nil until opened
	over   bool
	err    error // of the connection
}

// Notify writes a notification, unless the client takes no streams: then it cannot have any.
func (r *modernReply) Notify(_ context.Context, p pipeline.Passed) error {
	p, err := r.restore(p)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return errAnswered
	}
	if !r.accept.streams {
		return nil
	}
	if err := r.opened(); err != nil {
		return err
	}
	return r.send(p)
}

func (r *modernReply) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.accept.streams && !r.over {
		_ = r.opened() // told to who writes next
	}
}

func (r *modernReply) opened() error {
	if r.stream == nil && r.err == nil {
		r.stream, r.err = r.w.Stream(nil)
	}
	return r.err
}

func (r *modernReply) send(p pipeline.Passed) error {
	m := p.Message()
	return r.stream.Send(conn.Event{Data: m.Append(make([]byte, 0, m.Size()))})
}

// finish writes the answer. After it nothing is written any more.
func (r *modernReply) finish(answer pipeline.Passed) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if answer.Message() != nil {
		answer = answer.WithID(r.id)
		if restored, err := r.restore(answer); err == nil {
			answer = restored
		}
	}
	m := answer.Message()
	if m != nil && r.accept.prefers && status(m) == http.StatusOK {
		_ = r.opened() // looked at next
	}
	switch {
	case r.err != nil:
		return r.err
	case r.stream == nil && m == nil: // cancelled: the client is gone, or we are closing
		return r.w.Write(http.StatusServiceUnavailable, nil)
	case r.stream == nil:
		return r.w.Write(status(m), nil, m.Parts()...)
	case m == nil:
		return r.stream.Close()
	}
	return errors.Join(r.send(answer), r.stream.Close())
}

// restore puts the client's id where the id of a subscription shows.
func (r *modernReply) restore(p pipeline.Passed) (pipeline.Passed, error) {
	if !r.listen {
		return p, nil
	}
	if _, ok := p.Message().Get(mcp.PointerSubscriptionID); !ok {
		return p, nil
	}
	return p.Edit(mcp.Set(mcp.PointerSubscriptionID, []byte(r.id)))
}
