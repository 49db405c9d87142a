package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
)

// legacySession is one session with a legacy server. It has a connection of its own, opened by the
// client's initialize. When the connection is lost, another connection is opened, with growing
// delays. The messages with which the client set up the session are then sent again. legacySession
// implements proxy.Server and LegacySession.
type legacySession struct {
	opts       *Options
	prober     *prober
	dialer     *legacyDialer
	feed       proxy.Handler
	goroutines *taskgroup.Group
	queue      *orderedQueue
	// contains a token while initialize or notifications/initialized is being sent
	handshake chan struct{}
	closeOnce func() error // runs end, once
	isCounted atomic.Bool  // while the session is closing, it counts towards closingLimit
	state     legacyState

	// reports whether the client can be notified outside of calls; nil for a client on a pipe,
	// whose connection is never ended for lack of use
	hasStream func() bool
	principal string
	when      startMoment
	// the delays after openAgain has failed; only one goroutine uses it at a time
	wakeSchedule restartSchedule
}

// startMoment is the moment at which a session starts its server.
type startMoment uint8

const (
	startAtInitialize startMoment = iota
	// If the server has answered an equal initialize of another session, the session repeats that
	// answer, and its first use starts the server. This holds for HTTP clients only.
	startAtFirstUse
)

func newLegacySession(c *connector, p *prober, o proxy.OpenOptions, feed proxy.Handler,
	when startMoment) *legacySession {
	goroutines := taskgroup.New()
	queue := newOrderedQueue(goroutines)
	s := &legacySession{opts: c.opts, prober: p, feed: feed, goroutines: goroutines, queue: queue,
		dialer:    &legacyDialer{connector: c, queue: queue, client: o, feed: feed},
		handshake: make(chan struct{}, 1), state: legacyState{changed: make(chan struct{})},
		hasStream: o.HasStream, principal: o.Principal.ID(), when: when}
	if s.hasStream != nil {
		s.dialer.principal, s.dialer.owner = s.principal, s
	}
	s.closeOnce = sync.OnceValue(s.end)
	return s
}

// Call implements proxy.Server. The first initialize opens the connection. Other requests wait for
// the connection.
func (s *legacySession) Call(ctx context.Context, p pipeline.Passed,
	h proxy.Handler) (*mcp.Message, error) {
	return s.Send(ctx, Forward(p), h)
}

// Send implements LegacySession.
func (s *legacySession) Send(ctx context.Context, o Outgoing,
	h proxy.Handler) (*mcp.Message, error) {
	s.state.beginUse()
	defer s.endUse()
	if o.m.Method == "initialize" {
		if answer, done, err := s.initialize(ctx, o, h); done {
			return answer, err
		}
	}
	s.endExpired()
	s.wake()
	conn, err := s.state.ready(ctx, s.opts.Name, nil)
	if err != nil {
		return nil, err
	}
	answer, err := conn.send(ctx, o, h)
	if errors.Is(err, errRequestNotRun) ||
		errors.Is(err, errSessionExpired) && isRepeatable(o.m.Method) {
		var next legacyConn
		if next, err = s.state.ready(ctx, s.opts.Name, conn); err == nil {
			answer, err = next.send(ctx, Again(o), h)
		}
	}
	if err == nil {
		s.state.remember(o, answer)
	}
	return answer, err
}

// isRepeatable reports whether a request may be run twice, because the second run has no further
// effect.
func isRepeatable(method string) bool {
	switch method {
	case "tools/list", "resources/list", "resources/templates/list", "resources/read",
		"resources/directory/read", "skills/list", "skills/get",
		"resources/subscribe", "resources/unsubscribe",
		"prompts/list", "prompts/get", "completion/complete", "logging/setLevel", "ping":
		return true
	}
	return false
}

// Notify implements proxy.Server.
func (s *legacySession) Notify(ctx context.Context, p pipeline.Passed) error {
	return s.SendNotification(ctx, Forward(p))
}

