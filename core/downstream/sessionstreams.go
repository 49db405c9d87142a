package downstream

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// sessionStreams holds the streams of one legacy HTTP session. The client can resume them.
type sessionStreams struct {
	limits  Limits
	session *resumableStream // for messages outside of any call

	mu         sync.Mutex                  // guards the fields below
	lastNumber int                         // number of the newest stream
	kept       map[string]*resumableStream // streams by their names
	order      []*resumableStream          // the streams in kept, oldest first
	posts      []*resumableStream          // streams of unanswered POSTs, oldest first
	timer      *time.Timer                 // calls removeExpired; nil while no stream is kept
	closed     bool
}

// sessionStreamName is the name of the stream for messages outside of any call.
const sessionStreamName = "0"

const (
	maxFinishedStreams = 32 // how many finished streams are kept
	// how long a finished stream is kept although all its events were written: the client may not
	// have received them
	deliveredStreamLifetime = time.Minute
)

// newStream returns a stream that no client knows yet.
func (s *sessionStreams) newStream() *resumableStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastNumber++
	return s.limits.newStream(strconv.Itoa(s.lastNumber))
}

// addPost adds the stream of a POST to the streams that can carry server requests outside of any
// call. The requests that wait for a stream are sent on the new stream. remove removes the stream.
func (s *sessionStreams) addPost(stream *resumableStream) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.posts = append(s.posts, stream)
	stream.adopt(s.session.takeRequestsWithoutReader())
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.posts = slices.DeleteFunc(s.posts, func(r *resumableStream) bool { return r == stream })
	}
}

// send implements output, for messages outside of any call. Many clients never open the stream for
// these messages. While no connection reads that stream, a server's request is sent on the stream
// of the latest unanswered POST that a connection reads. If there is no such POST, the request
// waits for the next POST or GET.
func (s *sessionStreams) send(ctx context.Context, p pipeline.Passed) error {
	m := p.Message()
	if m == nil || m.Kind != mcp.Request && m.Method != "notifications/cancelled" {
		return s.session.send(ctx, p)
	}
	s.mu.Lock()
	streams := append(slices.Clone(s.posts), s.session)
	s.mu.Unlock()
	for _, stream := range slices.Backward(streams) {
		if sent, err := stream.sendToReader(ctx, p); sent || err != nil {
			return err
		}
	}
	return s.session.send(ctx, p)
}

// retain keeps a stream, so that the client can resume it. It must be called before the client gets
// an event id of the stream.
func (s *sessionStreams) retain(stream *resumableStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.kept[stream.name] = stream
	s.order = append(s.order, stream)
	s.removeFinishedLocked()
	if s.timer == nil {
		s.timer = time.AfterFunc(deliveredStreamLifetime, s.removeExpired)
	}
}

// removeExpired removes finished streams like removeFinishedLocked. If streams are left, it sets
// the timer again.
func (s *sessionStreams) removeExpired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeFinishedLocked()
	s.timer = nil
	if len(s.order) > 0 && !s.closed {
		s.timer = time.AfterFunc(deliveredStreamLifetime, s.removeExpired)
	}
}

// removeFinishedLocked removes two kinds of finished streams: streams that were delivered and that
// finished at least deliveredStreamLifetime ago, and the oldest streams beyond the bounds. The
// caller holds s.mu.
func (s *sessionStreams) removeFinishedLocked() {
	count, bytes := 0, 0
	for i := len(s.order) - 1; i >= 0; i-- {
		stream := s.order[i]
		finished, delivered, finishedAt, size := stream.retention()
		if !finished {
			continue
		}
		count, bytes = count+1, bytes+size
		if count > maxFinishedStreams || count > 1 && bytes > 4*s.limits.ResumeBytes ||
			delivered && time.Since(finishedAt) >= deliveredStreamLifetime {
			delete(s.kept, stream.name)
			s.order[i] = nil
		}
	}
	s.order = slices.DeleteFunc(s.order, func(r *resumableStream) bool { return r == nil })
}

// attach returns the stream that a GET asks for, and a new reader of the stream. If lastEventID is
// empty, attach returns the stream for messages outside of any call. Otherwise it returns the
// stream of the event with this id, and the reader begins with the next event. status is 200, or
// the status of a refusal.
func (s *sessionStreams) attach(lastEventID string) (stream *resumableStream, reader *streamReader,
	status int) {
	if lastEventID == "" {
		if reader, ok := s.session.attach(-1); ok {
			return s.session, reader, http.StatusOK
		}
		return nil, nil, http.StatusConflict
	}
	name, number, ok := parseEventID(lastEventID)
	s.mu.Lock()
	stream = s.kept[name]
	s.mu.Unlock()
	if name == sessionStreamName {
		stream = s.session
	}
	if !ok || stream == nil {
		return nil, nil, http.StatusBadRequest
	}
	reader, _ = stream.attach(number)
	return stream, reader, http.StatusOK
}

// close ends all streams. This also ends the connections that read the streams.
func (s *sessionStreams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.session.finish()
	for _, stream := range s.order {
		stream.finish()
	}
}
