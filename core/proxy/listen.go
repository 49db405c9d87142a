package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

const (
	ackWait  = 5 * time.Second // for the servers' acknowledgements, before the client gets its own
	maxHeld  = 256             // notifications of one subscription that came before it was acknowledged
	metaSub  = "/_meta/io.modelcontextprotocol~1subscriptionId"
	ackName  = "notifications/subscriptions/acknowledged"
	changeAt = "ListChanged" // toolsListChanged, promptsListChanged, resourcesListChanged
)

// listen is one subscription of the client, fed by all servers (protocol.md 3.6).
type listen struct {
	x       *exchange
	changes []string            // features whose list changes the client wants: "tools"
	uris    map[string][][]byte // server -> resources it is to be asked about, with our names
	tasks   map[string][][]byte // the same for tasks
	follow  func(l *link)       // starts following one more server

	mu     sync.Mutex
	wait   map[string]bool // servers that have not acknowledged yet
	acked  chan struct{}   // closed when none is left
	uriOK  [][]byte        // what the servers acknowledged
	taskOK [][]byte
	open   bool              // the client has its acknowledgement
	held   []pipeline.Passed // what came before
}

// listen opens a subscription at every server that the filter concerns, and answers when it ends.
func (x *exchange) listen(ctx context.Context) (pipeline.Passed, error) {
	answer, err := x.subscribe(ctx)
	if x.s.life.Err() != nil { // we are the ones who end it, and say so
		id := []byte(x.m.ID())
		return x.own(context.WithoutCancel(ctx), object(member{"resultType", []byte(`"complete"`)},
			member{"_meta", object(member{mcp.MetaSubscription, id})})), nil
	}
	return answer, err
}

func (x *exchange) subscribe(ctx context.Context) (pipeline.Passed, error) {
	if x.c.names.bare {
		return x.forward(ctx, x.s.ordered(x.c)[0], "")
	}
	l := x.newListen()
	ctx, end := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end(errClosed)
	var starting sync.Mutex
	over := false
	l.follow = func(to *link) {
		starting.Lock()
		defer starting.Unlock()
		if !over && l.concerns(to.conf.Name) {
			wg.Go(func() { x.followServer(ctx, l, to) })
		}
	}
	defer func() {
		starting.Lock()
		over = true
		starting.Unlock()
	}()
	if err := x.s.enlist(l, x.c.Limits.Listens); err != nil {
		return pipeline.Passed{}, err
	}
	defer x.s.unlist(l)
	links := x.s.ordered(x.c)
	for _, to := range links {
		if l.concerns(to.conf.Name) {
			l.wait[to.conf.Name] = true
		}
	}
	if len(l.wait) == 0 {
		close(l.acked)
	}
	for _, to := range links {
		l.follow(to)
	}
	timer := time.NewTimer(ackWait)
	defer timer.Stop()
	select {
	case <-l.acked:
	case <-timer.C:
	case <-ctx.Done():
		return pipeline.Passed{}, context.Cause(ctx)
	}
	l.acknowledge(ctx)
	select {
	case <-ctx.Done():
	case <-x.s.life.Done():
	}
	return pipeline.Passed{}, errClosed
}

// newListen reads the filter.
func (x *exchange) newListen() *listen {
	l := &listen{x: x, uris: map[string][][]byte{}, tasks: map[string][][]byte{}, wait: map[string]bool{}, acked: make(chan struct{})}
	for _, feature := range []string{"tools", "prompts", "resources"} {
		if raw, _ := x.m.Get("/notifications/" + feature + changeAt); string(raw) == "true" {
			l.changes = append(l.changes, feature)
		}
	}
	split := func(pointer string, token mcp.Token, into map[string][][]byte) {
		x.m.Items(pointer, func(_ int, raw []byte) bool {
			v, ok := mcp.NewResponse("", raw).Text("")
			if !ok {
				return true
			}
			server, _, ok := x.c.names.split(token, v)
			if !ok && token == mcp.URI {
				server, ok = x.s.owners.owner(v)
			}
			if ok {
				into[server] = append(into[server], raw)
			}
			return true // what nobody owns is left out, and so is not acknowledged
		})
	}
	split("/notifications/resourceSubscriptions", mcp.URI, l.uris)
	split("/notifications/taskIds", mcp.TaskID, l.tasks)
	return l
}

// enlist enters the subscription among the session's.
func (s *Session) enlist(l *listen, most int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listens) >= most {
		return failure(mcp.CodeInternal, "too many subscriptions are open: end one, then try again")
	}
	s.listens[l] = struct{}{}
	return nil
}

func (s *Session) unlist(l *listen) {
	s.mu.Lock()
	delete(s.listens, l)
	s.mu.Unlock()
}

// join follows a server that was configured after the subscription was opened.
func (l *listen) join(to *link) {
	l.x.s.background(func(context.Context) { l.follow(to) })
}

func (l *listen) concerns(server string) bool {
	return len(l.changes) > 0 || len(l.uris[server]) > 0 || len(l.tasks[server]) > 0
}