// SendNotification implements LegacySession.
func (s *legacySession) SendNotification(ctx context.Context, o Outgoing) error {
	s.state.beginUse()
	defer s.endUse()
	if o.m.Method != "notifications/initialized" {
		s.endExpired()
		s.wake()
		conn, err := s.state.ready(ctx, s.opts.Name, nil)
		if err != nil {
			return err
		}
		return conn.notify(ctx, o)
	}
	ctx, release := s.goroutines.Bind(ctx)
	defer release()
	unlock, err := s.lockHandshake(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if !s.state.isInitialized() {
		return unavailable(s.opts.Name, "the server has not answered initialize", nil)
	}
	var conn legacyConn
	s.state.change(func() { conn, s.state.initialized = s.state.conn, o })
	if conn == nil {
		return nil // sendAgain sends initialized on the next connection
	}
	err = conn.notify(ctx, o)
	// After a failure, too: requests must not wait for another attempt.
	s.state.change(func() { s.state.initializedSent = true })
	return err
}

// lockHandshake waits until no other goroutine sends initialize or notifications/initialized, and
// keeps other goroutines from sending them until unlock is called.
func (s *legacySession) lockHandshake(ctx context.Context) (unlock func(), err error) {
	select {
	case s.handshake <- struct{}{}:
		return func() { <-s.handshake }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// HasSessionStream implements LegacySession.
func (s *legacySession) HasSessionStream() bool {
	conn, _ := s.state.current()
	return conn == nil || conn.hasSessionStream()
}

// Close implements proxy.Server and LegacySession. It may be called more than once.
func (s *legacySession) Close() error { return s.closeOnce() }

// CloseLater implements LegacySession.
func (s *legacySession) CloseLater() {
	s.isCounted.Store(true)
	s.dialer.discardLater(s.dialer.closingLimit.counted(s))
}

func (s *legacySession) end() error {
	conn, served := s.state.close(closingError(s.opts.Name))
	var err error
	switch {
	case conn == nil:
	case served, s.isCounted.Load():
		err = conn.Close()
	default:
		// The client may not have got the answer to initialize, and may open another session at
		// once. This connection therefore counts towards closingLimit.
		err = s.dialer.closingLimit.close(conn)
	}
	s.goroutines.Close()
	s.queue.logDropped(s.opts.Log, s.opts.Name)
	return err
}

// initialize opens the connection and sends initialize. done is false when an initialize of this
// session has been answered before. Then the caller sends o like any other request.
func (s *legacySession) initialize(ctx context.Context, o Outgoing,
	h proxy.Handler) (answer *mcp.Message, done bool, err error) {
	ctx, release := s.goroutines.Bind(ctx)
	defer release()
	unlock, err := s.lockHandshake(ctx)
	if err != nil {
		return nil, true, err
	}
	defer unlock()
	if s.state.isInitialized() {
		return nil, false, nil
	}
	answer, finish, err := s.expectedAnswer(ctx, o)
	if err != nil {
		return nil, true, err
	}
	if answer != nil {
		s.state.change(func() {
			s.state.initialize, s.state.expected, s.state.dormant = o, answer, true
		})
		return answer.WithID(o.m.ID()), true, nil
	}
	answer, err = s.openFirst(ctx, o, h)
	if err == nil && answer.Kind == mcp.Response {
		finish(answer)
	} else {
		finish(nil)
	}
	return answer, true, err
}

// expectedAnswer returns the server's answer to an equal initialize that another session has sent
// recently. Otherwise answer is nil. The caller then sends initialize, and calls finish with the
// server's answer, or with nil when initialize failed.
func (s *legacySession) expectedAnswer(ctx context.Context, o Outgoing) (answer *mcp.Message,
	finish func(*mcp.Message), err error) {
	finish = func(*mcp.Message) {}
	if s.when != startAtFirstUse || s.hasStream == nil || s.opts.ServerIdle <= 0 ||
		s.opts.Dial.Pipe == nil {
		return nil, finish, nil
	}
	key, err := initializeKeyOf(s.principal, o.m)
	if err != nil {
		return nil, finish, nil
	}
	answers := &s.dialer.answers
	entry, isNew := answers.find(key, s.opts.ServerIdle)
	if isNew {
		return nil, func(answer *mcp.Message) { answers.finish(key, entry, answer) }, nil
	}
	answer, err = entry.wait(ctx)
	return answer, finish, err
}

// openFirst opens the first connection and sends initialize.
func (s *legacySession) openFirst(ctx context.Context, o Outgoing,
	h proxy.Handler) (*mcp.Message, error) {
	conn, answer, err := s.dialer.dial(ctx, o, h)
	if err != nil {
		return nil, err
	}
	if answer.Kind == mcp.Error {
		s.prober.discardAny()
		s.dialer.abandon(ctx, conn)
		return answer, nil
	}
	if err := s.checkRevision(answer); err != nil {
		s.dialer.abandon(ctx, conn)
		return nil, err
	}
	s.state.change(func() {
		s.state.initialize, s.state.conn, s.state.since = o, conn, time.Now()
	})
	if !s.goroutines.Go(s.supervise) {
		s.dialer.abandon(ctx, conn)
		return nil, closingError(s.opts.Name)
	}
	return answer, nil
}

// checkRevision returns an error when the server chose a revision that Gatekit does not know,
// because Gatekit cannot inspect messages of such a revision.
func (s *legacySession) checkRevision(answer *mcp.Message) error {
	v, _ := answer.Text("/protocolVersion")
	if slices.Contains(mcp.Legacy.Revisions(), v) {
		return nil
	}
	return unavailable(s.opts.Name, fmt.Sprintf(
		"the server answered initialize with protocol version %q, which Gatekit does not know", v),
		nil)
}

// supervise opens the connection again when it is lost, until the session is closed or the
// connection was ended for lack of use.
func (s *legacySession) supervise(ctx context.Context) {
	var schedule restartSchedule
	for {
		conn, since := s.state.current()
		if conn == nil {
			return // closed, or ended for lack of use
		}
		gone, why := conn.lost()
		if !s.awaitLoss(ctx, gone, conn.leased()) {
			return
		}
		cause := why()
		lived := time.Since(since)
		if errors.Is(cause, errSessionExpired) && lived >= stableAfter {
			schedule = restartSchedule{} // an expired session is not a failure of the server
		} else {
			schedule.failed(lived)
		}
		if !s.recover(ctx, conn, cause, &schedule) {
			return
		}
	}
}

// recover replaces a lost connection. It reports false when no other connection will be opened.
func (s *legacySession) recover(ctx context.Context, lost legacyConn, cause error,
	schedule *restartSchedule) bool {
	restarts := s.opts.Restart || s.opts.Dial.Pipe == nil
	next := schedule.next(time.Now())
	if restarts {
		if !s.state.lose(lost, cause, next) {
			return false
		}
	} else if !s.state.lose(lost, cause, time.Time{}) {
		return false
	}
	s.opts.reportEvent("lost", cause)
	s.dialer.answers.forget()
	s.dialer.discard(lost)
	if !restarts {
		return false
	}
	for {
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return false
		}
		if s.opts.Dial.Pipe != nil {
			schedule.started(time.Now())
		}
		answer, err := s.reconnect(ctx)
		if err == nil {
			s.opts.reportEvent("restarted", nil)
			s.announceChanges(answer)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		s.prober.discardAny()
		schedule.failed(0)
		next = schedule.next(time.Now())
		s.state.change(func() { s.state.fault, s.state.nextAttempt = err, next })
		s.opts.Log.Warn("restart of a server failed", "server", s.opts.Name, "error", err,
			"next", time.Until(next).Round(time.Millisecond))
	}
}

// reconnect opens another connection and repeats the messages that set up the session. It returns
// the answer to initialize.
func (s *legacySession) reconnect(ctx context.Context) (answer *mcp.Message, err error) {
	ctx, cancel := s.opts.startContext(ctx)
	defer cancel()
	unlock, err := s.lockHandshake(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	conn, answer, err := s.dialer.dial(ctx, Again(s.state.initialize), nil)
	if err != nil {
		return nil, err
	}
	if answer.Kind == mcp.Error {
		s.prober.discardAny()
		err = unavailable(s.opts.Name, "the server refused initialize after a restart", nil)
	} else {
		err = s.checkRevision(answer)
	}
	if err == nil {
		err = s.sendAgain(ctx, conn)
	}
	if err == nil && !s.state.replace(conn) {
		err = closingError(s.opts.Name)
	}
	if err != nil {
		s.dialer.discard(conn)
		return nil, err
	}
	return answer, nil
}

// sendAgain sends notifications/initialized, the logging level and the subscriptions on a new
// connection, if the client has sent them before.
func (s *legacySession) sendAgain(ctx context.Context, conn legacyConn) error {
	initialized, requests := s.state.remembered()
	if initialized.m == nil {
		// When the client sends initialized, SendNotification sends it on this connection.
		return nil
	}
	if err := conn.notify(ctx, Again(initialized)); err != nil {
		return err
	}
	s.state.change(func() { s.state.initializedSent = true })
	for _, o := range requests {
		answer, err := conn.send(ctx, Again(o), nil)
		if err != nil {
			return err
		}
		if answer.Kind == mcp.Error {
			s.opts.Log.Warn("a restarted server refused a request that it had accepted before",
				"server", s.opts.Name, "method", o.m.Method)
		}
	}
	return nil
}

// announceChanges notifies the client that the server's lists may have changed during the restart.
func (s *legacySession) announceChanges(initializeAnswer *mcp.Message) {
	for _, feature := range []string{"tools", "prompts", "resources"} {
		raw, _ := initializeAnswer.Get("/capabilities/" + feature + "/listChanged")
		if string(raw) != "true" {
			continue
		}
		m := mcp.NewNotification("notifications/"+feature+"/list_changed", nil)
		m.Direction = mcp.ToClient
		// When the queue is full, this notification is dropped. A client that lists again later
		// gets the changes.
		_ = s.queue.add(delivery{size: m.Size(),
			run: func(ctx context.Context) { s.feed.HandleNotification(ctx, m) }})
	}
}
