package upstream

import (
	"context"
	"strings"
	"sync/atomic"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// hearer is one subscription of a modern client, fed by what a legacy session hears anyway
// (protocol.md 3.6).
type hearer struct {
	id    []byte              // of the subscription
	flags map[string]bool     // features whose list changes it is to hear of
	uris  map[string]struct{} // resources; guarded by the visit's mu
	to    chan *mcp.Message
	size  atomic.Int64 // bytes of what waits in to
}

// What may wait for one client; notifications beyond are left out: that a list has changed is known
// by asking once.
const (
	maxHeard      = 256
	maxHeardBytes = 1 << 20
)

// listen is a subscriptions/listen: it answers when ctx ends.
func (v *visit) listen(ctx context.Context, m *mcp.Message, c proxy.Handler) (*mcp.Message, error) {
	h := &hearer{id: []byte(m.ID()), flags: map[string]bool{}, uris: map[string]struct{}{},
		to: make(chan *mcp.Message, maxHeard)}
	var filter []string
	for _, feature := range []string{"tools", "prompts", "resources"} {
		wanted, _ := m.Get("/notifications/" + feature + "ListChanged")
		declared, _ := v.hello.Get("/capabilities/" + feature + "/listChanged")
		if string(wanted) == "true" && string(declared) == "true" {
			h.flags[feature] = true
			filter = append(filter, `"`+feature+`ListChanged":true`)
		}
	}
	v.mu.Lock()
	v.hear[h] = struct{}{}
	v.mu.Unlock()
	uris := v.subscribe(ctx, m, h)
	defer v.unsubscribe(h)
	if len(uris) > 0 {
		filter = append(filter, `"resourceSubscriptions":[`+strings.Join(uris, ",")+`]`)
	}
	ack := mcp.NewNotification("notifications/subscriptions/acknowledged",
		[]byte(`{"_meta":{"`+mcp.MetaSubscription+`":`+string(m.ID())+`},"notifications":{`+
			strings.Join(filter, ",")+`}}`))
	c.Notify(ctx, toClient(ack))
	for {
		select {
		case n := <-h.to:
			h.size.Add(-int64(n.Size()))
			if tagged, err := n.Edit(mcp.Set(mcp.PointerSubscription, h.id)); err == nil {
				c.Notify(ctx, tagged)
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// subscribe subscribes to the resources of a listen that nobody is subscribed to yet, and answers
// those that the server has taken in time, as JSON.
func (v *visit) subscribe(ctx context.Context, m *mcp.Message, h *hearer) (taken []string) {
	ctx, cancel := context.WithTimeout(ctx, ackWithin)
	defer cancel()
	release, err := v.hold(ctx)
	if err != nil {
		return nil
	}
	defer release()
	m.Items("/notifications/resourceSubscriptions", func(_ int, raw []byte) bool {
		uri, ok := mcp.NewResponse("", raw).Text("")
		// only written to here
		if _, twice := h.uris[uri]; !ok || twice || len(h.uris) >= maxSubscriptions {
			return true
		}
		if v.uris[uri] == 0 {
			answer, err := v.server.request(ctx, subscription("resources/subscribe", raw), nil)
			if err != nil || answer.Kind == mcp.Error {
				return ctx.Err() == nil
			}
		}
		v.uris[uri]++
		v.mu.Lock()
		h.uris[uri] = struct{}{}
		v.mu.Unlock()
		taken = append(taken, string(raw))
		return true
	})
	return taken
}

// unsubscribe ends a listen, and the subscriptions that were its alone.
func (v *visit) unsubscribe(h *hearer) {
	v.mu.Lock()
	delete(v.hear, h)
	uris := h.uris
	v.mu.Unlock()
	if len(uris) == 0 {
		return
	}
	v.of.life.run(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, goodbyeWithin)
		defer cancel()
		release, err := v.hold(ctx)
		if err != nil {
			return // the visit stays subscribed, and tells nobody
		}
		defer release()
		for uri := range uris {
			if v.uris[uri]--; v.uris[uri] > 0 {
				continue
			}
			delete(v.uris, uri)
			if _, err := v.server.request(ctx, subscription("resources/unsubscribe",
				mcp.Quote(uri)), nil); err != nil {
				v.of.up.log.Debug("end a subscription", "server", v.of.up.o.Name, "error", err)
			}
		}
	})
}

// tell hands a notification over, if the client wants it. The mu of its visit is held.
func (h *hearer) tell(m *mcp.Message) {
	feature, changed := strings.CutSuffix(strings.TrimPrefix(m.Method, "notifications/"),
		"/list_changed")
	if changed && !h.flags[feature] || !changed && (m.Method != "notifications/resources/updated" ||
		len(h.uris) == 0) {
		return
	}
	if h.size.Add(int64(m.Size())) > maxHeardBytes {
		h.size.Add(-int64(m.Size()))
		return
	}
	select {
	case h.to <- m:
	default:
		h.size.Add(-int64(m.Size()))
	}
}
