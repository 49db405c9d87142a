package upstream

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// standing is the subscription at a modern server in which a legacy client's session hears what it
// would hear of a legacy one (protocol.md 3.6): changes of lists, and of the resources that it
// subscribed to. A subscription cannot be changed: each new resource takes a new one.
type standing struct {
	s     *toModern
	begin func()        // starts run, once
	asked chan struct{} // closed when the server has answered for the first time, or has not
	flags []string      // toolsListChanged, …: what the server declared

	mu      sync.Mutex
	uris    map[string]bool // that the client subscribed to; true when the server honours it
	wanted  int             // counts the changes of uris
	settled int             // up to which of them the server has been asked, well or not
	changed chan struct{}   // closed and made anew with each change of what is above
	refused error           // why the server takes no subscriptions
}

// ackWithin is how long a server may take to acknowledge a subscription.
const ackWithin = 5 * time.Second

// newStanding reads from the answer to server/discover what there is to hear.
func newStanding(s *toModern, hello *mcp.Message) *standing {
	l := &standing{s: s, asked: make(chan struct{}), uris: map[string]bool{},
		changed: make(chan struct{})}
	l.begin = sync.OnceFunc(func() {
		first := sync.OnceFunc(func() { close(l.asked) })
		if !s.life.run(func(ctx context.Context) { defer first(); l.run(ctx, first) }) {
			first()
		}
	})
	for _, feature := range []string{"tools", "prompts", "resources"} {
		if raw, _ := hello.Get("/capabilities/" + feature + "/listChanged"); string(raw) == "true" {
			l.flags = append(l.flags, feature+"ListChanged")
		}
	}
	return l
}

// start begins to listen, if there is anything to hear.
func (l *standing) start() {
	if len(l.flags) > 0 {
		l.begin()
	}
}

