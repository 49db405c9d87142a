package bridge

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/core/backoff"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

const (
	// the delay before a subscription is opened again after its first failure or end
	firstSubscriptionDelay = time.Second
	// how long a subscription must have been open before its end resets the delay
	stableAfter = 10 * time.Second
)

// longLivedSubscription keeps a subscription open at a modern server, for a legacy client's
// session. It receives the notifications that a legacy server would send without a subscription:
// changes of lists, and of the resources that the client has subscribed to. A subscription cannot
// be changed, so each further resource needs a new subscription.
type longLivedSubscription struct {
	*modernClient
	feed      proxy.Handler            // gets the notifications
	describe  func() clientDescription // returns the client's current description
	begin     func()                   // starts run, once
	attempted chan struct{}            // closed when the first attempt to subscribe has ended
	// the list changes that the server declared: "toolsListChanged", …
	flags []string

	mu      sync.Mutex
	uris    map[string]bool // the client's resources; true if acknowledged by the server
	version int             // counts the changes that the client has made to uris
	// the latest version that the server was asked for, with or without success
	lastTried int
	changed   chan struct{} // closed and replaced by the method change
	refused   bool          // the server accepts no subscriptions
}

// newLongLivedSubscription returns the subscription to the list changes that a server declares in
// its answer to server/discover. The subscription is not opened yet.
func newLongLivedSubscription(c *modernClient, discoverAnswer *mcp.Message, feed proxy.Handler,
	describe func() clientDescription) *longLivedSubscription {
	l := &longLivedSubscription{modernClient: c, feed: feed, describe: describe,
		attempted: make(chan struct{}), uris: map[string]bool{}, changed: make(chan struct{})}
	l.begin = sync.OnceFunc(func() {
		attempted := sync.OnceFunc(func() { close(l.attempted) })
		if !l.goroutines.Go(func(ctx context.Context) {
			defer attempted()
			l.run(ctx, attempted)
		}) {
			attempted()
		}
	})
	for _, feature := range []string{"tools", "prompts", "resources"} {
		raw, _ := discoverAnswer.Get("/capabilities/" + feature + "/listChanged")
		if string(raw) == "true" {
			l.flags = append(l.flags, feature+"ListChanged")
		}
	}
	return l
}

// start opens the subscription in the background, if the server declared that it sends
// notifications of changed lists.
func (l *longLivedSubscription) start() {
	if len(l.flags) > 0 {
		l.begin()
	}
}

