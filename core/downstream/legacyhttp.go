package downstream

import (
	"context"
	"net/http"
	"sync"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// postLegacy serves a POST of a legacy session, or a POST with initialize, which opens a session.
func (e *Endpoint) postLegacy(ctx context.Context, r HTTPRequest, w Reply, m *mcp.Message) {
	if m.Kind == mcp.Request && m.Method == "initialize" &&
		r.Header.Get(mcp.HeaderSessionID) == "" {
		e.openSession(ctx, r, w, m)
		return
	}
	entry, ok := e.findSession(ctx, r, w, m)
	if !ok {
		return
	}
	defer e.legacySessions.release(entry)
	s := entry.value
	if m.Kind != mcp.Request {
		_ = s.handleNonRequest(m) // it never fails
		e.writeReply(w, http.StatusAccepted, pipeline.Passed{})
		return
	}
	p := s.newLegacyPost(r, w)
	p.takesOthers = true
	if m.Method == "tools/call" && s.revision() >= mcp.Rev20251125 {
		p.streamDelay = resumableStreamDelay
	}
	p.serve(ctx, entry, s.admit(m, p.out))
}

// resumableStreamDelay is how long a tools/call may take before its client gets a stream. The first
// event of the stream has an id. With this id the client can resume the stream when its connection
// breaks. Most calls are answered before the delay, with one write instead of four.
const resumableStreamDelay = 50 * time.Millisecond

// postBatch serves a POST of a batch.
func (e *Endpoint) postBatch(ctx context.Context, r HTTPRequest, w Reply) {
	entry, ok := e.findSession(ctx, r, w, nil)
	if !ok {
		return
	}
	defer e.legacySessions.release(entry)
	s := entry.value
	p := s.newLegacyPost(r, w)
	p.batch, p.takesOthers = true, true
	calls, err := s.split(r.Body, func(m *mcp.Message) error {
		m.Principal, m.Via = r.Principal, r.Via
		return s.handleNonRequest(m)
	}, func(m *mcp.Message) Call {
		m.Principal, m.Via = r.Principal, r.Via
		return s.admit(m, p.out)
	})
	switch {
	case err != nil:
		e.writeReply(w, http.StatusBadRequest, e.passParseError(ctx, s.peer, err))
	case len(calls) == 0:
		e.writeReply(w, http.StatusAccepted, pipeline.Passed{})
	default:
		p.serve(ctx, entry, calls...)
	}
}

// openSession opens a session and serves its initialize. The client gets the session's id with the
// first bytes of the answer. The session is removed if the client leaves before it gets the id, or
// if initialize fails before its stream has begun. If initialize fails later, the session stays,
// because the client has the id and may send initialize again.
func (e *Endpoint) openSession(ctx context.Context, r HTTPRequest, w Reply, m *mcp.Message) {
	if e.endingSessions.Load() {
		e.writeReply(w, http.StatusServiceUnavailable, e.passRefusal(ctx,
			peer{principal: r.Principal}, refuse(mcp.CodeInternalError, "gatekit is shutting "+
				"down, and nothing was run: send initialize again"), m))
		return
	}
	id := e.newID()
	entry, _, err := e.legacySessions.acquire(id, func() *httpSession {
		return e.newHTTPSession(r.Principal)
	})
	if err != nil {
		e.writeReply(w, http.StatusServiceUnavailable, e.passRefusal(ctx,
			peer{principal: r.Principal}, refuse(mcp.CodeInternalError, "%s", err), m))
		return
	}
	defer e.legacySessions.release(entry)
	s := entry.value
	p := s.newLegacyPost(r, w)
	p.header, p.opensSession = http.Header{mcp.HeaderSessionID: {id}}, true
	if written := p.serve(ctx, entry, s.admit(m, p.out)); !written || !p.isStreamed &&
		s.revision() == "" {
		e.legacySessions.remove(entry)
	}
}

// findSession returns the session that r names, which the caller must release. If another replica
// has the session, findSession forwards the request to it, and returns false. If the session does
// not exist, or the client may not use it, findSession answers the message m with an error, and
// returns false. m may be nil. A client gets the same answer for a session of another principal and
// for a session that does not exist.
func (e *Endpoint) findSession(ctx context.Context, r HTTPRequest, w Reply,
	m *mcp.Message) (*sessionEntry[*httpSession], bool) {
	refused := func(status int, format string, args ...any) (*sessionEntry[*httpSession], bool) {
		from, refused := peer{principal: r.Principal}, refuse(mcp.CodeInvalidRequest, format,
			args...)
		switch {
		case m != nil && m.Kind == mcp.Request:
			e.writeReply(w, status, e.passRefusal(ctx, from, refused, m))
		case m != nil:
			e.recordDrop(ctx, from, m, refused.message)
			fallthrough
		default:
			e.writeReply(w, status, e.passOwn(ctx, from, mcp.NewError("", refused.code,
				refused.message, nil), nil))
		}
		return nil, false
	}
	id, _, mismatch := singleHeader(r.Header, mcp.HeaderSessionID)
	if id == "" || mismatch != nil {
		return refused(http.StatusBadRequest,
			"the request has no %s: send initialize first, without this header",
			mcp.HeaderSessionID)
	}
	entry, ok, _ := e.legacySessions.acquire(id, nil)
	if !ok && r.forward(id, m) {
		return nil, false
	}
	if !ok {
		return refused(http.StatusNotFound, "no such session: send initialize")
	}
	if entry.value.principal.ID() != r.Principal.ID() {
		e.legacySessions.release(entry)
		return refused(http.StatusNotFound, "no such session: send initialize")
	}
	version, present, mismatch := singleHeader(r.Header, mcp.HeaderProtocolVersion)
	if mismatch != nil || present && !isLegacyRevision(version) {
		e.legacySessions.release(entry)
		return refused(http.StatusBadRequest, "%s %q is not a revision that has sessions",
			mcp.HeaderProtocolVersion, version)
	}
	return entry, true
}

// httpSession is a legacy session over HTTP. It outlives the connections of its client. When a
// connection ends, the session's calls go on, and their streams are kept.
type httpSession struct {
	legacyClientSession
	streams sessionStreams

	// lifetime is the context of the session's calls. It is in the struct because no request and no
	// goroutine lasts as long as the session. close ends it.
	lifetime context.Context
	end      context.CancelFunc

	mu       sync.Mutex     // guards closing, inFlight, and additions to running
	running  sync.WaitGroup // counts the goroutines of run
	inFlight int            // the goroutines of run that have not finished f
	closing  bool           // no further call may start
}

func (e *Endpoint) newHTTPSession(principal *identity.Principal) *httpSession {
	s := &httpSession{legacyClientSession: legacyClientSession{endpoint: e,
		peer: peer{newSessionName("session"), principal}}}
	s.lifetime, s.end = context.WithCancel(context.Background())
	s.streams = sessionStreams{limits: e.limits, session: e.limits.newStream(sessionStreamName),
		kept: map[string]*resumableStream{}}
	s.sessionOut, s.hasStream = &s.streams, s.streams.session.hasReader
	return s
}

// close ends the session and waits for its calls.
func (s *httpSession) close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.end()
	s.legacyClientSession.close()
	s.running.Wait()
	s.streams.close()
}

