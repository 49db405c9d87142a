package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Call is one request of the client and all that happens because of it. Session.Begin enters it
// among the calls in flight. Exactly one of Run and Discard must be called after that, once.
type Call struct {
	session  *Session
	settings *settings
	request  *mcp.Message // the request as the client sent it
	client   Client
	refused  error // why Begin did not enter the request; nil when it is in flight
	// as the one server that it is for gets it; nil while none is known, and for several
	routed *mcp.Message

	mu     sync.Mutex              // guards what follows
	endRun context.CancelCauseFunc // ends the context of Run; nil before Run
	// of a cancellation that came before Run; nil when there was none
	cancelCause  error
	lastAsked    string // a server that has been asked; "" while none was
	askedSeveral bool   // others have been asked too
}

// Run serves the request and returns what is to be written back to the client under the request's
// id: a result, an error or a denial. The result is the zero Passed when the call was cancelled, by
// ctx or by a notifications/cancelled, and the request must not be answered. When either came
// before Run, no server hears of the request.
func (call *Call) Run(ctx context.Context) (answer pipeline.Passed) {
	// The call outlives the client's context. When that ends, abandon cancels the call with a
	// notice for the server.
	gone := ctx
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	call.start(end)
	if call.settings.Observer != nil {
		var ended func(pipeline.Passed)
		if ctx, ended = call.settings.Observer.StartCall(WithValues(ctx, gone), call.request,
			call.session.options); ended != nil {
			defer func() { ended(answer) }()
		}
	}
	if call.refused != nil {
		return call.errorAnswer(ctx, call.refused)
	}
	defer call.session.leave(call)
	if gone.Err() != nil || ctx.Err() != nil {
		return pipeline.Passed{}
	}
	defer call.cancelWith(gone)()
	answer, err := call.run(ctx)
	switch {
	case err == nil:
		return answer
	case ctx.Err() != nil && !errors.As(err, new(*timeoutError)):
		return pipeline.Passed{} // cancelled
	}
	return call.errorAnswer(ctx, err)
}

// Discard takes the request out of the calls in flight. No server hears of it.
func (call *Call) Discard() {
	ended, end := context.WithCancel(context.Background())
	end()
	call.Run(ended)
}

// start makes end the function that cancels the call, and calls it when the call was cancelled
// before.
func (call *Call) start(end context.CancelCauseFunc) {
	call.mu.Lock()
	call.endRun = end
	reason := call.cancelCause
	call.mu.Unlock()
	if reason != nil {
		end(reason)
	}
}

// cancel ends the call, or keeps it from starting. Of several reasons the first one counts.
func (call *Call) cancel(reason error) {
	call.mu.Lock()
	if call.cancelCause == nil {
		call.cancelCause = reason
	}
	end := call.endRun
	call.mu.Unlock()
	if end != nil {
		end(reason)
	}
}

// run routes the request, has it answered and returns the answer.
func (call *Call) run(ctx context.Context) (pipeline.Passed, error) {
	meth, known := mcp.LookupMethod(call.request.Method)
	switch {
	case !known:
		return call.forwardVendor(ctx)
	case meth.Kind != mcp.Request || meth.Direction == mcp.ToClient:
		return pipeline.Passed{}, requestErrorf(mcp.CodeMethodNotFound, "clients do not send %s",
			call.request.Method)
	case meth.Route == mcp.RouteLocal:
		return call.ownResult(ctx, nil), nil
	case call.request.Method == "initialize":
		return call.initialize(ctx)
	case meth.Route == mcp.RouteSubscription:
		return call.serveSubscription(ctx)
	case meth.Route == mcp.RouteBroadcast && !call.settings.names.disabled:
		return call.broadcast(ctx, meth)
	}
	srv, name, err := call.route(meth)
	if err != nil {
		return pipeline.Passed{}, err
	}
	if !call.settings.names.disabled && srv.lacksCapability(meth.Capability) {
		return pipeline.Passed{}, requestErrorf(mcp.CodeMethodNotFound, "server %q has no %s", srv.name,
			meth.Capability)
	}
	return call.forward(ctx, srv, name, nil)
}

