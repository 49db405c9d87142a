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

// rootsWait bounds how long a server's question for the roots waits for a call in which the client
// can be asked. Many servers ask for the roots at once when a session begins, and a call follows
// soon.
const rootsWait = 10 * time.Second

// blockedWait bounds that wait while a request is in flight in which the client cannot be asked, a
// list for example. A request that is not answered within it most likely waits for the roots.
const blockedWait = 2 * time.Second

// questionsSeen records whether a server asks the client, and how.
type questionsSeen struct {
	any         atomic.Bool // it asks
	withoutCall atomic.Bool // it asks without naming the call that it asks in
}

// pooledSession is one session with a legacy server, for calls of a modern client that declare the
// same capabilities. It handles the messages that the server sends outside of calls, or without
// naming a call.
type pooledSession struct {
	key        string // the digest of the capabilities
	hasRoots   bool   // the client declares roots
	isFurther  bool   // another session with these capabilities was there before
	questions  *questionsSeen
	name       string // of the server
	log        *slog.Logger
	feed       proxy.Handler    // of the client's session
	shared     bool             // several clients may be behind the client's session
	goroutines *taskgroup.Group // of the pool
	server     upstream.LegacySession

	opened           chan struct{} // closed when the handshake has ended
	initializeAnswer *mcp.Message  // read it after opened
	openErr          error         // why the handshake failed; read it after opened

	users     int         // requests that use it; guarded by the pool's mu
	exclusive int         // those of them that should be alone; guarded by the pool's mu
	idleTimer *time.Timer // runs while users is 0; guarded by the pool's mu

	// holds one token, taken while the server's log level or subscriptions are being changed
	stateLock        chan struct{}
	level            string         // the server's log level; guarded by stateLock
	subscriberCounts map[string]int // by the URI of the resource; guarded by stateLock

	taskTools taskTools

	mu          sync.Mutex
	calls       []sessionCall // in flight, the oldest first; replaced, never changed in place
	callAdded   chan struct{} // closed and replaced with each new call
	asksInLists bool          // the server has asked for the roots before it answered a list
	subscribers map[*subscriber]struct{}
}

// sessionCall is a call in flight on a session, in which the client can be asked.
type sessionCall interface {
	proxy.Handler
	// canAsk reports whether the client has declared, with this call, that it can be asked.
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

// lockState takes the session's state token. unlock returns it.
func (s *pooledSession) lockState(ctx context.Context) (unlock func(), err error) {
	select {
	case s.stateLock <- struct{}{}:
		return func() { <-s.stateLock }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// setLevel lowers the server's log level to the level that a request asks for, if the server logs.
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

// addCall records a call in flight. remove undoes that.
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
	case "notifications/message": // with several calls, the message could belong to any of them
		s.mu.Lock()
		calls := s.calls
		s.mu.Unlock()
		if len(calls) == 1 {
			calls[0].HandleNotification(ctx, m)
		}
		return
	case "notifications/elicitation/complete", "notifications/tasks/status",
		"notifications/progress":
		return // the client's revision has no such notification, or the progress belongs to no call
	}
	if m.Method == "notifications/tools/list_changed" {
		s.taskTools.forget()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.subscribers {
		sub.offer(m)
	}
}

// HandleRequests implements proxy.Handler for questions that name no call.
func (s *pooledSession) HandleRequests(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	s.questions.any.Store(true)
	if ms[0].Method != "roots/list" { // servers ask for the roots outside of calls
		s.questions.withoutCall.Store(true)
	}
	return s.ask(ctx, ms)
}

// ask asks in the youngest call in flight in which the client can be asked. Calls that the client
// waits for come first: the client may never come back for others.
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

// callToAskIn returns the call in which to ask the client. It returns nil when there is none, or
// when the call could belong to another client. For a question for the roots, it waits for a call
// to begin: up to rootsWait, or up to blockedWait while the question seems to block another
// request. A question for the roots of a client that has none goes to any request in flight, whose
// handler answers it without asking the client.
func (s *pooledSession) callToAskIn(ctx context.Context, ms []*mcp.Message) sessionCall {
	isForRoots := ms[0].Method == "roots/list"
	s.mu.Lock()
	blocked := s.calls
	s.mu.Unlock()
	began := time.Now()
	for {
		s.mu.Lock()
		calls, called := s.calls, s.callAdded
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
			wait = min(wait, s.blockedWait(began))
		}
		if wait <= 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-called:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// blockedWait returns how much longer a question for the roots that was asked at a time may block
// other requests. When the time is over once, later questions may not block at all.
func (s *pooledSession) blockedWait(asked time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := blockedWait - time.Since(asked)
	if s.asksInLists || left <= 0 {
		s.asksInLists = true
		return 0
	}
	return left
}

// anyFailed reports whether one of the answers is missing or an internal error, which both mean
// that the client could not be asked.
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
