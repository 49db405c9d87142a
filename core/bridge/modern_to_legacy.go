package bridge

import (
	"context"
	"errors"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
	"gatekit/core/upstream"
)

// modernToLegacy is the proxy.Server of one session of a modern client with a legacy server. A
// modern client describes itself in each request. A legacy server gets the description once, when a
// session of the pool begins.
type modernToLegacy struct {
	native        upstream.NativeSessions
	clientOptions proxy.OpenOptions // of the client's session
	pool          *sessionPool
	goroutines    *taskgroup.Group
	closeOnce     sync.Once

	mu     sync.Mutex
	modern upstream.ModernSession // nil unless the server has turned out to be modern
	closed bool
}

func newModernToLegacy(opts Options, native upstream.NativeSessions, o proxy.OpenOptions,
	feed proxy.Handler) *modernToLegacy {
	return &modernToLegacy{native: native, clientOptions: o, pool: newSessionPool(opts, native, o,
		feed),
		goroutines: taskgroup.New()}
}

// Call implements proxy.Server.
func (s *modernToLegacy) Call(ctx context.Context, p pipeline.Passed,
	h proxy.Handler) (*mcp.Message, error) {
	ctx, unbind := s.goroutines.Bind(ctx)
	defer unbind()
	m := p.Message()
	switch method, known := mcp.LookupMethod(m.Method); {
	case m.Method == "server/discover", m.Method == "subscriptions/listen":
	case !known, !method.ExistsIn(mcp.Rev20251125), method.Capability == "tasks":
		return methodNotFound(m), nil
	}
	session, release, err := s.pool.acquire(ctx, m)
	if err != nil {
		if modern := s.modernSession(); modern != nil && ctx.Err() == nil {
			return modern.Call(ctx, p, h)
		}
		return nil, err
	}
	defer release()
	switch m.Method {
	case "server/discover":
		answer, err := discoverResultForModern(m, session.initializeAnswer)
		if err != nil {
			return nil, untranslatable(s.native.Name(), err)
		}
		return toClient(answer), nil
	case "subscriptions/listen":
		return session.listen(ctx, m, h)
	}
	o, err := forLegacyServer(upstream.Forward(p))
	if err != nil {
		return nil, unavailable(s.native.Name(),
			"the request could not be translated to the server's revision", err)
	}
	if err := session.setLevel(ctx, m); err != nil {
		return nil, err
	}
	call := &inFlightCall{session: session, request: m, handler: h}
	return call.run(ctx, o)
}

// modernSession returns a modern session if the server has turned out to be modern, and otherwise
// nil. Some servers take longer to start than the probe waits for an answer. A server counts as a
// legacy server until it answers the probe.
func (s *modernToLegacy) modernSession() upstream.ModernSession {
	speaksModern := s.native.SpeaksModern()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.modern == nil && speaksModern && !s.closed {
		s.modern = s.native.OpenModern(s.clientOptions)
	}
	return s.modern
}

// Notify implements proxy.Server. It does nothing, since a modern client sends no notification that
// a legacy server needs. The end of a call's context cancels the call.
func (s *modernToLegacy) Notify(context.Context, pipeline.Passed) error { return nil }

// Close implements proxy.Server. It is safe to call twice.
func (s *modernToLegacy) Close() error {
	var err error
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.closed = true
		modern := s.modern
		s.mu.Unlock()
		s.goroutines.Cancel()
		err = s.pool.close()
		if modern != nil {
			err = errors.Join(err, modern.Close())
		}
		s.goroutines.Close()
	})
	return err
}
