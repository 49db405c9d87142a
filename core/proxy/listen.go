package proxy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

const (
	ackWait = 5 * time.Second // for the servers' acknowledgements, before the client gets its own
	goodFor = time.Minute     // a subscription that held so long is opened again without delay
	// notifications of one subscription that came before it was acknowledged
	maxHeld   = 256
	maxWanted = 1000 // resources and tasks in one subscription
	ackName   = "notifications/subscriptions/acknowledged"
	changeAt  = "ListChanged" // toolsListChanged, promptsListChanged, resourcesListChanged
)

// wanted is a resource or a task that the client wants to hear of.
type wanted struct {
	server string
	clean  string // as the server knows it
	raw    []byte // as the client named it
	ok     bool   // the server has acknowledged it
}

// listen is one subscription of the client, fed by all servers (protocol.md 3.6).
type listen struct {
	x      *Call
	follow func(l *link) // starts following one more server
	acked  chan struct{} // closed when wait is empty

	mu      sync.Mutex        // guards what follows
	changes []string          // features whose list changes the client is told of: "tools"
	uris    []wanted          // only their ok changes
	tasks   []wanted          // the same
	wait    map[string]bool   // servers that have not acknowledged yet
	open    bool              // the client has its acknowledgement
	held    []pipeline.Passed // what came before
}

// listen opens a subscription at every server that the filter concerns, and answers when it ends.
func (x *Call) listen(ctx context.Context) (pipeline.Passed, error) {
	answer, err := x.subscribe(ctx)
	if x.s.ending() { // we are the ones who end it, and say so
		id := []byte(x.m.ID())
		return x.own(context.WithoutCancel(ctx), object(textField("resultType", "complete"),
			field("_meta", object(field(mcp.MetaSubscriptionID, id))))), nil
	}
	return answer, err
}

func (x *Call) subscribe(ctx context.Context) (pipeline.Passed, error) {
	l, err := x.newListen()
	if err != nil {
		return pipeline.Passed{}, err
	}
	ctx, end := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end(errClosed)
	followed := map[*link]bool{} // nil when no more are taken; guarded by l.mu
	l.follow = func(to *link) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if followed != nil && !followed[to] && l.concerns(to.name) {
			followed[to] = true
			wg.Go(func() { l.followServer(ctx, to) })
		}
	}
	defer func() {
		l.mu.Lock()
		followed = nil
		l.mu.Unlock()
	}()
	if x.c.names.bare {
		l.follow = func(*link) {}
	}
	if err := x.s.enlist(l, x.c.Limits.Subscriptions); err != nil {
		return pipeline.Passed{}, err
	}
	defer x.s.unlist(l)
	if x.c.names.bare {
		return x.subscribeBare(ctx, l)
	}
	links := x.s.ordered(x.c)
	l.expect(links)
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
	if err := l.begin(ctx, l.acknowledgement(ctx)); err != nil {
		return pipeline.Passed{}, err
	}
	<-ctx.Done()
	return pipeline.Passed{}, context.Cause(ctx)
}

// subscribeBare leaves all to the one server; the list changes of Gatekit's own come in between.
func (x *Call) subscribeBare(ctx context.Context, l *listen) (pipeline.Passed, error) {
	to, err := x.only()
	if err != nil {
		return pipeline.Passed{}, err
	}
	return x.forward(ctx, to, "", func(ctx context.Context, p pipeline.Passed) bool {
		if p.Message().Method != ackName {
			return false
		}
		l.mu.Lock()
		l.changes = changes(p.Message())
		l.mu.Unlock()
		return l.begin(ctx, p) == nil
	})
}

// newListen reads the filter.
func (x *Call) newListen() (*listen, error) {
	l := &listen{x: x, changes: changes(x.m), wait: map[string]bool{}, acked: make(chan struct{})}
	if x.c.names.bare {
		return l, nil
	}
	l.uris = x.wanted("/notifications/resourceSubscriptions", mcp.URI)
	l.tasks = x.wanted("/notifications/taskIds", mcp.TaskID)
	if len(l.uris)+len(l.tasks) > maxWanted {
		return nil, failure(mcp.CodeInvalidParams,
			"a subscription to more than %d resources and tasks: open several", maxWanted)
	}
	return l, nil
}

// changes are the features whose list changes a filter, or its acknowledgement, holds.
func changes(m *mcp.Message) (features []string) {
	for _, feature := range []string{"tools", "prompts", "resources"} {
		if raw, _ := m.Get("/notifications/" + feature + changeAt); string(raw) == "true" {
			features = append(features, feature)
		}
	}
	return features
}

