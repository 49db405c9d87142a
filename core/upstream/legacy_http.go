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

// deleteTimeout limits the time of the DELETE request that ends a session.
const deleteTimeout = 5 * time.Second

// streamTimeout limits how long the calls of a new session wait for its stream. Some servers send
// the header of the stream only with the first event.
const streamTimeout = 3 * time.Second

// legacyHTTP is a legacy session over Streamable HTTP. Each message is sent by a POST, which is
// answered as JSON or on a stream of its own. Messages that belong to no call come on one more
// stream, the session's stream. The connection is lost when the server ends the session, not when a
// request fails. legacy_http_calls.go has the functions that send requests and read streams.
type legacyHTTP struct {
	name       string // of the server
	limits     mcp.Limits
	log        *slog.Logger
	observer   Observer      // may be nil
	queue      *orderedQueue // of the messages on the session's stream
	feed       proxy.Handler // gets the messages that belong to no call
	goroutines *taskgroup.Group
	calls      callTable
	requests   serverRequests
	replies    backgroundWrites
	records    recorder

	failed sync.Once
	gone   chan struct{} // closed when the connection has failed or is closed
	fault  error         // why the connection is gone; read it after gone is closed

	mu      sync.Mutex
	http    HTTP   // for the latest message
	session string // the session's id; "" when the server gives none
	version string // the negotiated revision; "" before initialize was answered
	// the session's stream has been requested; answers may come on it
	listening bool
	// closed when the server has answered the first request for the session's stream, or has not
	// answered it within streamTimeout; nil before that request
	opened chan struct{}
	// the answer to initialize shows that the server does not speak this transport
	unsupported bool
}

func newLegacyHTTP(o *Options, q *orderedQueue, client proxy.OpenOptions,
	feed proxy.Handler) *legacyHTTP {
	return &legacyHTTP{name: o.Name, http: o.httpFor(client.Principal), limits: o.Limits,
		log: o.Log, observer: o.Observer, queue: q, feed: feed, goroutines: taskgroup.New(),
		records: recorder{o, client.Session, client.Principal},
		gone:    make(chan struct{}), requests: newServerRequests(o.ReverseRequests)}
}

// httpOf returns the HTTP for a message. What belongs to no request, such as the session's stream,
// is sent with the HTTP for the latest message: the credentials of older ones may have expired.
func (l *legacyHTTP) httpOf(o Outgoing) HTTP {
	http := l.records.opts.httpOf(o.m, l.records.principal)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.http = http
	return http
}

// latestHTTP returns the HTTP for what belongs to no request.
func (l *legacyHTTP) latestHTTP() HTTP {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.http
}

// header returns the header of a request. It holds the session's id and the revision, if they are
// known and the revision has such headers.
func (l *legacyHTTP) header() http.Header {
	h := make(http.Header, 8) // with room for the headers that the transport adds
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

// hasSessionStream implements legacyConn. Without a session id, the server cannot find out which of
// its requests an answer belongs to. Such a server cannot send requests on the session's stream.
func (l *legacyHTTP) hasSessionStream() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listening && l.session != ""
}

// leased implements legacyConn: there is no process.
func (l *legacyHTTP) leased() Lease { return Lease{} }

// isUnsupported reports whether the answer to initialize shows that the server does not speak this
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

// fail first marks the connection as unusable, and then ends its calls. This order matters: a
// client that sends another request after a failed call gets another connection.
func (l *legacyHTTP) fail(err error) {
	l.failed.Do(func() {
		l.fault = err
		close(l.gone)
		l.calls.close(err)
	})
}

// expire gives up a session that the server does not know any more, and returns the error. Calls
// whose response has begun end with that error. The other calls go on, because their responses will
// show whether the server has run them.
func (l *legacyHTTP) expire() error {
	l.failed.Do(func() {
		l.fault = unavailable(l.name, "the server has ended the session", errSessionExpired)
		close(l.gone)
		l.calls.closeIf(l.fault, func(c *pendingCall) bool { return c.responded.Load() })
	})
	<-l.gone
	return l.fault
}

// notRun returns the error for a request that the server has not run because the session has ended.
func (l *legacyHTTP) notRun() error {
	return unavailable(l.name, "the server has ended the session", errRequestNotRun)
}

// isExpired reports whether a response means that the server does not know the session. The
// specification demands 404. Servers that follow the examples of the TypeScript SDK send 400 and an
// error with the code -32000 and without an id.
func (l *legacyHTTP) isExpired(a *HTTPResponse, m *mcp.Message) bool {
	if l.sessionID() == "" {
		return false
	}
	return a.Status == http.StatusNotFound || a.Status == http.StatusBadRequest && m != nil &&
		m.ErrorCode() == -32000
}