// forwardVendor passes a method that no revision knows to the first server whose configuration lists it.
func (call *Call) forwardVendor(ctx context.Context) (pipeline.Passed, error) {
	for _, l := range call.session.serversInOrder(call.settings) {
		if call.settings.allowsVendorMethod(l.name, call.request.Method) {
			return call.forward(ctx, l, "", nil)
		}
	}
	return pipeline.Passed{}, requestErrorf(mcp.CodeMethodNotFound, "method not found: %s",
		quoteName(call.request.Method))
}

// forward puts the request to one server and answers what the client gets, names and ids put back.
// take is that of a caller.
func (call *Call) forward(ctx context.Context, srv *sessionServer, name string,
	take interceptor) (pipeline.Passed, error) {
	m := *call.request
	m.Server, m.Name = srv.name, name
	next, err := call.session.removePrefixes(call.settings, &m)
	if err != nil {
		return pipeline.Passed{}, err
	}
	call.routed = next
	var st inputRound
	if next.CarriesInput || next.Method == "tasks/update" {
		if next, st, err = call.handleInputResponses(ctx, next); err != nil {
			return pipeline.Passed{}, err
		}
	}
	for {
		raw, err := call.callWithDeadline(ctx, srv, next, take)
		if err != nil {
			return pipeline.Passed{}, err
		}
		asked := next
		if carriesInputRequests(raw) {
			if raw, next, err = call.handleInputRequests(ctx, srv, asked, raw, &st); err != nil {
				return pipeline.Passed{}, err
			}
			if raw == nil {
				continue // answered in the client's place
			}
		}
		answer, err := call.settings.Pipeline.Pass(ctx, raw)
		if err == nil {
			answer, err = call.sealRound(answer, asked, st)
		}
		if err != nil {
			return answer, err
		}
		return call.session.addPrefixes(call.settings, answer)
	}
}

// callWithDeadline puts m to one server for as long as that may take, and answers what came back, which is not
// judged yet.
func (call *Call) callWithDeadline(ctx context.Context, srv *sessionServer, m *mcp.Message,
	take interceptor) (*mcp.Message, error) {
	var d *deadline
	if m.Method != "subscriptions/listen" { // which stays open for as long as the client likes
		idle, most := call.timeouts(srv)
		if m.Method == "tasks/result" {
			idle = most // it waits for the task
		}
		d = call.startDeadline(srv, idle, most, call.cancel)
		defer d.stop()
	}
	return call.callServer(ctx, srv, m, d, take)
}

// callOne puts m to one of several servers and answers what came back: judged, recorded, with the
// server's own names.
func (call *Call) callOne(ctx context.Context, srv *sessionServer, m *mcp.Message,
	d *deadline) (pipeline.Passed, error) {
	raw, err := call.callServer(ctx, srv, m, d, nil)
	if denied := (*pipeline.DeniedError)(nil); errors.As(err, &denied) &&
		denied.Action == "answer" {
		return denied.Response(m.ID()), nil // by a stage in the server's place, and judged already
	}
	if err != nil {
		return pipeline.Passed{}, err
	}
	if carriesInputRequests(raw) {
		return pipeline.Passed{},
			srv.unavailable("it asked for input where the protocol has no place for it (" + m.Method +
				")")
	}
	return call.settings.Pipeline.Pass(ctx, raw)
}

