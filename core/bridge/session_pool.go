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
	// how long a call waits for a session that is in use before a further session is opened
	furtherSessionDelay = 100 * time.Millisecond
	// how long a call waits before it shares a session with another call; a call shares a session
	// only if the server has never asked the client and no further session can be opened
	sharedSessionDelay = 5 * time.Second
	// how long the first session of a set is kept while no request uses it
	pooledSessionIdle = 5 * time.Minute
	// how long a further session is kept while no request uses it
	furtherSessionIdle = time.Minute
	// delay after the first failed handshake; it doubles with each further failure
	firstHandshakeDelay = 200 * time.Millisecond
)

// sessionPool holds the sessions that one session of a modern client has with a legacy server.
//
// A legacy server gets the client's name and capabilities once, when a session begins. A modern
// client declares its capabilities with each request. So there is a session for each set of
// capabilities that the client declares. The package documentation explains which calls share a
// session, and which calls get a further session.
type sessionPool struct {
	opts          Options
	native        upstream.NativeSessions
	clientOptions proxy.OpenOptions // of the client's session
	feed          proxy.Handler     // of the client's session
	goroutines    *taskgroup.Group
	questions     questionsSeen

	mu       sync.Mutex       // guards the fields below, and some of the sessions' fields
	sessions []*pooledSession // the oldest first
	closed   bool
	changed  chan struct{} // closed and replaced when find may find a session for a waiting request
	failures int           // consecutive failed handshakes of first sessions of a set
	lastErr  error         // of the last handshake of a set's first session; nil when it succeeded
	lastKey  string        // key of the session that failed with lastErr
	retryAt  time.Time     // when another session with lastKey may be opened

	furtherFailures int       // consecutive failed handshakes of further sessions
	furtherRetryAt  time.Time // when another further session may be opened
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

// sessionRequest is a request that needs a session.
type sessionRequest struct {
	message      *mcp.Message
	capabilities []byte // the client's capabilities, translated for the server
	key          string // the digest of the capabilities
	// the server may ask the client during the request, and several clients use the pool
	mayAsk bool
	// Two exclusive requests should not use a session at the same time. If they do, the bridge
	// cannot tell which client a question of the server is for. The method find sets isExclusive.
	isExclusive bool
	began       time.Time
}

// newRequest returns the request for a session in which m can be sent.
func (p *sessionPool) newRequest(m *mcp.Message) (*sessionRequest, error) {
	raw, _ := m.Get(mcp.PointerCapabilities)
	capabilities, err := capabilitiesForLegacy(raw)
	if err != nil {
		return nil, unavailable(p.native.Name(),
			"the client's capabilities could not be translated to the server's revision", err)
	}
	digest, err := mcp.CanonicalDigest(capabilities)
	if err != nil {
		return nil, unavailable(p.native.Name(), "the client's capabilities are not valid", err)
	}
	return &sessionRequest{message: m, capabilities: capabilities, key: string(digest),
		mayAsk: p.clientOptions.Shared && mcp.AllowsInputRequests(m), began: time.Now()}, nil
}

// mayAskUnclearly reports whether the server may ask a question without showing for which call.
// The parameter s is the session of the call, or nil if no session is open. Over Streamable HTTP, a
// server may ask on the stream of its session. After a server has asked on the stream of a call, it
// is expected to ask only on the streams of calls.
func (p *sessionPool) mayAskUnclearly(s *pooledSession) bool {
	if p.native.SharesStream() || p.questions.withoutCall.Load() {
		return true
	}
	return !p.questions.inCall.Load() && (s == nil || s.server.HasSessionStream())
}

// acquire returns a session that is ready for the request m. The caller must call release when the
// request has ended.
func (p *sessionPool) acquire(ctx context.Context, m *mcp.Message) (s *pooledSession,
	release func(), err error) {
	r, err := p.newRequest(m)
	if err != nil {
		return nil, nil, err
	}
	for {
		found, err := p.find(r)
		for _, evicted := range found.evicted {
			evicted.server.CloseLater()
		}
		if err != nil {
			return nil, nil, err
		}
		if s := found.session; s != nil {
			release := func() { p.release(s, r.isExclusive) }
			select {
			case <-s.opened:
			case <-ctx.Done():
				release()
				return nil, nil, context.Cause(ctx)
			}
			if s.openErr == nil {
				return s, release, nil
			}
			release()
			if !s.isFurther {
				return nil, nil, s.openErr
			}
			continue // some servers cannot run a second process: find another session
		}
		if err := found.wait(ctx); err != nil {
			return nil, nil, err
		}
	}
}

// foundSession is the result of find.
type foundSession struct {
	session *pooledSession // nil when the request has to wait
	// sessions that were removed to make room; the caller closes them
	evicted []*pooledSession

	// closed when it is time to call find again; used if session is nil
	changed <-chan struct{}
	// how long to wait for changed; 0 means without limit
	delay time.Duration
}

// wait waits until it is time to call find again. The error is context.Cause(ctx).
func (f *foundSession) wait(ctx context.Context) error {
	var timeout <-chan time.Time
	if f.delay > 0 {
		timer := time.NewTimer(f.delay)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-f.changed:
		return nil
	case <-timeout:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// find returns the session for a request. If no session fits, find begins to open a session, or
// returns without a session because the request has to wait.
func (p *sessionPool) find(r *sessionRequest) (found foundSession, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return found, closingError(p.native.Name())
	}
	found.changed = p.changed
	// least is the oldest session with the capabilities of r. If r.mayAsk is true, least is the
	// session with these capabilities that has the fewest exclusive requests.
	var least *pooledSession
	sets := map[string]bool{}
	for _, s := range p.sessions {
		sets[s.key] = true
		if s.key == r.key && (least == nil || r.mayAsk && s.exclusive < least.exclusive) {
			least = s
		}
	}
	r.isExclusive = r.mayAsk && p.mayAskUnclearly(least)
	waited := time.Since(r.began)
	switch {
	case least == nil && p.lastErr != nil && p.lastKey == r.key && time.Now().Before(p.retryAt):
		return found, p.lastErr
	case least == nil:
		if len(sets) >= p.opts.CapabilitySets {
			if found.evicted = p.evictSet(); found.evicted == nil {
				return found, nil
			}
		}
		found.session, err = p.begin(r, false)
	case !r.isExclusive || least.exclusive == 0:
		found.session = least
	case !p.native.SharesStream() && !least.isOpen():
		found.delay = furtherSessionDelay // the handshake shows whether the session has a stream
		return found, nil
	case waited < furtherSessionDelay:
		found.delay = furtherSessionDelay - waited
		return found, nil
	case !time.Now().Before(p.furtherRetryAt) &&
		(len(p.sessions)-len(sets) < p.opts.FurtherSessions || p.evictFurther(&found)):
		found.session, err = p.begin(r, true)
	case p.questions.any.Load():
		return found, nil
	case waited < sharedSessionDelay:
		found.delay = sharedSessionDelay - waited
		return found, nil
	default:
		found.session = least
	}
	if err != nil {
		return found, err
	}
	s := found.session
	s.users++
	if r.isExclusive {
		s.exclusive++
	}
	if s.idleTimer != nil {
		s.idleTimer.Stop()
	}
	return found, nil
}

// evictSet removes the sessions of a set of capabilities that no request uses, and returns these
// sessions. It returns nil when every set is in use. p.mu is held.
func (p *sessionPool) evictSet() (evicted []*pooledSession) {
	used := map[string]bool{}
	for _, s := range p.sessions {
		used[s.key] = used[s.key] || s.users > 0
	}
	for _, s := range p.sessions {
		if used[s.key] || len(evicted) > 0 && s.key != evicted[0].key {
			continue
		}
		evicted = append(evicted, s)
	}
	p.sessions = slices.DeleteFunc(p.sessions, func(s *pooledSession) bool {
		return slices.Contains(evicted, s)
	})
	return evicted
}

// evictFurther removes a further session that no request uses, and adds it to found.evicted. It
// returns false when requests use all further sessions. p.mu is held.
func (p *sessionPool) evictFurther(found *foundSession) bool {
	i := slices.IndexFunc(p.sessions, func(s *pooledSession) bool {
		return s.isFurther && s.users == 0
	})
	if i < 0 {
		return false
	}
	found.evicted = append(found.evicted, p.sessions[i])
	p.sessions = slices.Delete(p.sessions, i, i+1)
	return true
}

// begin adds a session and starts its handshake. isFurther means that the pool already has a
// session with the same capabilities. p.mu is held.
func (p *sessionPool) begin(r *sessionRequest, isFurther bool) (*pooledSession, error) {
	name := p.native.Name()
	initialize, err := initializeRequest(r.message, r.capabilities, p.opts.Version)
	if err != nil {
		return nil, unavailable(name, "initialize could not be built from the client's request",
			err)
	}
	_, hasRoots := mcp.NewResponse("", r.capabilities).Get("/roots")
	s := &pooledSession{key: r.key, name: name, hasRoots: hasRoots, log: p.opts.Log, feed: p.feed,
		shared: p.clientOptions.Shared, isFurther: isFurther, questions: &p.questions,
		maxInputRequests: p.opts.InputRequests, goroutines: p.goroutines,
		opened: make(chan struct{}), stateLock: make(chan struct{}, 1),
		callAdded: make(chan struct{}), subscriberCounts: map[string]int{},
		subscribers: map[*subscriber]struct{}{}}
	o := p.clientOptions
	if o.HasStream != nil { // the client's stream is a subscription, which uses the session
		o.HasStream = func() bool { return p.isUsed(s) }
	}
	s.server = p.native.OpenLegacy(o, s)
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

// isUsed reports whether a request uses the session.
func (p *sessionPool) isUsed(s *pooledSession) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.users > 0
}

// finishOpen records how a handshake ended, and removes a session whose handshake failed.
func (p *sessionPool) finishOpen(s *pooledSession) {
	p.mu.Lock()
	retryAt := func(failures *int) time.Time {
		*failures++
		return time.Now().Add(backoff.Delay(firstHandshakeDelay, longestRetryDelay, *failures))
	}
	switch {
	case s.openErr == nil && s.isFurther:
		p.furtherFailures = 0
	case s.openErr == nil:
		p.failures, p.lastErr = 0, nil
	case s.isFurther:
		p.furtherRetryAt = retryAt(&p.furtherFailures)
	default:
		p.lastErr, p.lastKey, p.retryAt = s.openErr, s.key, retryAt(&p.failures)
	}
	if s.openErr != nil {
		p.sessions = slices.DeleteFunc(p.sessions, func(other *pooledSession) bool {
			return other == s
		})
		p.wake()
	}
	p.mu.Unlock()
	close(s.opened)
	if s.openErr != nil {
		s.server.CloseLater()
	}
}

// release records that a request no longer uses the session. The session is closed when no request
// has used it for a while.
func (p *sessionPool) release(s *pooledSession, isExclusive bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isExclusive {
		s.exclusive--
	}
	if s.users--; s.users == 0 {
		idle := pooledSessionIdle
		if s.isFurther {
			idle = furtherSessionIdle
		}
		s.idleTimer = time.AfterFunc(idle, func() { p.expire(s) })
	}
	p.wake()
}

// expire closes a session, unless a request uses it again.
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

// close closes all sessions, and waits until they are closed.
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
