package proxy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

var errClosed = errors.New("the session is closed")

// Session is one client's view of the servers. It is safe for many goroutines.
type Session struct {
	proxy   *Proxy
	opening OpenOptions
	feed    Client
	owners  owners

	life context.Context // of what runs in the background for the session; ended by Close
	end  context.CancelCauseFunc
	wg   sync.WaitGroup // all of the session's goroutines

	mu      sync.Mutex // guards what follows; held for moments, never while asking anybody
	closed  bool
	counter uint64
	calls   map[string]*Call // in flight, by raw id
	links   map[string]*link // by server
	listens map[*listen]struct{}
	// the client's initialize, for servers that come later; nil for clients that send none
	hello   *mcp.Message
	ready   *mcp.Message // its notifications/initialized
	minted  minted       // tasks that the client made for servers' requests
	clients introduced
}

// Call is Begin and Run in one step, for a client whose cancellations all come by ctx. `initialize`
// and `server/discover` are calls like others. So is subscriptions/listen, which returns when the
// subscription ends. Several calls run at once; two with one id are refused.
func (s *Session) Call(ctx context.Context, m *mcp.Message, client Client) pipeline.Passed {
	return s.Begin(m, client).Run(ctx)
}

// Begin enters a request, as the client sent it, among the calls in flight and returns at once. A
// client whose messages come in one order needs this: a notifications/cancelled that comes next
// finds the call. A request that the session does not take becomes a Call, too, whose Run returns
// the refusal.
func (s *Session) Begin(m *mcp.Message, client Client) *Call {
	x := &Call{s: s, c: s.proxy.settings.Load(), client: client}
	x.refused = s.enter(x, m)
	return x
}

// enter puts the call among those in flight. The error says why the session does not take it.
func (s *Session) enter(x *Call, m *mcp.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counter++
	x.m = s.stamp(m, mcp.ToServer, strconv.FormatUint(s.counter, 10))
	switch id := string(m.ID()); {
	case s.closed:
		return failure(mcp.CodeInternalError, "the session is closed")
	case s.calls[id] != nil:
		return failure(mcp.CodeInvalidRequest, "a request with this id is in flight")
	case len(s.calls) >= x.c.Limits.InFlight:
		return failure(mcp.CodeInternalError,
			"too many requests in flight: wait for an answer, then try again")
	default:
		s.calls[id] = x
		s.wg.Add(1)
		return nil
	}
}

// finish takes the call out of those in flight.
func (s *Session) finish(x *Call) {
	s.mu.Lock()
	delete(s.calls, string(x.m.ID()))
	s.mu.Unlock()
	s.wg.Done()
}

// stamp is m with what the session knows of it.
func (s *Session) stamp(m *mcp.Message, to mcp.Direction, exchange string) *mcp.Message {
	c := *m
	c.Direction, c.Exchange, c.Session, c.Principal = to, exchange, s.opening.Session,
		s.opening.Principal
	return &c
}

// Notify takes a notification as the client sent it: judges, records and hands it to the server or
// servers it is for. notifications/cancelled finds the call by its requestId and ends it. m.Server
// may be set by downstream where only it can tell (progress of a reverse request).
func (s *Session) Notify(ctx context.Context, m *mcp.Message) {
	c := s.proxy.settings.Load()
	m = s.stamp(m, mcp.ToServer, m.Exchange)
	meth, known := mcp.LookupMethod(m.Method)
	if meth.NamePointer != "" {
		m.Name, _ = m.Text(meth.NamePointer)
	}
	to := s.ordered(c)
	switch {
	case m.Method == "notifications/cancelled":
		s.cancel(ctx, c, m)
		return
	case known && (meth.Kind != mcp.Notification || meth.Direction == mcp.ToClient):
		s.drop(ctx, c, m, "clients do not send this")
		return
	case m.Method == "notifications/initialized":
		s.mu.Lock()
		again := s.ready != nil
		if !again {
			s.ready = m
		}
		s.mu.Unlock()
		if again {
			s.drop(ctx, c, m, "it was sent before")
		}
		each(to, func(l *link) { l.getReady(ctx) })
		return
	case m.Server == "" && !c.names.bare && (meth.Route == mcp.RouteByTask ||
		meth.Route == mcp.RouteByExchange):
		if m.Server = s.minter(m.Name); m.Server == "" {
			s.drop(ctx, c, m, "it belongs to nothing that a server asked for")
			return
		}
	}
	to = slices.DeleteFunc(to, func(l *link) bool {
		return m.Server != "" && l.name != m.Server || !known && !c.passes(l.name, m.Method)
	})
	if len(to) == 0 {
		s.drop(ctx, c, m, "no server takes this")
	}
	each(to, func(l *link) { l.notify(ctx, m) })
}

// each does f for all links at once, so that none waits for another, and returns when all is done,
// so that the next notification comes after.
func each(links []*link, f func(*link)) {
	if len(links) == 1 {
		f(links[0])
		return
	}
	var wg sync.WaitGroup
	for _, l := range links {
		wg.Go(func() { f(l) })
	}
	wg.Wait()
}

