package downstream

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Post serves one HTTP POST. ctx ends when the client drops the connection.
func (f *Endpoint) Post(ctx context.Context, r HTTPRequest, w Reply) {
	from := peer{principal: r.Principal}
	if mcp.IsBatch(r.Body) {
		f.postBatch(ctx, r, w)
		return
	}
	m, err := f.limits.Message.Parse(r.Body)
	if err != nil {
		f.reply(w, http.StatusBadRequest, f.unread(ctx, from, err))
		return
	}
	from.stamp(m)
	version, _, _ := single(r.Header, mcp.HeaderProtocolVersion)
	if eraOf(m, version) == mcp.Modern {
		f.postModern(ctx, r, w, m)
	} else {
		f.postLegacy(ctx, r, w, m)
	}
}

// reply writes an answer that nothing came before.
func (f *Endpoint) reply(w Reply, status int, answer pipeline.Passed) {
	var body [][]byte
	if m := answer.Message(); m != nil {
		body = m.Parts()
	}
	if err := w.Write(status, nil, body...); err != nil {
		f.log.Debug("answer a request", "error", err)
	}
}

func (f *Endpoint) postModern(ctx context.Context, r HTTPRequest, w Reply, m *mcp.Message) {
	from := peer{principal: r.Principal}
	if m.Kind == mcp.Request {
		if refused := checkModern(m, r.Header); refused != nil {
			f.reply(w, refused.status(), f.answer(ctx, from, refused, m))
			return
		}
	}
	row, _, err := f.principals.use(r.Principal, func() *principal {
		return f.newPrincipal(r.Principal)
	})
	if err != nil {
		f.reply(w, http.StatusServiceUnavailable, f.answer(ctx, from, refuse(mcp.CodeInternalError,
			"%s",
			err), m))
		return
	}
	defer f.principals.release(row)
	p := row.value
	switch {
	case m.Kind == mcp.Notification:
		if m.Method == "notifications/cancelled" {
			f.drop(ctx, p.peer, m, "over HTTP a request is cancelled by closing its connection")
		} else {
			p.admitNotice(m)(ctx)
		}
		f.reply(w, http.StatusAccepted, pipeline.Passed{})
		return
	case m.Kind != mcp.Request:
		f.drop(ctx, p.peer, m, "the client's revision has no reverse requests")
		f.reply(w, http.StatusAccepted, pipeline.Passed{})
		return
	}
	p.stamp(m)
	accept := accepts(r.Header)
	refused := checkServed(m)
	if refused == nil {
		refused = p.params.check(m, r.Header)
	}
	if refused == nil && m.Method == "subscriptions/listen" && !accept.streams {
		refused = refuse(mcp.CodeInvalidRequest,
			"a subscription is an event stream: Accept must name text/event-stream")
	}
	if refused != nil {
		f.reply(w, refused.status(), f.answer(ctx, p.peer, refused, m))
		return
	}
	p.call(ctx, m, w, accept)
}

// status is the HTTP status of a refused modern request.
func (r *refusal) status() int {
	if r.code == mcp.CodeMethodNotFound {
		return http.StatusNotFound
	}
	return http.StatusBadRequest
}

// acceptance is how a client wants to be answered.
type acceptance struct {
	streams bool // it takes event streams
	prefers bool // ... and rather than JSON
}

// accepts reads Accept. Clients that do not say what they take, take all. What is named first is
// preferred, whatever its weight: clients must name both, and that is the one way they have to say
// more.
func accepts(h http.Header) acceptance {
	all := strings.ToLower(strings.Join(h.Values("Accept"), ","))
	json, stream := strings.Index(all, "application/json"), strings.Index(all, "text/event-stream")
	return acceptance{
		streams: all == "" || stream >= 0 || strings.Contains(all, "*/*") || strings.Contains(all,
			"text/*"),
		prefers: stream >= 0 && stream < json,
	}
}

// postLegacy serves a POST of a session, or one that opens a session.
func (f *Endpoint) postLegacy(ctx context.Context, r HTTPRequest, w Reply, m *mcp.Message) {
	if m.Kind == mcp.Request && m.Method == "initialize" &&
		r.Header.Get(mcp.HeaderSessionID) == "" {
		f.open(ctx, r, w, m)
		return
	}
	var id mcp.ID
	if m.Kind == mcp.Request {
		id = m.ID()
	}
	row, ok := f.find(ctx, r, w, id)
	if !ok {
		return
	}
	defer f.sessions.release(row)
	s := row.value
	if m.Kind != mcp.Request {
		_ = s.hear(m)
		f.reply(w, http.StatusAccepted, pipeline.Passed{})
		return
	}
	a := s.answering(r, w)
	if m.Method == "tools/call" && s.revision() >= mcp.Rev20251125 {
		a.quiet = resumableAfter
	}
	a.serve(ctx, row, s.admit(m, a.out))
}

