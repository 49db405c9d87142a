package bridge

import (
	"strings"
	"sync/atomic"

	"gatekit/core/mcp"
)

// Bounds of the notifications that wait for one subscriber. Further notifications are dropped. A
// client that lists again after any of them gets all changes.
const (
	maxWaitingNotifications = 256
	maxWaitingBytes         = 1 << 20
)

// subscriber is one subscription of a modern client. It gets notifications that a session with a
// legacy server receives.
type subscriber struct {
	id       []byte              // of the subscription
	features map[string]bool     // whose list changes it gets: "tools", "prompts", "resources"
	uris     map[string]struct{} // of resources whose updates it gets; guarded by the session's mu
	waiting  chan *mcp.Message
	bytes    atomic.Int64 // size of the waiting notifications
}

func newSubscriber(id []byte) *subscriber {
	return &subscriber{id: id, features: map[string]bool{}, uris: map[string]struct{}{},
		waiting: make(chan *mcp.Message, maxWaitingNotifications)}
}

// offer queues a notification, if the client asked for it and there is room. The session's mu is
// held.
func (s *subscriber) offer(m *mcp.Message) {
	feature, isListChange := strings.CutSuffix(strings.TrimPrefix(m.Method, "notifications/"),
		"/list_changed")
	if isListChange && !s.features[feature] ||
		!isListChange && (m.Method != "notifications/resources/updated" || len(s.uris) == 0) {
		return
	}
	if s.bytes.Add(int64(m.Size())) > maxWaitingBytes {
		s.bytes.Add(-int64(m.Size()))
		return
	}
	select {
	case s.waiting <- m:
	default:
		s.bytes.Add(-int64(m.Size()))
	}
}

// recordTaken records that a notification has been taken from the queue.
func (s *subscriber) recordTaken(m *mcp.Message) { s.bytes.Add(-int64(m.Size())) }
