package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"gatekit/core/backoff"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// maxResumes is how many times in a row a broken stream may be resumed without a new event.
const maxResumes = 4

// send implements legacyConn.
func (l *legacyHTTP) send(ctx context.Context, o Outgoing,
	h proxy.Handler) (answer *mcp.Message, err error) {
	o, ended := observe(ctx, l.observer, o)
	defer func() { ended(answer, err) }()
	if err := l.awaitStream(ctx); err != nil {
		return nil, err
	}
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := l.calls.begin(callCtx, cancel, o.m, h, nil)
	if errors.Is(err, errSessionExpired) {
		return nil, l.notRun()
	}
	if err != nil {
		return nil, notStarted(l.name, err)
	}
	if o, err = c.address(o); err != nil {
		l.calls.take(c.id)
		return nil, unavailable(l.name, "the request could not be given its id", err)
	}
	isOwn := h == nil && !o.isRecorded // then no handler records the answer
	if o, err = l.records.record(ctx, o); err != nil {
		l.calls.take(c.id)
		return nil, err
	}
	m, err := l.exchange(c, o)
	if isOwn {
		l.records.receiveOwn(m, o.m)
	}
	inFlight := l.calls.take(c.id) != nil
	// If the call is no longer in flight, its answer came on another stream, or the connection was
	// lost.
	if !inFlight && !errors.Is(err, errRequestNotRun) {
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
	if inFlight && c.request.Method != "initialize" {
		l.reply(cancellation(context.Cause(ctx), c.id, c.request), shortWriteTimeout)
	}
	return nil, context.Cause(ctx)
}

// exchange posts a request and reads until it is answered.
func (l *legacyHTTP) exchange(c *pendingCall, o Outgoing) (*mcp.Message, error) {
	o, write, err := l.records.beginWrite(c.ctx, o)
	if err != nil {
		return nil, err
	}
	postCtx, post := untilWritten(c.ctx, write)
	defer post.end()
	a, err := l.httpOf(o).Post(postCtx, l.header(), o.parts()...)
	if err != nil {
		return nil, noResponse(l.name, err)
	}
	c.responded.Store(true)
	isInitialize := c.request.Method == "initialize"
	if isInitialize && isSuccess(a.Status) {
		l.mu.Lock()
		l.session = a.Header.Get(mcp.HeaderSessionID)
		l.mu.Unlock()
	}
	var m *mcp.Message
	switch {
	case isStream(a):
		m, err = l.readStream(c, a.Events)
	case isSuccess(a.Status):
		m, err = l.readBody(c, a)
	default:
		m, err = l.readError(c, a)
	}
	if err == nil && isInitialize && m.Kind == mcp.Response {
		l.mu.Lock()
		l.version, _ = m.Text("/protocolVersion")
		l.mu.Unlock()
	}
	return m, err
}

// isOwnAnswer reports whether m, which came in the response to the call, is the call's answer.
func isOwnAnswer(c *pendingCall, m *mcp.Message) bool {
	return isAnswer(m) && (m.ID() == c.id || isErrorWithoutID(m))
}

// readBody reads the messages in a successful response that is not a stream.
func (l *legacyHTTP) readBody(c *pendingCall, a *HTTPResponse) (answer *mcp.Message, err error) {
	if len(a.Body) > 0 {
		for m, invalid := range messages(l.limits, a.Body) {
			if invalid != nil {
				err = invalidAnswer(l.name, invalid)
			} else if answer == nil && isOwnAnswer(c, m) {
				answer = l.restored(c, m)
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
	// Some servers send all answers on the session's stream. When the answer comes, the method
	// incoming finishes the call. The end of the call ends c.ctx.
	<-c.ctx.Done()
	return nil, context.Cause(c.ctx)
}

// readError reads a response with an error status.
func (l *legacyHTTP) readError(c *pendingCall, a *HTTPResponse) (*mcp.Message, error) {
	if a.Events != nil {
		a.Events.Close()
	}
	m, addressed := bodyError(l.limits, a, c.id)
	if c.request.Method == "initialize" {
		l.mu.Lock()
		l.unsupported = (a.Status == http.StatusBadRequest || a.Status == http.StatusNotFound ||
			a.Status == http.StatusMethodNotAllowed) && !isModernError(m)
		l.mu.Unlock()
	}
	if !addressed && l.isExpired(a, m) {
		_ = l.expire()
		return nil, l.notRun()
	}
	if m == nil {
		return nil, statusError(l.name, a)
	}
	return l.restored(c, m), nil
}

// readStream reads a call's stream until the answer. A broken stream is resumed if the server has
// given ids to the events.
func (l *legacyHTTP) readStream(c *pendingCall, stream EventStream) (*mcp.Message, error) {
	var position streamPosition
	for {
		var answer *mcp.Message
		var bad error
		began := time.Now()
		err := readMessages(c.ctx, stream, l.limits, &position, func(m *mcp.Message,
			invalid error) bool {
			switch {
			case invalid != nil && endsCall(c.id, invalid):
				bad = invalidAnswer(l.name, invalid)
				return false
			case invalid != nil:
				l.log.Warn("invalid message from a server", "server", l.name, "error", invalid)
				return true
			case isOwnAnswer(c, m):
				answer = l.restored(c, m)
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
		case position.lastEvent == "":
			return nil, unavailable(l.name,
				"the stream broke before the answer, and the server does not support resuming it",
				err)
		}
		if time.Since(began) >= stableAfter {
			position.failures = 0 // the server or an intermediary has closed an idle stream
		}
		if stream, err = l.resume(c, &position); err != nil {
			return nil, err
		}
	}
}

// resume asks for the rest of a call's stream. A resumed stream counts as a failure until an event
// comes on it. Otherwise Gatekit would never stop resuming if the server ended each stream at once.
func (l *legacyHTTP) resume(c *pendingCall, p *streamPosition) (EventStream, error) {
	var last error
	for p.failures < maxResumes {
		if !backoff.Sleep(c.ctx, p.delay(p.failures)) {
			return nil, context.Cause(c.ctx)
		}
		p.failures++
		h := l.header()
		h.Set(mcp.HeaderLastEventID, p.lastEvent)
		a, err := l.latestHTTP().Get(c.ctx, h)
		switch {
		case err != nil:
			last = noResponse(l.name, err)
		case isStream(a):
			return a.Events, nil
		case a.Status == http.StatusNotFound && l.sessionID() != "":
			return nil, l.expire()
		case a.Status >= 500:
			last = statusError(l.name, a)
		default:
			return nil, unavailable(l.name,
				"the stream broke before the answer, and the server does not resume it",
				statusError(l.name, a))
		}
	}
	return nil, unavailable(l.name, "the stream broke before the answer and could not be resumed",
		last)
}

// listen keeps the session's stream open, until ctx ends or the server responds that it has no such
// stream.
//
// answered is called when the server has answered the first request for the stream, at the latest
// when listen returns. It may be called again.
func (l *legacyHTTP) listen(ctx context.Context, answered func()) {
	defer func() {
		l.mu.Lock()
		l.listening = false
		l.mu.Unlock()
		answered()
	}()
	var position streamPosition
	for failures := 0; ; failures++ {
		h := l.header()
		if position.lastEvent != "" {
			h.Set(mcp.HeaderLastEventID, position.lastEvent)
		}
		a, err := l.latestHTTP().Get(ctx, h)
		answered()
		switch {
		case ctx.Err() != nil:
			if err == nil && a.Events != nil {
				a.Events.Close()
			}
			return
		case err != nil:
			l.log.Debug("opening a server's stream failed", "server", l.name, "error", err)
		case isStream(a):
			began := time.Now()
			err = readMessages(ctx, a.Events, l.limits, &position, func(m *mcp.Message,
				invalid error) bool {
				if invalid != nil {
					l.log.Warn("invalid message from a server", "server", l.name,
						"error", invalid)
					return true
				}
				failures = 0
				l.incoming(nil, m)
				return ctx.Err() == nil
			})
			l.log.Debug("a server's stream ended", "server", l.name, "error", err)
			if time.Since(began) >= stableAfter {
				failures = 0
			}
		case a.Status == http.StatusNotFound && l.sessionID() != "":
			_ = l.expire()
			return
		case a.Status == http.StatusBadRequest && position.lastEvent != "":
			position.lastEvent = "" // the server does not know this event any more
		case a.Status < 500:
			return // the server has no such stream
		}
		if !backoff.Sleep(ctx, position.delay(failures)) {
			return
		}
	}
}

// notify implements legacyConn. After notifications/initialized has been posted, notify opens the
// session's stream.
func (l *legacyHTTP) notify(ctx context.Context, o Outgoing) error {
	if err := l.post(ctx, o); err != nil {
		return err
	}
	if o.m.Method == "notifications/initialized" {
		l.openStream()
	}
	return nil
}

// openStream requests the session's stream in the background, unless it has been requested.
func (l *legacyHTTP) openStream() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listening {
		return
	}
	opened := make(chan struct{})
	l.listening, l.opened = true, opened
	answered := sync.OnceFunc(func() { close(opened) })
	if !l.goroutines.Go(func(ctx context.Context) {
		late := time.AfterFunc(streamTimeout, answered)
		defer late.Stop()
		l.listen(ctx, answered)
	}) {
		answered() // the connection is closed
	}
}

// awaitStream waits until the session's stream is open, if it has been requested. A server has
// nowhere to send a question that belongs to no call before that, and the servers of the
// TypeScript SDK drop it.
func (l *legacyHTTP) awaitStream(ctx context.Context) error {
	l.mu.Lock()
	opened := l.opened
	l.mu.Unlock()
	if opened == nil {
		return nil
	}
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
