package proxy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/core/backoff"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

const (
	// how long the client's acknowledgement waits for the acknowledgements of the servers
	acknowledgementWait = 5 * time.Second
	// a subscription that lasted this long is opened again after the shortest delay
	stableAfter = time.Minute
	// notifications that are held back until the client has its acknowledgement
	maxHeldBack        = 256
	maxSubscribedItems = 1000 // resources and tasks in one subscription
	acknowledgedMethod = "notifications/subscriptions/acknowledged"
	listChangedSuffix  = "ListChanged" // toolsListChanged, promptsListChanged, resourcesListChanged
)

// subscribedItem is a resource or a task of a subscription.
type subscribedItem struct {
	server       string
	clean        string // the name of the item at the server, without a prefix
	raw          []byte // the name as the client sent it, in JSON
	acknowledged bool   // by the server
}

// subscription is one subscriptions/listen of the client (2026-07-28). All servers that the filter
// concerns send notifications for it.
type subscription struct {
	call         *Call
	addServer    func(srv *sessionServer) // opens the subscription at one more server
	acknowledged chan struct{}            // closed when all servers that count have acknowledged

	mu sync.Mutex // guards the fields below
	// features, such as "tools", for which the client wants notifications of list changes
	listChanges []string
	// resources and tasks; after newSubscription, only the field acknowledged of an item changes
	uris, tasks []subscribedItem
	// servers that have not acknowledged yet
	unacknowledged map[*sessionServer]bool
	begun          bool              // servers that are added from now on do not count
	opened         bool              // the client has got its acknowledgement
	heldBack       []pipeline.Passed // notifications that came before opened was set
}

// serveSubscription opens a subscription at every server that the client's filter concerns. It
// returns when the client's subscription ends.
func (call *Call) serveSubscription(ctx context.Context) (pipeline.Passed, error) {
	answer, err := call.subscribe(ctx)
	if call.session.isClosed() { // Gatekit ends the subscription, and answers it
		id := []byte(call.request.ID())
		return call.ownResult(context.WithoutCancel(ctx),
			object(textField("resultType", "complete"),
				field("_meta", object(field(mcp.MetaSubscriptionID, id))))), nil
	}
	return answer, err
}

func (call *Call) subscribe(ctx context.Context) (pipeline.Passed, error) {
	sub, err := call.newSubscription(ctx)
	if err != nil {
		return pipeline.Passed{}, err
	}
	ctx, end := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end(errClosed)
	followed := map[*sessionServer]bool{} // nil after the subscription has ended; guarded by sub.mu
	sub.addServer = func(srv *sessionServer) {
		sub.mu.Lock()
		defer sub.mu.Unlock()
		if followed != nil && !followed[srv] && sub.concerns(srv.name) {
			followed[srv] = true
			if !sub.begun {
				sub.unacknowledged[srv] = true
			}
			wg.Go(func() { sub.followServer(ctx, srv) })
		}
	}
	defer func() {
		sub.mu.Lock()
		followed = nil
		sub.mu.Unlock()
	}()
	if call.settings.names.disabled {
		sub.addServer = func(*sessionServer) {}
	}
	if err := call.session.addSubscription(sub, call.settings.Limits.Subscriptions); err != nil {
		return pipeline.Passed{}, err
	}
	defer call.session.removeSubscription(sub)
	if call.settings.names.disabled {
		return call.subscribeUnprefixed(ctx, sub)
	}
	servers := call.session.serversInOrder(call.settings)
	if !sub.concernsAny(servers) {
		if err := call.inspectUnsent(ctx); err != nil {
			return pipeline.Passed{}, err
		}
	}
	for _, srv := range servers {
		sub.addServer(srv)
	}
	sub.begin()
	timer := time.NewTimer(acknowledgementWait)
	defer timer.Stop()
	select {
	case <-sub.acknowledged:
	case <-timer.C:
	case <-ctx.Done():
		return pipeline.Passed{}, context.Cause(ctx)
	}
	if err := sub.start(ctx, sub.acknowledgement(ctx)); err != nil {
		return pipeline.Passed{}, err
	}
	<-ctx.Done()
	return pipeline.Passed{}, context.Cause(ctx)
}