// hear begins to listen, and answers when the server has said that it tells, or has not: what
// changes because of what comes next is to be heard. The error is the cause of ctx.
func (l *standing) hear(ctx context.Context) error {
	if len(l.flags) == 0 {
		return nil
	}
	l.begin()
	select {
	case <-l.asked:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// change runs f under the lock and wakes those that wait.
func (l *standing) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// subscribe answers a resources/subscribe when the server has acknowledged the resource, or has
// not.
func (l *standing) subscribe(ctx context.Context, m *mcp.Message) (*mcp.Message, error) {
	uri, ok := m.Text("/uri")
	if !ok {
		return toClient(mcp.NewError(m.ID(), mcp.CodeInvalidParams,
			"resources/subscribe needs a uri", nil)), nil
	}
	var mine int
	full := false
	l.change(func() {
		if _, again := l.uris[uri]; !again {
			if full = len(l.uris) >= maxSubscriptions; full {
				return
			}
			l.uris[uri] = false
			l.wanted++
		}
		mine = l.wanted
	})
	if full {
		return toClient(mcp.NewError(m.ID(), mcp.CodeInternal, "too many subscriptions", nil)), nil
	}
	l.begin()
	for {
		l.mu.Lock()
		settled, honoured, refused, changed := l.settled >= mine, l.uris[uri], l.refused, l.changed
		l.mu.Unlock()
		switch {
		case settled && honoured:
			return toClient(mcp.NewResponse(m.ID(), nil)), nil
		case refused != nil || settled:
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

func (l *standing) unsubscribe(m *mcp.Message) *mcp.Message {
	if uri, ok := m.Text("/uri"); ok {
		l.change(func() {
			if _, known := l.uris[uri]; known {
				delete(l.uris, uri)
				l.wanted++
			}
		})
	}
	return toClient(mcp.NewResponse(m.ID(), nil))
}

// want is the filter of the subscription as it should be, nil for none, and which change of it that
// is.
func (l *standing) want() (filter []byte, n int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flags)+len(l.uris) == 0 {
		return nil, l.wanted, l.changed
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
	return b, l.wanted, l.changed
}

// run keeps the subscription open, as it should be, until ctx ends. asked is called when it was
// tried.
func (l *standing) run(ctx context.Context, asked func()) {
	var open *listening // nil while there is none
	fails, missed := 0, false
	for ctx.Err() == nil {
		filter, n, changed := l.want()
		if filter == nil {
			open.close()
			open = nil
			l.settle(n)
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if open == nil || open.n != n {
			heard := l.honoured() // what there was to miss
			next := l.open(ctx, filter, n)
			open.close()
			if open = next; open == nil {
				l.settle(n)
				asked()
				if l.given() || !sleep(ctx, min(time.Second<<min(fails, 5), longestWait)) {
					return
				}
				fails, missed = fails+1, true
				continue
			}
			l.settle(n)
			asked()
			if missed {
				l.tell(ctx, heard)
			}
			missed = false
		}
		since := time.Now()
		select {
		case <-changed:
		case <-open.ended:
			open.close()
			open, missed = nil, true
			if time.Since(since) > goodFor {
				fails = 0
			}
			if !sleep(ctx, min(time.Second<<min(fails, 5), longestWait)) {
				return
			}
			fails++
		case <-ctx.Done():
		}
	}
	open.close()
}

// settle says that the server has been asked for all up to change n.
func (l *standing) settle(n int) { l.change(func() { l.settled = max(l.settled, n) }) }

// given says that the server takes no subscriptions.
func (l *standing) given() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused != nil
}

// listening is one subscription that is open at the server.
type listening struct {
	n     int // the change of the filter that it is for
	end   context.CancelFunc
	acked chan struct{} // closed when the server has acknowledged it
	ended chan struct{} // closed when it is over
}

func (o *listening) close() {
	if o != nil {
		o.end()
		<-o.ended
	}
}

// open subscribes, and answers when the server has acknowledged it; nil when it has not.
func (l *standing) open(ctx context.Context, filter []byte, n int) *listening {
	l.s.mu.Lock()
	client := l.s.client
	l.s.mu.Unlock()
	client.logLevel = nil
	request, err := listenAs(client, filter)
	if err != nil {
		return nil
	}
	o := &listening{n: n, acked: make(chan struct{}), ended: make(chan struct{})}
	ctx, o.end = context.WithCancel(ctx)
	hear := &hearing{l: l, ack: sync.OnceFunc(func() { close(o.acked) })}
	started := l.s.life.run(func(context.Context) {
		defer close(o.ended)
		answer, _, err := l.s.server.request(ctx, request, hear)
		switch {
		case ctx.Err() != nil:
		case err == nil && answer.Kind == mcp.Error && answer.ErrorCode() == mcp.CodeMethodNotFound:
			l.change(func() {
				l.refused = unavailable(l.s.up.o.Name, "it takes no subscriptions",
					nil)
			})
		default:
			l.s.up.log.Debug("a subscription ended", "server", l.s.up.o.Name, "error", err)
		}
	})
	if !started {
		o.end()
		return nil
	}
	timer := time.NewTimer(ackWithin)
	defer timer.Stop()
	select {
	case <-o.acked:
		return o
	case <-o.ended:
	case <-timer.C:
	case <-ctx.Done():
	}
	o.close()
	return nil
}

// honoured are the resources that the server has acknowledged.
func (l *standing) honoured() (uris []string) {
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

// tell tells the client what it may have missed while there was no subscription.
func (l *standing) tell(ctx context.Context, uris []string) {
	for _, flag := range l.flags {
		l.s.feed.Notify(ctx, toClient(mcp.NewNotification("notifications/"+strings.TrimSuffix(flag,
			"ListChanged")+"/list_changed", nil)))
	}
	for _, uri := range uris {
		l.s.feed.Notify(ctx, toClient(mcp.NewNotification("notifications/resources/updated",
			[]byte(`{"uri":`+string(mcp.Quote(uri))+`}`))))
	}
}

// hearing is where the notifications of one subscription go.
type hearing struct {
	l   *standing
	ack func()
}

// Notify implements proxy.Caller.
func (h *hearing) Notify(ctx context.Context, m *mcp.Message) {
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
		h.ack()
	case "notifications/tools/list_changed", "notifications/prompts/list_changed",
		"notifications/resources/list_changed", "notifications/resources/updated":
		if edited, err := m.Edit(unreserved(m)...); err == nil {
			h.l.s.feed.Notify(ctx, edited)
		}
	}
}

// Ask implements proxy.Caller: nothing is asked on a subscription.
func (h *hearing) Ask(_ context.Context, ms []*mcp.Message) []pipeline.Passed {
	return make([]pipeline.Passed, len(ms))
}

// IsWaiting implements proxy.Caller.
func (h *hearing) IsWaiting() bool { return true }

// ReportActivity implements proxy.Caller.
func (h *hearing) ReportActivity() {}
