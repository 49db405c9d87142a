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
// been sent. After that time, the requests are sent without that notification.
const maxWaitForInitialized = 2 * time.Second

// legacyState holds the current connection of a legacy session, and the messages that have to be
// sent again on the next connection. Before use, the field changed must be set to a new channel.
type legacyState struct {
	mu    sync.Mutex
	conn  legacyConn // nil while there is no connection
	since time.Time  // when initialize was answered on conn
	// the first initialize that was answered; it is set once
	initialize Outgoing
	// the client's notifications/initialized; set only while the session's handshake is locked
	initialized     Outgoing
	initializedSent bool                // sending initialized on conn was tried
	level           Outgoing            // the last logging/setLevel that succeeded
	subscriptions   map[string]Outgoing // resources/subscribe that succeeded, by URI
	users           int                 // requests and notifications of the client under way
	lastUse         time.Time           // when the connection was used last
	busyUntil       time.Time           // the server may work on a task until then
	// there is no connection because none was needed yet, or because the last connection was ended
	// for lack of use; the next use opens a connection
	dormant bool
	// the answer to initialize that the client got before its server was started; nil otherwise
	expected    *mcp.Message
	fault       error         // why there is no connection
	nextAttempt time.Time     // when a connection is tried again; zero if no attempt is due
	changed     chan struct{} // closed and replaced by the method change
}

// change runs f under the lock and wakes the goroutines that wait for a change.
func (s *legacyState) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// beginUse notes that a request or notification is under way. Until endUse is called, the
// connection is not ended for lack of use.
func (s *legacyState) beginUse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

// endUse undoes beginUse. It reports whether the session is unused now.
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
// or the connection is in use.
func (s *legacyState) unusedSince() (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastUse, s.isUnused()
}

// isUnused reports whether there is a connection that is not in use. s.mu is held.
func (s *legacyState) isUnused() bool {
	return s.conn != nil && s.users == 0 && !time.Now().Before(s.busyUntil)
}

// takeUnused removes the connection from the session and returns it, or returns nil if the
// connection is in use. With evenInUse, it removes the connection in any case. The next use opens
// another connection.
func (s *legacyState) takeUnused(evenInUse bool) (conn legacyConn) {
	s.change(func() {
		if s.isUnused() || evenInUse && s.conn != nil {
			conn = s.conn
			s.conn, s.initializedSent, s.dormant = nil, false, true
			s.fault, s.nextAttempt = nil, time.Time{}
		}
	})
	return conn
}

// startWaking reports whether the session is dormant and the caller must open a connection. If so,
// requests wait for that connection from now on.
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

// current returns the connection, or nil while there is none. It also returns the time when
// initialize was answered on the connection.
func (s *legacyState) current() (legacyConn, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn, s.since
}

// ready waits for a connection on which requests can be sent, and returns it. On that connection,
// initialize was answered and, unless the client is late, notifications/initialized was sent. ready
// never returns the connection in the parameter other.
func (s *legacyState) ready(ctx context.Context, server string,
	other legacyConn) (legacyConn, error) {
	var faultBefore error // why there was no connection in the previous round of the loop
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
			// no attempt is due soon, or an attempt has failed during this wait
			return nil, fault
		case conn == nil && !known:
			wait = maxWaitForInitialized // initialize may not have been answered yet
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

// maxTaskLifetime is the longest time that an unused server is kept because it may work on a task.
const maxTaskLifetime = 30 * time.Minute

// taskLifetime returns how long the server keeps the task that the answer describes. It returns at
// most maxTaskLifetime.
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

// remember keeps a request that has to be sent again on the next connection. If the answer contains
// a new task, the connection counts as in use for the lifetime of the task.
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

// lose records that conn was lost. It returns false when conn is not the session's connection any
// more.
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

// replace records a new connection. It returns false when the session has been closed.
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

// close records that the session is closed. It returns the connection, which may be nil. served
// reports whether notifications/initialized was sent on the connection.
func (s *legacyState) close(err error) (conn legacyConn, served bool) {
	s.change(func() {
		conn, served = s.conn, s.initializedSent
		s.conn, s.fault, s.nextAttempt, s.dormant = nil, err, time.Time{}, false
	})
	return conn, served
}
