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
	proxy     *Proxy
	options   OpenOptions
	feed      Client
	uriOwners uriOwners

	backgroundContext context.Context // of what runs in the background for the session; ended by Close
	endBackground     context.CancelCauseFunc
	wg                sync.WaitGroup // all of the session's goroutines

	mu            sync.Mutex // guards what follows; held for moments, never while asking anybody
	closed        bool
	exchanges     uint64
	calls         map[string]*Call          // in flight, by raw id
	servers       map[string]*sessionServer // by server
	subscriptions map[*subscription]struct{}
	// the client's initialize, for servers that come later; nil for clients that send none
	initialize  *mcp.Message
	initialized *mcp.Message // its notifications/initialized
	clientTasks clientTasks  // tasks that the client made for servers' requests
	clients     recordedClients
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
	call := &Call{session: s, settings: s.proxy.settings.Load(), client: client}
	call.refused = s.enter(call, m)
	return call
}

// enter puts the call among those in flight. The error says why the session does not take it.
func (s *Session) enter(call *Call, m *mcp.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchanges++
	call.request = s.stamp(m, mcp.ToServer, strconv.FormatUint(s.exchanges, 10))
	switch id := string(m.ID()); {
	case s.closed:
		return requestErrorf(mcp.CodeInternalError, "the session is closed")
	case s.calls[id] != nil:
		return requestErrorf(mcp.CodeInvalidRequest, "a request with this id is in flight")
	case len(s.calls) >= call.settings.Limits.InFlight:
		return requestErrorf(mcp.CodeInternalError,
			"too many requests in flight: wait for an answer, then try again")
	default:
		s.calls[id] = call
		s.wg.Add(1)
		return nil
	}
}

// leave takes the call out of those in flight.
func (s *Session) leave(call *Call) {
	s.mu.Lock()
	delete(s.calls, string(call.request.ID()))
	s.mu.Unlock()
	s.wg.Done()
}

// stamp is m with what the session knows of it.
func (s *Session) stamp(m *mcp.Message, to mcp.Direction, exchange string) *mcp.Message {
	c := *m
	c.Direction, c.Exchange, c.Session, c.Principal = to, exchange, s.options.Session,
		s.options.Principal
	return &c
}

// Notify takes a notification as the client sent it: judges, records and hands it to the server or
// servers it is for. notifications/cancelled finds the call by its requestId and ends it. m.Server
// may be set by downstream where only it can tell (progress of a reverse request).
func (s *Session) Notify(ctx context.Context, m *mcp.Message) {
	set := s.proxy.settings.Load()
	m = s.stamp(m, mcp.ToServer, m.Exchange)
	meth, known := mcp.LookupMethod(m.Method)
	if meth.NamePointer != "" {
		m.Name, _ = m.Text(meth.NamePointer)
	}
	to := s.serversInOrder(set)
	switch {
	case m.Method == "notifications/cancelled":
		s.cancelCall(ctx, set, m)
		return
	case known && (meth.Kind != mcp.Notification || meth.Direction == mcp.ToClient):
		s.recordDropped(ctx, set, m, "clients do not send this")
		return
	case m.Method == "notifications/initialized":
		s.mu.Lock()
		again := s.initialized != nil
		if !again {
			s.initialized = m
		}
		s.mu.Unlock()
		if again {
			s.recordDropped(ctx, set, m, "it was sent before")
		}
		forEachServer(to, func(l *sessionServer) { l.forwardInitialized(ctx) })
		return
	case m.Server == "" && !set.names.disabled && (meth.Route == mcp.RouteByTask ||
		meth.Route == mcp.RouteByExchange):
		if m.Server = s.clientTaskServer(m.Name); m.Server == "" {
			s.recordDropped(ctx, set, m, "it belongs to nothing that a server asked for")
			return
		}
	}
	to = slices.DeleteFunc(to, func(l *sessionServer) bool {
		return m.Server != "" && l.name != m.Server || !known && !set.allowsVendorMethod(l.name, m.Method)
	})
	if len(to) == 0 {
		s.recordDropped(ctx, set, m, "no server takes this")
	}
	forEachServer(to, func(l *sessionServer) { l.forwardNotification(ctx, m) })
}

// forEachServer does f for all links at once, so that none waits for another, and returns when all is done,
// so that the next notification comes after.
func forEachServer(links []*sessionServer, f func(*sessionServer)) {
	if len(links) == 1 {
		f(links[0])
		return
	}
	var wg sync.WaitGroup
	for _, srv := range links {
		wg.Go(func() { f(srv) })
	}
	wg.Wait()
}