// followServer keeps the subscription open at one server for as long as the client's is.
func (x *exchange) followServer(ctx context.Context, l *listen, to *link) {
	for wait, first := time.Second, true; ; wait, first = min(2*wait, 30*time.Second), false {
		again := x.followOnce(ctx, l, to, !first)
		l.settle(to.conf.Name)
		if !again {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// followOnce opens the subscription at one server and waits for its end. late says that the client has had its acknowledgement, so that what it
// missed must be told. It answers whether another try makes sense.
func (x *exchange) followOnce(ctx context.Context, l *listen, to *link, late bool) bool {
	m, err := x.listenRequest(l, to)
	if err != nil {
		return false
	}
	passed, err := x.c.Pipeline.Pass(ctx, m)
	if err != nil {
		return false // refused and recorded
	}
	server, err := to.use(ctx)
	if err != nil {
		return !errors.As(err, new(*Unbridged))
	}
	x.mu.Lock()
	x.asked = append(x.asked, to.conf.Name)
	x.mu.Unlock()
	honoured := false
	raw, err := server.Call(ctx, passed, &caller{s: x.s, l: to, client: x.client, exchange: m.Exchange, request: x.m,
		take: func(ctx context.Context, p pipeline.Passed) bool {
			if p.Message().Method != ackName {
				return l.hold(p)
			}
			honoured = l.ack(to.conf.Name, p.Message())
			if late {
				x.s.announce(ctx, to.conf.Name)
			}
			return true
		}})
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		return true
	case raw.Kind == mcp.Error:
		return raw.ErrorCode() != mcp.CodeMethodNotFound
	}
	return honoured // a server that honours nothing ends at once, and would do so again
}

// listenRequest is the subscription as one server is to get it: with what is its own of the filter.
func (x *exchange) listenRequest(l *listen, to *link) (*mcp.Message, error) {
	var filter []member
	for _, feature := range l.changes {
		filter = append(filter, member{feature + changeAt, []byte("true")})
	}
	if uris := l.uris[to.conf.Name]; len(uris) > 0 {
		filter = append(filter, member{"resourceSubscriptions", array(uris)})
	}
	if tasks := l.tasks[to.conf.Name]; len(tasks) > 0 {
		filter = append(filter, member{"taskIds", array(tasks)})
	}
	m, err := x.m.Edit(mcp.Set("/notifications", object(filter...)), mcp.Remove("/_meta/progressToken"))
	if err != nil {
		return nil, err
	}
	m.Server = to.conf.Name
	return x.s.strip(x.c, m)
}

// ack notes what a server acknowledged, and answers whether that is anything.
func (l *listen) ack(server string, m *mcp.Message) bool {
	honoured := false
	m.Members("/notifications", func(_ string, raw []byte) bool {
		honoured = honoured || string(raw) != "false" && string(raw) != "[]"
		return true
	})
	l.mu.Lock()
	for pointer, into := range map[string]*[][]byte{"/notifications/resourceSubscriptions": &l.uriOK, "/notifications/taskIds": &l.taskOK} {
		m.Items(pointer, func(_ int, raw []byte) bool {
			*into = append(*into, raw)
			return true
		})
	}
	l.mu.Unlock()
	l.settle(server)
	return honoured
}

// settle says that nothing more is to be waited for from the server.
func (l *listen) settle(server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wait[server] {
		delete(l.wait, server)
		if len(l.wait) == 0 {
			close(l.acked)
		}
	}
}

// hold keeps what came before the client's acknowledgement, which must be first, and answers whether it did.
func (l *listen) hold(p pipeline.Passed) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open {
		return false
	}
	if len(l.held) < maxHeld {
		l.held = append(l.held, p)
	}
	return true
}

// acknowledge tells the client what is honoured, then what has happened since. List changes always are: Gatekit itself can make them.
func (l *listen) acknowledge(ctx context.Context) {
	x := l.x
	var filter []member
	for _, feature := range l.changes {
		filter = append(filter, member{feature + changeAt, []byte("true")})
	}
	l.mu.Lock()
	if len(l.uriOK) > 0 {
		filter = append(filter, member{"resourceSubscriptions", array(l.uriOK)})
	}
	if len(l.taskOK) > 0 {
		filter = append(filter, member{"taskIds", array(l.taskOK)})
	}
	l.mu.Unlock()
	n := mcp.NewNotification(ackName, object(
		member{"_meta", object(member{mcp.MetaSubscription, []byte(x.m.ID())})}, member{"notifications", object(filter...)}))
	l.write(ctx, x.c.Pipeline.Answer(ctx, x.s.stamp(n, mcp.ToClient, x.m.Exchange)))
	for {
		l.mu.Lock()
		held := l.held
		l.held = nil
		l.open = len(held) == 0
		l.mu.Unlock()
		if len(held) == 0 {
			return
		}
		for _, p := range held {
			l.write(ctx, p)
		}
	}
}

// announce passes a list change of Gatekit's own on, if the client wants it.
func (l *listen) announce(ctx context.Context, n pipeline.Passed) {
	for _, feature := range l.changes {
		if n.Message().Method != "notifications/"+feature+"/list_changed" {
			continue
		}
		tagged, err := n.Edit(mcp.Set(metaSub, []byte(l.x.m.ID())))
		if err == nil && !l.hold(tagged) {
			l.write(ctx, tagged)
		}
	}
}

func (l *listen) write(ctx context.Context, p pipeline.Passed) {
	if p.Message() == nil {
		return // it could not be recorded
	}
	if err := l.x.client.Notify(ctx, p); err != nil {
		l.x.c.Log.Debug("notify a subscriber", "method", p.Message().Method, "error", err)
	}
}
