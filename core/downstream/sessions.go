package downstream

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// httpSession is a legacy session over HTTP. It outlives the connections of its client: calls go on
// without them, and their streams are kept.
type httpSession struct {
	legacy
	streams streams
	life    context.Context // of what runs for the session: it ends with close, not with a request
	end     context.CancelFunc

	running  sync.WaitGroup // calls; entered under starting
	starting sync.Mutex
	ending   bool // no call starts any more
}

func (f *Endpoint) newHTTPSession(principal string) *httpSession {
	s := &httpSession{legacy: legacy{peer: peer{newName("session"), principal}, endpoint: f}}
	s.life, s.end = context.WithCancel(context.Background())
	s.streams = streams{limits: f.limits, feed: f.limits.newEvents(feedStream),
		kept: map[string]*events{}}
	s.feed = s.streams.feed
	return s
}

// close ends the session and waits for what runs for it.
func (s *httpSession) close() {
	s.starting.Lock()
	s.ending = true
	s.starting.Unlock()
	s.end()
	s.legacy.close()
	s.running.Wait()
	s.streams.close()
}

// run does f as part of the session, or not at all when that ends.
func (s *httpSession) run(f func()) bool {
	s.starting.Lock()
	defer s.starting.Unlock()
	if !s.ending {
		s.running.Add(1)
		s.endpoint.workers.Run(func() {
			defer s.running.Done()
			f()
		})
	}
	return !s.ending
}

// hear takes what is no request. It returns when that has been handed over, whether or not the
// client still waits: what it does next may depend on it.
func (s *httpSession) hear(m *mcp.Message) error {
	s.stamp(m)
	if m.Kind == mcp.Notification {
		s.admitNotice(m)(s.life)
	} else {
		s.answered(s.life, m)
	}
	return nil
}

// write copies a stream to a connection until one of them ends.
func (s *httpSession) write(ctx context.Context, e *events, rd *reader, to Stream) {
	// parsers of older clients choke on an event without data
	e.pump(ctx, rd, to, s.revision() >= mcp.Rev20251125)
	if err := to.Close(); err != nil {
		s.endpoint.log.Debug("close a stream", "session", s.session, "error", err)
	}
}

// answering is a POST that waits for answers.
type answering struct {
	s      *httpSession
	w      Reply
	header http.Header // of the answer
	events *events
	reader *reader // the connection's
	out    outlet  // what comes before the answer
	accept acceptance
	quiet  time.Duration // after which the stream begins though there is nothing to say
	array  bool          // answers are one array, where no stream is needed
}

func (s *httpSession) answering(r HTTPRequest, w Reply) *answering {
	a := &answering{s: s, w: w, events: s.streams.make(), accept: accepts(r.Header),
		quiet: openAfter}
	a.reader, _ = a.events.attach(0)
	a.out = a.events
	if !a.accept.streams {
		a.out = deaf{}
	}
	return a
}

// serve runs calls and writes to the client what comes of them, for as long as it is there: the
// calls go on without it. told is false when the client was gone before it was told anything.
func (a *answering) serve(ctx context.Context, row *row[*httpSession], calls ...Call) (told bool) {
	sessions := a.s.endpoint.sessions
	sessions.hold(row)
	started := a.s.run(func() {
		defer sessions.release(row)
		a.events.finish(gather(proxy.WithValues(a.s.life, ctx), calls)...)
	})
	if !started {
		sessions.release(row)
		a.events.finish(gather(ended(), calls)...)
	}
	if !a.accept.prefers {
		if done, told := a.alone(ctx); done {
			return told
		}
	}
	a.s.streams.keep(a.events)
	to, err := a.w.Stream(a.header)
	if err != nil {
		a.events.detach(a.reader)
		return false
	}
	a.s.write(ctx, a.events, a.reader, to)
	return true
}

var errQuiet = errors.New("nothing was said for a while")