// subscribeUnprefixed forwards the subscription to the one server. The client also gets list
// changes that Gatekit causes.
func (call *Call) subscribeUnprefixed(ctx context.Context,
	sub *subscription) (pipeline.Passed, error) {
	srv, err := call.onlyServer()
	if err != nil {
		return pipeline.Passed{}, err
	}
	call.wants = sub.isWanted
	return call.forward(ctx, srv, "", func(ctx context.Context, p pipeline.Passed) bool {
		if p.Message().Method != acknowledgedMethod {
			return false
		}
		sub.mu.Lock()
		acknowledged := listChangesIn(p.Message())
		sub.listChanges = slices.DeleteFunc(slices.Clone(sub.listChanges), func(f string) bool {
			return !slices.Contains(acknowledged, f)
		})
		sub.mu.Unlock()
		return sub.start(ctx, p) == nil
	})
}

// newSubscription returns the subscription that the filter of the request asks for.
func (call *Call) newSubscription(ctx context.Context) (*subscription, error) {
	sub := &subscription{call: call, listChanges: listChangesIn(call.request),
		unacknowledged: map[*sessionServer]bool{}, acknowledged: make(chan struct{})}
	var err error
	if sub.uris, err = call.subscribedItems(ctx, "/notifications/resourceSubscriptions",
		mcp.URI); err != nil {
		return nil, err
	}
	if sub.tasks, err = call.subscribedItems(ctx, "/notifications/taskIds",
		mcp.TaskID); err != nil {
		return nil, err
	}
	if len(sub.uris)+len(sub.tasks) > maxSubscribedItems {
		return nil, requestErrorf(mcp.CodeInvalidParams,
			"more than %d resources and tasks in one subscription: open several",
			maxSubscribedItems)
	}
	return sub, nil
}

// listChangesIn returns the features, such as "tools", for which m has a true ListChanged member. m
// is a subscriptions/listen or an acknowledgement.
func listChangesIn(m *mcp.Message) (features []string) {
	for _, feature := range []string{"tools", "prompts", "resources"} {
		if raw, _ := m.Get("/notifications/" + feature + listChangedSuffix); string(raw) == "true" {
			features = append(features, feature)
		}
	}
	return features
}

// subscribedItems reads one array of the filter. Items that no server owns, and tasks that the
// principal must not use, are left out, and therefore never acknowledged. subscribedItems returns
// an error if it is not known whether the principal owns a task.
func (call *Call) subscribedItems(ctx context.Context, pointer string,
	nameKind mcp.NameKind) (found []subscribedItem, err error) {
	call.request.Items(pointer, func(_ int, raw []byte) bool {
		v, ok := mcp.NewResponse("", raw).Text("")
		if !ok {
			return true
		}
		if call.settings.names.disabled {
			found = append(found, subscribedItem{server: call.settings.Servers[0].Name, clean: v,
				raw: raw})
			return len(found) <= maxSubscribedItems
		}
		server, clean, ok := call.settings.names.splitPrefix(nameKind, v)
		if !ok && nameKind == mcp.URI {
			server, ok = call.findOwner(ctx, v)
		}
		if ok && nameKind == mcp.TaskID {
			var foreign bool
			if foreign, err = call.denyIfForeignTask(ctx, server, clean); err != nil {
				return false
			}
			ok = !foreign
		}
		if ok {
			found = append(found, subscribedItem{server: server, clean: clean, raw: raw})
		}
		return len(found) <= maxSubscribedItems
	})
	return found, err
}

// addSubscription adds the subscription to the session. It returns an error if the session already
// has limit subscriptions.
func (s *Session) addSubscription(sub *subscription, limit int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.subscriptions) >= limit {
		return requestErrorf(mcp.CodeInternalError,
			"too many subscriptions are open: end a subscription, then try again")
	}
	s.subscriptions[sub] = struct{}{}
	return nil
}

