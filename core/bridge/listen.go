package bridge

import (
	"context"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// listen handles m, a modern client's subscriptions/listen. It passes notifications of the legacy
// server to h until ctx ends, and returns the cause of the end.
func (s *pooledSession) listen(ctx context.Context, m *mcp.Message,
	h proxy.Handler) (*mcp.Message, error) {
	sub := newSubscriber([]byte(m.ID()))
	var filter []string
	for _, feature := range []string{"tools", "prompts", "resources"} {
		wanted, _ := m.Get("/notifications/" + feature + "ListChanged")
		declared, _ := s.initializeAnswer.Get("/capabilities/" + feature + "/listChanged")
		if string(wanted) == "true" && string(declared) == "true" {
			sub.features[feature] = true
			filter = append(filter, `"`+feature+`ListChanged":true`)
		}
	}
	s.mu.Lock()
	s.subscribers[sub] = struct{}{}
	s.mu.Unlock()
	uris := s.subscribe(ctx, m, sub)
	defer s.unsubscribe(sub)
	if len(uris) > 0 {
		filter = append(filter, `"resourceSubscriptions":[`+strings.Join(uris, ",")+`]`)
	}
	acknowledgement := mcp.NewNotification("notifications/subscriptions/acknowledged",
		[]byte(`{"_meta":{"`+mcp.MetaSubscriptionID+`":`+string(m.ID())+`},"notifications":{`+
			strings.Join(filter, ",")+`}}`))
	h.HandleNotification(ctx, toClient(acknowledgement))
	for {
		select {
		case <-sub.added:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		for n := sub.take(); n != nil && ctx.Err() == nil; n = sub.take() {
			if edited, err := n.Edit(mcp.Set(mcp.PointerSubscriptionID, sub.id)); err == nil {
				h.HandleNotification(ctx, edited)
			}
		}
	}
}

// subscribe subscribes sub to the resources that the subscriptions/listen m names. It sends the
// server a request only for resources that have no subscriber yet. It returns the URIs of the
// resources that the server has accepted in time, as JSON.
func (s *pooledSession) subscribe(ctx context.Context, m *mcp.Message,
	sub *subscriber) (accepted []string) {
	ctx, cancel := context.WithTimeout(ctx, acknowledgeTimeout)
	defer cancel()
	unlock, err := s.lockState(ctx)
	if err != nil {
		return nil
	}
	defer unlock()
	m.Items("/notifications/resourceSubscriptions", func(_ int, raw []byte) bool {
		uri, ok := mcp.NewResponse("", raw).Text("")
		// sub.uris is read without the lock, because only this function writes to it.
		_, isRepeated := sub.uris[uri]
		if !ok || isRepeated || len(sub.uris) >= maxSubscribedResources {
			return true
		}
		if s.subscriberCounts[uri] == 0 {
			answer, err := s.server.Send(ctx, subscriptionRequest("resources/subscribe", raw), nil)
			if err != nil || answer.Kind == mcp.Error {
				return ctx.Err() == nil
			}
		}
		s.subscriberCounts[uri]++
		s.mu.Lock()
		sub.uris[uri] = struct{}{}
		s.mu.Unlock()
		accepted = append(accepted, string(raw))
		return true
	})
	return accepted
}

// unsubscribe removes a subscriber. If a resource has no other subscriber, unsubscribe ends the
// session's subscription to the resource, in the background.
func (s *pooledSession) unsubscribe(sub *subscriber) {
	s.mu.Lock()
	delete(s.subscribers, sub)
	uris := sub.uris
	s.mu.Unlock()
	if len(uris) == 0 {
		return
	}
	s.goroutines.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
		defer cancel()
		unlock, err := s.lockState(ctx)
		if err != nil {
			return // the session stays subscribed, but no subscriber gets the notifications
		}
		defer unlock()
		for uri := range uris {
			if s.subscriberCounts[uri]--; s.subscriberCounts[uri] > 0 {
				continue
			}
			delete(s.subscriberCounts, uri)
			o := subscriptionRequest("resources/unsubscribe", mcp.Quote(uri))
			if _, err := s.server.Send(ctx, o, nil); err != nil {
				s.log.Debug("unsubscribing from a resource failed", "server", s.name,
					"error", err)
			}
		}
	})
}