// Close ends the session in Gatekit and at the server.
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
	a, err := l.latestHTTP().Delete(ctx, h)
	switch {
	case err != nil:
		// The session then expires at the server.
		l.log.Debug("ending a session failed", "server", l.name, "error", err)
	case a.Events != nil:
		a.Events.Close()
	}
	return nil
}

// post posts a message that has no answer.
func (l *legacyHTTP) post(ctx context.Context, o Outgoing) error {
	o, err := l.records.record(ctx, o)
	if err != nil {
		return err
	}
	o, write, err := l.records.beginWrite(ctx, o)
	if err != nil {
		return err
	}
	postCtx, post := untilWritten(ctx, write)
	defer post.end()
	a, err := l.httpOf(o).Post(postCtx, l.header(), o.parts()...)
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

// replyTo sends the answer to a request of the server, in the background. The function answer
// inspects and records the request, and returns the message to post.
func (l *legacyHTTP) replyTo(m *mcp.Message, answer func() Outgoing) {
	if !l.replies.run(l.goroutines, shortWriteTimeout, func(ctx context.Context) {
		if err := l.post(ctx, answer()); err != nil {
			l.log.Debug("writing to a server failed", "server", l.name, "error", err)
		}
	}) {
		l.records.dropQuickly(m, "too many answers wait for the server to read them")
	}
}

// restored returns the answer to a call with the ids that the client gave.
func (l *legacyHTTP) restored(c *pendingCall, m *mcp.Message) *mcp.Message {
	l.calls.keepTaskToken(c, m)
	return c.restored(m)
}

// incoming handles a message that is not the answer to the call on whose stream it came. c is that
// call, or nil for the session's stream.
func (l *legacyHTTP) incoming(c *pendingCall, m *mcp.Message) {
	switch {
	case isAnswer(m):
		id := m.ID()
		if other := l.calls.take(id); other != nil {
			other.finish(reply{m: l.restored(other, m)})
			return
		}
		l.records.drop(m, "answers no request in flight")
	case m.Kind == mcp.Request && m.Method == "ping":
		l.replyTo(m, func() Outgoing { return l.records.pong(m) })
	case m.Kind == mcp.Request:
		l.serverRequest(c, m)
	case m.Method == "notifications/cancelled":
		if !l.requests.cancel(m) {
			l.deliver(c, c, m)
		}
	case m.Method == "notifications/progress":
		restored, target, ok := l.calls.progress(m)
		if !ok {
			l.records.drop(m, unknownToken)
			return
		}
		l.deliver(c, target, restored)
	default:
		l.deliver(c, c, m)
	}
}

// deliver hands a notification to a call (target), or to the session when target is nil. stream is
// the call on whose stream the notification came, or nil. Notifications on a call's stream are
// delivered at once. Other notifications go through the session's queue.
func (l *legacyHTTP) deliver(stream, target *pendingCall, m *mcp.Message) {
	run := func(ctx context.Context) { l.feed.HandleNotification(ctx, m) }
	if target != nil && target.handler != nil {
		run = func(context.Context) { target.notify(m) }
	}
	if stream != nil && stream.handler != nil {
		run(stream.ctx)
		return
	}
	d := delivery{size: m.Size(), run: run}
	if isDroppable(m) {
		d.recordDrop = func() { l.records.dropQuickly(m, tooSlow) }
	}
	if err := l.queue.add(d); err != nil {
		l.fail(unavailable(l.name, "too many of the server's messages wait for the client", err))
	}
}

// serverRequest hands a request of the server to the handler of its call, and posts the answer. The
// call of the request is the call that waits for the request's task. If there is no such call, it
// is c, the call on whose stream the request came. If c is nil, too, the session's handler gets the
// request.
func (l *legacyHTTP) serverRequest(c *pendingCall, m *mcp.Message) {
	h := l.feed
	if task := l.calls.forTask(m); task != nil {
		h = task.handler
	} else if c != nil && c.handler != nil {
		h = c.handler
	}
	ctx, err := l.requests.begin(l.goroutines.Context(), m)
	if err != nil {
		l.replyTo(m, func() Outgoing {
			return l.records.refusal(m, mcp.CodeInternalError, err.Error())
		})
		return
	}
	l.goroutines.Go(func(connCtx context.Context) {
		answers := l.requests.handle(ctx, m, h)
		if !l.requests.end(m.ID()) {
			return // the server has cancelled the request and expects no answer
		}
		connCtx, cancel := context.WithTimeout(connCtx, answerTimeout)
		defer cancel()
		if err := l.post(connCtx, firstAnswer(answers, m)); err != nil {
			l.log.Debug("answering a server's request failed", "server", l.name, "error", err)
		}
	})
}
