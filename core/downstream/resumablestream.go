package downstream

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gatekit/core/conn"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

var errStreamFinished = errors.New("the stream has ended")

// resumableStream holds the events of one stream of a legacy HTTP session: the messages of one
// POST, or the messages outside of any call. Messages are added whether or not a connection reads
// the stream. Events are kept after they were sent, so that a client that lost its connection can
// resume the stream.
//
// The stream is bounded. If a connection reads too slowly, senders wait for the connection. If no
// connection reads, events are evicted in this order: events that were sent, notifications,
// requests. Answers that were not sent are kept.
type resumableStream struct {
	name      string // unique in the session
	maxEvents int
	maxBytes  int

	mu          sync.Mutex // guards the fields below
	kept        []streamEvent
	bytes       int           // size of all kept events
	lastNumber  int           // number of the newest event; the first event has number 1
	lastSent    int           // number of the newest event that was written to a connection
	answerCount int           // how many events at the end of kept are answers
	finished    bool          // no further event will be added
	finishedAt  time.Time     // valid when finished is true
	reader      *streamReader // the attached reader; nil when no connection reads
	changed     chan struct{} // closed at the next change; nil while nothing waits for a change
}

// streamEvent is one message of a stream.
type streamEvent struct {
	number int
	passed pipeline.Passed
}

// streamReader is the position of one connection in a stream.
type streamReader struct {
	lastRead int // number of the last event that was read; guarded by resumableStream.mu
}

// newStream returns an empty stream without a reader.
func (l Limits) newStream(name string) *resumableStream {
	return &resumableStream{name: name, maxEvents: l.ResumeEvents, maxBytes: l.ResumeBytes}
}

// eventID returns the id of event n for clients. The id names the stream, so that a client that
// resumes one stream does not get the events of another stream.
func (s *resumableStream) eventID(n int) string { return s.name + "-" + strconv.Itoa(n) }

// parseEventID parses an id made by eventID.
func parseEventID(id string) (stream string, n int, ok bool) {
	stream, digits, ok := strings.Cut(id, "-")
	n, err := strconv.Atoi(digits)
	return stream, n, ok && err == nil && n >= 0
}

// send adds a message. It waits while the events that the attached reader has not read yet exceed
// the bounds.
func (s *resumableStream) send(ctx context.Context, p pipeline.Passed) error {
	if p.Message() == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendLocked(ctx, p)
}

// sendToReader adds a message like send, but only if a connection reads the stream. It returns
// false if no connection reads the stream, or if the stream is finished.
func (s *resumableStream) sendToReader(ctx context.Context, p pipeline.Passed) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished || s.reader == nil {
		return false, nil
	}
	err := s.sendLocked(ctx, p)
	if errors.Is(err, errStreamFinished) {
		return false, nil
	}
	return err == nil, err
}

// takeRequestsWithoutReader removes the requests that were not sent, and returns these requests. If
// a connection reads the stream, takeRequestsWithoutReader returns nil.
func (s *resumableStream) takeRequestsWithoutReader() (taken []pipeline.Passed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader != nil {
		return nil
	}
	s.kept = slices.DeleteFunc(s.kept, func(ev streamEvent) bool {
		m := ev.passed.Message()
		if m.Kind != mcp.Request || ev.number <= s.lastSent {
			return false
		}
		s.bytes -= m.Size()
		taken = append(taken, ev.passed)
		return true
	})
	return taken
}

// adopt adds messages that were removed from another stream. The stream must not be finished.
func (s *resumableStream) adopt(messages []pipeline.Passed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range messages {
		s.add(p)
	}
	s.wakeWaiters()
}

// sendLocked does the work of send. The caller holds s.mu. sendLocked releases s.mu while it waits.
func (s *resumableStream) sendLocked(ctx context.Context, p pipeline.Passed) error {
	for {
		if s.finished {
			return errStreamFinished
		}
		if s.reader == nil || !s.isReaderBehind() {
			break
		}
		if err := s.waitForChange(ctx); err != nil {
			return err
		}
	}
	s.add(p)
	s.wakeWaiters()
	return nil
}

// finish adds each answer that has a message, and ends the stream. It does not wait for a reader.
func (s *resumableStream) finish(answer ...pipeline.Passed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range answer {
		if p.Message() != nil && !s.finished {
			s.add(p)
			s.answerCount++
		}
	}
	if !s.finished {
		s.finished, s.finishedAt = true, time.Now()
	}
	s.wakeWaiters()
}

// isReaderBehind reports whether the events that the reader has not read yet exceed the bounds. The
// caller holds s.mu.
func (s *resumableStream) isReaderBehind() bool {
	count, size := 0, 0
	for i := len(s.kept) - 1; i >= 0 && s.kept[i].number > s.reader.lastRead; i-- {
		count, size = count+1, size+s.kept[i].passed.Message().Size()
	}
	return count >= s.maxEvents || size >= s.maxBytes
}

