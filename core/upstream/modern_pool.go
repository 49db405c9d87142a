package upstream

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
)

// idleTimeout is how long a shared connection is kept when no session uses it.
const idleTimeout = 5 * time.Second

// modernPool holds the connections to a modern server: one for each principal, shared by the
// principal's sessions.
type modernPool struct {
	connector *connector
	doubt     func() // called when the server does not behave like a modern server

	mu     sync.Mutex
	conns  map[string]*sharedConn // by principal
	closed bool
}

// acquire returns the connection of a principal. The caller gives the connection back with release.
// overPipe means that the client is on a pipe. Until such a client releases the connection, the
// process is not ended for lack of use.
func (p *modernPool) acquire(principal *identity.Principal, overPipe bool) *sharedConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.conns[principal.ID()]
	if s == nil {
		s = newSharedConn(p.connector, p.doubt, principal)
		if p.conns == nil {
			p.conns = make(map[string]*sharedConn)
		}
		p.conns[principal.ID()] = s
	}
	s.users++
	if overPipe {
		s.pipeUsers.Add(1)
	}
	return s
}

// release gives a connection back. After idleTimeout without users, the connection is closed.
func (p *modernPool) release(principal string, overPipe bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.conns[principal]
	if overPipe {
		s.pipeUsers.Add(-1)
	}
	if s.users--; s.users > 0 || p.closed {
		return
	}
	s.releases++
	releases := s.releases
	p.connector.goroutines.Go(func(ctx context.Context) {
		select {
		case <-time.After(idleTimeout):
		case <-ctx.Done():
			return // the pool's close closes the connection
		}
		p.mu.Lock()
		unused := s.users == 0 && s.releases == releases && !p.closed
		if unused {
			delete(p.conns, principal)
		}
		p.mu.Unlock()
		if unused {
			p.connector.discard(s)
		}
	})
}

