package proxy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Call is one request of the client and all that happens because of it. Session.Begin adds it to
// the calls in flight. After that, exactly one of Run, Discard and Withdraw must be called, once.
type Call struct {
	session  *Session
	settings *settings
	request  *mcp.Message // as the client sent it
	client   Client
	refused  error // why Begin refused the request; nil if the request was accepted
	// the request with its server's own names; nil before routing, and if several servers get the
	// request
	routed *mcp.Message
	// reports whether the client subscribed to a notification; nil unless the call is a
	// subscriptions/listen that is forwarded to a single server
	wants func(*mcp.Message) bool

	mu     sync.Mutex              // guards the fields below
	endRun context.CancelCauseFunc // ends the context of Run; nil before Run
	// the cause of the first cancellation; nil if the call was not cancelled
	cancelCause  error
	inspected    bool   // the stages have got the request
	lastAsked    string // name of the last server that was called; "" before the first
	askedSeveral bool   // more than one server was called

	// initialize is answered although some servers have not answered yet; false for all other
	// requests
	isPartialInitialize bool
	// initialize or server/discover is answered even if no server has answered, because the user
	// can log in to a server
	isForLogin bool
}

// Run serves the request and returns the answer for the client, under the request's id: a result,
// an error or a denial. When the call was cancelled, by ctx or by a notifications/cancelled, the
// answer is the zero Passed: the client gets no answer. When the call was cancelled before Run, no
// server gets the request.
func (call *Call) Run(ctx context.Context) pipeline.Passed {
	return call.withReceipt(call.run(ctx))
}

// run is Run without the receipt.
func (call *Call) run(ctx context.Context) (answer pipeline.Passed) {
	// The call has a context of its own: when the client's context ends, abandon must still notify
	// the server.
	clientContext := ctx
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	call.start(end)
	if call.settings.Observer != nil {
		var ended func(pipeline.Passed)
		if ctx, ended = call.settings.Observer.StartCall(WithValues(ctx, clientContext),
			call.request,
			call.session.options); ended != nil {
			defer func() { ended(answer) }()
		}
	}
	if call.refused != nil {
		return call.refuse(ctx, call.refused)
	}
	defer call.session.leave(call)
	if answer, ended := call.endedByGatekit(ctx); ended { // between Begin and Run
		return answer
	}
	if clientContext.Err() != nil || ctx.Err() != nil {
		call.session.recordDropped(ctx, call.settings, call.request, "cancelled before it was sent")
		return pipeline.Passed{}
	}
	defer call.cancelWith(clientContext)()
	answer, err := call.dispatch(ctx)
	if err == nil {
		return answer
	}
	if answer, ended := call.endedByGatekit(ctx); ended {
		return answer
	}
	switch {
	case ctx.Err() != nil && !errors.As(err, new(*timeoutError)):
		if !call.wasInspected() {
			call.session.recordDropped(ctx, call.settings, call.request,
				"cancelled before it was sent")
		}
		return pipeline.Passed{} // cancelled
	}
	return call.refuse(ctx, err)
}

// endedByGatekit returns the error answer of a call that Gatekit itself has ended, because it stops
// or because an operator has stopped the call. ended is false for every other call.
func (call *Call) endedByGatekit(ctx context.Context) (answer pipeline.Passed, ended bool) {
	cause := context.Cause(ctx)
	if shutdown, ok := errors.AsType[*shutdownError](cause); ok {
		return call.errorAnswer(ctx, shutdown), true
	}
	if stopped, ok := errors.AsType[*stoppedError](cause); ok {
		call.noteInspected()
		return call.errorAnswer(ctx, call.settings.Pipeline.DenyStopped(ctx, call.request,
			&stopped.stop)), true
	}
	return pipeline.Passed{}, false
}

// refuse returns the error answer for a call that failed with err. If no stage has seen the
// request, because the proxy itself refuses it, the stages see it now, and may deny it.
func (call *Call) refuse(ctx context.Context, err error) pipeline.Passed {
	if denied := call.inspectUnsent(ctx); denied != nil {
		err = denied
	}
	return call.errorAnswer(ctx, err)
}

// inspectUnsent inspects and records a request that no server gets, unless it was inspected before.
// The error is a *pipeline.DeniedError.
func (call *Call) inspectUnsent(ctx context.Context) error {
	if call.wasInspected() {
		return nil
	}
	call.noteInspected()
	return call.settings.Pipeline.Consume(ctx, call.request, "pass", "answered by Gatekit")
}