// run runs f in a goroutine of the session. If the session is closing, run returns false and does
// not run f.
func (s *httpSession) run(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.running.Add(1)
		s.inFlight++
		// Drain waits for f even if the connection has ended: the client may resume the stream.
		s.endpoint.requests.add()
		s.endpoint.workers.Run(func() {
			defer s.endpoint.requests.done()
			defer s.running.Done()
			defer s.finishedRun()
			f()
		})
	}
	return !s.closing
}

// finishedRun is called when a function of run has returned.
func (s *httpSession) finishedRun() {
	s.mu.Lock()
	s.inFlight--
	s.mu.Unlock()
	if s.endpoint.endingSessions.Load() {
		s.endpoint.endIdleSessions()
	}
}

// endIfIdle ends the session if no request of it is in flight, and reports whether it has ended.
// The caller then closes it. A request that comes meanwhile is not run.
func (s *httpSession) endIfIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight == 0 && !s.closing {
		s.closing = true
		s.end()
	}
	return s.inFlight == 0
}

// handleNonRequest handles a notification or an answer. It returns when the message has been
// delivered. It delivers the message even if the client closes the connection, because the client's
// next request may depend on the message.
func (s *httpSession) handleNonRequest(m *mcp.Message) error {
	s.stamp(m)
	if m.Kind == mcp.Notification {
		s.admitNotification(m).deliver(s.lifetime)
	} else {
		s.handleAnswer(s.lifetime, m)
	}
	return nil
}

// copyStream copies a stream to a connection until the stream or the connection ends.
func (s *httpSession) copyStream(ctx context.Context, from *resumableStream, reader *streamReader,
	to Stream) {
	// The first event has an id and no data. Clients of older revisions cannot read such an event.
	withFirstID := s.revision() >= mcp.Rev20251125
	from.copyTo(ctx, reader, to, withFirstID)
	if err := to.Close(); err != nil {
		s.endpoint.log.Debug("closing a stream failed", "session", s.session, "error", err)
	}
}