// awaitFirst starts the subscription, and waits until the first attempt to open it has ended. If
// the attempt succeeded, the client is notified of the changes that its next request causes. If the
// server declared no list changes, awaitFirst does nothing. The error is context.Cause(ctx).
func (l *longLivedSubscription) awaitFirst(ctx context.Context) error {
	if len(l.flags) == 0 {
		return nil
	}
	l.begin()
	select {
	case <-l.attempted:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// change runs f under the lock and wakes the goroutines that wait for a change.
func (l *longLivedSubscription) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// subscribe adds the resource of m, a resources/subscribe. It waits until the server has
// acknowledged or refused the resource, and returns the answer for the client.
func (l *longLivedSubscription) subscribe(ctx context.Context,
	m *mcp.Message) (*mcp.Message, error) {
	uri, ok := m.Text("/uri")
	if !ok {
		return toClient(mcp.NewError(m.ID(), mcp.CodeInvalidParams,
			"resources/subscribe needs a uri", nil)), nil
	}
	var version int
	full := false
	l.change(func() {
		if _, isKnown := l.uris[uri]; !isKnown {
			if full = len(l.uris) >= maxSubscribedResources; full {
				return
			}
			l.uris[uri] = false
			l.version++
		}
		version = l.version
	})
	if full {
		return toClient(mcp.NewError(m.ID(), mcp.CodeInternalError, "too many subscriptions", nil)),
			nil
	}
	l.begin()
	for {
		l.mu.Lock()
		tried, acknowledged := l.lastTried >= version, l.uris[uri]
		refused, changed := l.refused, l.changed
		l.mu.Unlock()
		switch {
		case tried && acknowledged:
			return toClient(mcp.NewResponse(m.ID(), nil)), nil
		case refused || tried:
			l.change(func() { delete(l.uris, uri) })
			return toClient(mcp.NewError(m.ID(), mcp.CodeInvalidParams,
				"the server does not take this subscription",
				[]byte(`{"uri":`+string(mcp.Quote(uri))+`}`))), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// unsubscribe removes the resource of m, a resources/unsubscribe, and returns the answer.
func (l *longLivedSubscription) unsubscribe(m *mcp.Message) *mcp.Message {
	if uri, ok := m.Text("/uri"); ok {
		l.change(func() {
			if _, known := l.uris[uri]; known {
				delete(l.uris, uri)
				l.version++
			}
		})
	}
	return toClient(mcp.NewResponse(m.ID(), nil))
}

// wantedFilter returns the filter for a subscription to all list changes in flags and all resources
// in uris, or nil when no subscription is needed. It also returns the filter's version, and a
// channel that is closed when the filter may have changed.
func (l *longLivedSubscription) wantedFilter() (filter []byte, version int,
	changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flags)+len(l.uris) == 0 {
		return nil, l.version, l.changed
	}
	b := []byte("{")
	for _, flag := range l.flags {
		b = append(append(append(b, '"'), flag...), `":true,`...)
	}
	if len(l.uris) > 0 {
		b = append(b, `"resourceSubscriptions":[`...)
		for _, uri := range slices.Sorted(maps.Keys(l.uris)) {
			b = append(append(b, mcp.Quote(uri)...), ',')
		}
		b = append(b[:len(b)-1], "],"...)
	}
	b[len(b)-1] = '}'
	return b, l.version, l.changed
}

// run keeps a subscription with the filter of wantedFilter open, until ctx ends or the server
// refuses subscriptions. It calls attempted after each attempt to open a subscription.
func (l *longLivedSubscription) run(ctx context.Context, attempted func()) {
	var open *openSubscription // nil while no subscription is open
	failures, missed := 0, false
	waitToRetry := func() bool {
		failures++
		return backoff.Sleep(ctx,
			backoff.Delay(firstSubscriptionDelay, longestRetryDelay, failures))
	}
	closeOpen := func() {
		if open != nil {
			open.close()
			if time.Since(open.since) > stableAfter {
				failures = 0
			}
			open = nil
		}
	}
	for ctx.Err() == nil {
		filter, version, changed := l.wantedFilter()
		if filter == nil {
			closeOpen()
			l.markTried(version)
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if open == nil || open.version != version {
			// If the client missed updates of resources, it is of those acknowledged so far.
			acknowledged := l.acknowledgedURIs()
			next := l.open(ctx, filter, version)
			closeOpen()
			if open = next; open == nil {
				l.markTried(version)
				attempted()
				if l.isRefused() || !waitToRetry() {
					return
				}
				missed = true
				continue
			}
			l.markTried(version)
			attempted()
			if missed {
				l.reportMissed(ctx, acknowledged)
			}
			missed = false
		}
		select {
		case <-changed:
		case <-open.ended:
			closeOpen()
			missed = true
			if !waitToRetry() {
				return
			}
		case <-ctx.Done():
		}
	}
	closeOpen()
}

// markTried records that the server has been asked for this version of the filter.
func (l *longLivedSubscription) markTried(version int) {
	l.change(func() { l.lastTried = max(l.lastTried, version) })
}

func (l *longLivedSubscription) isRefused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// openSubscription is one subscription that is open at the server.
type openSubscription struct {
	version      int // of the filter
	cancel       context.CancelFunc
	acknowledged chan struct{} // closed when the server has acknowledged the subscription
	since        time.Time     // when the server acknowledged the subscription
	ended        chan struct{} // closed when the subscription has ended
}

// close ends the subscription and waits until it has ended.
func (o *openSubscription) close() {
	o.cancel()
	<-o.ended
}

// open opens a subscription, and returns the subscription when the server has acknowledged it. If
// the server sends no acknowledgement in time, open returns nil.
func (l *longLivedSubscription) open(ctx context.Context, filter []byte,
	version int) *openSubscription {
	request, err := listenRequest(l.describe(), filter)
	if err != nil {
		return nil
	}
	o := &openSubscription{version: version, acknowledged: make(chan struct{}),
		ended: make(chan struct{})}
	listenCtx, cancel := context.WithCancel(ctx)
	o.cancel = cancel
	handler := &subscriptionHandler{l: l,
		acknowledged: sync.OnceFunc(func() { close(o.acknowledged) })}
	started := l.goroutines.Go(func(context.Context) {
		defer close(o.ended)
		answer, _, err := l.server.Send(listenCtx, request, handler)
		if err == nil {
			answer.Method, answer.Request = request.Message().Method, request.Message()
			_ = l.feed.Consume(listenCtx, answer, "own", answersOwnRequest)
		}
		switch {
		case listenCtx.Err() != nil:
		case err == nil && answer.ErrorCode() == mcp.CodeMethodNotFound:
			l.change(func() { l.refused = true })
		default:
			l.log.Debug("a subscription ended", "server", l.name, "error", err)
		}
	})
	if !started {
		o.cancel()
		return nil
	}
	timer := time.NewTimer(acknowledgeTimeout)
	defer timer.Stop()
	select {
	case <-o.acknowledged:
		o.since = time.Now()
		return o
	case <-o.ended:
	case <-timer.C:
	case <-listenCtx.Done():
	}
	o.close()
	return nil
}

// acknowledgedURIs returns the resources that the server has acknowledged, in order.
func (l *longLivedSubscription) acknowledgedURIs() (uris []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uri, ok := range l.uris {
		if ok {
			uris = append(uris, uri)
		}
	}
	slices.Sort(uris)
	return uris
}

// reportMissed notifies the client of everything that may have changed while there was no
// subscription.
func (l *longLivedSubscription) reportMissed(ctx context.Context, uris []string) {
	for _, flag := range l.flags {
		feature := strings.TrimSuffix(flag, "ListChanged")
		l.feed.HandleNotification(ctx,
			toClient(mcp.NewNotification("notifications/"+feature+"/list_changed", nil)))
	}
	for _, uri := range uris {
		l.feed.HandleNotification(ctx,
			toClient(mcp.NewNotification("notifications/resources/updated",
				[]byte(`{"uri":`+string(mcp.Quote(uri))+`}`))))
	}
}

// subscriptionHandler is the handler of one subscription's request.
type subscriptionHandler struct {
	l            *longLivedSubscription
	acknowledged func()
}

// HandleNotification implements proxy.Handler.
func (h *subscriptionHandler) HandleNotification(ctx context.Context, m *mcp.Message) {
	switch m.Method {
	case "notifications/subscriptions/acknowledged":
		if err := h.Consume(ctx, m, "own", answersOwnRequest); err != nil {
			return // a stage has denied it
		}
		h.l.change(func() {
			m.Items("/notifications/resourceSubscriptions", func(_ int, raw []byte) bool {
				if uri, ok := mcp.NewResponse("", raw).Text(""); ok {
					if _, wanted := h.l.uris[uri]; wanted {
						h.l.uris[uri] = true
					}
				}
				return true
			})
		})
		h.acknowledged()
	case "notifications/tools/list_changed", "notifications/prompts/list_changed",
		"notifications/resources/list_changed", "notifications/resources/updated":
		edited, err := m.Edit(mcp.RemoveReservedMeta(m)...)
		if err != nil {
			drop(ctx, h, m, cannotTranslate)
			return
		}
		h.l.feed.HandleNotification(ctx, edited)
	default:
		drop(ctx, h, m, "does not belong to a subscription")
	}
}

// Consume implements proxy.Handler.
func (h *subscriptionHandler) Consume(ctx context.Context, m *mcp.Message, action,
	reason string) error {
	return h.l.feed.Consume(ctx, m, action, reason)
}

// HandleRequests implements proxy.Handler. It refuses all requests, since a server may not send any
// on a subscription.
func (h *subscriptionHandler) HandleRequests(_ context.Context,
	ms []*mcp.Message) []pipeline.Passed {
	return make([]pipeline.Passed, len(ms))
}

// IsWaiting implements proxy.Handler.
func (h *subscriptionHandler) IsWaiting() bool { return true }

// ReportActivity implements proxy.Handler.
func (h *subscriptionHandler) ReportActivity() {}
