package bridge

import (
	"slices"
	"strings"
	"sync"

	"gatekit/core/mcp"
)

// Bounds of the notifications that wait for one subscriber. Further updates of resources are
// dropped. The client still sees a dropped update when it next requests the resource. A change of a
// list is dropped only if another change of this list waits: the client then requests the list
// anyway. So at most one change of each list waits above the bounds.
const (
	maxWaitingNotifications = 256
	maxWaitingBytes         = 1 << 20
)

// subscriber is one subscription of a modern client. It gets notifications that a session with a
// legacy server receives.
type subscriber struct {
	id       []byte              // of the subscription
	features map[string]bool     // lists whose changes the client wants: "tools", …
	uris     map[string]struct{} // the subscribed resources; guarded by the session's mu
	added    chan struct{}       // has one token when notifications may wait

	mu      sync.Mutex     // guards the fields below; locked after the session's mu
	waiting []*mcp.Message // the oldest first
	bytes   int            // size of the waiting notifications
}

func newSubscriber(id []byte) *subscriber {
	return &subscriber{id: id, features: map[string]bool{}, uris: map[string]struct{}{},
		added: make(chan struct{}, 1)}
}

// wants reports whether the client wants m. If m reports a change of a list, the client must have
// subscribed to that list. If m reports an update of a resource, the client must have subscribed to
// at least one resource: the update may name a part of a subscribed resource, which has a URI of
// its own. The session's mu is held.
func (s *subscriber) wants(m *mcp.Message) bool {
	feature, isListChange := changedList(m)
	if isListChange {
		return s.features[feature]
	}
	return m.Method == "notifications/resources/updated" && len(s.uris) > 0
}

// changedList returns the list whose change m reports: "tools", …
func changedList(m *mcp.Message) (feature string, ok bool) {
	return strings.CutSuffix(strings.TrimPrefix(m.Method, "notifications/"), "/list_changed")
}

// add queues a notification. It returns false if the notification is dropped.
func (s *subscriber) add(m *mcp.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= maxWaitingNotifications || s.bytes+m.Size() > maxWaitingBytes {
		_, isListChange := changedList(m)
		if !isListChange || slices.ContainsFunc(s.waiting, func(other *mcp.Message) bool {
			return other.Method == m.Method
		}) {
			return false
		}
	}
	s.waiting = append(s.waiting, m)
	s.bytes += m.Size()
	select {
	case s.added <- struct{}{}:
	default:
	}
	return true
}

// take removes the oldest notification from the queue and returns it, or nil if none waits.
func (s *subscriber) take() *mcp.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return nil
	}
	m := s.waiting[0]
	s.waiting[0] = nil // so that the array does not keep the message
	s.waiting = s.waiting[1:]
	s.bytes -= m.Size()
	return m
}