// resumableAfter is how long a call of a tool is silent before its client gets a stream, and with
// it an event id from which it can go on when its connection breaks. Most calls are answered
// sooner, by one write and not by four.
const resumableAfter = 50 * time.Millisecond

// postBatch serves a POST of several messages.
func (f *Endpoint) postBatch(ctx context.Context, r HTTPRequest, w Reply) {
	row, ok := f.find(ctx, r, w, "")
	if !ok {
		return
	}
	defer f.sessions.release(row)
	s := row.value
	a := s.answering(r, w)
	a.array = true
	calls, err := s.split(r.Body, s.hear, func(m *mcp.Message) Call { return s.admit(m, a.out) })
	switch {
	case err != nil:
		f.reply(w, http.StatusBadRequest, f.unread(ctx, s.peer, err))
	case len(calls) == 0:
		f.reply(w, http.StatusAccepted, pipeline.Passed{})
	default:
		a.serve(ctx, row, calls...)
	}
}

// open begins a session. The client learns its id with the first bytes of the answer; one whose
// initialize failed, or whose client did not wait, is none.
func (f *Endpoint) open(ctx context.Context, r HTTPRequest, w Reply, m *mcp.Message) {
	id := rand.Text() // 130 bits
	row, _, err := f.sessions.use(id, func() *httpSession { return f.newHTTPSession(r.Principal) })
	if err != nil {
		f.reply(w, http.StatusServiceUnavailable, f.answer(ctx, peer{principal: r.Principal},
			refuse(mcp.CodeInternalError, "%s", err), m))
		return
	}
	defer f.sessions.release(row)
	s := row.value
	a := s.answering(r, w)
	a.header = http.Header{mcp.HeaderSessionID: {id}}
	if told := a.serve(ctx, row, s.admit(m, a.out)); !told || s.revision() == "" {
		f.sessions.remove(row)
	}
}

// find answers the session that a request names, to be released, or writes why there is none, under
// the request's id. Foreign and unknown ones are the same to the client.
func (f *Endpoint) find(ctx context.Context, r HTTPRequest, w Reply,
	request mcp.ID) (*row[*httpSession], bool) {
	refused := func(status int, format string, args ...any) (*row[*httpSession], bool) {
		no := mcp.NewError(request, mcp.CodeInvalidRequest, fmt.Sprintf(format, args...), nil)
		f.reply(w, status, f.own(ctx, peer{principal: r.Principal}, no, nil))
		return nil, false
	}
	id, _, twice := single(r.Header, mcp.HeaderSessionID)
	if id == "" || twice != nil {
		return refused(http.StatusBadRequest,
			"the request has no %s: send initialize first, without it", mcp.HeaderSessionID)
	}
	row, ok, _ := f.sessions.use(id, nil)
	if !ok {
		return refused(http.StatusNotFound, "no such session: send initialize")
	}
	if row.value.principal != r.Principal {
		f.sessions.release(row)
		return refused(http.StatusNotFound, "no such session: send initialize")
	}
	if version, given, twice := single(r.Header, mcp.HeaderProtocolVersion); twice != nil ||
		given && !isLegacy(version) {
		f.sessions.release(row)
		return refused(http.StatusBadRequest, "%s %q is no revision of a session",
			mcp.HeaderProtocolVersion, version)
	}
	return row, true
}

// notAllowed answers that without a session there is nothing but POST.
func (f *Endpoint) notAllowed(w Reply) {
	if err := w.Write(http.StatusMethodNotAllowed, http.Header{"Allow": {"POST"}}); err != nil {
		f.log.Debug("answer a request", "error", err)
	}
}

// Get serves a legacy session's stream, new or resumed; 405 for others. The Body of r is not looked
// at.
func (f *Endpoint) Get(ctx context.Context, r HTTPRequest, w Reply) {
	if r.Header.Get(mcp.HeaderSessionID) == "" {
		f.notAllowed(w)
		return
	}
	row, ok := f.find(ctx, r, w, "")
	if !ok {
		return
	}
	defer f.sessions.release(row)
	s := row.value
	e, rd, status := s.streams.attach(r.Header.Get(mcp.HeaderLastEventID))
	if status != http.StatusOK {
		f.reply(w, status, pipeline.Passed{})
		return
	}
	to, err := w.Stream(nil)
	if err != nil {
		e.detach(rd)
		return
	}
	s.write(ctx, e, rd, to)
}

// Delete ends a legacy session; 405 for others.
func (f *Endpoint) Delete(ctx context.Context, r HTTPRequest, w Reply) {
	if r.Header.Get(mcp.HeaderSessionID) == "" {
		f.notAllowed(w)
		return
	}
	row, ok := f.find(ctx, r, w, "")
	if !ok {
		return
	}
	defer f.sessions.release(row)
	f.sessions.remove(row)
	f.reply(w, http.StatusNoContent, pipeline.Passed{})
}
