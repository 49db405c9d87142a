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
	s       *Session
	c       *settings
	m       *mcp.Message // the request as the client sent it
	client  Client
	refused error // why Begin did not enter the request; nil when it is in flight
	// as the one server that it is for gets it; nil while none is known, and for several
	to *mcp.Message

	mu  sync.Mutex              // guards what follows
	end context.CancelCauseFunc // ends the context of Run; nil before Run
	// of a cancellation that came before Run; nil when there was none
	reason error
	asked  string // a server that has been asked; "" while none was
	more   bool   // others have been asked too
}

// Run serves the request and returns what is to be written back to the client under the request's
// id: a result, an error or a denial. The result is the zero Passed when the call was cancelled, by
// ctx or by a notifications/cancelled, and the request must not be answered. When either came
// before Run, no server hears of the request.
func (x *Call) Run(ctx context.Context) (answer pipeline.Passed) {
	// The call outlives the client's context. When that ends, abandon cancels the call with a
	// notice for the server.
	gone := ctx
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	x.start(end)
	if x.c.Observer != nil {
		var ended func(pipeline.Passed)
		if ctx, ended = x.c.Observer.StartCall(WithValues(ctx, gone), x.m,
			x.s.opening); ended != nil {
			defer func() { ended(answer) }()
		}
	}
	if x.refused != nil {
		return x.refuse(ctx, x.refused)
	}
	defer x.s.finish(x)
	if gone.Err() != nil || ctx.Err() != nil {
		return pipeline.Passed{}
	}
	defer x.follow(gone)()
	answer, err := x.run(ctx)
	switch {
	case err == nil:
		return answer
	case ctx.Err() != nil && !errors.As(err, new(*expired)):
		return pipeline.Passed{} // cancelled
	}
	return x.refuse(ctx, err)
}

// Discard takes the request out of the calls in flight. No server hears of it.
func (x *Call) Discard() {
	ended, end := context.WithCancel(context.Background())
	end()
	x.Run(ended)
}

// start makes end the function that cancels the call, and calls it when the call was cancelled
// before.
func (x *Call) start(end context.CancelCauseFunc) {
	x.mu.Lock()
	x.end = end
	reason := x.reason
	x.mu.Unlock()
	if reason != nil {
		end(reason)
	}
}

// cancel ends the call, or keeps it from starting. Of several reasons the first one counts.
func (x *Call) cancel(reason error) {
	x.mu.Lock()
	if x.reason == nil {
		x.reason = reason
	}
	end := x.end
	x.mu.Unlock()
	if end != nil {
		end(reason)
	}
}

// run routes the request, has it answered and returns the answer.
func (x *Call) run(ctx context.Context) (pipeline.Passed, error) {
	meth, known := mcp.LookupMethod(x.m.Method)
	switch {
	case !known:
		return x.vendor(ctx)
	case meth.Kind != mcp.Request || meth.Direction == mcp.ToClient:
		return pipeline.Passed{}, failure(mcp.CodeMethodNotFound, "clients do not send %s",
			x.m.Method)
	case meth.Route == mcp.RouteLocal:
		return x.own(ctx, nil), nil
	case x.m.Method == "initialize":
		return x.initialize(ctx)
	case meth.Route == mcp.RouteSubscription:
		return x.listen(ctx)
	case meth.Route == mcp.RouteBroadcast && !x.c.names.bare:
		return x.broadcast(ctx, meth)
	}
	l, name, err := x.route(meth)
	if err != nil {
		return pipeline.Passed{}, err
	}
	if !x.c.names.bare && l.lacks(meth.Capability) {
		return pipeline.Passed{}, failure(mcp.CodeMethodNotFound, "server %q has no %s", l.name,
			meth.Capability)
	}
	return x.forward(ctx, l, name, nil)
}

// vendor passes a method that no revision knows to the first server whose configuration lists it.
func (x *Call) vendor(ctx context.Context) (pipeline.Passed, error) {
	for _, l := range x.s.ordered(x.c) {
		if x.c.passes(l.name, x.m.Method) {
			return x.forward(ctx, l, "", nil)
		}
	}
	return pipeline.Passed{}, failure(mcp.CodeMethodNotFound, "method not found: %s",
		quoteName(x.m.Method))
}

// forward puts the request to one server and answers what the client gets, names and ids put back.
// take is that of a caller.
func (x *Call) forward(ctx context.Context, l *link, name string,
	take take) (pipeline.Passed, error) {
	m := *x.m
	m.Server, m.Name = l.name, name
	next, err := x.s.strip(x.c, &m)
	if err != nil {
		return pipeline.Passed{}, err
	}
	x.to = next
	var st round
	if next.CarriesInput || next.Method == "tasks/update" {
		if next, st, err = x.takeAnswers(ctx, next); err != nil {
			return pipeline.Passed{}, err
		}
	}
	for {
		raw, err := x.once(ctx, l, next, take)
		if err != nil {
			return pipeline.Passed{}, err
		}
		asked := next
		if asks(raw) {
			if raw, next, err = x.takeQuestions(ctx, l, asked, raw, &st); err != nil {
				return pipeline.Passed{}, err
			}
			if raw == nil {
				continue // answered in the client's place
			}
		}
		answer, err := x.c.Pipeline.Pass(ctx, raw)
		if err == nil {
			answer, err = x.sealRound(answer, asked, st)
		}
		if err != nil {
			return answer, err
		}
		return x.s.expose(x.c, answer)
	}
}

