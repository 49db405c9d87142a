package transport

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"

	"gatekit/core/conn"
	"gatekit/core/downstream"
	"gatekit/core/identity"
)

// In the HTTP+SSE transport of MCP 2024-11-05, a GET opens a stream. The first event of the stream
// names the URL for POST requests. All answers are sent on the stream.
const (
	ssePath      = "/sse"
	messagesPath = "/messages"
)

// sseServerPipe is the connection to one client of the HTTP+SSE transport.
type sseServerPipe struct {
	principal  *identity.Principal
	stream     downstream.Stream
	posted     chan postedMessage
	clientGone <-chan struct{}
	ended      chan struct{} // closed when no more bodies will be read
	via        string        // of the body that was read last; only for the reader
}

var _ conn.ForwardedPipe = (*sseServerPipe)(nil)

// postedMessage is a body that waits to be read. It counts towards Limits.Bodies until release is
// called.
type postedMessage struct {
	body    []byte
	via     string // the replica that has forwarded the body; "" for none
	release func()
}

// Via implements conn.ForwardedPipe.
func (p *sseServerPipe) Via() string { return p.via }

// Read implements conn.Pipe. It returns the next posted body.
func (p *sseServerPipe) Read(ctx context.Context) ([]byte, error) {
	select {
	case b := <-p.posted:
		p.via = b.via
		b.release()
		return b.body, nil
	case <-p.clientGone:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// releaseUnread releases the bodies that will not be read.
func (p *sseServerPipe) releaseUnread() {
	for {
		select {
		case b := <-p.posted:
			b.release()
		default:
			return
		}
	}
}

// Write implements conn.Pipe. It sends the message as an event. If the client does not read the
// event within Limits.Write, the stream fails.
func (p *sseServerPipe) Write(ctx context.Context, parts ...[]byte) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.stream.Send(conn.Event{Name: "message", Data: slices.Concat(parts...)})
}

// serveSSE serves the GET of a client. It returns when the stream has ended.
func (s *HTTPServer) serveSSE(w http.ResponseWriter, r *http.Request, from sender) {
	principal := from.principal
	reply := &reply{server: s, w: w, r: r}
	defer reply.end()
	stream, err := reply.Stream(nil)
	if err != nil {
		return
	}
	sid := s.newSID()
	p := &sseServerPipe{
		principal:  principal,
		stream:     stream,
		posted:     make(chan postedMessage, 16), // a POST need not wait until its body is read
		clientGone: r.Context().Done(),
		ended:      make(chan struct{}),
	}
	s.mu.Lock()
	s.ssePipes[sid] = p
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.ssePipes, sid)
		s.mu.Unlock()
		close(p.ended)
		p.releaseUnread()
	}()
	if stream.Send(conn.Event{Name: "endpoint",
		Data: []byte(messagesPath + "?sid=" + sid)}) != nil {
		return
	}
	ctx := r.Context()
	if end := principal.Expiry(); !end.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	if err := s.o.Endpoint.ServePipe(ctx, p, p.principal); err != nil && !errors.Is(err,
		context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("connection to client failed", "remote", r.RemoteAddr, "error", err)
	}
}

// newSID returns the id of a new stream.
func (s *HTTPServer) newSID() string {
	if s.o.Cluster != nil {
		return s.o.Cluster.NewID()
	}
	var secret [16]byte
	rand.Read(secret[:])
	return hex.EncodeToString(secret[:])
}

// serveMessages serves a POST of a client that has an open stream.
func (s *HTTPServer) serveMessages(w http.ResponseWriter, r *http.Request, from sender) {
	principal, sid := from.principal, r.URL.Query().Get("sid")
	if s.o.Cluster != nil && from.forwarded == nil {
		if owner, isOther := s.o.Cluster.Owner(sid); isOther {
			if body, release, ok := s.readRequestBody(w, r); ok {
				defer release()
				s.forward(w, r, owner, body, principal)
			}
			return
		}
	}
	s.mu.Lock()
	p := s.ssePipes[sid]
	s.mu.Unlock()
	if p == nil || p.principal.ID() != principal.ID() {
		// The answer does not show whether the session belongs to another principal or does not
		// exist.
		s.refuse(w, r, http.StatusNotFound, "there is no such session")
		return
	}
	body, release, ok := s.readBodyOf(w, r, from)
	if !ok {
		return
	}
	via := ""
	if from.forwarded != nil {
		via = from.forwarded.Via
	}
	select {
	case p.posted <- postedMessage{body, via, release}:
		select {
		case <-p.ended:
			p.releaseUnread()
		default:
		}
		s.write(w, http.StatusAccepted)
	case <-p.clientGone:
		release()
		s.refuse(w, r, http.StatusNotFound, "there is no such session")
	case <-r.Context().Done():
		release()
		panic(http.ErrAbortHandler) // the message was not taken: see reply.end
	}
}