func (s *Session) removeSubscription(sub *subscription) {
	s.mu.Lock()
	delete(s.subscriptions, sub)
	s.mu.Unlock()
}

// concerns reports whether a server must get the subscription, for list changes or for items of the
// server. sub.mu is held.
func (sub *subscription) concerns(server string) bool {
	return len(sub.listChanges) > 0 || len(itemsOf(server, sub.uris)) > 0 ||
		len(itemsOf(server, sub.tasks)) > 0
}

// itemsOf returns the items of one server, as the client sent them.
func itemsOf(server string, all []subscribedItem) (raw [][]byte) {
	for _, item := range all {
		if item.server == server {
			raw = append(raw, item.raw)
		}
	}
	return raw
}

// concernsAny reports whether any of the servers must get the subscription.
func (sub *subscription) concernsAny(servers []*sessionServer) bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return slices.ContainsFunc(servers, func(srv *sessionServer) bool {
		return sub.concerns(srv.name)
	})
}

// begin notes that all servers whose acknowledgements count have been added.
func (sub *subscription) begin() {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.begun = true
	if len(sub.unacknowledged) == 0 {
		close(sub.acknowledged)
	}
}

// stopWaitingFor notes that the server has acknowledged, or that it will not acknowledge.
func (sub *subscription) stopWaitingFor(srv *sessionServer) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.unacknowledged[srv] {
		delete(sub.unacknowledged, srv)
		if sub.begun && len(sub.unacknowledged) == 0 {
			close(sub.acknowledged)
		}
	}
}

// followServer keeps the subscription open at one server until the client's subscription ends.
func (sub *subscription) followServer(ctx context.Context, srv *sessionServer) {
	failures := 1
	for late := false; ; late = true {
		started := time.Now()
		again := sub.followOnce(ctx, srv, late)
		sub.stopWaitingFor(srv)
		if !again || ctx.Err() != nil {
			return
		}
		if time.Since(started) > stableAfter {
			failures = 1
		}
		if !backoff.Sleep(ctx, retryDelay(failures)) {
			return
		}
		failures++
	}
}

// followOnce opens the subscription at one server and waits for its end. late is false only for the
// first attempt. If late is true, the client is notified of changes that it may have missed. again
// reports whether another attempt makes sense.
func (sub *subscription) followOnce(ctx context.Context, srv *sessionServer,
	late bool) (again bool) {
	// A subscription may outlive the configuration in which it began, so the current policies are
	// used.
	call, set := sub.call, sub.call.session.proxy.settings.Load()
	m, err := sub.request(set, srv)
	if err != nil {
		return false
	}
	call.noteInspected()
	passed, err := set.Pipeline.Pass(ctx, m)
	if denied := (*pipeline.DeniedError)(nil); errors.As(err, &denied) {
		return denied.IsTemporary() // denied and recorded
	}
	server, err := srv.openInitialized(ctx)
	if err != nil {
		return !srv.isClosed()
	}
	call.noteAsked(srv)
	anyAcknowledged := false
	intercept := func(ctx context.Context, p pipeline.Passed) bool {
		if p.Message().Method != acknowledgedMethod {
			return sub.holdBack(p)
		}
		if anyAcknowledged = sub.handleAcknowledgement(set, srv, p.Message()); late {
			sub.reportMissed(ctx, srv)
		}
		return true
	}
	answer, err := server.Call(ctx, passed, &serverHandler{session: call.session, server: srv,
		client: call.client, request: call.request, sent: passed.Message(),
		intercept: intercept, wants: sub.isWanted})
	switch {
	case srv.isClosed():
		return false
	case err != nil:
		return true
	case answer.Kind == mcp.Error:
		return answer.ErrorCode() != mcp.CodeMethodNotFound
	}
	// A server that acknowledges nothing ends the subscription at once, and would do so again.
	return anyAcknowledged
}

