package transport

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"gatekit/core/conn"
	"gatekit/core/downstream"
)

// reply implements downstream.Reply for one request. It must not be used after the handler has
// returned.
type reply struct {
	server *HTTPServer
	w      http.ResponseWriter
	r      *http.Request
	sent   bool
	stream *stream
}

// These header values are shared by all answers. They must not be changed.
var (
	typeJSON = []string{"application/json"}
	noSniff  = []string{"nosniff"}
)

var errAnswered = errors.New("the request is answered already")

// Write implements downstream.Reply.
func (p *reply) Write(status int, header http.Header, body ...[]byte) error {
	if p.sent {
		return errAnswered
	}
	p.sent = true
	h := p.w.Header()
	for name, values := range header {
		h[name] = values
	}
	return p.server.write(p.w, status, body...)
}

// write sends a whole answer. The client must receive it within Limits.Write.
func (s *HTTPServer) write(w http.ResponseWriter, status int, body ...[]byte) error {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.o.Limits.Write))
	h, size := w.Header(), 0
	for _, part := range body {
		size += len(part)
	}
	if size > 0 {
		if len(h["Content-Type"]) == 0 {
			h["Content-Type"] = typeJSON
		}
		h["X-Content-Type-Options"] = noSniff
	}
	if status != http.StatusNoContent {
		h["Content-Length"] = []string{strconv.Itoa(size)}
	}
	w.WriteHeader(status)
	for _, part := range body {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// Stream implements downstream.Reply.
func (p *reply) Stream(header http.Header) (downstream.Stream, error) {
	if p.sent {
		return nil, errAnswered
	}
	p.sent = true
	if err := p.server.beginStream(p.w, p.r); err != nil {
		return nil, err
	}
	h := p.w.Header()
	for name, values := range header {
		h[name] = values
	}
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no") // without this header, nginx buffers events
	p.w.WriteHeader(http.StatusOK)
	s := &stream{server: p.server, w: p.w, rc: http.NewResponseController(p.w)}
	s.timer = time.AfterFunc(keepAliveInterval, s.keepAlive)
	p.stream = s
	return s, s.write(nil)
}

// beginStream counts one more stream. If there are too many, it refuses the request and returns an
// error.
func (s *HTTPServer) beginStream(w http.ResponseWriter, r *http.Request) error {
	limit := s.o.Limits.Streams
	if s.streams.Add(1) > int64(limit) {
		s.endStream()
		s.streamsRefused.Add(1)
		if !s.streamsFull.Swap(true) {
			s.log.Warn("event streams refused: the limit is reached", "streams", limit)
		}
		w.Header().Set("Retry-After", "5")
		s.refuse(w, r, http.StatusServiceUnavailable, "too many streams are open")
		return errors.New("too many streams are open")
	}
	s.streamsFull.Store(false)
	return nil
}

// endStream ends what beginStream has begun.
func (s *HTTPServer) endStream() { s.streams.Add(-1) }

// end is called when the handler returns. After end, nothing uses the connection. If the request
// was ended before it had an answer, end panics with http.ErrAbortHandler: net/http would send an
// empty answer with status 200, which looks as if the call had succeeded.
func (p *reply) end() {
	if p.stream != nil {
		p.stream.Close()
		p.server.endStream()
	}
	switch {
	case p.sent:
	case p.r.Context().Err() != nil: // the client has left, was revoked, or the server stops
		panic(http.ErrAbortHandler)
	default:
		p.server.log.Error("request left without an answer", "method", p.r.Method,
			"path", p.r.URL.Path)
		p.server.write(p.w, http.StatusInternalServerError)
	}
}

// stream implements downstream.Stream.
type stream struct {
	server *HTTPServer
	// calls keepAlive when nothing has been written for keepAliveInterval
	timer *time.Timer

	mu  sync.Mutex // held during writes, each of which has a deadline
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf []byte
	err error // set when the client is gone or Close was called; then nothing is written
}

// Send implements downstream.Stream.
func (s *stream) Send(e conn.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := appendEvent(s.buf[:0], e)
	if err != nil {
		return err
	}
	s.buf = b
	err = s.writeLocked(b)
	if cap(s.buf) > maxKeptBuffer {
		s.buf = nil
	}
	return err
}

// Close ends the stream. After Close has returned, nothing is written.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer.Stop()
	if s.err == nil {
		s.err = errors.New("the stream is closed")
	}
	return nil
}

// keepAlive sends a comment, which the client ignores.
func (s *stream) keepAlive() { s.write([]byte(":\n\n")) }

func (s *stream) write(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked(b)
}

func (s *stream) writeLocked(b []byte) error {
	if s.err != nil {
		return s.err
	}
	s.rc.SetWriteDeadline(time.Now().Add(s.server.o.Limits.Write))
	_, s.err = s.w.Write(b)
	if s.err == nil {
		s.err = s.rc.Flush()
	}
	if s.err == nil {
		s.timer.Reset(keepAliveInterval)
	}
	return s.err
}