func (call *Call) wasInspected() bool {
	call.mu.Lock()
	defer call.mu.Unlock()
	return call.inspected
}

// noteInspected notes that the stages get the request.
func (call *Call) noteInspected() {
	call.mu.Lock()
	call.inspected = true
	call.mu.Unlock()
}

// Withdraw removes the request from the calls in flight. It takes the place of Run and Discard when
// the caller itself has inspected and answered the request.
func (call *Call) Withdraw() {
	if call.refused == nil {
		call.session.leave(call)
	}
}

// Discard removes the request from the calls in flight, and records it as dropped. No server gets
// it.
func (call *Call) Discard() {
	ended, end := context.WithCancel(context.Background())
	end()
	call.Run(ended)
}

// start stores end, the function with which cancel ends the running call. If the call is cancelled
// already, start calls end at once.
func (call *Call) start(end context.CancelCauseFunc) {
	call.mu.Lock()
	call.endRun = end
	cause := call.cancelCause
	call.mu.Unlock()
	if cause != nil {
		end(cause)
	}
}

// cancel ends the call, or keeps it from starting. If cancel is called again, the first cause
// stays.
func (call *Call) cancel(cause error) {
	call.mu.Lock()
	if call.cancelCause == nil {
		call.cancelCause = cause
	}
	end := call.endRun
	call.mu.Unlock()
	if end != nil {
		end(cause)
	}
}

// dispatch routes the request and returns the answer.
func (call *Call) dispatch(ctx context.Context) (pipeline.Passed, error) {
	meth, known := mcp.LookupMethod(call.request.Method)
	switch {
	case !known:
		return call.forwardVendor(ctx)
	case meth.Kind != mcp.Request || meth.Direction == mcp.ToClient:
		return pipeline.Passed{}, requestErrorf(mcp.CodeMethodNotFound, "clients do not send %s",
			call.request.Method)
	case meth.Route == mcp.RouteLocal:
		if err := call.inspectUnsent(ctx); err != nil {
			return pipeline.Passed{}, err
		}
		return call.ownResult(ctx, nil), nil
	case call.request.Method == "initialize":
		return call.initialize(ctx)
	case meth.Route == mcp.RouteSubscription:
		return call.serveSubscription(ctx)
	case meth.Route == mcp.RouteBroadcast && !call.settings.names.disabled:
		return call.broadcast(ctx, meth)
	}
	srv, name, err := call.route(ctx, meth)
	if err != nil {
		return pipeline.Passed{}, err
	}
	if meth.Name == "tools/call" && name == connectTool && call.runsConnectTool(ctx, srv) {
		return call.connect(ctx, srv)
	}
	if !call.settings.names.disabled && srv.lacksMethod(meth) {
		lack := strings.TrimPrefix(meth.Capability, "extensions/")
		if meth.Name == "resources/directory/read" {
			lack = "directoryRead of " + lack
		}
		return pipeline.Passed{}, requestErrorf(mcp.CodeMethodNotFound, "server %q has no %s",
			srv.name, lack)
	}
	return call.forward(ctx, srv, name, nil)
}

// forwardVendor forwards a request whose method is in no revision of MCP. The request goes to the
// first server whose configuration allows the method.
func (call *Call) forwardVendor(ctx context.Context) (pipeline.Passed, error) {
	for _, srv := range call.session.serversInOrder(call.settings) {
		if call.settings.allowsVendorMethod(srv.name, call.request.Method) {
			return call.forward(ctx, srv, "", nil)
		}
	}
	return pipeline.Passed{}, requestErrorf(mcp.CodeMethodNotFound, "method not found: %s",
		quoteName(call.request.Method))
}

// forward calls one server and returns the answer for the client, with prefixes and ids restored.
func (call *Call) forward(ctx context.Context, srv *sessionServer, name string,
	intercept interceptor) (pipeline.Passed, error) {
	m := *call.request
	m.Server, m.Name = srv.name, name
	next, err := call.session.removePrefixes(call.settings, &m)
	var listed directoryCursor
	if err == nil {
		next, listed, err = call.openDirectoryCursor(next)
	}
	if err != nil {
		return pipeline.Passed{}, err
	}
	call.routed = next
	var round inputRound
	if next.CarriesInput || next.Method == "tasks/update" {
		if next, round, err = call.handleInputResponses(ctx, next); err != nil {
			return pipeline.Passed{}, err
		}
	}
	for {
		raw, err := call.callWithDeadline(ctx, srv, next, intercept)
		if err != nil {
			return pipeline.Passed{}, err
		}
		asked := next
		if carriesInputRequests(raw) {
			received := raw
			if raw, next, err = call.handleInputRequests(ctx, srv, asked, raw, &round); err != nil {
				call.session.recordDropped(ctx, call.settings, received,
					"its requests for input are denied or not valid")
				return pipeline.Passed{}, err
			}
			if raw == nil {
				if err := call.settings.Pipeline.Consume(ctx, received, "pass",
					"answered by Gatekit"); err != nil {
					return pipeline.Passed{}, err
				}
				continue // Gatekit has answered all requests of the server: call the server again
			}
		}
		answer, err := call.passAnswer(ctx, raw)
		if err == nil {
			answer, err = call.sealRound(answer, asked, round)
		}
		if err == nil {
			answer, err = call.sealDirectoryCursor(answer, listed)
		}
		if err != nil {
			return answer, err
		}
		return call.session.addPrefixes(call.settings, answer)
	}
}