// callServer judges m, records it, writes it to the server and waits for the answer, which is not judged
// yet.
func (call *Call) callServer(ctx context.Context, srv *sessionServer, m *mcp.Message, d *deadline,
	take interceptor) (*mcp.Message, error) {
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
	h := &serverHandler{session: call.session, server: srv, client: call.client, exchange: m.Exchange, request: call.request, deadline: d,
		intercept: take}
	raw, err := server.Call(ctx, passed, h)
	if err != nil {
		return nil, err
	}
	req, answer := passed.Message(), *raw
	answer.Direction, answer.Session, answer.Principal, answer.Exchange = mcp.ToClient, req.Session,
		req.Principal, req.Exchange
	answer.Server, answer.Method, answer.Name, answer.Request = req.Server, req.Method, req.Name,
		req
	if !carriesInputRequests(&answer) && h.clientTakesInputRequests() {
		// Questions that nobody would judge: there are clients that look for them alone.
		if _, hidden := answer.Get("/inputRequests"); hidden {
			return nil, srv.unavailable("it asked for input in a result that does not say so")
		}
	}
	if id, ok := mcp.CreatedTaskID(&answer); ok { // also when it is refused: the task runs
		call.session.proxy.tasks.Add(answer.Server, id, answer.Principal, "")
	}
	if answer.Method == "tasks/list" && answer.Kind == mcp.Response {
		return call.session.proxy.filterTasks(&answer)
	}
	return &answer, nil
}

// noteAsked says that a server is being asked.
func (call *Call) noteAsked(srv *sessionServer) {
	call.mu.Lock()
	call.askedSeveral = call.askedSeveral || call.lastAsked != "" && call.lastAsked != srv.name
	call.lastAsked = srv.name
	call.mu.Unlock()
}

// timeouts are how long a server may take for a request, without progress and in all.
func (call *Call) timeouts(srv *sessionServer) (idle, most time.Duration) {
	if conf := call.settings.byName[srv.name]; conf != nil {
		return conf.Timeout, conf.MaxTimeout
	}
	return defaultTimeout, defaultMaxTimeout // it came with a later configuration
}

// startDeadline bounds the time that a server may take.
func (call *Call) startDeadline(srv *sessionServer, idle, most time.Duration, cancel context.CancelCauseFunc) *deadline {
	return startDeadline(idle, most, func(after string) {
		cancel(&timeoutError{CancelledError: &CancelledError{call.cancelNotification("timed out")}, server: srv.name,
			after: after})
	})
}

// cancelWith ends the call with the client's context. The function that it answers ends the following,
// and waits for what it began.
func (call *Call) cancelWith(gone context.Context) (stop func()) {
	if gone.Done() == nil {
		return func() {}
	}
	done := make(chan struct{})
	after := context.AfterFunc(gone, func() {
		defer close(done)
		call.abandon()
	})
	return func() {
		if !after() {
			<-done
		}
	}
}

// abandon cancels the call because its client is gone.
func (call *Call) abandon() {
	call.cancel(&CancelledError{call.cancelNotification("the client is gone")})
}

// cancelNotification is a notifications/cancelled of Gatekit's own, or nothing when no server was asked yet.
func (call *Call) cancelNotification(reason string) pipeline.Passed {
	call.mu.Lock()
	asked := call.lastAsked != ""
	call.mu.Unlock()
	if !asked {
		return pipeline.Passed{}
	}
	n := mcp.NewNotification("notifications/cancelled", object(field("requestId", []byte(call.request.ID())),
		textField("reason", reason)))
	n = call.session.stamp(n, mcp.ToServer, call.request.Exchange)
	n.Server = call.askedServer()
	return call.settings.Pipeline.PassOwn(context.Background(), n)
}

// askedServer is who was asked, "" when it was nobody or several.
func (call *Call) askedServer() string {
	call.mu.Lock()
	defer call.mu.Unlock()
	if call.askedSeveral {
		return ""
	}
	return call.lastAsked
}

// ownResult records and answers a result of Gatekit's own; nil is {}.
func (call *Call) ownResult(ctx context.Context, result []byte) pipeline.Passed {
	return call.settings.Pipeline.PassOwn(ctx, call.stampAnswer(mcp.NewResponse(call.request.ID(), result)))
}

// stampAnswer stamps a message that answers the request.
func (call *Call) stampAnswer(m *mcp.Message) *mcp.Message {
	m = call.session.stamp(m, mcp.ToClient, call.request.Exchange)
	m.Request = call.request
	if call.routed != nil {
		m.Request = call.routed
	}
	m.Method, m.Server, m.Name = m.Request.Method, m.Request.Server, m.Request.Name
	return m
}