// request returns the subscription for one server, with that server's part of the filter.
func (sub *subscription) request(set *settings, srv *sessionServer) (*mcp.Message, error) {
	sub.mu.Lock()
	filter := sub.filter(itemsOf(srv.name, sub.uris), itemsOf(srv.name, sub.tasks))
	sub.mu.Unlock()
	m, err := sub.call.request.Edit(mcp.Set("/notifications", filter),
		mcp.Remove("/_meta/progressToken"))
	if err != nil {
		return nil, err
	}
	m.Server = srv.name
	return sub.call.session.removePrefixes(set, m)
}

// filter returns the notifications member of a request or an acknowledgement. sub.mu is held.
func (sub *subscription) filter(uris, tasks [][]byte) []byte {
	var filter []member
	for _, feature := range sub.listChanges {
		filter = append(filter, field(feature+listChangedSuffix, []byte("true")))
	}
	if len(uris) > 0 {
		filter = append(filter, listField("resourceSubscriptions", uris))
	}
	if len(tasks) > 0 {
		filter = append(filter, listField("taskIds", tasks))
	}
	return object(filter...)
}

// isWanted reports whether the client asked for a notification that a server sent on the
// subscription. Servers must not send other notifications, but some do.
func (sub *subscription) isWanted(m *mcp.Message) bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	switch m.Method {
	case "notifications/resources/updated":
		return sub.wantsUpdate(m)
	case "notifications/tasks":
		return len(itemsOf(m.Server, sub.tasks)) > 0
	case "notifications/progress":
		return sub.call.settings.names.disabled // otherwise, servers get no progress token
	}
	if feature, ok := changedFeature(m.Method); ok {
		return slices.Contains(sub.listChanges, feature)
	}
	return true
}

// wantsUpdate reports whether the client has subscribed to the resource that m reports as updated.
// A subscription to a URI includes all URIs that begin with it. m has the server's own URI in Name.
// sub.mu is held.
func (sub *subscription) wantsUpdate(m *mcp.Message) bool {
	return slices.ContainsFunc(sub.uris, func(item subscribedItem) bool {
		return item.server == m.Server && strings.HasPrefix(m.Name, item.clean)
	})
}

// changedFeature returns the feature whose list a notification reports as changed.
func changedFeature(method string) (feature string, ok bool) {
	feature, ok = strings.CutSuffix(method, "/list_changed")
	return strings.TrimPrefix(feature, "notifications/"), ok
}

// handleAcknowledgement notes which items a server acknowledged. It reports whether the server
// acknowledged anything.
func (sub *subscription) handleAcknowledgement(set *settings, srv *sessionServer,
	m *mcp.Message) bool {
	anyAcknowledged := false
	m.Members("/notifications", func(_ string, raw []byte) bool {
		anyAcknowledged = anyAcknowledged || string(raw) != "false" && string(raw) != "[]"
		return true
	})
	sub.mu.Lock()
	if !sub.opened {
		for _, list := range []struct {
			pointer  string
			nameKind mcp.NameKind
			all      []subscribedItem
		}{{"/notifications/resourceSubscriptions", mcp.URI, sub.uris}, {"/notifications/taskIds",
			mcp.TaskID, sub.tasks}} {
			acknowledged := map[string]bool{}
			m.Items(list.pointer, func(_ int, raw []byte) bool {
				name, _ := mcp.NewResponse("", raw).Text("")
				if _, clean, ok := set.names.splitPrefix(list.nameKind, name); ok {
					name = clean
				}
				acknowledged[name] = true
				return true
			})
			for i, item := range list.all {
				list.all[i].acknowledged = item.acknowledged || item.server == m.Server &&
					acknowledged[item.clean]
			}
		}
	}
	sub.mu.Unlock()
	sub.stopWaitingFor(srv)
	return anyAcknowledged
}