// cancelCall ends the call that a notifications/cancelled speaks of.
func (s *Session) cancelCall(ctx context.Context, set *settings, m *mcp.Message) {
	id, _ := m.Get("/requestId")
	s.mu.Lock()
	call := s.calls[string(id)]
	s.mu.Unlock()
	if call == nil || call.request.Method == "initialize" {
		// not an error: the answer may have overtaken it
		s.recordDropped(ctx, set, m, "no such call in flight")
		return
	}
	m.Exchange, m.Server = call.request.Exchange, call.askedServer()
	m, err := s.removePrefixes(set, m)
	if err != nil {
		return
	}
	if notice, err := set.Pipeline.Pass(ctx, m); err == nil {
		call.cancel(&CancelledError{notice})
	}
}

// recordDropped records a message that goes nowhere though nobody refused it.
func (s *Session) recordDropped(ctx context.Context, set *settings, m *mcp.Message, why string) {
	if err := set.Pipeline.RecordEvent(ctx, m, "drop", why, nil); err != nil {
		set.Log.Error("record a dropped message", "method", m.Method, "error", err)
	}
}

// serversInOrder are the session's links in the order of the configuration.
func (s *Session) serversInOrder(set *settings) []*sessionServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	links := make([]*sessionServer, 0, len(set.Servers))
	for _, conf := range set.Servers {
		if srv := s.servers[conf.Name]; srv != nil {
			links = append(links, srv)
		}
	}
	return links
}

// server is the session's link to a server, nil when there is none.
func (s *Session) server(server string) *sessionServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[server]
}

// clientInitialize is the client's initialize, nil where it sent none.
func (s *Session) clientInitialize() *mcp.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.initialize
}

// updateServers makes links for the servers of c and answers those that are new and those that c has no
// place for.
func (s *Session) updateServers(set *settings) (fresh, stale []*sessionServer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil
	}
	for name, l := range s.servers {
		if conf := set.byName[name]; conf == nil || conf.Upstream != l.upstream {
			stale = append(stale, l)
			delete(s.servers, name)
		}
	}
	for name, conf := range set.byName {
		if s.servers[name] == nil {
			s.servers[name] = newSessionServer(s, conf)
			fresh = append(fresh, s.servers[name])
		}
	}
	return fresh, stale
}

// apply puts a new configuration in force for the session.
func (s *Session) apply(set *settings) {
	fresh, stale := s.updateServers(set)
	for _, srv := range stale {
		s.uriOwners.removeServer(srv.name)
		s.runInBackground(func(context.Context) {
			if err := srv.close(); err != nil {
				set.Log.Warn("close a server that is configured no more", "server", srv.name,
					"error", err)
			}
		})
	}
	for _, srv := range fresh {
		s.runInBackground(srv.initializeLate)
		for _, open := range s.openSubscriptions() {
			open.addServer(srv)
		}
	}
	s.runInBackground(func(ctx context.Context) { s.announceListChanges(ctx, nil) })
}

// openSubscriptions are those that are open.
func (s *Session) openSubscriptions() []*subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.subscriptions))
}

// announceListChanges tells the client that lists may have changed: those of one server, or, with nil, of all.
func (s *Session) announceListChanges(ctx context.Context, srv *sessionServer) {
	s.notifyListChanges(ctx, srv, s.notifyClient)
}

// notifyListChanges makes the notifications that lists may have changed: those of one server, by what it
// declared, or, with nil, of all.
func (s *Session) notifyListChanges(ctx context.Context, srv *sessionServer, tell func(context.Context,
	pipeline.Passed)) {
	for _, feature := range []string{"tools", "prompts", "resources"} {
		n := s.stamp(mcp.NewNotification("notifications/"+feature+"/list_changed", nil),
			mcp.ToClient, "")
		if srv != nil {
			if srv.lacksCapability(feature) {
				continue
			}
			n.Server = srv.name
		}
		if passed := s.proxy.Pipeline().PassOwn(ctx, n); passed.Message() != nil {
			tell(ctx, passed)
		}
	}
}

// notifyClient hands the client a notification outside of any call: on its feed, and on the subscriptions
// that asked for it.
func (s *Session) notifyClient(ctx context.Context, n pipeline.Passed) {
	if err := s.feed.Notify(ctx, n); err != nil {
		s.proxy.settings.Load().Log.Debug("notify the client", "method", n.Message().Method,
			"error", err)
	}
	for _, l := range s.openSubscriptions() {
		l.announce(ctx, n)
	}
}

// runInBackground runs f for the session, unless it is closed.
func (s *Session) runInBackground(f func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		f(s.backgroundContext)
	}()
}

// isClosed says that the session is closed, or is being.
func (s *Session) isClosed() bool {
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
	links := slices.Collect(maps.Values(s.servers))
	s.mu.Unlock()
	for _, call := range calls { // first, so that none answers that it failed because of the end
		call.abandon()
	}
	s.endBackground(errClosed)
	err := closeAll(links, (*sessionServer).close)
	s.wg.Wait()
	s.proxy.forget(s)
	return err
}
