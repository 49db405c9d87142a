package proxy

import (
	"context"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// exchange is one request of the client and all that happens because of it.
type exchange struct {
	s      *Session
	c      *settings
	m      *mcp.Message // the request as the client sent it
	client Client
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	asked []string // servers that have been asked
}

// run answers the request.
func (x *exchange) run(ctx context.Context) (pipeline.Passed, error) {
	meth, known := mcp.Lookup(x.m.Method)
	switch {
	case !known:
		return x.vendor(ctx)
	case meth.Kind != mcp.Request || meth.From == mcp.ToClient:
		return pipeline.Passed{}, failure(mcp.CodeMethodNotFound, "clients do not send %s", x.m.Method)
	case meth.Route == mcp.Local:
		return x.own(ctx, nil), nil
	case x.m.Method == "initialize":
		return x.initialize(ctx)
	case meth.Route == mcp.Listen:
		return x.listen(ctx)
	case meth.Route == mcp.Broadcast && !x.c.names.bare:
		return x.broadcast(ctx, meth)
	}
	l, name, err := x.route(meth)
	if err != nil {
		return pipeline.Passed{}, err
	}
	if l.lacks(meth.Capability) && !x.c.names.bare {
		return pipeline.Passed{}, failure(mcp.CodeMethodNotFound, "server %q has no %s", l.conf.Name, meth.Capability)
	}
	return x.forward(ctx, l, name)
}

// vendor passes a method that no revision knows to the first server whose configuration lists it.
func (x *exchange) vendor(ctx context.Context) (pipeline.Passed, error) {
	for _, l := range x.s.ordered(x.c) {
		if l.conf.passes(x.m.Method) {
			return x.forward(ctx, l, "")
		}
	}
	return pipeline.Passed{}, failure(mcp.CodeMethodNotFound, "method not found: %s", x.m.Method)
}

// forward puts the request to one server and answers what the client gets, names and ids put back.
func (x *exchange) forward(ctx context.Context, l *link, name string) (pipeline.Passed, error) {
	m, err := x.address(l, name)
	if err != nil {
		return pipeline.Passed{}, err
	}
	var st round
	if m.Folded || m.Method == "tasks/update" {
		if m, st, err = x.takeAnswers(ctx, m); err != nil {
			return pipeline.Passed{}, err
		}
	}
	for {
		raw, err := x.send(ctx, l, m)
		if err != nil {
			return pipeline.Passed{}, err
		}
		if asks(raw) {
			var again *mcp.Message
			if raw, again, err = x.takeQuestions(ctx, l, m, raw, &st); err != nil {
				return pipeline.Passed{}, err
			}
			if again != nil {
				m = again
				continue
			}
		}
		answer, err := x.c.Pipeline.Pass(ctx, raw)
		if err != nil {
			return answer, err
		}
		if answer, err = x.sealRound(answer, m, st); err != nil {
			return answer, err
		}
		return x.s.expose(x.c, answer)
	}
}

// ask puts m to one server and answers what came back: judged, recorded, with the server's own names.
func (x *exchange) ask(ctx context.Context, l *link, m *mcp.Message) (pipeline.Passed, error) {
	raw, err := x.send(ctx, l, m)
	if err != nil {
		return pipeline.Passed{}, err
	}
	if raw.Folded {
		return pipeline.Passed{}, &Unavailable{Server: l.conf.Name, Reason: "it asked for input where the protocol has no place for it (" + m.Method + ")"}
	}
	return x.c.Pipeline.Pass(ctx, raw)
}

// address is the request as one server is to get it: with its own names.
func (x *exchange) address(l *link, name string) (*mcp.Message, error) {
	m := *x.m
	m.Server, m.Name = l.conf.Name, name
	if x.c.names.bare {
		return &m, nil
	}
	return x.s.strip(x.c, &m)
}

// send judges m, records it, writes it to the server and waits for the answer, which is not judged yet.
func (x *exchange) send(ctx context.Context, l *link, m *mcp.Message) (*mcp.Message, error) {
	passed, err := x.c.Pipeline.Pass(ctx, m)
	if err != nil {
		return nil, err
	}
	var server Server
	if m.Method == "initialize" {
		server, err = l.open(ctx)
	} else {
		server, err = l.use(ctx)
	}
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.asked = append(x.asked, l.conf.Name)
	x.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := x.watch(l, m, cancel)
	defer w.stop()
	req := passed.Message()
	raw, err := server.Call(ctx, passed, &caller{s: x.s, l: l, client: x.client, exchange: m.Exchange, request: x.m, watch: w})
	if err != nil {
		return nil, err
	}
	answer := *raw
	answer.To, answer.Session, answer.Principal, answer.Exchange = mcp.ToClient, req.Session, req.Principal, req.Exchange
	answer.Server, answer.Method, answer.Name, answer.Request = req.Server, req.Method, req.Name, req
	return &answer, nil
}

// watch bounds the time that the server may take for m.
func (x *exchange) watch(l *link, m *mcp.Message, cancel context.CancelCauseFunc) *watch {
	idle, most := l.conf.Timeout, l.conf.MaxTimeout
	switch meth, known := mcp.Lookup(m.Method); {
	case m.Method == "subscriptions/listen":
		return nil // stays open for as long as the client likes
	case m.Method == "tasks/result":
		idle = most // waits for the task
	case known && meth.ItemsAt != "" && !x.c.names.bare:
		idle = min(idle, listWait) // the others' items are waiting
	}
	return newWatch(idle, most, func() {
		cancel(&expired{Cancelled: &Cancelled{x.notice("timed out")}, server: l.conf.Name, after: idle})
	})
}

// abandon cancels the call because its client is gone.
func (x *exchange) abandon() { x.cancel(&Cancelled{x.notice("the client is gone")}) }

// notice is a notifications/cancelled of Gatekit's own, or nothing when no server was asked yet.
func (x *exchange) notice(reason string) pipeline.Passed {
	server := x.server()
	if server == "" {
		return pipeline.Passed{}
	}
	n := mcp.NewNotification("notifications/cancelled", object(member{"requestId", []byte(x.m.ID())}, member{"reason", mcp.Quote(reason)}))
	n = x.s.stamp(n, mcp.ToServer, x.m.Exchange)
	n.Server = server
	return x.c.Pipeline.Answer(context.Background(), n)
}

// server is who was asked last, "" when nobody was.
func (x *exchange) server() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.asked) == 0 {
		return ""
	}
	return x.asked[len(x.asked)-1]
}

// own records and answers a result of Gatekit's own; nil is {}.
func (x *exchange) own(ctx context.Context, result []byte) pipeline.Passed {
	return x.c.Pipeline.Answer(ctx, x.answers(mcp.NewResponse(x.m.ID(), result)))
}

// answers stamps a message that answers the request.
func (x *exchange) answers(m *mcp.Message) *mcp.Message {
	m = x.s.stamp(m, mcp.ToClient, x.m.Exchange)
	m.Method, m.Server, m.Name, m.Request = x.m.Method, x.m.Server, x.m.Name, x.m
	return m
}