// wanted reads one array of the filter. What nobody owns is left out, and so is not acknowledged.
func (x *Call) wanted(pointer string, token mcp.NameKind) (found []wanted) {
	x.m.Items(pointer, func(_ int, raw []byte) bool {
		v, ok := mcp.NewResponse("", raw).Text("")
		if !ok {
			return true
		}
		server, clean, ok := x.c.names.split(token, v)
		if !ok && token == mcp.URI {
			server, ok = x.s.owners.owner(v)
		}
		if ok && (token != mcp.TaskID || !x.foreign(server, clean)) {
			found = append(found, wanted{server: server, clean: clean, raw: raw})
		}
		return len(found) <= maxWanted
	})
	return found
}

// enlist enters the subscription among the session's.
func (s *Session) enlist(l *listen, most int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listens) >= most {
		return failure(mcp.CodeInternalError,
			"too many subscriptions are open: end one, then try again")
	}
	s.listens[l] = struct{}{}
	return nil
}

func (s *Session) unlist(l *listen) {
	s.mu.Lock()
	delete(s.listens, l)
	s.mu.Unlock()
}

// concerns says whether a server has anything to do with the subscription. l.mu is held.
func (l *listen) concerns(server string) bool {
	return len(l.changes) > 0 || len(of(server, l.uris)) > 0 || len(of(server, l.tasks)) > 0
}

// of is what is wanted of one server, as the client named it.
func of(server string, all []wanted) (raw [][]byte) {
	for _, w := range all {
		if w.server == server {
			raw = append(raw, w.raw)
		}
	}
	return raw
}