// add adds a message, and evicts events beyond the bounds. The caller holds s.mu.
func (s *resumableStream) add(p pipeline.Passed) {
	s.lastNumber++
	s.kept = append(s.kept, streamEvent{s.lastNumber, p})
	s.bytes += p.Message().Size()
	for len(s.kept) > s.maxEvents || s.bytes > s.maxBytes {
		i := s.evictable()
		if i < 0 {
			return
		}
		s.bytes -= s.kept[i].passed.Message().Size()
		s.kept = slices.Delete(s.kept, i, i+1)
	}
}

// evictable returns the index of the event to evict next, or -1 when no event may be evicted. The
// newest event and the answers that were not sent are kept. If a connection reads the stream, only
// events that were sent are evicted, since senders wait for the reader. The caller holds s.mu.
func (s *resumableStream) evictable() int {
	old := s.kept[:len(s.kept)-1]
	if len(old) > 0 && old[0].number <= s.lastSent {
		return 0
	}
	if s.reader != nil {
		return -1
	}
	for _, kind := range []mcp.Kind{mcp.Notification, mcp.Request} {
		if i := slices.IndexFunc(old, func(ev streamEvent) bool {
			return ev.passed.Message().Kind == kind
		}); i >= 0 {
			return i
		}
	}
	return -1
}

// wakeWaiters makes all calls of waitForChange return. The caller holds s.mu.
func (s *resumableStream) wakeWaiters() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// waitForChange unlocks s.mu, waits until the stream changes or ctx ends, and locks s.mu again.
func (s *resumableStream) waitForChange(ctx context.Context) error {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	changed := s.changed
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// waitForFirst waits until the stream has an event or is finished. onlyAnswers is true if the
// stream is finished and contains only answers. The answers are then returned, and can be sent
// without a stream. When ctx ends first, the error is context.Cause(ctx).
func (s *resumableStream) waitForFirst(ctx context.Context) (answers []pipeline.Passed,
	onlyAnswers bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.lastNumber == 0 && !s.finished {
		if err := s.waitForChange(ctx); err != nil {
			return nil, false, err
		}
	}
	if onlyAnswers = s.finished && s.answerCount == s.lastNumber; onlyAnswers {
		for _, ev := range s.kept {
			answers = append(answers, ev.passed)
		}
	}
	return answers, onlyAnswers, nil
}

// attach returns a new reader of the events after event n. The new reader replaces the attached
// reader. If n is negative, the new reader begins after the last event that was sent. In that case
// attach does not replace a reader: if a reader is attached, ok is false.
func (s *resumableStream) attach(n int) (r *streamReader, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 0 {
		if s.reader != nil {
			return nil, false
		}
		n = s.lastSent
	}
	s.reader = &streamReader{lastRead: min(n, s.lastNumber)}
	s.wakeWaiters()
	return s.reader, true
}

// detach detaches r, unless another reader has replaced it.
func (s *resumableStream) detach(r *streamReader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == r {
		s.reader = nil
		s.wakeWaiters()
	}
}

// hasReader reports whether a connection reads the stream.
func (s *resumableStream) hasReader() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reader != nil
}

// next waits for the next event for the reader r. ok is false when no further event will come, when
// ctx has ended, or when another reader has replaced r.
func (s *resumableStream) next(ctx context.Context, r *streamReader) (ev streamEvent, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.reader == r {
		if i := slices.IndexFunc(s.kept, func(ev streamEvent) bool {
			return ev.number > r.lastRead
		}); i >= 0 {
			return s.kept[i], true
		}
		if s.finished || s.waitForChange(ctx) != nil {
			break
		}
	}
	return streamEvent{}, false
}

// markSent records that the event was written to r's connection.
func (s *resumableStream) markSent(r *streamReader, ev streamEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.lastRead, s.lastSent = ev.number, max(s.lastSent, ev.number)
	s.wakeWaiters()
}

// copyTo writes the events for the reader r to a connection until the stream or the connection
// ends. If withFirstID is true, the first event contains only an id. With this id the client can
// resume the stream even if it has not received a message yet.
func (s *resumableStream) copyTo(ctx context.Context, r *streamReader, to Stream,
	withFirstID bool) {
	defer s.detach(r)
	if withFirstID && to.Send(conn.Event{ID: s.eventID(r.lastRead), Retry: retryMillis}) != nil {
		return
	}
	for {
		ev, ok := s.next(ctx, r)
		if !ok {
			return
		}
		if sendEvent(ctx, to, s.eventID(ev.number), ev.passed) != nil {
			return
		}
		s.markSent(r, ev)
	}
}

// sendEvent writes a message as one event. It writes nothing if an operator has stopped the
// message.
func sendEvent(ctx context.Context, to Stream, id string, p pipeline.Passed) error {
	p, write := p.Begin(ctx)
	defer write.End()
	m := p.Message()
	if m == nil {
		return nil
	}
	return to.Send(conn.Event{ID: id, Data: m.Append(make([]byte, 0, m.Size()))})
}

// retryMillis is how many milliseconds a client should wait before it resumes a stream.
const retryMillis = 1000

// retention returns the values that decide how long the stream is kept. delivered means that all
// events were written to a connection.
func (s *resumableStream) retention() (finished, delivered bool, finishedAt time.Time,
	size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finished, s.lastSent == s.lastNumber, s.finishedAt, s.bytes
}
