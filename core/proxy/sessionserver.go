package proxy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"gatekit/core/backoff"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// sessionServer is one server of one session. It is opened when it is first needed, and gets the
// client's initialize if the client sent one.
type sessionServer struct {
	session   *Session
	name      string
	upstream  Upstream
	openToken chan struct{} // of capacity 1: full while the server is being opened
	// closed when the wait for the first initialize is over: initialize was answered, failed or
	// will not be sent, or initializeWait has passed
	firstAttemptEnded chan struct{}
	endFirstAttempt   func()        // closes firstAttemptEnded; may be called more than once
	retryNow          chan struct{} // of capacity 1: full if initializeLate must not wait

	mu     sync.Mutex  // guards the fields below
	server Server      // nil until the server is open
	state  serverState // after close, its phase is phaseClosed
	// the server's result of initialize or server/discover; nil until the server has answered
	serverInfo *mcp.Message
	// whether the result of initialize or server/discover that the client got includes serverInfo
	shownToClient bool
	// URIs (without prefix) of the resources that the client subscribed to with resources/subscribe
	subscribed map[string]bool
	// closed when the server has got the client's notifications/initialized; nil until this
	// notification is being sent
	initializedSent chan struct{}
	// methods of the lists that the server is still asked for in the background
	lateLists map[string]bool
	seen      seenLists
	// the login that the client was told of with an error; nil if none is under way
	elicitation *urlElicitation
	// closed when initialize has been repeated with new credentials; nil if it need not be
	reopened         chan struct{}
	connectToolOwner toolOwner
}

func newSessionServer(s *Session, conf *ServerConfig) *sessionServer {
	srv := &sessionServer{session: s, name: conf.Name, upstream: conf.Upstream,
		openToken: make(chan struct{}, 1), firstAttemptEnded: make(chan struct{}),
		retryNow: make(chan struct{}, 1), seen: seenLists{asking: make(chan struct{}, 1)}}
	srv.endFirstAttempt = sync.OnceFunc(func() { close(srv.firstAttemptEnded) })
	return srv
}

// unavailable returns the error for a request that the server cannot answer.
func (srv *sessionServer) unavailable(reason string) *UnavailableError {
	return &UnavailableError{Server: srv.name, Reason: reason}
}

// open returns the server, initialized or not. It opens the server if needed.
func (srv *sessionServer) open(ctx context.Context) (Server, error) {
	server, closed := srv.current()
	switch {
	case closed:
		return nil, srv.unavailable("it is being closed")
	case server != nil:
		return server, nil
	}
	select {
	case srv.openToken <- struct{}{}:
		defer func() { <-srv.openToken }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if server, closed = srv.current(); server != nil || closed {
		return srv.open(ctx) // another goroutine was faster
	}
	o := srv.session.options
	o.Principal = srv.session.principal.Load()
	server, err := srv.upstream.Open(ctx, o,
		&serverHandler{session: srv.session, server: srv, client: srv.session.feed})
	if err != nil {
		return nil, err
	}
	srv.mu.Lock()
	if closed = srv.state.phase == phaseClosed; !closed {
		srv.server = server
	}
	srv.mu.Unlock()
	if closed {
		return nil, errors.Join(srv.unavailable("it is being closed"), server.Close())
	}
	return server, nil
}

// current returns the open server, or nil when there is none. closed reports whether srv is closed.
func (srv *sessionServer) current() (server Server, closed bool) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return srv.server, srv.state.phase == phaseClosed
}

