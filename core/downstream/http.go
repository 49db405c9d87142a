package downstream

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

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

// writeReply writes the whole answer to a request.
func (e *Endpoint) writeReply(w Reply, status int, answer pipeline.Passed) {
	var body [][]byte
	if m := answer.Message(); m != nil {
		body = m.Parts()
	}
	if err := w.Write(status, nil, body...); err != nil {
		e.log.Debug("writing an answer failed", "error", err)
	}
}

// writeMethodNotAllowed refuses a GET or DELETE request without a session.
func (e *Endpoint) writeMethodNotAllowed(w Reply) {
	if err := w.Write(http.StatusMethodNotAllowed, http.Header{"Allow": {"POST"}}); err != nil {
		e.log.Debug("writing an answer failed", "error", err)
	}
}

// acceptedTypes holds the content types that a client accepts for an answer. A client that accepts
// only event streams still gets errors with their own HTTP status, as JSON.
type acceptedTypes struct {
	stream        bool // the client accepts event streams
	prefersStream bool // the client prefers event streams to JSON, or does not accept JSON
}

// parseAccept parses the Accept headers. A client that sends no Accept header accepts all types. If
// a client names both types, it prefers the type that it names first. Weights do not count, except
// q=0, which refuses a type: MCP asks clients to name both types, so only the order shows a
// preference.
func parseAccept(h http.Header) acceptedTypes {
	const json, stream = "application/json", "text/event-stream"
	var accepted, refused []string
	for item := range strings.SplitSeq(strings.ToLower(strings.Join(h.Values("Accept"), ",")), ",") {
		name, params, _ := strings.Cut(item, ";")
		switch name = strings.TrimSpace(name); {
		case name == "":
		case hasZeroQuality(params):
			refused = append(refused, name)
		default:
			accepted = append(accepted, name)
		}
	}
	if accepted == nil && refused == nil {
		return acceptedTypes{stream: true}
	}
	accepts := func(name, group string) bool {
		for _, n := range []string{name, group, "*/*"} { // the most specific name decides
			switch {
			case slices.Contains(refused, n):
				return false
			case slices.Contains(accepted, n):
				return true
			}
		}
		return false
	}
	types := acceptedTypes{stream: accepts(stream, "text/*")}
	first := slices.IndexFunc(accepted, func(n string) bool { return n == json || n == stream })
	types.prefersStream = types.stream && (!accepts(json, "application/*") ||
		first >= 0 && accepted[first] == stream && slices.Contains(accepted, json))
	return types
}

// hasZeroQuality reports whether the parameters of a type have q=0.
func hasZeroQuality(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(p, "=")
		if strings.TrimSpace(name) == "q" {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return err == nil && q == 0
		}
	}
	return false
}
