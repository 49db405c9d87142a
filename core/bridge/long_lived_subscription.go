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
	// delay before a subscription that failed or ended is opened again
	firstSubscriptionDelay = time.Second
	// a subscription that lived this long counts as a success when it ends
	stableAfter = 10 * time.Second
)

// longLivedSubscription is kept at a modern server for a legacy client's session. It brings what
// the client would get from a legacy server by itself: changes of lists, and of the resources that
// it has subscribed to. A subscription cannot be changed, so each further resource takes a new one.
type longLivedSubscription struct {
	*modernClient
	feed      proxy.Handler            // gets the notifications
	describe  func() clientDescription // returns the client's, at the time
	begin     func()                   // starts run, once
	attempted chan struct{}            // closed when a first subscription was opened or refused
	flags     []string                 // what the server declared: "toolsListChanged", …

	mu      sync.Mutex
	uris    map[string]bool // that the client subscribed to; true when the server honours it
	version int             // counts the changes of uris
	// the version that the server was last asked for, with or without success
	settled int
	changed chan struct{} // closed and replaced with each change of a field above
	refused bool          // the server takes no subscriptions
}

// newLongLivedSubscription returns the subscription for what a server declares in its answer to
// server/discover. It opens nothing.
func newLongLivedSubscription(c *modernClient, discoverAnswer *mcp.Message, feed proxy.Handler,
	describe func() clientDescription) *longLivedSubscription {
	l := &longLivedSubscription{modernClient: c, feed: feed, describe: describe,
		attempted: make(chan struct{}), uris: map[string]bool{}, changed: make(chan struct{})}
	l.begin = sync.OnceFunc(func() {
		attempted := sync.OnceFunc(func() { close(l.attempted) })
		if !l.tasks.Go(func(ctx context.Context) { defer attempted(); l.run(ctx, attempted) }) {
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

// start opens the subscription in the background, if the server declared anything to notify of.
func (l *longLivedSubscription) start() {
	if len(l.flags) > 0 {
		l.begin()
	}
}

// awaitFirst starts the subscription, and waits until the server has acknowledged or refused it, so
// that the client gets the changes that its next request causes. The error is the cause of ctx.
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

// change runs f under the lock and wakes those that wait for a change.
func (l *longLivedSubscription) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// subscribe returns the answer to a resources/subscribe, when the server has acknowledged or
// refused the resource.
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
		if _, again := l.uris[uri]; !again {
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
		settled, honoured := l.settled >= version, l.uris[uri]
		refused, changed := l.refused, l.changed
		l.mu.Unlock()
		switch {
		case settled && honoured:
			return toClient(mcp.NewResponse(m.ID(), nil)), nil
		case refused || settled:
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

// unsubscribe returns the answer to a resources/unsubscribe.
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

// wanted returns the filter of the subscription that is needed, nil for none, with its version and
// a channel that is closed when it changes.
func (l *longLivedSubscription) wanted() (filter []byte, version int, changed <-chan struct{}) {
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

// run keeps the subscription open, as it is needed, until ctx ends or the server refuses it. It
// calls attempted when the first one was opened or refused.
func (l *longLivedSubscription) run(ctx context.Context, attempted func()) {
	var open *openSubscription // nil while there is none
	failures, missed := 0, false
	pause := func() bool {
		failures++
		return backoff.Sleep(ctx,
			backoff.Delay(firstSubscriptionDelay, longestRetryDelay, failures))
	}
	for ctx.Err() == nil {
		filter, version, changed := l.wanted()
		if filter == nil {
			open.close()
			open = nil
			l.settle(version)
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if open == nil || open.version != version {
			honoured := l.honoured() // notifications of these may have been missed
			next := l.open(ctx, filter, version)
			open.close()
			if open = next; open == nil {
				l.settle(version)
				attempted()
				if l.isRefused() || !pause() {
					return
				}
				missed = true
				continue
			}
			l.settle(version)
			attempted()
			if missed {
				l.reportMissed(ctx, honoured)
			}
			missed = false
		}
		since := time.Now()
		select {
		case <-changed:
		case <-open.ended:
			open.close()
			open, missed = nil, true
			if time.Since(since) > stableAfter {
				failures = 0
			}
			if !pause() {
				return
			}
		case <-ctx.Done():
		}
	}
	open.close()
}

// settle records that the server has been asked for a version.
func (l *longLivedSubscription) settle(version int) {
	l.change(func() { l.settled = max(l.settled, version) })
}

func (l *longLivedSubscription) isRefused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// openSubscription is one subscription that is open at the server.
type openSubscription struct {
	version int // of the filter
	cancel  context.CancelFunc
	acked   chan struct{} // closed when the server has acknowledged it
	ended   chan struct{} // closed when it has ended
}

// close ends the subscription and waits for it. A nil subscription needs no end.
func (o *openSubscription) close() {
	if o != nil {
		o.cancel()
		<-o.ended
	}
}

// open opens a subscription. It returns it when the server has acknowledged it, and nil when the
// server has not in time.
func (l *longLivedSubscription) open(ctx context.Context, filter []byte,
	version int) *openSubscription {
	request, err := listenRequest(l.describe(), filter)
	if err != nil {
		return nil
	}
	o := &openSubscription{version: version, acked: make(chan struct{}),
		ended: make(chan struct{})}
	listenCtx, cancel := context.WithCancel(ctx)
	o.cancel = cancel
	handler := &subscriptionHandler{l: l, acknowledged: sync.OnceFunc(func() { close(o.acked) })}
	started := l.tasks.Go(func(context.Context) {
		defer close(o.ended)
		answer, _, err := l.server.Send(listenCtx, request, handler)
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
	case <-o.acked:
		return o
	case <-o.ended:
	case <-timer.C:
	case <-listenCtx.Done():
	}
	o.close()
	return nil
}

// honoured returns the resources that the server has acknowledged.
func (l *longLivedSubscription) honoured() (uris []string) {
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

// reportMissed notifies the client of all that may have changed while there was no subscription.
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
		if edited, err := m.Edit(mcp.RemoveReservedMeta(m)...); err == nil {
			h.l.feed.HandleNotification(ctx, edited)
		}
	}
}

// HandleRequests implements proxy.Handler: servers ask nothing on a subscription.
func (h *subscriptionHandler) HandleRequests(_ context.Context,
	ms []*mcp.Message) []pipeline.Passed {
	return make([]pipeline.Passed, len(ms))
}

// IsWaiting implements proxy.Handler.
func (h *subscriptionHandler) IsWaiting() bool { return true }

// ReportActivity implements proxy.Handler.
func (h *subscriptionHandler) ReportActivity() {}
