package proxy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

var errClosed = errors.New("the session is closed")

// Session is one client's view of the servers. It is safe for many goroutines.
type Session struct {
	proxy   *Proxy
	options OpenOptions // use principal instead of its Principal
	// the Principal of the latest request; its ID is that of options.Principal
	principal atomic.Pointer[identity.Principal]
	feed      Client // gets servers' messages outside of any call
	uriOwners uriOwners
	skills    skillTable
	// holds an element while a call asks the servers which of them owns a URI
	uriListing chan struct{}

	// context of the session's background work, which outlives every call; Close ends it. The
	// context is stored in a field because no caller's context lasts that long.
	backgroundContext context.Context
	endBackground     context.CancelCauseFunc
	wg                sync.WaitGroup // all goroutines of the session

	// guards the fields below; held for moments, never while waiting for a peer
	mu            sync.Mutex
	closed        bool
	exchanges     uint64                    // number of requests so far, for Message.Exchange
	calls         map[string]*Call          // in flight, by raw id
	servers       map[string]*sessionServer // by name
	subscriptions map[*subscription]struct{}
	// the client's initialize, for servers that are added later; nil if the client has sent none
	initialize  *mcp.Message
	initialized *mcp.Message // the client's notifications/initialized; nil until it is sent
	logLevel    string       // that the client set with logging/setLevel; "" if it set none
	// the client was told of all features before every server had answered; perhaps no server
	// has one of these features
	declaredAhead bool
	clientTasks   clientTasks // tasks that the client created for servers' requests
	clients       recordedClients
}

// Call is Begin and Run in one step, for a client that cancels only by ctx. `initialize` and
// `server/discover` are ordinary calls. A call of `subscriptions/listen` returns when the
// subscription ends. Several calls may run at once. A request with the id of a running call is
// refused.
func (s *Session) Call(ctx context.Context, m *mcp.Message, client Client) pipeline.Passed {
	return s.Begin(m, client).Run(ctx)
}

// Begin adds a request, as the client sent it, to the calls in flight and returns at once. If
// messages come in order, the caller must call Begin before it reads the next message, so that a
// notifications/cancelled finds the call. If the session does not accept the request, Begin returns
// a Call, too; the Run of that Call returns the error.
func (s *Session) Begin(m *mcp.Message, client Client) *Call {
	call := &Call{session: s, settings: s.proxy.settings.Load(), client: client}
	call.refused = s.enter(call, m)
	return call
}