// close closes all connections.
func (p *modernPool) close() error {
	p.mu.Lock()
	p.closed = true
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	var errs []error
	for _, s := range conns {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// sharedConn is one principal's connection to a modern server, over HTTP or to a process. The
// process is started when it is first needed. When it has ended, the next call starts it again.
type sharedConn struct {
	connector  *connector
	opts       *Options
	goroutines *taskgroup.Group
	principal  *identity.Principal
	releases   int          // how often the field users fell to zero; guarded by modernPool.mu
	users      int          // sessions that use the connection; guarded by modernPool.mu
	pipeUsers  atomic.Int32 // how many of these sessions have clients on pipes

	http *modernHTTP // nil for a process

	mu     sync.Mutex
	closed bool
	pipe   *modernPipe // the process in use; nil while there is no process
	// when the last process was started; zero if no process was started, or if the last process was
	// ended for lack of use
	startedAt time.Time
	lastFault error         // why the last process ended or did not start
	starting  *processStart // the start that is under way, or nil
	schedule  restartSchedule
	inUse     int       // requests and notifications under way
	lastUse   time.Time // when a request or notification ended last
	ended     bool      // the last process was ended because it was not used
}

// processStart is one start of a process. All calls that need the process wait for it.
type processStart struct {
	done chan struct{} // closed when the fields below are set
	pipe *modernPipe
	err  error
}

func newSharedConn(c *connector, doubt func(), principal *identity.Principal) *sharedConn {
	s := &sharedConn{connector: c, opts: c.opts, principal: principal, goroutines: taskgroup.New()}
	if c.opts.Dial.HTTP != nil {
		s.http = newModernHTTP(c.opts, principal, doubt)
	}
	return s
}

// isHTTP reports whether the server is reached over HTTP. Then each call has a stream of its own,
// and its session needs no queue.
func (s *sharedConn) isHTTP() bool { return s.http != nil }

// send writes a request and waits for its answer. h gets the messages that the server sends for the
// request. Messages of a process come through the queue q.
func (s *sharedConn) send(ctx context.Context, o Outgoing, h proxy.Handler,
	q *orderedQueue) (*mcp.Message, error) {
	if s.http != nil {
		return s.http.send(ctx, o, h)
	}
	s.beginUse()
	defer s.endUse()
	pipe, err := s.process(ctx)
	if err != nil {
		return nil, err
	}
	return pipe.send(ctx, o, h, q)
}

// notify writes a notification.
func (s *sharedConn) notify(ctx context.Context, o Outgoing) error {
	if s.http != nil {
		return s.http.notify(ctx, o)
	}
	s.beginUse()
	defer s.endUse()
	pipe, err := s.process(ctx)
	if err != nil {
		return err
	}
	return pipe.notify(ctx, o)
}

// process returns the running process, or starts a process.
func (s *sharedConn) process(ctx context.Context) (*modernPipe, error) {
	s.mu.Lock()
	if pipe := s.pipe; pipe != nil && pipe.lease.hasEnded() {
		s.mu.Unlock()
		s.endProcess(pipe, leaseReason, func() bool { return false })
		s.mu.Lock()
	}
	if s.pipe != nil {
		if !s.pipe.isGone() {
			defer s.mu.Unlock()
			return s.pipe, nil
		}
		s.lose()
	}
	starting, err := s.start()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-starting.done:
		return starting.pipe, starting.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// lose removes the process in use, which has ended. s.mu is held.
func (s *sharedConn) lose() {
	pipe := s.pipe
	s.pipe = nil
	s.schedule.failed(time.Since(s.startedAt))
	s.lastFault = pipe.fault
	s.opts.reportEvent("lost", pipe.fault) // before the process is started again
	s.goroutines.Go(func(context.Context) { s.connector.discard(pipe) })
}

// start returns the start that is under way, or begins a start. s.mu is held.
func (s *sharedConn) start() (*processStart, error) {
	if s.starting != nil {
		return s.starting, nil
	}
	isRestart := !s.startedAt.IsZero()
	if isRestart && !s.opts.Restart {
		return nil, unavailable(s.opts.Name,
			"the process has ended and is configured not to be restarted", s.lastFault)
	}
	due := s.schedule.next(time.Now())
	if wait := time.Until(due); wait > maxWaitForStart {
		return nil, unavailable(s.opts.Name, "the process has ended too often; next start in "+
			wait.Round(time.Second).String(), s.lastFault)
	}
	starting := &processStart{done: make(chan struct{})}
	if !s.goroutines.Go(func(ctx context.Context) { s.runStart(ctx, starting, due, isRestart) }) {
		return nil, closingError(s.opts.Name)
	}
	s.starting = starting
	return starting, nil
}

// runStart starts a process when it is due, and publishes the result.
func (s *sharedConn) runStart(ctx context.Context, starting *processStart, due time.Time,
	isRestart bool) {
	var conn *pipeConn
	select {
	case <-time.After(time.Until(due)):
		startCtx, cancel := s.opts.startContext(ctx)
		conn, starting.err = s.open(startCtx)
		cancel()
	case <-ctx.Done():
		starting.err = closingError(s.opts.Name)
	}
	if starting.err == nil {
		starting.pipe = newModernPipe(conn, s.principal)
	}
	s.mu.Lock()
	closed := s.closed
	s.starting = nil
	switch {
	case errors.As(starting.err, new(*CredentialsError)): // the user may log in at any time
		s.lastFault = starting.err
	case starting.err != nil:
		s.schedule.failed(0)
		s.lastFault = starting.err
	case !closed:
		switch { // the event is reported before any call uses the process
		case isRestart:
			s.opts.reportEvent("restarted", nil)
		case s.ended:
			s.opts.reportEvent("resumed", nil)
		}
		s.ended = false
		s.pipe, s.startedAt = starting.pipe, time.Now()
		s.goroutines.Go(func(ctx context.Context) { s.endWhenUnused(ctx, starting.pipe) })
	}
	if isRestart {
		s.schedule.started(time.Now())
	}
	s.mu.Unlock()
	if closed && starting.pipe != nil {
		s.connector.discard(starting.pipe)
		starting.pipe, starting.err = nil, closingError(s.opts.Name)
	}
	close(starting.done)
}

// Close ends the process. Over HTTP there is no process, and each session ends its own calls.
func (s *sharedConn) Close() error {
	s.mu.Lock()
	s.closed = true
	pipe := s.pipe
	s.mu.Unlock()
	var err error
	if pipe != nil {
		err = pipe.Close()
	}
	s.goroutines.Close()
	return err
}
