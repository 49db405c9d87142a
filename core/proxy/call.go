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
	refused  error // why Begin did not accept the request; nil when it is in flight
	// the request as the one server gets it; nil before routing, and when several servers get it
	routed *mcp.Message

	mu     sync.Mutex              // guards the fields below
	endRun context.CancelCauseFunc // ends the context of Run; nil before Run
	// the first cause of a cancellation; nil while there is none
	cancelCause  error
	inspected    bool   // the request has passed the pipeline, or was denied there
	lastAsked    string // name of the last server that was called; "" before the first
	askedSeveral bool   // more than one server was called

	// initialize is answered before some server has; set and read by initialize only
	isPartialInitialize bool
}

// Run serves the request and returns the answer for the client, under the request's id: a result,
// an error or a denial. When the call was cancelled, by ctx or by a notifications/cancelled, the
// answer is the zero Passed: the client gets none. When the call was cancelled before Run, no
// server gets the request.
func (call *Call) Run(ctx context.Context) (answer pipeline.Passed) {
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
	if clientContext.Err() != nil || ctx.Err() != nil {
		call.session.recordDropped(ctx, call.settings, call.request, "cancelled before it was sent")
		return pipeline.Passed{}
	}
	defer call.cancelWith(clientContext)()
	answer, err := call.dispatch(ctx)
	shutdown, isShutdown := errors.AsType[*shutdownError](context.Cause(ctx))
	switch {
	case err == nil:
		return answer
	case isShutdown:
		return call.errorAnswer(ctx, shutdown)
	case ctx.Err() != nil && !errors.As(err, new(*timeoutError)):
		if !call.wasInspected() {
			call.session.recordDropped(ctx, call.settings, call.request,
				"cancelled before it was sent")
		}
		return pipeline.Passed{} // cancelled
	}
	return call.refuse(ctx, err)
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

// noteInspected notes that the request passes the pipeline.
func (call *Call) noteInspected() {
	call.mu.Lock()
	call.inspected = true
	call.mu.Unlock()
}

// Withdraw removes the request from the calls in flight, in place of Run and Discard, when the
// caller has inspected and answered it.
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

// start stores end, by which cancel ends the running call. If the call was cancelled before, start
// calls end at once.
func (call *Call) start(end context.CancelCauseFunc) {
	call.mu.Lock()
	call.endRun = end
	cause := call.cancelCause
	call.mu.Unlock()
	if cause != nil {
		end(cause)
	}
}

// cancel ends the call, or keeps it from starting. Of several causes the first one counts.
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

// forwardVendor forwards a method that no revision has to the first server whose configuration
// allows it.
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
			if raw, next, err = call.handleInputRequests(ctx, srv, asked, raw, &round); err != nil {
				return pipeline.Passed{}, err
			}
			if raw == nil {
				continue // all requests of the server were answered here: call it again
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
		idle, total := call.timeouts(srv)
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
		return pipeline.Passed{},
			srv.unavailable("the server asked for input where the protocol does not allow it (" +
				m.Method + ")")
	}
	return call.passAnswer(ctx, raw)
}

// callServer inspects m, records it, writes it to the server and waits for the answer, which is not
// inspected yet.
func (call *Call) callServer(ctx context.Context, srv *sessionServer, m *mcp.Message, d *deadline,
	intercept interceptor) (*mcp.Message, error) {
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
	server, err := open(ctx)
	if err != nil {
		return nil, err
	}
	call.noteAsked(srv)
	h := &serverHandler{session: call.session, server: srv, client: call.client,
		exchange: m.Exchange, request: call.request, deadline: d, intercept: intercept}
	if m.Method == "resources/subscribe" { // before: the server may notify at once
		if err := srv.subscribe(passed.Message().Name); err != nil {
			return nil, err
		}
	}
	raw, err := server.Call(ctx, passed, h)
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
			return nil, srv.unavailable("inputRequests is in a result whose resultType is not " +
				"input_required")
		}
	}
	if id, ok := mcp.CreatedTaskID(&answer); ok { // even if the answer is denied: the task runs
		call.session.proxy.tasks.Add(answer.Server, id, answer.Principal, "")
	}
	if answer.Kind == mcp.Response {
		switch answer.Method {
		case "tasks/list":
			return call.session.proxy.filterTasks(&answer)
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

// timeouts returns how long a server may take for a request, without progress and in all.
func (call *Call) timeouts(srv *sessionServer) (idle, total time.Duration) {
	if conf := call.settings.byName[srv.name]; conf != nil {
		return conf.Timeout, conf.MaxTimeout
	}
	return defaultTimeout, defaultMaxTimeout // the server is new in a later configuration
}

// startDeadline starts a deadline that calls cancel with a timeoutError. The error carries the
// notification for the server.
func (call *Call) startDeadline(srv *sessionServer, idle, total time.Duration,
	cancel context.CancelCauseFunc) *deadline {
	return startDeadline(idle, total, func(after string) {
		cancel(&timeoutError{
			CancelledError: &CancelledError{call.cancelNotification("timed out")},
			server:         srv.name, after: after,
		})
	})
}

// cancelWith cancels the call when the client's context ends. stop ends this, and waits for a
// cancellation that has begun.
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
	n = call.session.stamp(n, mcp.ToServer, call.request.Exchange)
	n.Server = call.askedServer()
	return call.settings.Pipeline.PassOwn(context.Background(), n)
}

// askedServer returns the name of the server that was called, or "" when none was, or several were.
func (call *Call) askedServer() string {
	call.mu.Lock()
	defer call.mu.Unlock()
	if call.askedSeveral {
		return ""
	}
	return call.lastAsked
}

// ownResult records and returns a result of Gatekit's own; nil is {}.
func (call *Call) ownResult(ctx context.Context, result []byte) pipeline.Passed {
	answer := mcp.NewResponse(call.request.ID(), result)
	return call.settings.Pipeline.PassOwn(ctx, call.stampAnswer(answer))
}

// stampAnswer gives m the fields of an answer to the request.
func (call *Call) stampAnswer(m *mcp.Message) *mcp.Message {
	m = call.session.stamp(m, mcp.ToClient, call.request.Exchange)
	m.Request = call.request
	if call.routed != nil {
		m.Request = call.routed
	}
	m.Method, m.Server, m.Name = m.Request.Method, m.Request.Server, m.Request.Name
	return m
}