// enter adds the call to the calls in flight. It returns an error if the session does not accept
// the call.
func (s *Session) enter(call *Call, m *mcp.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchanges++
	call.request = s.stampReceived(m, strconv.FormatUint(s.exchanges, 10))
	switch id := string(m.ID()); {
	case s.closed:
		return requestErrorf(mcp.CodeInternalError, "the session is closed")
	case s.proxy.stopping.Load():
		return errShuttingDown
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

// leave removes the call from the calls in flight.
func (s *Session) leave(call *Call) {
	s.mu.Lock()
	delete(s.calls, string(call.request.ID()))
	s.mu.Unlock()
	s.wg.Done()
}

// stamp returns a copy of m with direction, exchange, session and principal set. request is the
// client's request that m belongs to, or nil if m belongs to none.
func (s *Session) stamp(m *mcp.Message, to mcp.Direction, request *mcp.Message) *mcp.Message {
	c := *m
	c.Direction, c.Session = to, s.options.Session
	if request != nil {
		c.Exchange, c.Principal = request.Exchange, request.Principal
	} else {
		c.Exchange, c.Principal = "", s.principal.Load()
	}
	return &c
}

// stampReceived returns a copy of m, a message of the client, with direction, exchange, session and
// principal set. If m has a Principal with the ID of the session's principal, m keeps it, and later
// messages that belong to no request get it, too: it has the latest token of the user.
func (s *Session) stampReceived(m *mcp.Message, exchange string) *mcp.Message {
	c := *m
	c.Direction, c.Exchange, c.Session = mcp.ToServer, exchange, s.options.Session
	known := s.principal.Load()
	switch {
	case c.Principal == known:
	case c.Principal.ID() != known.ID():
		c.Principal = known
	default:
		s.principal.Store(c.Principal)
	}
	return &c
}

// Notify takes a notification as the client sent it, inspects and records it, and forwards it to
// its server or servers. A notifications/cancelled cancels the call with its requestId. If a
// notification is about a server's request, such as notifications/progress, the caller must have
// set m.Server. Only core/downstream knows this server.
func (s *Session) Notify(ctx context.Context, m *mcp.Message) {
	set := s.proxy.settings.Load()
	m = s.stampReceived(m, m.Exchange)
	meth, known := mcp.LookupMethod(m.Method)
	if meth.NamePointer != "" {
		m.Name, _ = m.Text(meth.NamePointer)
	}
	servers := s.serversInOrder(set)
	switch {
	case m.Method == "notifications/cancelled":
		s.cancelCall(ctx, set, m)
		return
	case known && (meth.Kind != mcp.Notification || meth.Direction == mcp.ToClient):
		s.recordDropped(ctx, set, m, "clients do not send this method")
		return
	case m.Method == "notifications/initialized":
		s.mu.Lock()
		again := s.initialized != nil
		if !again {
			s.initialized = m
		}
		s.mu.Unlock()
		if again {
			s.recordDropped(ctx, set, m, "sent before")
		}
		forEachServer(servers, func(srv *sessionServer) { srv.forwardInitialized(ctx) })
		return
	case m.Server == "" && !set.names.disabled && (meth.Route == mcp.RouteByTask ||
		meth.Route == mcp.RouteByExchange):
		if m.Server = s.clientTaskServer(m.Name); m.Server == "" {
			s.recordDropped(ctx, set, m, "belongs to no request of a server")
			return
		}
	}
	servers = slices.DeleteFunc(servers, func(srv *sessionServer) bool {
		return m.Server != "" && srv.name != m.Server || !known && !set.allowsVendorMethod(srv.name,
			m.Method)
	})
	if len(servers) == 0 {
		s.recordDropped(ctx, set, m, "no server accepts the method")
	}
	forEachServer(servers, func(srv *sessionServer) { srv.forwardNotification(ctx, m) })
}

// forEachServer calls f for all servers in parallel, so that no server waits for another server. It
// returns when all calls of f have returned, so that notifications keep their order.
func forEachServer(servers []*sessionServer, f func(*sessionServer)) {
	if len(servers) == 1 {
		f(servers[0])
		return
	}
	var wg sync.WaitGroup
	for _, srv := range servers {
		wg.Go(func() { f(srv) })
	}
	wg.Wait()
}

// cancelCall cancels the call that a notifications/cancelled is about.
func (s *Session) cancelCall(ctx context.Context, set *settings, m *mcp.Message) {
	id, _ := m.Get("/requestId")
	s.mu.Lock()
	call := s.calls[string(id)]
	s.mu.Unlock()
	if call == nil || call.request.Method == "initialize" {
		// not an error: the answer may have been sent before the notification came
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

// recordDropped inspects and records a message that is not forwarded, whatever the stages decide.
func (s *Session) recordDropped(ctx context.Context, set *settings, m *mcp.Message, why string) {
	_ = set.Pipeline.Consume(ctx, m, "drop", why) // a denial is recorded too
}

// serversInOrder returns the session's servers in the order of the configuration.
func (s *Session) serversInOrder(set *settings) []*sessionServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	servers := make([]*sessionServer, 0, len(set.Servers))
	for _, conf := range set.Servers {
		if srv := s.servers[conf.Name]; srv != nil {
			servers = append(servers, srv)
		}
	}
	return servers
}

// hasDeclaredAhead reports whether the client was told of all features before it was known which
// features the servers have.
func (s *Session) hasDeclaredAhead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.declaredAhead
}

// noteDeclaredAhead notes that the client is told of all features before it is known which features
// the servers have.
func (s *Session) noteDeclaredAhead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.declaredAhead = true
}

// server returns the session's server of that name, or nil.
func (s *Session) server(server string) *sessionServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[server]
}

// clientInitialize returns the client's initialize, or nil if it sent none.
func (s *Session) clientInitialize() *mcp.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.initialize
}

