package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
	"gatekit/core/upstream"
)

// rootsWait is how long a server's question for the roots can wait for a call in which the client
// can be asked. Many servers ask for the roots at the beginning of a session. A call usually
// follows soon.
const rootsWait = 10 * time.Second

// blockedWait replaces rootsWait while a request such as tools/list is in flight: the client cannot
// be asked during such a request. If the server has not answered the request after blockedWait, it
// most likely waits for the roots first.
const blockedWait = 2 * time.Second

// questionsSeen records whether a server asks the client, and how.
type questionsSeen struct {
	any    atomic.Bool // the server has asked
	inCall atomic.Bool // the server has asked on the stream of a call
	// the server has sent a question other than roots/list that names no call, or a question that
	// could have been meant for any of several clients
	withoutCall atomic.Bool
}

// pooledSession is one session with a legacy server. All calls that use the session declare the
// same capabilities. pooledSession handles the messages that the server sends outside of calls, or
// without naming a call.
type pooledSession struct {
	key        string // the digest of the capabilities
	hasRoots   bool   // the client declares roots
	isFurther  bool   // when it began, the pool had a session with the same capabilities
	questions  *questionsSeen
	name       string // of the server
	log        *slog.Logger
	feed       proxy.Handler    // of the client's session
	shared     bool             // several clients may be behind the client's session
	goroutines *taskgroup.Group // of the pool
	server     upstream.LegacySession

	maxInputRequests int // how many pages the server may want to be opened at once

	opened           chan struct{} // closed when the handshake has ended
	initializeAnswer *mcp.Message  // read it after opened
	openErr          error         // why the handshake failed; read it after opened

	users     int         // how many requests use the session; guarded by the pool's mu
	exclusive int         // how many exclusive requests use the session; guarded by the pool's mu
	idleTimer *time.Timer // runs while users is 0; guarded by the pool's mu

	// contains a token while the server's log level or subscriptions are being changed
	stateLock        chan struct{}
	level            string         // the server's log level; guarded by stateLock
	subscriberCounts map[string]int // by the URI of the resource; guarded by stateLock

	taskTools taskTools

	mu          sync.Mutex
	calls       []sessionCall // in flight, the oldest first; replaced, never changed in place
	callAdded   chan struct{} // closed and replaced with each new call
	hasBlocked  bool          // a question for the roots has blocked a request for blockedWait
	subscribers map[*subscriber]struct{}
}

// sessionCall is a call in flight on a session.
type sessionCall interface {
	proxy.Handler
	// canAsk reports whether the client can be asked in this call: the method of the call and the
	// capabilities that the client declared with it allow questions.
	canAsk() bool
	// askInCall asks the client in this call.
	askInCall(ctx context.Context, ms []*mcp.Message) []pipeline.Passed
}

// handshake sends initialize and notifications/initialized. It returns the answer to initialize.
func (s *pooledSession) handshake(ctx context.Context,
	initialize upstream.Outgoing) (*mcp.Message, error) {
	answer, err := s.server.Send(ctx, initialize, nil)
	switch {
	case err != nil:
		return nil, err
	case answer.Kind == mcp.Error:
		text, _ := answer.Text("/message")
		return nil, unavailable(s.name,
			fmt.Sprintf("the server refused initialize: error %d, %.200q",
				answer.ErrorCode(), text), nil)
	}
	return answer, s.server.SendNotification(ctx, initializedNotification())
}

// isOpen reports whether the handshake has ended.
func (s *pooledSession) isOpen() bool {
	select {
	case <-s.opened:
		return true
	default:
		return false
	}
}

// lockState locks the server's log level and subscriptions. unlock unlocks them.
func (s *pooledSession) lockState(ctx context.Context) (unlock func(), err error) {
	select {
	case s.stateLock <- struct{}{}:
		return func() { <-s.stateLock }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// setLevel lowers the server's log level to the level that a request asks for, if the server
// declares logging.
func (s *pooledSession) setLevel(ctx context.Context, request *mcp.Message) error {
	level, ok := request.Text(mcp.PointerLogLevel)
	if _, logs := s.initializeAnswer.Get("/capabilities/logging"); !ok || !logs {
		return nil
	}
	unlock, err := s.lockState(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if s.level != "" && mcp.LogLevelRank(s.level) <= mcp.LogLevelRank(level) {
		return nil
	}
	answer, err := s.server.Send(ctx, setLevelRequest(level), nil)
	if err == nil && answer.Kind == mcp.Response {
		s.level = level
	}
	return err
}

// addCall adds a call to the calls in flight. remove removes the call.
func (s *pooledSession) addCall(c sessionCall) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(slices.Clone(s.calls), c)
	close(s.callAdded)
	s.callAdded = make(chan struct{})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls = slices.DeleteFunc(slices.Clone(s.calls), func(other sessionCall) bool {
			return other == c
		})
	}
}

func (s *pooledSession) isInFlight(c sessionCall) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.calls, c)
}

