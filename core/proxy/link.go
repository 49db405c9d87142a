package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"gatekit/core/mcp"
)

// link is one server as one session has it: opened when it is first needed, and greeted with the client's initialize where the client sent one.
type link struct {
	s    *Session
	gate chan struct{} // holds one token; taken while the server is being opened

	mu       sync.Mutex
	conf     Configured
	server   Server
	closed   bool
	greeted  bool         // it has answered initialize
	shown    bool         // ... in time to be part of what the client was answered
	readied  bool         // it has been told that the client is initialized
	fault    error        // why it could not be greeted
	declared *mcp.Message // its answer to initialize or server/discover; nil while none was seen
}

func newLink(s *Session, conf Configured) *link {
	return &link{s: s, conf: conf, gate: make(chan struct{}, 1)}
}

func (l *link) configure(conf Configured) {
	l.mu.Lock()
	l.conf = conf
	l.mu.Unlock()
}

// open answers the server, greeted or not.
func (l *link) open(ctx context.Context) (Server, error) {
	select {
	case l.gate <- struct{}{}:
		defer func() { <-l.gate }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	l.mu.Lock()
	server, closed, upstream := l.server, l.closed, l.conf.Upstream
	l.mu.Unlock()
	if closed {
		return nil, &Unavailable{Server: l.conf.Name, Reason: "it is being closed"}
	}
	if server != nil {
		return server, nil
	}
	server, err := upstream.Open(ctx, l.s.opening, &caller{s: l.s, l: l, client: l.s.feed})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	closed = l.closed
	if !closed {
		l.server = server
	}
	l.mu.Unlock()
	if closed {
		return nil, errors.Join(&Unavailable{Server: l.conf.Name, Reason: "it is being closed"}, server.Close())
	}
	return server, nil
}

// use answers the server when it is ready for the client's requests.
func (l *link) use(ctx context.Context) (Server, error) {
	l.s.mu.Lock()
	greets := l.s.hello != nil
	l.s.mu.Unlock()
	if greets {
		l.mu.Lock()
		greeted, fault := l.greeted, l.fault
		l.mu.Unlock()
		if !greeted {
			if fault == nil {
				fault = &Unavailable{Server: l.conf.Name, Reason: "it is still starting"}
			}
			return nil, fault
		}
	}
	return l.open(ctx)
}

// met notes how the server answered initialize or server/discover.
func (l *link) met(answer *mcp.Message, err error) {
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
	if revision, _ := declared.Text("/protocolVersion"); capability == "completions" && revision == mcp.Rev20241105 {
		return false // that revision has the method but no word for it
	}
	_, has := declared.Get("/capabilities/" + capability)
	if capability == "tasks" && !has { // an extension since 2026-07-28
		_, has = declared.Get("/capabilities/extensions/io.modelcontextprotocol~1tasks")
	}
	return !has
}

// catchUp sees to it that a server that failed or was slow when the client's initialize came is greeted, and then tells the client that lists changed.
func (l *link) catchUp(ctx context.Context) {
	late := false
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		l.s.mu.Lock()
		hello := l.s.hello
		l.s.mu.Unlock()
		l.mu.Lock()
		greeted, closed, shown := l.greeted, l.closed, l.shown
		unbridged := (*Unbridged)(nil)
		hopeless := errors.As(l.fault, &unbridged)
		l.mu.Unlock()
		switch {
		case hello == nil || closed || hopeless:
			return
		case greeted:
			l.getReady(ctx)
			if late || !shown {
				l.s.announce(ctx, l.conf.Name)
			}
			return
		}
		late = true
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		x := &exchange{s: l.s, c: l.s.proxy.settings.Load(), client: l.s.feed, m: hello}
		if _, err := x.hello(ctx, l); err != nil {
			x.c.Log.Debug("greet a server again", "server", l.conf.Name, "error", err)
		}
	}
}

// getReady passes the client's notifications/initialized on, once, when both it and the server's answer to initialize are there.
func (l *link) getReady(ctx context.Context) {
	l.s.mu.Lock()
	ready := l.s.ready
	l.s.mu.Unlock()
	l.mu.Lock()
	due := ready != nil && l.greeted && !l.readied
	if due {
		l.readied = true
	}
	l.mu.Unlock()
	if due {
		l.notify(ctx, ready)
	}
}

// notify judges a notification of the client for this server and passes it on.
func (l *link) notify(ctx context.Context, m *mcp.Message) {
	set := l.s.proxy.settings.Load()
	one := *m
	one.Server = l.conf.Name
	passed, err := set.Pipeline.Pass(ctx, &one)
	if err != nil {
		return // refused and recorded
	}
	server, err := l.use(ctx)
	if err == nil {
		err = server.Notify(ctx, passed)
	}
	if err != nil {
		set.Log.Warn("pass a notification on", "server", l.conf.Name, "method", m.Method, "error", err)
	}
}

func (l *link) close() error {
	l.mu.Lock()
	server := l.server
	l.closed, l.server = true, nil
	l.mu.Unlock()
	if server == nil {
		return nil
	}
	return server.Close()
}
