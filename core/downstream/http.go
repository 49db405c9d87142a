package downstream

import (
	"context"
	"net/http"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Post serves a POST request. ctx ends when the client drops the connection.
func (e *Endpoint) Post(ctx context.Context, r HTTPRequest, w Reply) {
	from := peer{principal: r.Principal}
	if mcp.IsBatch(r.Body) {
		e.requests.add()
		defer e.requests.done()
		e.postBatch(ctx, r, w)
		return
	}
	m, err := e.limits.Message.Parse(r.Body)
	if err != nil {
		e.writeReply(w, http.StatusBadRequest, e.passParseError(ctx, from, err))
		return
	}
	if m.Kind == mcp.Request && m.Method != "subscriptions/listen" {
		e.requests.add()
		defer e.requests.done()
	}
	from.stamp(m)
	m.Via = r.Via
	version, _, _ := singleHeader(r.Header, mcp.HeaderProtocolVersion)
	if eraOf(m, version) == mcp.Modern {
		e.postModern(ctx, r, w, m)
	} else {
		e.postLegacy(ctx, r, w, m)
	}
}

// Get opens the stream of a legacy session for messages outside of any call, or resumes one of the
// session's streams. A request without a session gets status 405.
func (e *Endpoint) Get(ctx context.Context, r HTTPRequest, w Reply) {
	if r.Header.Get(mcp.HeaderSessionID) == "" {
		e.writeMethodNotAllowed(w)
		return
	}
	entry, ok := e.findSession(ctx, r, w, nil)
	if !ok {
		return
	}
	defer e.legacySessions.release(entry)
	s := entry.value
	stream, reader, status := s.streams.attach(r.Header.Get(mcp.HeaderLastEventID))
	if status != http.StatusOK {
		e.writeReply(w, status, pipeline.Passed{})
		return
	}
	to, err := w.Stream(nil)
	if err != nil {
		stream.detach(reader)
		return
	}
	ctx, cancel := streamContext(ctx, r.StreamsEnd)
	defer cancel()
	s.copyStream(ctx, stream, reader, to)
}

// Delete ends a legacy session. A request without a session gets status 405.
func (e *Endpoint) Delete(ctx context.Context, r HTTPRequest, w Reply) {
	if r.Header.Get(mcp.HeaderSessionID) == "" {
		e.writeMethodNotAllowed(w)
		return
	}
	entry, ok := e.findSession(ctx, r, w, nil)
	if !ok {
		return
	}
	defer e.legacySessions.release(entry)
	e.legacySessions.remove(entry)
	e.writeReply(w, http.StatusNoContent, pipeline.Passed{})
}

// writeReply writes the whole answer to a request. With status 503, nothing was run, and the client
// may send the request again.
func (e *Endpoint) writeReply(w Reply, status int, answer pipeline.Passed) {
	answer, write := answer.Begin(context.Background())
	defer write.End()
	var body [][]byte
	if m := answer.Message(); m != nil {
		body = m.Parts()
	}
	var header http.Header
	if status == http.StatusServiceUnavailable {
		header = http.Header{"Retry-After": {"1"}}
	}
	if err := w.Write(status, header, body...); err != nil {
		e.log.Debug("writing an answer failed", "error", err)
	}
}

// writeMethodNotAllowed refuses a GET or DELETE request without a session.
func (e *Endpoint) writeMethodNotAllowed(w Reply) {
	if err := w.Write(http.StatusMethodNotAllowed, http.Header{"Allow": {"POST"}}); err != nil {
		e.log.Debug("writing an answer failed", "error", err)
	}
}
