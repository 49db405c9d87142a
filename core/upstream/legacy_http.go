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
	"gatekit/core/taskgroup"
)

// deleteTimeout bounds the DELETE that ends a session.
const deleteTimeout = 5 * time.Second

// legacyHTTP is a legacy session over Streamable HTTP: a POST for each message, answered as JSON or
// on a stream of its own, and one stream for what belongs to no call. The connection is lost when
// the server ends the session, not when a request fails. How requests are sent and streams are read
// is in legacy_http_calls.go.
type legacyHTTP struct {
	name       string // of the server
	http       HTTP
	limits     mcp.Limits
	log        *slog.Logger
	observer   Observer      // nil when nobody observes
	queue      *orderedQueue // of what comes on the stream that belongs to no call
	feed       proxy.Handler // gets what belongs to no call
	goroutines *taskgroup.Group
	calls      callTable
	requests   serverRequests
	replies    backgroundWrites

	failed sync.Once
	gone   chan struct{} // closed when the connection is of no use any more
	fault  error         // why; read it after gone

	mu      sync.Mutex
	session string // the session's id; "" when the server gives none
	version string // the negotiated revision; "" before
	// the stream that belongs to no call has been asked for, and may bring answers
	listening bool
	// initialize was answered as by a server that does not speak this transport
	unsupported bool
}

func newLegacyHTTP(o *Options, q *orderedQueue, feed proxy.Handler) *legacyHTTP {
	return &legacyHTTP{name: o.Name, http: o.Dial.HTTP, limits: o.Limits, log: o.Log,
		observer: o.Observer, queue: q, feed: feed, goroutines: taskgroup.New(),
		gone: make(chan struct{})}
}

// header returns the header of a request: the session's id and the revision, where they are known
// and the revision has such headers.
func (l *legacyHTTP) header() http.Header {
	h := make(http.Header, 8) // room for those that the transport adds
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != "" {
		h[mcp.HeaderSessionID] = []string{l.session}
	}
	if l.version >= mcp.Rev20250618 {
		h[mcp.HeaderProtocolVersion] = []string{l.version}
	}
	return h
}

func (l *legacyHTTP) sessionID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

// isUnsupported reports whether initialize was answered as by a server that does not speak this
// transport.
func (l *legacyHTTP) isUnsupported() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unsupported
}

// lost implements legacyConn.
func (l *legacyHTTP) lost() (<-chan struct{}, func() error) {
	return l.gone, func() error { return l.fault }
}

// fail marks the connection as unusable, and then ends its calls. In this order, a request that a
// client sends after a failed call goes to another connection.
func (l *legacyHTTP) fail(err error) {
	l.failed.Do(func() {
		l.fault = err
		close(l.gone)
		l.calls.close(err)
	})
}

// expire gives up a session that the server does not know any more, and returns the error.
func (l *legacyHTTP) expire() error {
	l.fail(unavailable(l.name, "the server has ended the session", errSessionExpired))
	<-l.gone
	return l.fault
}

// isExpired reports whether a response is that of a server that does not know the session. The
// specification demands 404; servers built on the examples of the TypeScript SDK send 400 and an
// error of code -32000 that names no request.
func (l *legacyHTTP) isExpired(a *HTTPResponse, m *mcp.Message) bool {
	if l.sessionID() == "" {
		return false
	}
	return a.Status == http.StatusNotFound || a.Status == http.StatusBadRequest && m != nil &&
		m.ErrorCode() == -32000
}

// Close ends the session, here and at the server.
func (l *legacyHTTP) Close() error {
	l.fail(closingError(l.name))
	l.goroutines.Close()
	l.mu.Lock()
	session := l.session
	l.mu.Unlock()
	if session == "" || errors.Is(l.fault, errSessionExpired) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	h := l.header()
	l.mu.Lock()
	l.session = "" // one DELETE is enough
	l.mu.Unlock()
	a, err := l.http.Delete(ctx, h)
	switch {
	case err != nil:
		// the server lets the session expire
		l.log.Debug("ending a session failed", "server", l.name, "error", err)
	case a.Events != nil:
		a.Events.Close()
	}
	return nil
}