// setLogLevel applies the level of a logging/setLevel that is about to be sent to a server. The
// session's level falls at once, because the server may log before it answers. done reports the
// server's answer: the level rises if the server accepted it, and falls back if not.
func (s *Session) setLogLevel(level string) (done func(accepted bool)) {
	rank := mcp.LogLevelRank(level)
	if rank < 0 {
		return func(bool) {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.logLevel
	if rank < mcp.LogLevelRank(before) {
		s.logLevel = level
	}
	return func(accepted bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case accepted:
			s.logLevel = level
		case s.logLevel == level:
			s.logLevel = before
		}
	}
}

// updateServers replaces the session's servers by the servers of set. It returns the added servers
// and the removed servers.
func (s *Session) updateServers(set *settings) (added, removed []*sessionServer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil
	}
	for name, srv := range s.servers {
		if conf := set.byName[name]; conf == nil || conf.Upstream != srv.upstream {
			removed = append(removed, srv)
			delete(s.servers, name)
		}
	}
	for name, conf := range set.byName {
		if s.servers[name] == nil {
			s.servers[name] = newSessionServer(s, conf)
			added = append(added, s.servers[name])
		}
	}
	return added, removed
}

// apply puts a new configuration in force for the session.
func (s *Session) apply(set *settings) {
	added, removed := s.updateServers(set)
	for _, srv := range removed {
		s.uriOwners.removeServer(srv.name)
		s.skills.removeServer(srv.name)
		s.runInBackground(func(context.Context) {
			if err := srv.close(); err != nil {
				set.Log.Warn("removed server not closed", "server", srv.name, "error", err)
			}
		})
	}
	for _, srv := range added {
		s.runInBackground(srv.initializeLate)
		for _, sub := range s.openSubscriptions() {
			sub.addServer(srv)
		}
	}
	s.runInBackground(func(ctx context.Context) { s.announceListChanges(ctx, nil) })
}

// useNewCredentials notes that the credentials for a server have changed.
func (s *Session) useNewCredentials(server string) {
	s.mu.Lock()
	srv := s.servers[server]
	s.mu.Unlock()
	if srv != nil {
		srv.useNewCredentials()
	}
}

// openSubscriptions returns the open subscriptions.
func (s *Session) openSubscriptions() []*subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.subscriptions))
}

// announceListChanges notifies the client that the lists of srv may have changed, or the lists of
// all servers if srv is nil.
func (s *Session) announceListChanges(ctx context.Context, srv *sessionServer) {
	s.notifyListChanges(ctx, srv, s.notifyClient)
}

// notifyListChanges calls notify with a list_changed notification for each feature (tools, prompts,
// resources) that srv declared. If srv is nil, notifyListChanges does this for all three features.
func (s *Session) notifyListChanges(ctx context.Context, srv *sessionServer,
	notify func(context.Context, pipeline.Passed)) {
	for _, feature := range listFeatures {
		if srv == nil || !srv.lacksCapability(feature) {
			s.notifyListChange(ctx, srv, feature, notify)
		}
	}
}

// listFeatures are the features whose lists can change.
var listFeatures = []string{"tools", "prompts", "resources"}

// notifyListChange calls notify with the list_changed notification of one feature. srv may be nil.
func (s *Session) notifyListChange(ctx context.Context, srv *sessionServer, feature string,
	notify func(context.Context, pipeline.Passed)) {
	n := s.stamp(mcp.NewNotification("notifications/"+feature+"/list_changed", nil), mcp.ToClient,
		nil)
	if srv != nil {
		n.Server = srv.name
	}
	if passed := s.proxy.Pipeline().PassOwn(ctx, n); passed.Message() != nil {
		notify(ctx, passed)
	}
}

// notifyClient notifies the client outside of any call: on the session's feed, and on the
// subscriptions that want n.
func (s *Session) notifyClient(ctx context.Context, n pipeline.Passed) {
	if err := s.feed.Notify(ctx, n); err != nil {
		s.proxy.settings.Load().Log.Debug("client not notified", "method", n.Message().Method,
			"error", err)
	}
	for _, sub := range s.openSubscriptions() {
		sub.announce(ctx, n)
	}
}

// runInBackground runs f in a goroutine of the session. It reports false, and does not run f, when
// the session is closed.
func (s *Session) runInBackground(f func(context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		f(s.backgroundContext)
	}()
	return true
}

// isClosed reports whether Close was called.
func (s *Session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close cancels the calls in flight, closes the session's servers and waits for them. It may be
// called twice.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.wg.Wait()
		return nil
	}
	s.closed = true
	calls := slices.Collect(maps.Values(s.calls))
	servers := slices.Collect(maps.Values(s.servers))
	s.mu.Unlock()
	// before the servers are closed: otherwise the calls would be answered with an error
	for _, call := range calls {
		call.abandon()
	}
	s.endBackground(errClosed)
	err := closeAll(servers, (*sessionServer).close)
	s.wg.Wait()
	s.skills.clear()
	s.proxy.forget(s)
	return err
}