// callWithDeadline calls one server, for at most the time that the configuration allows. The answer
// is not inspected yet.
func (call *Call) callWithDeadline(ctx context.Context, srv *sessionServer, m *mcp.Message,
	intercept interceptor) (*mcp.Message, error) {
	var d *deadline
	if m.Method != "subscriptions/listen" { // a subscription has no deadline
		idle, total := call.settings.timeouts(srv.name)
		if m.Method == "tasks/result" {
			idle = total // the server waits for the task
		}
		d = call.startDeadline(srv, idle, total, call.cancel)
		defer d.stop()
	}
	return call.callServer(ctx, srv, m, d, intercept)
}

// callOneOfSeveral calls one of several servers. The answer is inspected and recorded, and has the
// server's own names.
func (call *Call) callOneOfSeveral(ctx context.Context, srv *sessionServer, m *mcp.Message,
	d *deadline) (pipeline.Passed, error) {
	raw, err := call.callServer(ctx, srv, m, d, nil)
	if denied := (*pipeline.DeniedError)(nil); errors.As(err, &denied) &&
		denied.Action == "answer" {
		return denied.Response(m.ID()), nil // a stage's answer, inspected already
	}
	if err != nil {
		return pipeline.Passed{}, err
	}
	if carriesInputRequests(raw) {
		call.session.recordDropped(ctx, call.settings, raw,
			"asks for input where the protocol does not allow it")
		return pipeline.Passed{},
			srv.unavailable("the server asked for input where the protocol does not allow it (" +
				m.Method + ")")
	}
	return call.passAnswer(ctx, raw)
}

// callServer inspects m, records it, writes it to the server and waits for the answer. It does not
// inspect the answer.
func (call *Call) callServer(ctx context.Context, srv *sessionServer, m *mcp.Message, d *deadline,
	intercept interceptor) (*mcp.Message, error) {
	if err := call.listFirst(ctx, srv, m); err != nil {
		return nil, err
	}
	if err := call.denyIfHiddenSkill(ctx, m); err != nil {
		return nil, err
	}
	passed, err := call.passWithApproval(ctx, srv, m, d)
	if err != nil {
		return nil, err
	}
	call.session.recordClient(ctx, call.settings, passed.Message())
	open := srv.openInitialized
	if m.Method == "initialize" {
		open = srv.open
	}
	h := &serverHandler{session: call.session, server: srv, client: call.client,
		request: call.request, sent: passed.Message(), deadline: d,
		intercept: intercept, wants: call.wants}
	// subscribe first: the server may send notifications before its answer
	if m.Method == "resources/subscribe" {
		if err := srv.subscribe(passed.Message().Name); err != nil {
			return nil, err
		}
	}
	levelSet := func(bool) {}
	if m.Method == "logging/setLevel" {
		level, _ := passed.Message().Text("/level")
		levelSet = call.session.setLogLevel(level)
	}
	raw, err := call.callOrLogIn(ctx, srv, open, passed, h)
	levelSet(err == nil && raw.Kind == mcp.Response)
	if m.Method == "resources/subscribe" && (err != nil || raw.Kind == mcp.Error) ||
		m.Method == "resources/unsubscribe" && err == nil && raw.Kind == mcp.Response {
		srv.unsubscribe(passed.Message().Name)
	}
	if err != nil {
		return nil, err
	}
	req, answer := passed.Message(), *raw
	answer.Direction, answer.Session, answer.Principal, answer.Exchange = mcp.ToClient, req.Session,
		req.Principal, req.Exchange
	answer.Server, answer.Method, answer.Name, answer.Request = req.Server, req.Method, req.Name,
		req
	if !carriesInputRequests(&answer) && h.clientTakesInputRequests() {
		// No stage would inspect these requests, and some clients answer inputRequests whatever
		// resultType is.
		if _, hidden := answer.Get("/inputRequests"); hidden {
			call.session.recordDropped(ctx, call.settings, &answer,
				"has inputRequests, and its resultType is not input_required")
			return nil, srv.unavailable("inputRequests is in a result whose resultType is not " +
				"input_required")
		}
	}
	// The task runs even if a stage denies the answer.
	if id, ok := mcp.CreatedTaskID(&answer); ok {
		if err := call.addTask(ctx, srv, &answer, id); err != nil {
			return nil, err
		}
	}
	if answer.Kind == mcp.Response {
		switch answer.Method {
		case "tasks/list":
			return call.filterTasks(ctx, &answer)
		case "initialize", "server/discover":
			return call.settings.filterExtensions(&answer)
		}
	}
	return &answer, nil
}

