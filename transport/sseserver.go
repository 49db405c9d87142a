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
)

// The 2024-11-05 transport: a GET opens a stream whose first event names where to POST; all answers
// come on the stream.
const (
	ssePath      = "/sse"
	messagesPath = "/messages"
)

// ssePipe is one client of the 2024-11-05 transport.
type ssePipe struct {
	principal string
	stream    downstream.Stream
	posted    chan posted
	gone      <-chan struct{}
	ended     chan struct{} // closed when nothing is read any more
}

var _ conn.Pipe = (*ssePipe)(nil)

// posted is a body that waits to be read. release gives its share of Limits.Bodies back.
type posted struct {
	body    []byte
	release func()
}

// Read answers the next posted body.
func (p *ssePipe) Read(ctx context.Context) ([]byte, error) {
	select {
	case b := <-p.posted:
		b.release()
		return b.body, nil
	case <-p.gone:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// drain gives back what nobody will read.
func (p *ssePipe) drain() {
	for {
		select {
		case b := <-p.posted:
			b.release()
		default:
			return
		}
	}
}

// Write sends a message as an event. It takes as long as the client takes to read it, up to the
// limit for that, after which the client is dropped.
func (p *ssePipe) Write(ctx context.Context, parts ...[]byte) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.stream.Send(conn.Event{Name: "message", Data: slices.Concat(parts...)})
}

// principal is on whose behalf a request comes. There is no authentication yet: all are the one
// anonymous local user.
func principal(*http.Request) string { return "" }

func (f *HTTPServer) serveSSE(w http.ResponseWriter, r *http.Request) {
	reply := &reply{f: f, w: w, r: r}
	defer reply.end()
	stream, err := reply.Stream(nil)
	if err != nil {
		return
	}
	var secret [16]byte
	rand.Read(secret[:])
	sid := hex.EncodeToString(secret[:])
	p := &ssePipe{
		principal: principal(r),
		stream:    stream,
		posted:    make(chan posted, 16),
		gone:      r.Context().Done(),
		ended:     make(chan struct{}),
	}
	f.mu.Lock()
	f.pipes[sid] = p
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.pipes, sid)
		f.mu.Unlock()
		close(p.ended)
		p.drain()
	}()
	if stream.Send(conn.Event{Name: "endpoint",
		Data: []byte(messagesPath + "?sid=" + sid)}) != nil {
		return
	}
	if err := f.o.Endpoint.ServePipe(r.Context(), p, p.principal); err != nil && !errors.Is(err,
		context.Canceled) {
		f.log.Warn("a client's connection failed", "remote", r.RemoteAddr, "error", err)
	}
}

func (f *HTTPServer) serveMessages(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	p := f.pipes[r.URL.Query().Get("sid")]
	f.mu.Unlock()
	if p == nil || p.principal != principal(r) {
		// the same for those of others
		f.refuse(w, r, http.StatusNotFound, "there is no such session")
		return
	}
	body, release, ok := f.body(w, r)
	if !ok {
		return
	}
	select {
	case p.posted <- posted{body, release}:
		select {
		case <-p.ended:
			p.drain()
		default:
		}
		f.write(w, http.StatusAccepted)
	case <-p.gone:
		release()
		f.refuse(w, r, http.StatusNotFound, "there is no such session")
	case <-r.Context().Done():
		release()
	}
}
