package downstream

import (
	"context"

	"gatekit/core/mcp"
)

// notification is a notification that was read from a client and is not delivered yet.
type notification interface {
	// deliver passes the notification to the proxy's session, or records that the notification was
	// dropped. It must be called once.
	deliver(ctx context.Context)
}

// droppedNotification is a notification that is not forwarded.
type droppedNotification struct {
	endpoint *Endpoint
	peer     peer
	m        *mcp.Message
	reason   string
}

func (n *droppedNotification) deliver(ctx context.Context) {
	n.endpoint.recordDrop(ctx, n.peer, n.m, n.reason)
}

// notificationQueue delivers the notifications of a pipe one after another.
type notificationQueue chan notification

func newNotificationQueue() notificationQueue { return make(notificationQueue, 64) }

// put adds a notification. It waits while the queue is full. During this wait, nothing is read from
// the client.
func (q notificationQueue) put(ctx context.Context, n notification) error {
	select {
	case q <- n:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run delivers notifications until ctx ends.
func (q notificationQueue) run(ctx context.Context) {
	for {
		select {
		case n := <-q:
			n.deliver(ctx)
		case <-ctx.Done():
			return
		}
	}
}