// expect says whose acknowledgements are to be waited for.
func (l *listen) expect(links []*link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, to := range links {
		if l.concerns(to.name) {
			l.wait[to.name] = true
		}
	}
	if len(l.wait) == 0 {
		close(l.acked)
	}
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

// followServer keeps the subscription open at one server for as long as the client's is.
func (l *listen) followServer(ctx context.Context, to *link) {
	wait := time.Second
	for late := false; ; late = true {
		began := time.Now()
		again := l.followOnce(ctx, to, late)
		l.settle(to.name)
		if !again || ctx.Err() != nil {
			return
		}
		if time.Since(began) > goodFor {
			wait = time.Second
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, 30*time.Second)
	}
}

// followOnce opens the subscription at one server and waits for its end. late says that it was
// open, or tried, before, so that what the client missed must be told. It answers whether another
// try makes sense.
func (l *listen) followOnce(ctx context.Context, to *link, late bool) bool {
	// a subscription may outlive a configuration, and with it its policies
	x, set := l.x, l.x.s.proxy.settings.Load()
	m, err := l.request(set, to)
	if err != nil {
		return false
	}
	passed, err := set.Pipeline.Pass(ctx, m)
	if err != nil {
		return false // refused and recorded
	}
	server, err := to.use(ctx)
	if err != nil {
		return !to.gone()
	}
	x.note(to)
	honoured := false
	raw, err := server.Call(ctx, passed, &caller{s: x.s, l: to, client: x.client,
		exchange: m.Exchange, request: x.m,
		take: func(ctx context.Context, p pipeline.Passed) bool {
			if p.Message().Method != ackName {
				return !l.wants(p.Message()) || l.hold(p)
			}
			if honoured = l.ack(set, p.Message()); late {
				l.missed(ctx, to)
			}
			return true
		}})
	switch {
	case to.gone():
		return false
	case err != nil:
		return true
	case raw.Kind == mcp.Error:
		return raw.ErrorCode() != mcp.CodeMethodNotFound
	}
	return honoured // a server that honours nothing ends at once, and would do so again
}

// request is the subscription as one server is to get it: with what is its own of the filter.
func (l *listen) request(set *settings, to *link) (*mcp.Message, error) {
	l.mu.Lock()
	filter := l.filter(of(to.name, l.uris), of(to.name, l.tasks))
	l.mu.Unlock()
	m, err := l.x.m.Edit(mcp.Set("/notifications", filter), mcp.Remove("/_meta/progressToken"))
	if err != nil {
		return nil, err
	}
	m.Server = to.name
	return l.x.s.strip(set, m)
}

// filter is the notifications of a request or an acknowledgement. l.mu is held.
func (l *listen) filter(uris, tasks [][]byte) []byte {
	var filter []member
	for _, feature := range l.changes {
		filter = append(filter, field(feature+changeAt, []byte("true")))
	}
	if len(uris) > 0 {
		filter = append(filter, listField("resourceSubscriptions", uris))
	}
	if len(tasks) > 0 {
		filter = append(filter, listField("taskIds", tasks))
	}
	return object(filter...)
}

// wants says whether the client asked for a notification that a server sent on the subscription.
// Servers may send no others, and some do.
func (l *listen) wants(m *mcp.Message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch m.Method {
	case "notifications/resources/updated": // of a resource, or of one below it
		return len(of(m.Server, l.uris)) > 0
	case "notifications/tasks":
		return len(of(m.Server, l.tasks)) > 0
	case "notifications/progress":
		return false // servers are given no token for it
	}
	if feature, ok := changed(m.Method); ok {
		return slices.Contains(l.changes, feature)
	}
	return true
}

// changed is the feature whose list a notification says has changed.
func changed(method string) (feature string, ok bool) {
	feature, ok = strings.CutSuffix(method, "/list_changed")
	return strings.TrimPrefix(feature, "notifications/"), ok
}

// ack notes what a server acknowledged of what it was asked for, and answers whether that is
// anything.
func (l *listen) ack(set *settings, m *mcp.Message) bool {
	honoured := false
	m.Members("/notifications", func(_ string, raw []byte) bool {
		honoured = honoured || string(raw) != "false" && string(raw) != "[]"
		return true
	})
	l.mu.Lock()
	if !l.open {
		for _, of := range []struct {
			pointer string
			token   mcp.NameKind
			all     []wanted
		}{{"/notifications/resourceSubscriptions", mcp.URI, l.uris}, {"/notifications/taskIds",
			mcp.TaskID, l.tasks}} {
			acked := map[string]bool{}
			m.Items(of.pointer, func(_ int, raw []byte) bool {
				name, _ := mcp.NewResponse("", raw).Text("")
				if _, clean, ok := set.names.split(of.token, name); ok {
					name = clean
				}
				acked[name] = true
				return true
			})
			for i, w := range of.all {
				of.all[i].ok = w.ok || w.server == m.Server && acked[w.clean]
			}
		}
	}
	l.mu.Unlock()
	l.settle(m.Server)
	return honoured
}

// hold keeps what came before the client's acknowledgement, which must be first, and answers
// whether it did.
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

// acknowledgement tells the client what is honoured. List changes always are: Gatekit itself can
// make them.
func (l *listen) acknowledgement(ctx context.Context) pipeline.Passed {
	honoured := func(all []wanted) (raw [][]byte) {
		for _, w := range all {
			if w.ok {
				raw = append(raw, w.raw)
			}
		}
		return raw
	}
	l.mu.Lock()
	filter := l.filter(honoured(l.uris), honoured(l.tasks))
	l.mu.Unlock()
	n := mcp.NewNotification(ackName, object(field("_meta", l.meta()), field("notifications",
		filter)))
	return l.x.c.Pipeline.PassOwn(ctx, l.x.s.stamp(n, mcp.ToClient, l.x.m.Exchange))
}

// meta marks a notification as one of the subscription.
func (l *listen) meta() []byte { return object(field(mcp.MetaSubscriptionID, []byte(l.x.m.ID()))) }

// begin gives the client its acknowledgement, then what has happened since.
func (l *listen) begin(ctx context.Context, ack pipeline.Passed) error {
	if ack.Message() == nil {
		return errors.New("the subscription could not be recorded")
	}
	for next := []pipeline.Passed{ack}; len(next) > 0; {
		for _, p := range next {
			l.write(ctx, p)
		}
		l.mu.Lock()
		next, l.held = l.held, nil
		l.open = len(next) == 0
		l.mu.Unlock()
	}
	return nil
}

// announce passes a list change of Gatekit's own on, if the client wants it.
func (l *listen) announce(ctx context.Context, n pipeline.Passed) {
	if !l.wants(n.Message()) {
		return
	}
	tagged, err := n.Edit(mcp.Set(mcp.PointerSubscriptionID, []byte(l.x.m.ID())))
	if err == nil && !l.hold(tagged) {
		l.write(ctx, tagged)
	}
}

// missed tells the client what may have happened at a server while nobody listened.
func (l *listen) missed(ctx context.Context, at *link) {
	l.x.s.changed(ctx, at, l.announce)
	l.mu.Lock()
	// what was not acknowledged may have been refused
	uris := of(at.name, slices.DeleteFunc(slices.Clone(l.uris), func(w wanted) bool {
		return !w.ok
	}))
	l.mu.Unlock()
	for _, uri := range uris {
		n := l.x.s.stamp(mcp.NewNotification("notifications/resources/updated",
			object(field("uri", uri))), mcp.ToClient, l.x.m.Exchange)
		n.Server = at.name
		if p := l.x.s.proxy.Pipeline().PassOwn(ctx, n); p.Message() != nil {
			l.announce(ctx, p)
		}
	}
}

func (l *listen) write(ctx context.Context, p pipeline.Passed) {
	if err := l.x.client.Notify(ctx, p); err != nil {
		l.x.c.Log.Debug("notify a subscriber", "method", p.Message().Method, "error", err)
	}
}