// noteAsked notes that a server is being called.
func (call *Call) noteAsked(srv *sessionServer) {
	call.mu.Lock()
	call.askedSeveral = call.askedSeveral || call.lastAsked != "" && call.lastAsked != srv.name
	call.lastAsked = srv.name
	call.mu.Unlock()
}

// timeouts returns the time-outs of a call at a server: idle is the time without progress, total
// the time of the whole call.
func (s *settings) timeouts(server string) (idle, total time.Duration) {
	if conf := s.byName[server]; conf != nil {
		return conf.Timeout, conf.MaxTimeout
	}
	return defaultTimeout, defaultMaxTimeout // these settings do not have the server
}

// CallTimeout returns how long a call at a server may take without progress.
func (p *Proxy) CallTimeout(server string) time.Duration {
	idle, _ := p.settings.Load().timeouts(server)
	return idle
}

// startDeadline starts a deadline. When the deadline expires, it calls cancel with a timeoutError,
// which contains the notification for the server.
func (call *Call) startDeadline(srv *sessionServer, idle, total time.Duration,
	cancel context.CancelCauseFunc) *deadline {
	return startDeadline(idle, total, func(after string) {
		cancel(&timeoutError{
			CancelledError: &CancelledError{call.cancelNotification("timed out")},
			server:         srv.name, after: after,
		})
	})
}

// cancelWith makes the call end when the client's context ends. stop makes the call independent of
// that context again, and waits for a cancellation that has begun.
func (call *Call) cancelWith(client context.Context) (stop func()) {
	if client.Done() == nil {
		return func() {}
	}
	done := make(chan struct{})
	stopAfter := context.AfterFunc(client, func() {
		defer close(done)
		call.abandon()
	})
	return func() {
		if !stopAfter() {
			<-done
		}
	}
}

// abandon cancels the call because its client is gone.
func (call *Call) abandon() {
	call.cancel(&CancelledError{call.cancelNotification("the client is gone")})
}

// cancelNotification returns a notifications/cancelled of Gatekit's own, or the zero Passed when no
// server was called yet.
func (call *Call) cancelNotification(reason string) pipeline.Passed {
	call.mu.Lock()
	asked := call.lastAsked != ""
	call.mu.Unlock()
	if !asked {
		return pipeline.Passed{}
	}
	n := mcp.NewNotification("notifications/cancelled", object(
		field("requestId", []byte(call.request.ID())), textField("reason", reason)))
	n = call.session.stamp(n, mcp.ToServer, call.request)
	n.Server = call.askedServer()
	return call.settings.Pipeline.PassOwn(context.Background(), n)
}

// askedServer returns the name of the server that was called. It returns "" if no server was
// called, or more than one.
func (call *Call) askedServer() string {
	call.mu.Lock()
	defer call.mu.Unlock()
	if call.askedSeveral {
		return ""
	}
	return call.lastAsked
}

// ownResult records and returns an answer that Gatekit itself makes. If result is nil, the answer's
// result is {}.
func (call *Call) ownResult(ctx context.Context, result []byte) pipeline.Passed {
	answer := mcp.NewResponse(call.request.ID(), result)
	return call.settings.Pipeline.PassOwn(ctx, call.stampAnswer(answer))
}

// stampAnswer gives m the fields of an answer to the request.
func (call *Call) stampAnswer(m *mcp.Message) *mcp.Message {
	m = call.session.stamp(m, mcp.ToClient, call.request)
	m.Request = call.request
	if call.routed != nil {
		m.Request = call.routed
	}
	m.Method, m.Server, m.Name = m.Request.Method, m.Request.Server, m.Request.Name
	return m
}