// once puts m to one server for as long as that may take, and answers what came back, which is not
// judged yet.
func (x *Call) once(ctx context.Context, l *link, m *mcp.Message,
	take take) (*mcp.Message, error) {
	var w *watch
	if m.Method != "subscriptions/listen" { // which stays open for as long as the client likes
		idle, most := x.times(l)
		if m.Method == "tasks/result" {
			idle = most // it waits for the task
		}
		w = x.watch(l, idle, most, x.cancel)
		defer w.stop()
	}
	return x.send(ctx, l, m, w, take)
}

// ask puts m to one of several servers and answers what came back: judged, recorded, with the
// server's own names.
func (x *Call) ask(ctx context.Context, l *link, m *mcp.Message,
	w *watch) (pipeline.Passed, error) {
	raw, err := x.send(ctx, l, m, w, nil)
	if denied := (*pipeline.DeniedError)(nil); errors.As(err, &denied) &&
		denied.Action == "answer" {
		return denied.Response(m.ID()), nil // by a stage in the server's place, and judged already
	}
	if err != nil {
		return pipeline.Passed{}, err
	}
	if asks(raw) {
		return pipeline.Passed{},
			l.unavailable("it asked for input where the protocol has no place for it (" + m.Method +
				")")
	}
	return x.c.Pipeline.Pass(ctx, raw)
}

// send judges m, records it, writes it to the server and waits for the answer, which is not judged
// yet.
func (x *Call) send(ctx context.Context, l *link, m *mcp.Message, w *watch,
	take take) (*mcp.Message, error) {
	passed, err := x.pass(ctx, l, m, w)
	if err != nil {
		return nil, err
	}
	x.s.introduce(ctx, x.c, passed.Message())
	open := l.use
	if m.Method == "initialize" {
		open = l.open
	}
	server, err := open(ctx)
	if err != nil {
		return nil, err
	}
	x.note(l)
	c := &caller{s: x.s, l: l, client: x.client, exchange: m.Exchange, request: x.m, watch: w,
		take: take}
	raw, err := server.Call(ctx, passed, c)
	if err != nil {
		return nil, err
	}
	req, answer := passed.Message(), *raw
	answer.Direction, answer.Session, answer.Principal, answer.Exchange = mcp.ToClient, req.Session,
		req.Principal, req.Exchange
	answer.Server, answer.Method, answer.Name, answer.Request = req.Server, req.Method, req.Name,
		req
	if !asks(&answer) && c.rounds() {
		// Questions that nobody would judge: there are clients that look for them alone.
		if _, hidden := answer.Get("/inputRequests"); hidden {
			return nil, l.unavailable("it asked for input in a result that does not say so")
		}
	}
	if id, ok := mcp.CreatedTaskID(&answer); ok { // also when it is refused: the task runs
		x.s.proxy.tasks.Add(answer.Server, id, answer.Principal, "")
	}
	if answer.Method == "tasks/list" && answer.Kind == mcp.Response {
		return x.s.proxy.ownTasks(&answer)
	}
	return &answer, nil
}

// note says that a server is being asked.
func (x *Call) note(l *link) {
	x.mu.Lock()
	x.more = x.more || x.asked != "" && x.asked != l.name
	x.asked = l.name
	x.mu.Unlock()
}

// times are how long a server may take for a request, without progress and in all.
func (x *Call) times(l *link) (idle, most time.Duration) {
	if conf := x.c.byName[l.name]; conf != nil {
		return conf.Timeout, conf.MaxTimeout
	}
	return timeout, maxTimeout // it came with a later configuration
}

// watch bounds the time that a server may take.
func (x *Call) watch(l *link, idle, most time.Duration, cancel context.CancelCauseFunc) *watch {
	return newWatch(idle, most, func(after string) {
		cancel(&expired{CancelledError: &CancelledError{x.notice("timed out")}, server: l.name,
			after: after})
	})
}

// follow ends the call with the client's context. The function that it answers ends the following,
// and waits for what it began.
func (x *Call) follow(gone context.Context) (stop func()) {
	if gone.Done() == nil {
		return func() {}
	}
	done := make(chan struct{})
	after := context.AfterFunc(gone, func() {
		defer close(done)
		x.abandon()
	})
	return func() {
		if !after() {
			<-done
		}
	}
}

// abandon cancels the call because its client is gone.
func (x *Call) abandon() { x.cancel(&CancelledError{x.notice("the client is gone")}) }

// notice is a notifications/cancelled of Gatekit's own, or nothing when no server was asked yet.
func (x *Call) notice(reason string) pipeline.Passed {
	x.mu.Lock()
	asked := x.asked != ""
	x.mu.Unlock()
	if !asked {
		return pipeline.Passed{}
	}
	n := mcp.NewNotification("notifications/cancelled", object(field("requestId", []byte(x.m.ID())),
		textField("reason", reason)))
	n = x.s.stamp(n, mcp.ToServer, x.m.Exchange)
	n.Server = x.server()
	return x.c.Pipeline.PassOwn(context.Background(), n)
}

// server is who was asked, "" when it was nobody or several.
func (x *Call) server() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.more {
		return ""
	}
	return x.asked
}

// own records and answers a result of Gatekit's own; nil is {}.
func (x *Call) own(ctx context.Context, result []byte) pipeline.Passed {
	return x.c.Pipeline.PassOwn(ctx, x.answers(mcp.NewResponse(x.m.ID(), result)))
}

// answers stamps a message that answers the request.
func (x *Call) answers(m *mcp.Message) *mcp.Message {
	m = x.s.stamp(m, mcp.ToClient, x.m.Exchange)
	m.Request = x.m
	if x.to != nil {
		m.Request = x.to
	}
	m.Method, m.Server, m.Name = m.Request.Method, m.Request.Server, m.Request.Name
	return m
}