// post posts a message that has no answer.
func (l *legacyHTTP) post(ctx context.Context, o Outgoing) error {
	a, err := l.http.Post(ctx, l.header(), o.bytes())
	if err != nil {
		return noResponse(l.name, err)
	}
	if a.Events != nil {
		a.Events.Close()
	}
	switch m, _ := bodyError(l.limits, a, ""); {
	case isSuccess(a.Status):
		return nil
	case l.isExpired(a, m):
		return l.expire()
	}
	return statusError(l.name, a)
}

// reply posts o in the background.
func (l *legacyHTTP) reply(o Outgoing, timeout time.Duration) {
	l.replies.run(l.goroutines, timeout, func(ctx context.Context) {
		if err := l.post(ctx, o); err != nil {
			l.log.Debug("writing to a server failed", "server", l.name, "error", err)
		}
	})
}

// restored returns the answer to a call with the ids that the client gave.
func (l *legacyHTTP) restored(c *pendingCall, m *mcp.Message) *mcp.Message {
	l.calls.keepTaskToken(c, m)
	return c.restored(m)
}

// incoming handles a message on a stream that is not the answer to the stream's own call. c is the
// call whose stream it is, nil for the stream that belongs to no call.
func (l *legacyHTTP) incoming(c *pendingCall, m *mcp.Message) {
	switch {
	case isAnswer(m):
		id := m.ID()
		if other := l.calls.take(id); other != nil {
			other.finish(reply{m: l.restored(other, m)})
			return
		}
		l.log.Debug("dropped an answer that nobody waits for", "server", l.name, "id", id)
	case m.Kind == mcp.Request && m.Method == "ping":
		l.reply(pong(m.ID()), shortWriteTimeout)
	case m.Kind == mcp.Request:
		l.serverRequest(c, m)
	case m.Method == "notifications/cancelled":
		l.requests.cancel(m)
	case m.Method == "notifications/progress":
		restored, about, ok := l.calls.progress(m)
		if !ok {
			l.log.Debug("dropped progress that nobody asked for", "server", l.name)
			return
		}
		l.deliver(c, about, restored)
	default:
		l.deliver(c, c, m)
	}
}

// deliver hands a notification to the call that it is about, or to the session when it is about no
// call. stream is the call on whose stream it came, or nil. Notifications on a call's stream are
// handed over at once, others through the session's queue.
func (l *legacyHTTP) deliver(stream, about *pendingCall, m *mcp.Message) {
	run := func(ctx context.Context) { l.feed.HandleNotification(ctx, m) }
	if about != nil && about.handler != nil {
		run = func(context.Context) { about.notify(m) }
	}
	if stream != nil && stream.handler != nil {
		run(stream.ctx)
		return
	}
	d := delivery{size: m.Size(), droppable: isDroppable(m), run: run}
	if err := l.queue.add(d); err != nil {
		l.fail(unavailable(l.name, "too many of the server's messages wait for the client", err))
	}
}

// serverRequest hands a request of the server to the handler of its call, and posts the answer. The
// call is the one that waits for the request's task, or the one on whose stream the request came.
func (l *legacyHTTP) serverRequest(c *pendingCall, m *mcp.Message) {
	h := l.feed
	if task := l.calls.forTask(m); task != nil {
		h = task.handler
	} else if c != nil && c.handler != nil {
		h = c.handler
	}
	ctx, err := l.requests.begin(l.goroutines.Context(), m.ID())
	if err != nil {
		l.reply(refusal(m.ID(), mcp.CodeInternalError, err.Error()), shortWriteTimeout)
		return
	}
	l.goroutines.Go(func(context.Context) {
		answers := h.HandleRequests(ctx, []*mcp.Message{m})
		if l.requests.end(m.ID()) {
			l.reply(firstAnswer(answers, m.ID()), answerTimeout)
		}
	})
}
