package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// link is one server as one session has it: opened when it is first needed, and greeted with the
// client's initialize where the client sent one.
type link struct {
	s        *Session
	name     string
	upstream Upstream
	gate     chan struct{} // holds one token; taken while the server is being opened
	// closed when the server's first greeting came to an end, well or not, took longer than
	// greetWait, or will not be
	started chan struct{}
	start   func() // closes it

	mu      sync.Mutex
	server  Server
	closed  bool
	begun   bool // it has been sent initialize
	greeted bool // it has answered initialize
	shown   bool // ... in time to be part of what the client was answered
	// closed when it has been told that the client is initialized; nil before that begins
	readied  chan struct{}
	fault    error        // why it could not be greeted
	declared *mcp.Message // its answer to initialize or server/discover; nil while none was seen
}

func newLink(s *Session, conf *ServerConfig) *link {
	l := &link{s: s, name: conf.Name, upstream: conf.Upstream, gate: make(chan struct{}, 1),
		started: make(chan struct{})}
	l.start = sync.OnceFunc(func() { close(l.started) })
	return l
}

// unavailable is the error for what the server cannot be asked.
func (l *link) unavailable(reason string) *UnavailableError {
	return &UnavailableError{Server: l.name, Reason: reason}
}

// open answers the server, greeted or not.
func (l *link) open(ctx context.Context) (Server, error) {
	l.mu.Lock()
	server, closed := l.server, l.closed
	l.mu.Unlock()
	switch {
	case closed:
		return nil, l.unavailable("it is being closed")
	case server != nil:
		return server, nil
	}
	select {
	case l.gate <- struct{}{}:
		defer func() { <-l.gate }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	l.mu.Lock()
	server, closed = l.server, l.closed
	l.mu.Unlock()
	if server != nil || closed {
		return l.open(ctx) // another was faster
	}
	server, err := l.upstream.Open(ctx, l.s.opening, &caller{s: l.s, l: l, client: l.s.feed})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	if closed = l.closed; !closed {
		l.server = server
	}
	l.mu.Unlock()
	if closed {
		return nil, errors.Join(l.unavailable("it is being closed"), server.Close())
	}
	return server, nil
}

// use answers the server when it is ready for the client's requests: it waits while the server is
// being greeted for the first time, and told that the client is initialized.
func (l *link) use(ctx context.Context) (Server, error) {
	if l.s.greeting() != nil {
		select {
		case <-l.started:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		l.mu.Lock()
		greeted, fault, closed := l.greeted, l.fault, l.closed
		l.mu.Unlock()
		switch {
		case closed: // as open says
		case greeted:
			l.getReady(ctx)
		case fault != nil:
			return nil, fault
		default:
			return nil, l.unavailable("it is still starting")
		}
	}
	return l.open(ctx)
}

// greet notes that the server is being greeted.
func (l *link) greet() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.begun = true
		time.AfterFunc(greetWait, l.start)
	}
}

// met notes how the server answered initialize.
func (l *link) met(answer *mcp.Message, err error) {
	defer l.start()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.fault = err
		return
	}
	l.greeted, l.declared, l.fault = true, answer, nil
}

// show notes that the server's answer is part of what the client was told.
func (l *link) show(declared *mcp.Message) {
	l.mu.Lock()
	l.shown, l.declared = true, declared
	l.mu.Unlock()
}

// lacks says that the server is known not to have a capability.
func (l *link) lacks(capability string) bool {
	l.mu.Lock()
	declared := l.declared
	l.mu.Unlock()
	if capability == "" || declared == nil {
		return false
	}
	if _, has := declared.Get("/capabilities/" + capability); has {
		return false
	}
	switch capability {
	case "completions": // 2024-11-05 has the method but no word for it
		revision, _ := declared.Text("/protocolVersion")
		return revision != mcp.Rev20241105
	case "tasks": // an extension since 2026-07-28
		_, has := declared.Get("/capabilities/extensions/io.modelcontextprotocol~1tasks")
		return !has
	}
	return true
}

// owed is the client's initialize while the server is still to be greeted with it; nil when nothing
// is to be done, or nothing can be.
func (l *link) owed() *mcp.Message {
	hello := l.s.greeting()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.greeted || l.closed || errors.As(l.fault, new(*pipeline.DeniedError)) {
		return nil
	}
	return hello
}

// catchUp sees to it that a server that failed or was slow when the client's initialize came, or
// that came after it, is greeted, and then tells the client that lists changed.
func (l *link) catchUp(ctx context.Context) {
	l.mu.Lock()
	late, wait := false, time.Second
	if !l.begun {
		wait = 0
	}
	l.mu.Unlock()
	for ; l.owed() != nil; wait = min(max(2*wait, time.Second), 30*time.Second) {
		late = true
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		hello := l.owed()
		if hello == nil {
			break
		}
		x := &Call{s: l.s, c: l.s.proxy.settings.Load(), client: l.s.feed, m: hello}
		if _, err := x.hello(ctx, l); err != nil {
			x.c.Log.Debug("greet a server again", "server", l.name, "error", err)
		}
	}
	l.mu.Lock()
	greeted, shown := l.greeted, l.shown
	l.mu.Unlock()
	if !greeted || l.s.greeting() == nil {
		return
	}
	l.getReady(ctx)
	if late || !shown {
		l.s.announce(ctx, l)
	}
}

// getReady passes the client's notifications/initialized on, once, when both it and the server's
// answer to initialize are there. It returns when that is done, also by another.
func (l *link) getReady(ctx context.Context) {
	l.s.mu.Lock()
	ready := l.s.ready
	l.s.mu.Unlock()
	l.mu.Lock()
	done := l.readied
	due := ready != nil && l.greeted && done == nil
	if due {
		done = make(chan struct{})
		l.readied = done
	}
	l.mu.Unlock()
	switch {
	case due:
		l.notify(l.s.life, ready) // not in the time of whoever came first
		close(done)
	case done != nil:
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// notifyWait bounds the passing on of one notification: the client's next ones wait for it.
const notifyWait = 20 * time.Second

// notify judges a notification of the client for this server and passes it on.
func (l *link) notify(ctx context.Context, m *mcp.Message) {
	set := l.s.proxy.settings.Load()
	ctx, cancel := context.WithTimeout(ctx, notifyWait)
	defer cancel()
	one := *m
	one.Server = l.name
	err := l.pass(ctx, set, &one)
	if err != nil {
		set.Log.Warn("pass a notification on", "server", l.name, "method", m.Method, "error", err)
	}
}

func (l *link) pass(ctx context.Context, set *settings, m *mcp.Message) error {
	m, err := l.s.strip(set, m)
	if err != nil {
		return err
	}
	passed, err := set.Pipeline.Pass(ctx, m)
	if err != nil {
		return nil // refused and recorded
	}
	open := l.use
	if m.Method == "notifications/initialized" {
		open = l.open
	}
	server, err := open(ctx)
	if err != nil {
		return err
	}
	return server.Notify(ctx, passed)
}

// gone says that the link has been closed.
func (l *link) gone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *link) close() error {
	l.mu.Lock()
	server := l.server
	l.closed, l.server = true, nil
	l.mu.Unlock()
	l.start()
	if server == nil {
		return nil
	}
	return server.Close()
}
