package bridge

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"gatekit/core/backoff"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
	"gatekit/core/upstream"
)

const (
	// how many sessions there may be; a request that needs one more waits
	maxPooledSessions = 8
	// how long a session that no call uses is kept
	pooledSessionIdle = 5 * time.Minute
	// delay after the first handshake that failed
	firstHandshakeDelay = 200 * time.Millisecond
)

// sessionPool holds the sessions that one session of a modern client has with a legacy server.
//
// A legacy server gets the client's name and capabilities once, when a session begins. A modern
// client declares them with each request. So there is one session for each set of capabilities that
// the client declares. The package documentation explains why calls share a session.
type sessionPool struct {
	opts          Options
	native        upstream.NativeSessions
	clientOptions proxy.OpenOptions // of the client's session
	feed          proxy.Handler     // of the client's session
	goroutines    *taskgroup.Group

	mu       sync.Mutex // guards the fields below, and some of the sessions' fields
	sessions []*pooledSession
	closed   bool
	changed  chan struct{} // closed and replaced when a session has become idle or was removed
	failures int           // handshakes in a row that failed
	lastErr  error         // of the last handshake; nil when it succeeded
	lastKey  string        // of the session of that handshake
	retryAt  time.Time     // when another session with lastKey may be opened
}

func newSessionPool(opts Options, native upstream.NativeSessions, o proxy.OpenOptions,
	feed proxy.Handler) *sessionPool {
	return &sessionPool{opts: opts, native: native, clientOptions: o, feed: feed,
		goroutines: taskgroup.New(),
		changed:    make(chan struct{})}
}

// wake wakes the requests that wait for a session. p.mu is held.
func (p *sessionPool) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// acquire returns the session for a request, ready for use. release gives it back.
func (p *sessionPool) acquire(ctx context.Context, m *mcp.Message) (*pooledSession, error) {
	name := p.native.Name()
	raw, _ := m.Get(mcp.PointerCapabilities)
	capabilities, err := capabilitiesForLegacy(raw)
	if err != nil {
		return nil, unavailable(name,
			"the client's capabilities could not be translated to the server's revision", err)
	}
	digest, err := mcp.CanonicalDigest(capabilities)
	if err != nil {
		return nil, unavailable(name, "the client's capabilities are not valid", err)
	}
	key := string(digest)
	for {
		s, evicted, changed, err := p.find(key, m, capabilities)
		if evicted != nil {
			evicted.server.CloseLater()
		}
		switch {
		case err != nil:
			return nil, err
		case s != nil:
			select {
			case <-s.opened:
			case <-ctx.Done():
				p.release(s)
				return nil, context.Cause(ctx)
			}
			if s.openErr != nil {
				p.release(s)
				return nil, s.openErr
			}
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// find returns the session for a set of capabilities, or begins to open it. When there is no room,
// it returns no session; the caller tries again when changed is closed. The session evicted, if not
// nil, was removed to make room; the caller closes it.
func (p *sessionPool) find(key string, m *mcp.Message,
	capabilities []byte) (s, evicted *pooledSession, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, nil, closingError(p.native.Name())
	}
	i := slices.IndexFunc(p.sessions, func(s *pooledSession) bool { return s.key == key })
	switch {
	case i >= 0:
		s = p.sessions[i]
	case p.lastErr != nil && p.lastKey == key && time.Now().Before(p.retryAt):
		return nil, nil, nil, p.lastErr
	case len(p.sessions) >= maxPooledSessions:
		idle := slices.IndexFunc(p.sessions, func(s *pooledSession) bool { return s.users == 0 })
		if idle < 0 {
			return nil, nil, p.changed, nil
		}
		evicted = p.sessions[idle]
		p.sessions = slices.Delete(p.sessions, idle, idle+1)
		fallthrough
	default:
		if s, err = p.begin(key, m, capabilities); err != nil {
			return nil, evicted, nil, err
		}
	}
	s.users++
	if s.idleTimer != nil {
		s.idleTimer.Stop()
	}
	return s, evicted, nil, nil
}

// begin adds a session and starts its handshake. p.mu is held.
func (p *sessionPool) begin(key string, m *mcp.Message,
	capabilities []byte) (*pooledSession, error) {
	name := p.native.Name()
	initialize, err := initializeRequest(m, capabilities, p.opts.Version)
	if err != nil {
		return nil, unavailable(name, "initialize could not be built from the client's request",
			err)
	}
	s := &pooledSession{key: key, name: name, log: p.opts.Log, feed: p.feed,
		shared: p.clientOptions.Shared, goroutines: p.goroutines,
		opened: make(chan struct{}), stateLock: make(chan struct{}, 1),
		callAdded: make(chan struct{}), subscriberCounts: map[string]int{},
		subscribers: map[*subscriber]struct{}{}}
	s.server = p.native.OpenLegacy(p.clientOptions, s)
	p.sessions = append(p.sessions, s)
	started := p.goroutines.Go(func(ctx context.Context) {
		startCtx, cancel := p.native.StartContext(ctx)
		defer cancel()
		s.initializeAnswer, s.openErr = s.handshake(startCtx, initialize)
		p.finishOpen(s)
	})
	if !started {
		s.openErr = closingError(name)
		close(s.opened)
	}
	return s, nil
}

// finishOpen records how a handshake ended, and removes a session whose handshake failed.
func (p *sessionPool) finishOpen(s *pooledSession) {
	p.mu.Lock()
	p.lastErr, p.lastKey = s.openErr, s.key
	if s.openErr != nil {
		p.failures++
		delay := backoff.Delay(firstHandshakeDelay, longestRetryDelay, p.failures)
		p.retryAt = time.Now().Add(delay)
		p.sessions = slices.DeleteFunc(p.sessions, func(other *pooledSession) bool {
			return other == s
		})
		p.wake()
	} else {
		p.failures = 0
	}
	p.mu.Unlock()
	close(s.opened)
	if s.openErr != nil {
		s.server.CloseLater()
	}
}

// release gives a session back. It is closed when no call uses it for a while.
func (p *sessionPool) release(s *pooledSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.users--; s.users == 0 {
		s.idleTimer = time.AfterFunc(pooledSessionIdle, func() { p.expire(s) })
	}
	p.wake()
}

// expire closes a session that no call has used for a while.
func (p *sessionPool) expire(s *pooledSession) {
	p.mu.Lock()
	i := slices.Index(p.sessions, s)
	if i < 0 || s.users > 0 {
		p.mu.Unlock()
		return
	}
	p.sessions = slices.Delete(p.sessions, i, i+1)
	p.mu.Unlock()
	s.server.CloseLater()
}

// close closes all sessions and waits for them.
func (p *sessionPool) close() error {
	p.mu.Lock()
	p.closed = true
	sessions := p.sessions
	p.sessions = nil
	for _, s := range sessions {
		if s.idleTimer != nil {
			s.idleTimer.Stop()
		}
	}
	p.wake()
	p.mu.Unlock()
	errs := make([]error, len(sessions))
	var wg sync.WaitGroup
	for i, s := range sessions {
		wg.Go(func() { errs[i] = s.server.Close() })
	}
	wg.Wait()
	p.goroutines.Close()
	return errors.Join(errs...)
}