// HandleNotification implements proxy.Handler for notifications that name no call.
func (s *pooledSession) HandleNotification(ctx context.Context, m *mcp.Message) {
	switch m.Method {
	case "notifications/message":
		// If several calls are in flight, the log message could belong to any of them.
		s.mu.Lock()
		calls := s.calls
		s.mu.Unlock()
		switch len(calls) {
		case 0:
			drop(ctx, s, m, "no call is in flight")
		case 1:
			calls[0].HandleNotification(ctx, m)
		default:
			drop(ctx, s, m, "several calls are in flight, and the message names none of them")
		}
		return
	case "notifications/elicitation/complete", "notifications/tasks/status":
		drop(ctx, s, m, notInRevision)
		return
	case "notifications/progress":
		drop(ctx, s, m, "no call with this progress token is in flight")
		return
	}
	if m.Method == "notifications/tools/list_changed" {
		s.taskTools.forget()
	}
	wanted, isFull := false, false
	s.mu.Lock()
	for sub := range s.subscribers {
		if sub.wants(m) {
			wanted = true
			isFull = !sub.add(m) || isFull
		}
	}
	s.mu.Unlock()
	switch {
	case !wanted:
		drop(ctx, s, m, "no subscription of the client includes it")
	case isFull:
		drop(ctx, s, m, "too many notifications wait for a subscription of the client")
	}
}

// Consume implements proxy.Handler.
func (s *pooledSession) Consume(ctx context.Context, m *mcp.Message, action, reason string) error {
	return s.feed.Consume(ctx, m, action, reason)
}

// HandleRequests implements proxy.Handler for questions that name no call.
func (s *pooledSession) HandleRequests(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	s.questions.any.Store(true)
	if ms[0].Method != "roots/list" { // servers commonly ask for the roots outside of calls
		s.questions.withoutCall.Store(true)
	}
	return s.ask(ctx, ms)
}

// ask asks the client in a call in flight. It prefers the youngest call that the client waits for,
// since the client may never come back for a parked call.
func (s *pooledSession) ask(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	for {
		c := s.callToAskIn(ctx, ms)
		if c == nil {
			return s.feed.HandleRequests(ctx, ms) // refuses the requests
		}
		answers := c.askInCall(ctx, ms)
		if ctx.Err() != nil || s.isInFlight(c) || !anyFailed(answers) {
			return answers
		}
		// The call was answered before the client could be asked in it. Try another call.
	}
}

// callToAskIn returns the call in which to ask the client. It returns nil when there is no such
// call, or when the question could be for another client.
//
// A question for the roots waits for a call to begin: up to rootsWait, or up to blockedWait while
// the question seems to block another request. If the client declares no roots, callToAskIn returns
// the oldest call in flight. The handler of that call answers the question without asking the
// client.
func (s *pooledSession) callToAskIn(ctx context.Context, ms []*mcp.Message) sessionCall {
	isForRoots := ms[0].Method == "roots/list"
	s.mu.Lock()
	blocked := s.calls
	s.mu.Unlock()
	began := time.Now()
	for {
		s.mu.Lock()
		calls, callAdded := s.calls, s.callAdded
		s.mu.Unlock()
		var waiting, parked []sessionCall // the youngest first
		for _, c := range slices.Backward(calls) {
			switch {
			case c.canAsk() && c.IsWaiting():
				waiting = append(waiting, c)
			case c.canAsk():
				parked = append(parked, c)
			}
		}
		for _, candidates := range [][]sessionCall{waiting, parked} {
			if len(candidates) > 1 && s.shared {
				s.questions.withoutCall.Store(true)
				return nil
			}
			if len(candidates) > 0 {
				return candidates[0]
			}
		}
		if !isForRoots {
			return nil
		}
		if !s.hasRoots && len(calls) > 0 {
			return calls[0]
		}
		blocked = slices.DeleteFunc(slices.Clone(blocked), func(c sessionCall) bool {
			return !slices.Contains(calls, c)
		})
		wait := rootsWait - time.Since(began)
		if len(blocked) > 0 {
			wait = min(wait, s.remainingBlockedWait(began))
		}
		if wait <= 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-callAdded:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// remainingBlockedWait returns how much longer a question for the roots may block other requests.
// The parameter asked is the time of the question. After one question has used up its time, later
// questions may not block other requests at all.
func (s *pooledSession) remainingBlockedWait(asked time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := blockedWait - time.Since(asked)
	if s.hasBlocked || left <= 0 {
		s.hasBlocked = true
		return 0
	}
	return left
}

// anyFailed reports whether one of the answers is missing or is an internal error. Both mean that
// the client could not be asked.
func anyFailed(answers []pipeline.Passed) bool {
	return slices.ContainsFunc(answers, func(p pipeline.Passed) bool {
		m := p.Message()
		return m == nil || m.ErrorCode() == mcp.CodeInternalError
	})
}

// IsWaiting implements proxy.Handler.
func (s *pooledSession) IsWaiting() bool { return true }

// ReportActivity implements proxy.Handler.
func (s *pooledSession) ReportActivity() {}
