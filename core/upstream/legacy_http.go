package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

const (
	goodbyeWithin = 5 * time.Second  // the DELETE at the end
	answerWithin  = 30 * time.Second // the POST of an answer to a server's request
	// attempts in a row to get a broken stream back, or anything on it
	maxResumes = 4
)

// legacyHTTP is one legacy session over Streamable HTTP: a POST for each message, its answer as
// JSON or on a stream of its own, and one stream for what belongs to no call. When the server has
// ended the session the link is lost; that a request failed does not lose it.
type legacyHTTP struct {
	name   string
	http   HTTP
	limits mcp.Limits
	log    *slog.Logger
	lane   *lane // of what comes on the stream without a call
	feed   proxy.Handler
	life   *life
	calls  calls
	asks   asks
	own    replies
	watch  Observer // nil when nobody watches

	once  sync.Once
	gone  chan struct{}
	fault error // why; read it after gone

	mu      sync.Mutex
	session string // "" when the server gives none
	version string // negotiated; "" before
	// the stream without a call has been asked for, and the server may send an answer there
	listening bool
	notHere   bool // initialize was answered as by something that does not speak this transport
}

func newLegacyHTTP(u *Upstream, l *lane, feed proxy.Handler) *legacyHTTP {
	return &legacyHTTP{name: u.o.Name, http: u.o.Dial.HTTP, limits: u.o.Limits, log: u.log, lane: l,
		feed: feed, watch: u.o.Observer, life: newLife(), gone: make(chan struct{})}
}

// header is the header of a request, with the session's id and the revision where they are known
// and the revision has such headers.
func (l *legacyHTTP) header() http.Header {
	h := make(http.Header, 8) // room for those of transport
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != "" {
		h[mcp.HeaderSession] = []string{l.session}
	}
	if l.version >= mcp.Rev20250618 {
		h[mcp.HeaderVersion] = []string{l.version}
	}
	return h
}

func (l *legacyHTTP) sessionID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

// foreign says that initialize was answered as by something that does not speak this transport.
func (l *legacyHTTP) foreign() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.notHere
}

func (l *legacyHTTP) lost() (<-chan struct{}, func() error) {
	return l.gone, func() error { return l.fault }
}

func (l *legacyHTTP) fail(err error) {
	l.once.Do(func() {
		l.fault = err
		close(l.gone) // first: what follows a call that failed is for another link
		l.calls.fail(err)
	})
}

// expire gives up a session that the server does not know any more.
func (l *legacyHTTP) expire() error {
	l.fail(unavailable(l.name, "it has ended its session", errExpired))
	<-l.gone
	return l.fault
}

// Close ends the session, here and at the server.
func (l *legacyHTTP) Close() error {
	l.fail(unavailable(l.name, "it is being closed", errClosed))
	l.life.end()
	l.mu.Lock()
	session := l.session
	l.mu.Unlock()
	if session == "" || errors.Is(l.fault, errExpired) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbyeWithin)
	defer cancel()
	h := l.header()
	l.mu.Lock()
	l.session = "" // once is enough
	l.mu.Unlock()
	a, err := l.http.Delete(ctx, h)
	switch {
	case err != nil:
		l.log.Debug("end a session", "server", l.name, "error", err) // it expires
	case a.Events != nil:
		a.Events.Close()
	}
	return nil
}

func (l *legacyHTTP) call(ctx context.Context, o outgoing,
	caller proxy.Handler) (answer *mcp.Message, err error) {
	o, ended := o.watched(ctx, l.watch)
	defer func() { ended(answer, err) }()
	posting, end := context.WithCancel(ctx)
	defer end()
	c, err := l.calls.begin(posting, end, o.m, caller, nil)
	if err != nil {
		return nil, refused(l.name, err)
	}
	if o, err = o.addressed(c); err != nil {
		l.calls.take(c.id)
		return nil, unavailable(l.name, "the request could not be addressed", err)
	}
	m, err := l.exchange(c, o)
	inFlight := l.calls.take(c.id) != nil
	if !inFlight { // the answer came another way, or the link was lost
		select {
		case r := <-c.done:
			return r.m, r.err
		default:
		}
	}
	if err == nil {
		return m, nil
	}
	if ctx.Err() == nil {
		return nil, err
	}
	if inFlight && c.m.Method != "initialize" {
		l.reply(cancellation(context.Cause(ctx), c), cancelWithin)
	}
	return nil, context.Cause(ctx)
}

