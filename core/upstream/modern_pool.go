package upstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// idleFor is how long a shared connection is kept when no session has it.
const idleFor = 5 * time.Second

// pool holds the connections to a modern server: one for each principal, shared by its sessions.
type pool struct {
	up *Upstream

	mu     sync.Mutex
	shared map[string]*shared
	closed bool
}

// get answers the connection of a principal; put gives it back.
func (p *pool) get(principal string) *shared {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shared[principal]
	if s == nil {
		s = &shared{up: p.up, life: newLife()}
		if p.up.o.Dial.HTTP != nil {
			s.http = newModernHTTP(p.up)
		}
		if p.shared == nil {
			p.shared = make(map[string]*shared)
		}
		p.shared[principal] = s
	}
	s.refs++
	return s
}

func (p *pool) put(principal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shared[principal]
	if s.refs--; s.refs > 0 || p.closed {
		return
	}
	s.idle++
	idle := s.idle
	p.up.life.run(func(ctx context.Context) {
		select {
		case <-time.After(idleFor):
		case <-ctx.Done():
			return // close has it
		}
		p.mu.Lock()
		unused := s.refs == 0 && s.idle == idle && !p.closed
		if unused {
			delete(p.shared, principal)
		}
		p.mu.Unlock()
		if unused {
			p.up.drop(s)
		}
	})
}

func (p *pool) close() error {
	p.mu.Lock()
	p.closed = true
	all := p.shared
	p.shared = nil
	p.mu.Unlock()
	var errs []error
	for _, s := range all {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// shared is a modern server's connection for one principal: a process that is started when it is
// first needed, or HTTP.
type shared struct {
	up   *Upstream
	life *life
	refs int // guarded by the pool
	idle int // how often refs fell to zero; guarded by the pool

	http *modernHTTP // nil for a process

	mu      sync.Mutex
	closed  bool
	wire    *wire     // the process in use; nil before the first
	started time.Time // of the last that ran; zero when none did
	start   *start    // the one under way
	pace    pace
}

// start is one start of a process, waited for by all that need it.
type start struct {
	done chan struct{}
	wire *wire
	err  error
}

func (s *shared) call(ctx context.Context, o outgoing, c proxy.Handler,
	l *lane) (*mcp.Message, error) {
	if s.http != nil {
		return s.http.call(ctx, o, c)
	}
	w, err := s.process(ctx)
	switch {
	case err != nil:
		return nil, err
	case o.m.Method == "subscriptions/listen":
		return w.union.call(ctx, o, c, l)
	}
	return w.call(ctx, o, c, l)
}

func (s *shared) notify(ctx context.Context, o outgoing) error {
	if s.http != nil {
		return s.http.notify(ctx, o)
	}
	w, err := s.process(ctx)
	if err != nil {
		return err
	}
	return w.notify(ctx, o)
}

// process answers the running process, and starts one where there is none.
func (s *shared) process(ctx context.Context) (*wire, error) {
	s.mu.Lock()
	if s.wire != nil {
		select {
		case <-s.wire.gone:
			s.lose()
		default:
			defer s.mu.Unlock()
			return s.wire, nil
		}
	}
	st, err := s.starting()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-st.done:
		return st.wire, st.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// lose gives up a process that has ended. The caller holds mu.
func (s *shared) lose() {
	w := s.wire
	s.wire = nil
	s.pace.failed(time.Since(s.started))
	s.up.event("lost", w.fault) // before anything that is done about it
	s.life.run(func(context.Context) { s.up.drop(w) })
}

// starting answers the start under way, or begins one. The caller holds mu.
func (s *shared) starting() (*start, error) {
	if s.start != nil {
		return s.start, nil
	}
	again := !s.started.IsZero()
	if again && !s.up.o.Restart {
		return nil, unavailable(s.up.o.Name,
			"it has ended, and is configured not to be started again", nil)
	}
	due := s.pace.due(time.Now())
	if wait := time.Until(due); wait > patience {
		return nil, unavailable(s.up.o.Name, "it has ended too often; it will be started again in "+
			wait.Round(time.Second).String(), nil)
	}
	st := &start{done: make(chan struct{})}
	if !s.life.run(func(ctx context.Context) { s.run(ctx, st, due, again) }) {
		return nil, unavailable(s.up.o.Name, "it is being closed", errClosed)
	}
	s.start = st
	return st, nil
}

func (s *shared) run(ctx context.Context, st *start, due time.Time, again bool) {
	select {
	case <-time.After(time.Until(due)):
		within, cancel := context.WithTimeoutCause(ctx, s.up.o.StartTimeout,
			unavailable(s.up.o.Name, "it took too long to start", nil))
		st.wire, st.err = s.up.process(within, mcp.Modern)
		cancel()
	case <-ctx.Done():
		st.err = unavailable(s.up.o.Name, "it is being closed", errClosed)
	}
	if st.err == nil {
		st.wire.modern.Store(true)
		st.wire.attach(func(m *mcp.Message) { takeModern(st.wire, m) })
	}
	s.mu.Lock()
	closed := s.closed
	s.start = nil
	switch {
	case st.err != nil:
		s.pace.failed(0)
	case !closed:
		if again {
			s.up.event("restarted", nil) // before anybody calls it
		}
		s.wire, s.started = st.wire, time.Now()
	}
	if again {
		s.pace.started(time.Now())
	}
	s.mu.Unlock()
	if closed && st.wire != nil {
		s.up.drop(st.wire)
		st.wire, st.err = nil, unavailable(s.up.o.Name, "it is being closed", errClosed)
	}
	close(st.done)
}

// Close ends the process, or what HTTP has in flight.
func (s *shared) Close() error {
	s.mu.Lock()
	s.closed = true
	w := s.wire
	s.mu.Unlock()
	var err error
	if w != nil {
		err = w.Close()
	}
	s.life.end()
	return err
}