// openInitialized waits until the server can take the client's requests, and returns the server. It
// waits for the end of the first initialize. If the client has sent notifications/initialized,
// openInitialized also waits until the server has got that notification.
func (srv *sessionServer) openInitialized(ctx context.Context) (Server, error) {
	if srv.session.clientInitialize() == nil {
		return srv.open(ctx)
	}
	select {
	case <-srv.firstAttemptEnded:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	srv.mu.Lock()
	state, reopened := srv.state, srv.reopened
	srv.mu.Unlock()
	if reopened != nil {
		timeout := time.NewTimer(initializeWait)
		defer timeout.Stop()
		select {
		case <-reopened:
		case <-timeout.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		srv.mu.Lock()
		state = srv.state
		srv.mu.Unlock()
	}
	switch state.phase {
	case phaseUninitialized, phaseInitializing:
		return nil, srv.unavailable("it is still starting")
	case phaseFailed:
		return nil, state.failure
	case phaseInitialized:
		srv.forwardInitialized(ctx)
	case phaseClosed: // open returns the error
	}
	return srv.open(ctx)
}

// noteInitializeSent notes that the client's initialize is being sent.
func (srv *sessionServer) noteInitializeSent() {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.state.sendInitialize() {
		time.AfterFunc(initializeWait, srv.endFirstAttempt)
	}
}

// noteInitializeAnswer notes the server's answer to initialize, or the error.
func (srv *sessionServer) noteInitializeAnswer(answer *mcp.Message, err error) {
	defer srv.endFirstAttempt()
	srv.mu.Lock()
	defer srv.mu.Unlock()
	// If the credentials have changed during the attempt, another one follows at once.
	if srv.reopened != nil && (err == nil || len(srv.retryNow) == 0) {
		close(srv.reopened)
		srv.reopened = nil
	}
	if err != nil {
		srv.state.fail(err)
		return
	}
	srv.state.succeed()
	srv.serverInfo = answer
}

// noteShownToClient notes that the client's result of initialize or server/discover includes info,
// which is the server's own result.
func (srv *sessionServer) noteShownToClient(info *mcp.Message) {
	srv.mu.Lock()
	srv.shownToClient, srv.serverInfo = true, info
	srv.mu.Unlock()
}

// lacksCapability reports whether the server is known to lack a capability. An extension is named
// by a path: "extensions/name".
func (srv *sessionServer) lacksCapability(capability string) bool {
	srv.mu.Lock()
	info := srv.serverInfo
	srv.mu.Unlock()
	if capability == "" || info == nil {
		return false
	}
	if extension, ok := strings.CutPrefix(capability, "extensions/"); ok {
		_, has := info.Get("/capabilities/extensions/" + mcp.EscapePointer(extension))
		return !has
	}
	if _, has := info.Get("/capabilities/" + capability); has {
		return false
	}
	switch capability {
	case "completions": // 2024-11-05 has the method, but no capability for it
		revision, _ := info.Text("/protocolVersion")
		return revision != mcp.Rev20241105
	case "tasks": // an extension since 2026-07-28
		_, has := info.Get("/capabilities/extensions/io.modelcontextprotocol~1tasks")
		return !has
	}
	return true
}

// beginLateAnswer notes that the server is still asked for a list in the background. Until
// endLateAnswer is called, later requests do not ask the server for that list.
func (srv *sessionServer) beginLateAnswer(method string) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.lateLists == nil {
		srv.lateLists = map[string]bool{}
	}
	srv.lateLists[method] = true
}

func (srv *sessionServer) endLateAnswer(method string) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	delete(srv.lateLists, method)
}

// isAnsweringLate reports whether the server is still asked for a list in the background.
func (srv *sessionServer) isAnsweringLate(method string) bool {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return srv.lateLists[method]
}

// isStartingLate reports whether the server has not answered initialize yet, although the client's
// initialize has already been answered without this server.
func (srv *sessionServer) isStartingLate() bool {
	if srv.session.clientInitialize() == nil {
		return false
	}
	srv.mu.Lock()
	phase := srv.state.phase
	srv.mu.Unlock()
	return phase == phaseInitializing && srv.session.proxy.patience.isLate(
		patienceKey{srv.upstream, "initialize"})
}

// lacksMethod reports whether the server is known to lack the capability that a method needs.
func (srv *sessionServer) lacksMethod(meth mcp.Method) bool {
	if srv.lacksCapability(meth.Capability) {
		return true
	}
	srv.mu.Lock()
	info := srv.serverInfo
	srv.mu.Unlock()
	if meth.Name != "resources/directory/read" || info == nil {
		return false
	}
	raw, _ := info.Get("/capabilities/extensions/" + mcp.EscapePointer(mcp.SkillsExtension))
	return !readsDirectories(raw)
}