// exchange posts a request and reads on until it is answered.
func (l *legacyHTTP) exchange(c *call, o outgoing) (*mcp.Message, error) {
	a, err := l.http.Post(c.ctx, l.header(), o.bytes())
	if err != nil {
		return nil, unsent(l.name, err)
	}
	greeting := c.m.Method == "initialize"
	if greeting && ok(a.Status) {
		l.mu.Lock()
		l.session = a.Header.Get(mcp.HeaderSession)
		l.mu.Unlock()
	}
	var m *mcp.Message
	switch {
	case streams(a):
		m, err = l.follow(c, a.Events)
	case ok(a.Status):
		m, err = l.body(c, a)
	default:
		m, err = l.failed(c, a)
	}
	if err == nil && greeting && m.Kind == mcp.Response {
		l.mu.Lock()
		l.version, _ = m.Text("/protocolVersion")
		l.mu.Unlock()
	}
	return m, err
}

// body reads an answer that came whole.
func (l *legacyHTTP) body(c *call, a *Answer) (answer *mcp.Message, err error) {
	if len(a.Body) > 0 {
		for m, bad := range messages(l.limits, a.Body) {
			if bad != nil {
				err = illegible(l.name, bad)
			} else if answer == nil && l.answers(c, m) {
				answer = l.settle(c, m)
			} else {
				l.incoming(c, m)
			}
		}
		if answer != nil {
			return answer, nil
		}
		if err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	listening := l.listening
	l.mu.Unlock()
	if !listening {
		return nil, statusError(l.name, a)
	}
	<-c.ctx.Done() // some servers send all answers on the one stream; it ends the call
	return nil, context.Cause(c.ctx)
}

// failed reads an answer with an error status.
func (l *legacyHTTP) failed(c *call, a *Answer) (*mcp.Message, error) {
	if a.Events != nil {
		a.Events.Close()
	}
	m, addressed := bodyError(l.limits, a, c.id)
	if c.m.Method == "initialize" {
		l.mu.Lock()
		l.notHere = (a.Status == http.StatusBadRequest || a.Status == http.StatusNotFound ||
			a.Status == http.StatusMethodNotAllowed) && !modernError(m)
		l.mu.Unlock()
	}
	if !addressed && l.expired(a, m) {
		return nil, l.expire()
	}
	if m == nil {
		return nil, statusError(l.name, a)
	}
	return l.settle(c, m), nil
}

// expired says that an answer is that of a server that does not know the session. The specification
// has 404 for it; servers built on the TypeScript SDK's examples say 400, with an error of code
// -32000 to nobody.
func (l *legacyHTTP) expired(a *Answer, m *mcp.Message) bool {
	if l.sessionID() == "" {
		return false
	}
	return a.Status == http.StatusNotFound || a.Status == http.StatusBadRequest && m != nil &&
		m.ErrorCode() == -32000
}

// modernError says that an error is one that only a modern server makes.
func modernError(m *mcp.Message) bool {
	if m == nil {
		return false
	}
	switch m.ErrorCode() {
	case mcp.CodeHeaderMismatch, mcp.CodeMissingCapability, mcp.CodeUnsupportedVersion:
		return true
	}
	return false
}

// answers says that m, which came on the call's own stream, is its answer.
func (l *legacyHTTP) answers(c *call, m *mcp.Message) bool {
	return (m.Kind == mcp.Response || m.Kind == mcp.Error) && (m.ID() == c.id || nameless(m))
}

func (l *legacyHTTP) settle(c *call, m *mcp.Message) *mcp.Message {
	l.calls.keep(c, m)
	return c.answered(m)
}

// follow reads a call's stream until its answer, also over breaks where the server gave the means
// to go on.
func (l *legacyHTTP) follow(c *call, ev Events) (*mcp.Message, error) {
	var at position
	for {
		var answer *mcp.Message
		var bad error
		began := time.Now()
		err := each(c.ctx, ev, l.limits, &at, func(m *mcp.Message, err error) bool {
			switch {
			case err != nil && spoiled(c, err):
				bad = illegible(l.name, err)
				return false
			case err != nil:
				l.log.Warn("a server sent what is no message", "server", l.name, "error", err)
				return true
			case l.answers(c, m):
				answer = l.settle(c, m)
				return false
			}
			l.incoming(c, m)
			return true
		})
		switch {
		case answer != nil:
			return answer, nil
		case bad != nil:
			return nil, bad
		case c.ctx.Err() != nil:
			return nil, context.Cause(c.ctx)
		case at.last == "":
			return nil, unavailable(l.name,
				"the stream with its answer broke, and the server has no way to go on", err)
		}
		if time.Since(began) >= goodFor {
			at.fails = 0 // it was cut for its silence, by the server or something on the way
		}
		if ev, err = l.resume(c, &at); err != nil {
			return nil, err
		}
	}
}

// resume asks for the rest of a call's stream. A stream that it gets counts as a failure until an
// event comes on it: else a server could have it asked for again and again by ending it at once.
func (l *legacyHTTP) resume(c *call, at *position) (Events, error) {
	var last error
	for at.fails < maxResumes {
		if !sleep(c.ctx, at.wait(at.fails)) {
			return nil, context.Cause(c.ctx)
		}
		at.fails++
		h := l.header()
		h.Set(mcp.HeaderEvent, at.last)
		a, err := l.http.Get(c.ctx, h)
		switch {
		case err != nil:
			last = unsent(l.name, err)
		case streams(a):
			return a.Events, nil
		case a.Status == http.StatusNotFound && l.sessionID() != "":
			return nil, l.expire()
		case a.Status >= 500:
			last = statusError(l.name, a)
		default:
			return nil, unavailable(l.name,
				"the stream with its answer broke, and the server does not go on with it",
				statusError(l.name, a))
		}
	}
	return nil, unavailable(l.name, "the stream with its answer broke, and cannot be had again",
		last)
}

// listen keeps the stream for what belongs to no call open, until ctx ends or the server says that
// it has none.
func (l *legacyHTTP) listen(ctx context.Context) {
	defer func() {
		l.mu.Lock()
		l.listening = false
		l.mu.Unlock()
	}()
	var at position
	for fails := 0; ; fails++ {
		h := l.header()
		if at.last != "" {
			h.Set(mcp.HeaderEvent, at.last)
		}
		a, err := l.http.Get(ctx, h)
		switch {
		case ctx.Err() != nil:
			if err == nil && a.Events != nil {
				a.Events.Close()
			}
			return
		case err != nil:
			l.log.Debug("open a server's stream", "server", l.name, "error", err)
		case streams(a):
			began := time.Now()
			err = each(ctx, a.Events, l.limits, &at, func(m *mcp.Message, err error) bool {
				if err != nil {
					l.log.Warn("a server sent what is no message", "server", l.name, "error", err)
					return true
				}
				fails = 0
				l.incoming(nil, m)
				return ctx.Err() == nil
			})
			l.log.Debug("a server's stream ended", "server", l.name, "error", err)
			if time.Since(began) >= goodFor {
				fails = 0
			}
		case a.Status == http.StatusNotFound && l.sessionID() != "":
			_ = l.expire()
			return
		case a.Status == http.StatusBadRequest && at.last != "":
			at.last = "" // it does not know that event any more
		case a.Status < 500:
			return // it has no such stream, which is its right
		}
		if !sleep(ctx, at.wait(fails)) {
			return
		}
	}
}

// incoming routes what the server sent beside a stream's own answer: c is the call whose stream it
// came on, nil for the one without.
func (l *legacyHTTP) incoming(c *call, m *mcp.Message) {
	switch {
	case m.Kind == mcp.Response || m.Kind == mcp.Error:
		id := m.ID()
		if other := l.calls.take(id); other != nil {
			other.finish(reply{m: l.settle(other, m)})
			return
		}
		l.log.Debug("dropped an answer that nobody waits for", "server", l.name, "id", id)
	case m.Kind == mcp.Request && m.Method == "ping":
		l.reply(pong(m.ID()), cancelWithin)
	case m.Kind == mcp.Request:
		l.asked(c, m)
	case m.Method == "notifications/cancelled":
		l.asks.cancel(m)
	case m.Method == "notifications/progress":
		restored, of, ok := l.calls.progress(m)
		if !ok {
			l.log.Debug("dropped progress that nobody waits for", "server", l.name)
			return
		}
		l.deliver(c, of, restored)
	default:
		l.deliver(c, c, m)
	}
}

// deliver hands a notification to the call that it is about, or to the session when it is about
// none: at once on a call's own stream, else in the session's lane.
func (l *legacyHTTP) deliver(on, about *call, m *mcp.Message) {
	run := func(ctx context.Context) { l.feed.Notify(ctx, m) }
	if about != nil && about.caller != nil {
		run = func(context.Context) { about.notify(m) }
	}
	if on != nil && on.caller != nil {
		run(on.ctx)
		return
	}
	if err := l.lane.add(delivery{size: m.Size(), drop: droppable(m), run: run}); err != nil {
		l.fail(unavailable(l.name, "too much of what it sent is waiting", err))
	}
}

// asked puts a request of the server to the client: to the call on whose stream it came.
func (l *legacyHTTP) asked(c *call, m *mcp.Message) {
	caller := l.feed
	if task := l.calls.task(m); task != nil {
		caller = task.caller
	} else if c != nil && c.caller != nil {
		caller = c.caller
	}
	ctx, err := l.asks.begin(l.life.ctx, m.ID())
	if err != nil {
		l.reply(refusal(m.ID(), mcp.CodeInternal, err.Error()), cancelWithin)
		return
	}
	l.life.run(func(context.Context) {
		answers := caller.Ask(ctx, []*mcp.Message{m})
		if l.asks.end(m.ID()) {
			l.reply(first(answers, m.ID()), answerWithin)
		}
	})
}

// notify posts a notification. With initialized, which the server has when this returns, the stream
// without a call is opened.
func (l *legacyHTTP) notify(ctx context.Context, o outgoing) error {
	if err := l.post(ctx, o); err != nil {
		return err
	}
	if o.m.Method == "notifications/initialized" {
		l.mu.Lock()
		begin := !l.listening
		l.listening = true
		l.mu.Unlock()
		if begin {
			l.life.run(l.listen)
		}
	}
	return nil
}

// post posts what has no answer.
func (l *legacyHTTP) post(ctx context.Context, o outgoing) error {
	a, err := l.http.Post(ctx, l.header(), o.bytes())
	if err != nil {
		return unsent(l.name, err)
	}
	if a.Events != nil {
		a.Events.Close()
	}
	switch m, _ := bodyError(l.limits, a, ""); {
	case ok(a.Status):
		return nil
	case l.expired(a, m):
		return l.expire()
	}
	return statusError(l.name, a)
}

// reply posts o without anybody waiting for it.
func (l *legacyHTTP) reply(o outgoing, within time.Duration) {
	l.own.run(l.life, within, func(ctx context.Context) {
		if err := l.post(ctx, o); err != nil {
			l.log.Debug("write to a server", "server", l.name, "error", err)
		}
	})
}