// alone waits for the answer and writes it by itself, unless a stream is needed.
func (a *answering) alone(ctx context.Context) (done, told bool) {
	wait := ctx
	if a.accept.streams {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeoutCause(ctx, a.quiet, errQuiet)
		defer cancel()
	}
	answers, lone, err := a.events.begin(wait)
	switch {
	case errors.Is(err, errQuiet) || err == nil && !lone:
		return false, false
	case err != nil: // the client has seen no event id, and cannot come back for this stream
		a.events.detach(a.reader)
		return true, false
	}
	var body [][]byte
	if a.array {
		if all := array(answers); all != nil {
			body = [][]byte{all}
		}
	} else if len(answers) == 1 {
		body = answers[0].Message().Parts()
	}
	status := http.StatusOK
	switch {
	case body != nil:
	case a.s.life.Err() != nil: // the session has ended
		status = http.StatusNotFound
	default: // the client has cancelled it
		status = http.StatusAccepted
	}
	if err = a.w.Write(status, a.header, body...); err != nil {
		a.s.endpoint.log.Debug("answer a request", "session", a.s.session, "error", err)
	}
	return true, err == nil
}

// deaf is where messages go that come before the answer to a client that takes no streams.
type deaf struct{}

func (deaf) send(_ context.Context, p pipeline.Passed) error {
	if m := p.Message(); m != nil && m.Kind == mcp.Request {
		return errors.New("the client takes no event streams, and cannot be asked")
	}
	return nil
}

// streams are those of one session that a client can come back for.
type streams struct {
	limits Limits
	feed   *events // what belongs to no call

	mu     sync.Mutex // guards what follows
	last   int
	kept   map[string]*events
	order  []*events // those in kept, oldest first
	timer  *time.Timer
	closed bool
}

// feedStream is the name of the stream that carries what belongs to no call.
const feedStream = "0"

const (
	keepStreams   = 32          // that have ended
	keepDelivered = time.Minute // what was written may still not have arrived
)

// make makes a stream that no client has heard of.
func (s *streams) make() *events {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return s.limits.newEvents(strconv.Itoa(s.last))
}

// keep notes a stream whose ids the client will see.
func (s *streams) keep(e *events) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.kept[e.name] = e
	s.order = append(s.order, e)
	s.trim()
	if s.timer == nil {
		s.timer = time.AfterFunc(keepDelivered, s.sweep)
	}
}

func (s *streams) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trim()
	s.timer = nil
	if len(s.order) > 0 && !s.closed {
		s.timer = time.AfterFunc(keepDelivered, s.sweep)
	}
}

// trim drops ended streams: those that were delivered a while ago, and the oldest beyond the
// bounds.
func (s *streams) trim() {
	ended, bytes := 0, 0
	for i := len(s.order) - 1; i >= 0; i-- {
		e := s.order[i]
		over, delivered, since, size := e.state()
		if !over {
			continue
		}
		ended, bytes = ended+1, bytes+size
		if ended > keepStreams || ended > 1 && bytes > 4*s.limits.ResumeBytes ||
			delivered && time.Since(since) >= keepDelivered {
			delete(s.kept, e.name)
			s.order[i] = nil
		}
	}
	s.order = slices.DeleteFunc(s.order, func(e *events) bool { return e == nil })
}

// attach finds the stream that a GET is for, and a reader of it: of the feed, or of what comes
// after the event that the client saw last. The status is that of the refusal, or 200.
func (s *streams) attach(lastEvent string) (e *events, r *reader, status int) {
	if lastEvent == "" {
		if r, ok := s.feed.attach(-1); ok {
			return s.feed, r, http.StatusOK
		}
		return nil, nil, http.StatusConflict
	}
	name, n, ok := parseEventID(lastEvent)
	s.mu.Lock()
	e = s.kept[name]
	s.mu.Unlock()
	if name == feedStream {
		e = s.feed
	}
	if !ok || e == nil {
		return nil, nil, http.StatusBadRequest
	}
	r, _ = e.attach(n)
	return e, r, http.StatusOK
}

// close ends all streams, and with them the connections that read them.
func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.feed.finish()
	for _, e := range s.order {
		e.finish()
	}
}