// hasSkills reports whether the server is known to have skills.
func (srv *sessionServer) hasSkills() bool {
	srv.mu.Lock()
	known := srv.serverInfo != nil
	srv.mu.Unlock()
	return known && !srv.lacksCapability("extensions/"+mcp.SkillsExtension)
}

// pendingInitialize returns the client's initialize if it must still be sent to the server. It
// returns nil if the server has answered initialize with a result, if the server is closed, or if a
// stage denied initialize. After a temporary denial, such as that of a stage without a verdict,
// initialize is repeated.
func (srv *sessionServer) pendingInitialize() *mcp.Message {
	initialize := srv.session.clientInitialize()
	srv.mu.Lock()
	defer srv.mu.Unlock()
	switch srv.state.phase {
	case phaseInitialized, phaseClosed:
		return nil
	case phaseFailed:
		var denied *pipeline.DeniedError
		if errors.As(srv.state.failure, &denied) && !denied.IsTemporary() {
			return nil
		}
	}
	return initialize
}

// initializeLate sends the client's initialize to a server that is new, has failed or was slow. It
// repeats this until the server answers with a result. Then it notifies the client that lists
// changed, unless the client already knows the server's lists.
func (srv *sessionServer) initializeLate(ctx context.Context) {
	late, failures := false, 0
	srv.mu.Lock()
	if srv.state.phase != phaseUninitialized {
		failures = 1
	}
	srv.mu.Unlock()
	for ; srv.pendingInitialize() != nil; failures++ {
		late = true
		select {
		case <-time.After(retryDelay(failures)):
		case <-srv.retryNow:
		case <-ctx.Done():
			return
		}
		initialize := srv.pendingInitialize()
		if initialize == nil {
			break
		}
		if err := srv.closeDenied(); err != nil {
			srv.session.proxy.settings.Load().Log.Debug("closing a server failed", "server",
				srv.name, "error", err)
		}
		call := &Call{session: srv.session, settings: srv.session.proxy.settings.Load(),
			client: srv.session.feed, request: initialize}
		if _, err := call.initializeServer(ctx, srv); err != nil {
			call.settings.Log.Debug("initialize failed again", "server", srv.name, "error", err)
		}
	}
	srv.mu.Lock()
	initialized, shown := srv.state.phase == phaseInitialized, srv.shownToClient
	srv.mu.Unlock()
	if !initialized || srv.session.clientInitialize() == nil {
		return
	}
	srv.forwardInitialized(ctx)
	if late || !shown {
		srv.session.announceListChanges(ctx, srv)
	}
}

// closeDenied closes the server for this session if its answer to initialize was denied. The server
// itself is initialized then, and may refuse another initialize. The next attempt opens it anew.
func (srv *sessionServer) closeDenied() error {
	srv.mu.Lock()
	server := srv.server
	var denied *pipeline.DeniedError
	isDenied := server != nil && errors.As(srv.state.failure, &denied) && denied.Message != nil &&
		denied.Message.Direction == mcp.ToClient
	if isDenied {
		srv.server = nil
	}
	srv.mu.Unlock()
	if !isDenied {
		return nil
	}
	return server.Close()
}

// useNewCredentials notes that the server may now accept or refuse requests that it treated
// differently before. A failed initialize is repeated at once, and calls wait for the new attempt.
// Otherwise the client is notified that lists changed. useNewCredentials does not wait.
func (srv *sessionServer) useNewCredentials() {
	if srv.pendingInitialize() == nil {
		srv.session.runInBackground(func(ctx context.Context) {
			srv.session.announceListChanges(ctx, srv)
		})
		return
	}
	srv.mu.Lock()
	defer srv.mu.Unlock()
	select {
	case srv.retryNow <- struct{}{}:
	default:
	}
	if srv.reopened == nil && srv.state.phase != phaseUninitialized {
		srv.reopened = make(chan struct{})
	}
}