// cancel ends the call that a notifications/cancelled speaks of.
func (s *Session) cancel(ctx context.Context, c *settings, m *mcp.Message) {
	id, _ := m.Get("/requestId")
	s.mu.Lock()
	x := s.calls[string(id)]
	s.mu.Unlock()
	if x == nil || x.m.Method == "initialize" {
		// not an error: the answer may have overtaken it
		s.drop(ctx, c, m, "no such call in flight")
		return
	}
	m.Exchange, m.Server = x.m.Exchange, x.server()
	m, err := s.strip(c, m)
	if err != nil {
		return
	}
	if notice, err := c.Pipeline.Pass(ctx, m); err == nil {
		x.cancel(&CancelledError{notice})
	}
}

// drop records a message that goes nowhere though nobody refused it.
func (s *Session) drop(ctx context.Context, c *settings, m *mcp.Message, why string) {
	if err := c.Pipeline.RecordEvent(ctx, m, "drop", why, nil); err != nil {
		c.Log.Error("record a dropped message", "method", m.Method, "error", err)
	}
}

// ordered are the session's links in the order of the configuration.
func (s *Session) ordered(c *settings) []*link {
	s.mu.Lock()
	defer s.mu.Unlock()
	links := make([]*link, 0, len(c.Servers))
	for _, conf := range c.Servers {
		if l := s.links[conf.Name]; l != nil {
			links = append(links, l)
		}
	}
	return links
}

// link is the session's link to a server, nil when there is none.
func (s *Session) link(server string) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links[server]
}

// greeting is the client's initialize, nil where it sent none.
func (s *Session) greeting() *mcp.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hello
}

// relink makes links for the servers of c and answers those that are new and those that c has no
// place for.
func (s *Session) relink(c *settings) (fresh, stale []*link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil
	}
	for name, l := range s.links {
		if conf := c.byName[name]; conf == nil || conf.Upstream != l.upstream {
			stale = append(stale, l)
			delete(s.links, name)
		}
	}
	for name, conf := range c.byName {
		if s.links[name] == nil {
			s.links[name] = newLink(s, conf)
			fresh = append(fresh, s.links[name])
		}
	}
	return fresh, stale
}

// apply puts a new configuration in force for the session.
func (s *Session) apply(c *settings) {
	fresh, stale := s.relink(c)
	for _, l := range stale {
		s.owners.forget(l.name)
		s.background(func(context.Context) {
			if err := l.close(); err != nil {
				c.Log.Warn("close a server that is configured no more", "server", l.name,
					"error", err)
			}
		})
	}
	for _, l := range fresh {
		s.background(l.catchUp)
		for _, open := range s.subscriptions() {
			open.follow(l)
		}
	}
	s.background(func(ctx context.Context) { s.announce(ctx, nil) })
}

// subscriptions are those that are open.
func (s *Session) subscriptions() []*listen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.listens))
}

// announce tells the client that lists may have changed: those of one server, or, with nil, of all.
func (s *Session) announce(ctx context.Context, of *link) { s.changed(ctx, of, s.tell) }

// changed makes the notifications that lists may have changed: those of one server, by what it
// declared, or, with nil, of all.
func (s *Session) changed(ctx context.Context, of *link, tell func(context.Context,
	pipeline.Passed)) {
	for _, feature := range []string{"tools", "prompts", "resources"} {
		n := s.stamp(mcp.NewNotification("notifications/"+feature+"/list_changed", nil),
			mcp.ToClient, "")
		if of != nil {
			if of.lacks(feature) {
				continue
			}
			n.Server = of.name
		}
		if passed := s.proxy.Pipeline().PassOwn(ctx, n); passed.Message() != nil {
			tell(ctx, passed)
		}
	}
}

// tell hands the client a notification outside of any call: on its feed, and on the subscriptions
// that asked for it.
func (s *Session) tell(ctx context.Context, n pipeline.Passed) {
	if err := s.feed.Notify(ctx, n); err != nil {
		s.proxy.settings.Load().Log.Debug("notify the client", "method", n.Message().Method,
			"error", err)
	}
	for _, l := range s.subscriptions() {
		l.announce(ctx, n)
	}
}

// background runs f for the session, unless it is closed.
func (s *Session) background(f func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		f(s.life)
	}()
}

// ending says that the session is closed, or is being.
func (s *Session) ending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close cancels what is in flight, closes the session's servers and waits for them. It is safe to
// call twice.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.wg.Wait()
		return nil
	}
	s.closed = true
	calls := slices.Collect(maps.Values(s.calls))
	links := slices.Collect(maps.Values(s.links))
	s.mu.Unlock()
	for _, x := range calls { // first, so that none answers that it failed because of the end
		x.abandon()
	}
	s.end(errClosed)
	err := closeAll(links, (*link).close)
	s.wg.Wait()
	s.proxy.forget(s)
	return err
}
