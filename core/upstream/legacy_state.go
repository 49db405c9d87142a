package upstream

import (
	"context"
	"errors"
	"strconv"
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
	// how many requests and notifications of the client are under way, when the last of them ended,
	// and until when the server may work on a task
	users     int
	lastUse   time.Time
	busyUntil time.Time
	// there is no connection, and the next use opens one: the last one was ended because it was not
	// used, or none was needed yet
	dormant bool
	// what a server that is not started yet is expected to answer to initialize; nil otherwise
	expected    *mcp.Message
	fault       error         // why there is no connection
	nextAttempt time.Time     // to open another; zero when there will be none
	changed     chan struct{} // closed and replaced with each change of a field above
}

// change runs f under the lock and wakes the goroutines that wait for a change.
func (s *legacyState) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// beginUse notes that a request or notification is under way. While there is one, the connection is
// not ended for lack of use.
func (s *legacyState) beginUse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

// endUse undoes beginUse. It reports whether the connection is now without use.
func (s *legacyState) endUse() (unused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.lastUse = time.Now()
	return s.users == 0
}

// noteUse notes that the connection is in use just now.
func (s *legacyState) noteUse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastUse = time.Now()
}

// unusedSince returns when the connection was used last. ok is false when there is no connection,
// or it is in use.
func (s *legacyState) unusedSince() (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastUse, s.isUnused()
}

// isUnused reports whether there is a connection, and it is not in use. s.mu is held.
func (s *legacyState) isUnused() bool {
	return s.conn != nil && s.users == 0 && !time.Now().Before(s.busyUntil)
}

// takeUnused takes the connection away, unless it is in use; then it returns nil. The next use
// opens another.
func (s *legacyState) takeUnused() (conn legacyConn) {
	s.change(func() {
		if s.isUnused() {
			conn = s.conn
			s.conn, s.initializedSent, s.dormant = nil, false, true
			s.fault, s.nextAttempt = nil, time.Time{}
		}
	})
	return conn
}

// startWaking reports whether the caller has to open a connection: there is none because none was
// needed. Afterwards, requests wait for the connection.
func (s *legacyState) startWaking() bool {
	s.mu.Lock()
	due := s.dormant && !time.Now().Before(s.nextAttempt)
	s.mu.Unlock()
	if !due {
		return false
	}
	s.change(func() {
		if due = s.dormant; due {
			s.dormant, s.fault, s.nextAttempt = false, nil, time.Time{}
		}
	})
	return due
}

// failWaking records that no connection could be opened, and when the next use may try again.
func (s *legacyState) failWaking(cause error, nextAttempt time.Time) {
	s.change(func() {
		if !errors.Is(s.fault, taskgroup.ErrClosed) {
			s.dormant, s.fault, s.nextAttempt = true, cause, nextAttempt
		}
	})
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
		if s.dormant {
			next = time.Time{} // only another use opens a connection
		}
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

// maxTaskLifetime is how long a server is kept for a task that no client asks for.
const maxTaskLifetime = 30 * time.Minute

// taskLifetime returns how long the server keeps the task that it has created, but at most
// maxTaskLifetime.
func taskLifetime(answer *mcp.Message) time.Duration {
	raw, _ := answer.Get("/task/ttl")
	ms, err := strconv.ParseUint(string(raw), 10, 63)
	if err != nil || ms > uint64(maxTaskLifetime.Milliseconds()) {
		return maxTaskLifetime
	}
	return time.Duration(ms) * time.Millisecond
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// remember keeps a request that has to be sent again on the next connection. A task that the server
// has created keeps the connection in use.
func (s *legacyState) remember(o Outgoing, answer *mcp.Message) {
	m := o.m
	if answer.Kind != mcp.Response {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m.Method {
	case "tools/call":
		if _, isTask := answer.Get("/task/taskId"); isTask {
			s.busyUntil = later(s.busyUntil, time.Now().Add(taskLifetime(answer)))
		}
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
			s.lastUse = s.since
		}
	})
	return isOpen
}

// close records that the session is closed. It returns the connection, which may be nil, and
// whether notifications/initialized was sent on it.
func (s *legacyState) close(err error) (conn legacyConn, served bool) {
	s.change(func() {
		conn, served = s.conn, s.initializedSent
		s.conn, s.fault, s.nextAttempt, s.dormant = nil, err, time.Time{}, false
	})
	return conn, served
}