// forwardInitialized forwards the client's notifications/initialized to the server, once. It does
// nothing until the client has sent the notification and the server has answered initialize. It
// returns when the server has the notification, or when ctx ends while another goroutine forwards
// the notification.
func (srv *sessionServer) forwardInitialized(ctx context.Context) {
	srv.session.mu.Lock()
	notification := srv.session.initialized
	srv.session.mu.Unlock()
	srv.mu.Lock()
	sent := srv.initializedSent
	due := notification != nil && srv.state.phase == phaseInitialized && sent == nil
	if due {
		sent = make(chan struct{})
		srv.initializedSent = sent
	}
	srv.mu.Unlock()
	switch {
	case due:
		// ctx belongs to one call, and other calls wait for this notification, too. So the
		// notification is not forwarded with ctx.
		srv.forwardNotification(srv.session.backgroundContext, notification)
		close(sent)
	case sent != nil:
		select {
		case <-sent:
		case <-ctx.Done():
		}
	}
}

// notifyWait limits the time to forward one notification. The client's next notifications wait
// during that time.
const notifyWait = 20 * time.Second

// forwardNotification inspects a notification of the client for this server and forwards it.
func (srv *sessionServer) forwardNotification(ctx context.Context, m *mcp.Message) {
	set := srv.session.proxy.settings.Load()
	ctx, cancel := context.WithTimeout(ctx, notifyWait)
	defer cancel()
	own := *m
	own.Server = srv.name
	if err := srv.passNotification(ctx, set, &own); err != nil {
		set.Log.Warn("notification not forwarded", "server", srv.name, "method", m.Method,
			"error", err)
	}
}

func (srv *sessionServer) passNotification(ctx context.Context, set *settings,
	m *mcp.Message) error {
	m, err := srv.session.removePrefixes(set, m)
	if err != nil {
		return err
	}
	passed, err := set.Pipeline.Pass(ctx, m)
	if err != nil {
		return nil // denied and recorded
	}
	open := srv.openInitialized
	if m.Method == "notifications/initialized" {
		open = srv.open
	}
	server, err := open(ctx)
	if err != nil {
		return err
	}
	return server.Notify(ctx, passed)
}

// subscribe notes that the client subscribes to a resource. It returns an error if the client has
// too many subscriptions. The limit is needed because Gatekit repeats all subscriptions when the
// server restarts.
func (srv *sessionServer) subscribe(uri string) error {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if !srv.subscribed[uri] && len(srv.subscribed) >= maxSubscribedItems {
		return requestErrorf(mcp.CodeInternalError,
			"more than %d subscriptions: unsubscribe from some first", maxSubscribedItems)
	}
	if srv.subscribed == nil {
		srv.subscribed = map[string]bool{}
	}
	srv.subscribed[uri] = true
	return nil
}

func (srv *sessionServer) unsubscribe(uri string) {
	srv.mu.Lock()
	delete(srv.subscribed, uri)
	srv.mu.Unlock()
}

// isSubscribed reports whether the client has subscribed to a resource. A subscription to a URI
// includes all URIs that begin with that URI.
func (srv *sessionServer) isSubscribed(uri string) bool {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.subscribed[uri] {
		return true
	}
	for subscribed := range srv.subscribed {
		if strings.HasPrefix(uri, subscribed) {
			return true
		}
	}
	return false
}

// isClosed reports whether close was called.
func (srv *sessionServer) isClosed() bool {
	_, closed := srv.current()
	return closed
}

// close closes the server for this session. Its calls in flight fail.
func (srv *sessionServer) close() error {
	srv.mu.Lock()
	server := srv.server
	srv.server = nil
	srv.state.close()
	if srv.reopened != nil {
		close(srv.reopened)
		srv.reopened = nil
	}
	srv.mu.Unlock()
	srv.endFirstAttempt()
	if server == nil {
		return nil
	}
	return server.Close()
}

// retryDelay returns the time before the next attempt at a server: 0 before the first attempt, then
// 1 s, doubled after each failure up to 30 s.
func retryDelay(failures int) time.Duration {
	return backoff.Delay(time.Second, 30*time.Second, failures)
}
