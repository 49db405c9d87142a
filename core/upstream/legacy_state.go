package upstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/taskgroup"
)

// maxRestoredSubscriptions is how many subscriptions of one session are restored after a restart.
const maxRestoredSubscriptions = 1000

// maxWaitForInitialized is how long requests wait until the client's notifications/initialized has
// been sent. After that time they are sent without it.
const maxWaitForInitialized = 2 * time.Second

// legacyState holds the current connection of a legacy session, and the messages that have to be
// sent again on the next connection. The zero value is not ready: changed has to be made.
type legacyState struct {
	mu    sync.Mutex
	conn  legacyConn // nil while there is none
	since time.Time  // when initialize was answered on conn
	// the first initialize that was answered; it is set once
	initialize Outgoing
	// the client's notifications/initialized; set by the holder of the session's handshake token
	initialized     Outgoing
	initializedSent bool                // initialized was sent on conn
	level           Outgoing            // the last logging/setLevel that succeeded
	subscriptions   map[string]Outgoing // resources/subscribe that succeeded, by URI
	fault           error               // why there is no connection
	nextAttempt     time.Time           // to open another; zero when there will be none
	changed         chan struct{}       // closed and replaced with each change of a field above
}

// change runs f under the lock and wakes the goroutines that wait for a change.
func (s *legacyState) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// isInitialized reports whether an initialize has been answered.
func (s *legacyState) isInitialized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.initialize.m != nil
}

// current returns the connection, nil while there is none, and the time when initialize was
// answered on it.
func (s *legacyState) current() (legacyConn, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn, s.since
}

// ready waits until there is a connection that requests can be sent on, and returns it: initialize
// was answered on it and notifications/initialized sent. ready never returns the connection other.
func (s *legacyState) ready(ctx context.Context, server string,
	other legacyConn) (legacyConn, error) {
	var faultBefore error // why there was no connection when the wait began
	for {
		s.mu.Lock()
		conn, changed, fault, next := s.conn, s.changed, s.fault, s.nextAttempt
		wait := time.Duration(0)
		if conn != nil && !s.initializedSent {
			wait = time.Until(s.since.Add(maxWaitForInitialized))
		}
		known := s.initialize.m != nil
		s.mu.Unlock()
		if conn == other || conn != nil && isLost(conn) {
			conn = nil // the session's supervisor will replace it
		}
		switch {
		case conn != nil && wait <= 0:
			return conn, nil
		case conn == nil && fault != nil && (next.IsZero() ||
			time.Until(next) > maxWaitForStart || faultBefore != nil && fault != faultBefore):
			// no attempt is due soon, or one has failed during this wait
			return nil, fault
		case conn == nil && !known:
			wait = maxWaitForInitialized // the client may not have waited for initialize's answer
		}
		faultBefore = fault
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-changed:
		case <-timer:
			if !known {
				return nil, unavailable(server, "the client has not sent initialize", nil)
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// remember keeps a request that has to be sent again on the next connection.
func (s *legacyState) remember(o Outgoing, answer *mcp.Message) {
	m := o.m
	if answer.Kind != mcp.Response {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m.Method {
	case "logging/setLevel":
		s.level = o
	case "resources/subscribe":
		uri, ok := m.Text("/uri")
		if ok && len(s.subscriptions) < maxRestoredSubscriptions {
			if s.subscriptions == nil {
				s.subscriptions = make(map[string]Outgoing)
			}
			s.subscriptions[uri] = o
		}
	case "resources/unsubscribe":
		if uri, ok := m.Text("/uri"); ok {
			delete(s.subscriptions, uri)
		}
	}
}

// remembered returns the messages that have to be sent on a new connection after initialize.
// initialized is zero when the client has not sent that notification yet.
func (s *legacyState) remembered() (initialized Outgoing, requests []Outgoing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests = make([]Outgoing, 0, 1+len(s.subscriptions))
	if s.level.m != nil {
		requests = append(requests, s.level)
	}
	for _, o := range s.subscriptions {
		requests = append(requests, o)
	}
	return s.initialized, requests
}

// lose records that conn was lost. It reports false when the session was closed before.
func (s *legacyState) lose(conn legacyConn, cause error, nextAttempt time.Time) bool {
	isCurrent := false
	s.change(func() {
		if isCurrent = s.conn == conn; isCurrent {
			s.conn, s.initializedSent = nil, false
			s.fault, s.nextAttempt = cause, nextAttempt
		}
	})
	return isCurrent
}

// replace records a new connection. It reports false when the session was closed before.
func (s *legacyState) replace(conn legacyConn) bool {
	isOpen := false
	s.change(func() {
		if isOpen = !errors.Is(s.fault, taskgroup.ErrClosed); isOpen {
			s.conn, s.since, s.fault, s.nextAttempt = conn, time.Now(), nil, time.Time{}
		}
	})
	return isOpen
}

// close records that the session is closed. It returns the connection, which may be nil, and
// whether notifications/initialized was sent on it.
func (s *legacyState) close(err error) (conn legacyConn, served bool) {
	s.change(func() {
		conn, served = s.conn, s.initializedSent
		s.conn, s.fault, s.nextAttempt = nil, err, time.Time{}
	})
	return conn, served
}
