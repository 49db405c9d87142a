package bridge

import (
	"strings"
	"sync/atomic"

	"gatekit/core/mcp"
)

// Bounds of the notifications that wait for one subscriber. Further notifications are dropped. The
// client still sees a dropped change when it next requests the list or the resource.
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
	waiting  chan *mcp.Message
	bytes    atomic.Int64 // size of the waiting notifications
}

func newSubscriber(id []byte) *subscriber {
	return &subscriber{id: id, features: map[string]bool{}, uris: map[string]struct{}{},
		waiting: make(chan *mcp.Message, maxWaitingNotifications)}
}

// wants reports whether the client wants m. If m reports a change of a list, the client must have
// subscribed to that list. If m reports an update of a resource, the client must have subscribed to
// at least one resource: the update may name a part of a subscribed resource, which has a URI of
// its own. The session's mu is held.
func (s *subscriber) wants(m *mcp.Message) bool {
	feature, isListChange := strings.CutSuffix(strings.TrimPrefix(m.Method, "notifications/"),
		"/list_changed")
	if isListChange {
		return s.features[feature]
	}
	return m.Method == "notifications/resources/updated" && len(s.uris) > 0
}

// add queues a notification. It returns false if there is no room. The session's mu is held.
func (s *subscriber) add(m *mcp.Message) bool {
	if s.bytes.Add(int64(m.Size())) > maxWaitingBytes {
		s.bytes.Add(-int64(m.Size()))
		return false
	}
	select {
	case s.waiting <- m:
		return true
	default:
		s.bytes.Add(-int64(m.Size()))
		return false
	}
}

// recordTaken records that a notification has been taken from the queue.
func (s *subscriber) recordTaken(m *mcp.Message) { s.bytes.Add(-int64(m.Size())) }