// holdBack keeps a notification until the client has got its acknowledgement, which must come
// first. When maxHeldBack notifications are kept, it drops the notification. It drops a change of a
// list only if another change of this list is kept. If the client already has its acknowledgement,
// holdBack keeps nothing and returns false.
func (sub *subscription) holdBack(p pipeline.Passed) bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.opened {
		return false
	}
	if len(sub.heldBack) >= maxHeldBack {
		method := p.Message().Method
		_, isListChange := changedFeature(method)
		if !isListChange || slices.ContainsFunc(sub.heldBack, func(other pipeline.Passed) bool {
			return other.Message().Method == method
		}) {
			return true
		}
	}
	sub.heldBack = append(sub.heldBack, p)
	return true
}

// acknowledgement returns the client's acknowledgement. List changes are always acknowledged:
// Gatekit itself can cause them.
func (sub *subscription) acknowledgement(ctx context.Context) pipeline.Passed {
	acknowledged := func(all []subscribedItem) (raw [][]byte) {
		for _, item := range all {
			if item.acknowledged {
				raw = append(raw, item.raw)
			}
		}
		return raw
	}
	sub.mu.Lock()
	filter := sub.filter(acknowledged(sub.uris), acknowledged(sub.tasks))
	sub.mu.Unlock()
	n := mcp.NewNotification(acknowledgedMethod, object(field("_meta", sub.meta()),
		field("notifications",
			filter)))
	return sub.call.settings.Pipeline.PassOwn(ctx, sub.call.session.stamp(n, mcp.ToClient,
		sub.call.request))
}

// meta returns the _meta that marks a notification as one of the subscription.
func (sub *subscription) meta() []byte {
	return object(field(mcp.MetaSubscriptionID, []byte(sub.call.request.ID())))
}

// start sends ack, the client's acknowledgement, and then the notifications in heldBack.
func (sub *subscription) start(ctx context.Context, ack pipeline.Passed) error {
	if ack.Message() == nil {
		return errors.New("the acknowledgement could not be recorded")
	}
	for next := []pipeline.Passed{ack}; len(next) > 0; {
		for _, p := range next {
			sub.write(ctx, p)
		}
		sub.mu.Lock()
		next, sub.heldBack = sub.heldBack, nil
		sub.opened = len(next) == 0
		sub.mu.Unlock()
	}
	return nil
}

// announce sends the client a notification of Gatekit's own, if the client wants it.
func (sub *subscription) announce(ctx context.Context, n pipeline.Passed) {
	if !sub.isWanted(n.Message()) {
		return
	}
	tagged, err := n.Edit(mcp.Set(mcp.PointerSubscriptionID, []byte(sub.call.request.ID())))
	if err == nil && !sub.holdBack(tagged) {
		sub.write(ctx, tagged)
	}
}

// reportMissed notifies the client of everything that may have changed at a server while the
// subscription there was interrupted.
func (sub *subscription) reportMissed(ctx context.Context, srv *sessionServer) {
	sub.call.session.notifyListChanges(ctx, srv, sub.announce)
	sub.mu.Lock()
	// items that were not acknowledged may have been denied
	missed := slices.DeleteFunc(slices.Clone(sub.uris), func(item subscribedItem) bool {
		return !item.acknowledged || item.server != srv.name
	})
	sub.mu.Unlock()
	for _, item := range missed {
		n := sub.call.session.stamp(mcp.NewNotification("notifications/resources/updated",
			object(field("uri", item.raw))), mcp.ToClient, sub.call.request)
		n.Server, n.Name = srv.name, item.clean
		if p := sub.call.session.proxy.Pipeline().PassOwn(ctx, n); p.Message() != nil {
			sub.announce(ctx, p)
		}
	}
}

func (sub *subscription) write(ctx context.Context, p pipeline.Passed) {
	if err := sub.call.client.Notify(ctx, p); err != nil {
		sub.call.settings.Log.Debug("subscriber not notified", "method", p.Message().Method,
			"error", err)
	}
}
