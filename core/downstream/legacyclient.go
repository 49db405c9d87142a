package downstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// legacyClient is a proxy.Client. It sends either the messages of one call, or the session's
// messages outside of any call.
type legacyClient struct {
	*legacyClientSession
	out output
}

// Notify implements proxy.Client.
func (c *legacyClient) Notify(ctx context.Context, p pipeline.Passed) error {
	return c.out.send(ctx, p)
}

// SendRequests implements proxy.Client. It waits while the client has too many requests to answer.
// Then it sends all requests, and waits for their answers.
func (c *legacyClient) SendRequests(ctx context.Context,
	requests []pipeline.Passed) ([]*mcp.Message, error) {
	release, err := c.reverse.reserve(ctx, len(requests), c.endpoint.limits.ReverseRequests)
	if err != nil {
		return nil, err
	}
	defer release()
	limit := c.endpoint.limits.ReverseTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("the client did not answer within %v", limit))
	defer cancel()
	sent := make([]*reverseRequest, 0, len(requests))
	defer func() {
		for _, r := range sent {
			if answered := c.reverse.remove(r); !answered {
				c.cancelReverse(r, context.Cause(ctx))
			}
		}
	}()
	for _, p := range requests {
		r, renamed, err := c.reverse.add(p)
		if err != nil {
			return nil, err
		}
		sent = append(sent, r)
		if err := c.sendReverse(ctx, renamed); err != nil {
			return nil, fmt.Errorf("write to the client: %w", err)
		}
	}
	answers := make([]*mcp.Message, len(sent))
	for i, r := range sent {
		select {
		case a := <-r.answer:
			answers[i] = a.WithID(r.request.ID())
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return answers, nil
}

// sendReverse sends a reverse request, or its cancellation, on the stream of the call. If the call
// has been answered meanwhile, sendReverse uses the stream for messages outside of any call.
func (c *legacyClient) sendReverse(ctx context.Context, p pipeline.Passed) error {
	err := c.out.send(ctx, p)
	if errors.Is(err, errStreamFinished) {
		err = c.sessionOut.send(ctx, p)
	}
	return err
}

// cancelTimeout is how long the writing of a cancellation may take. The client may be gone.
const cancelTimeout = time.Second

// cancelReverse notifies the client that the request r is cancelled. If the server has cancelled
// r, the client gets the server's own notification.
func (c *legacyClient) cancelReverse(r *reverseRequest, cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	err := c.sendReverse(ctx, c.reverseCancellation(ctx, r, cause))
	if err != nil {
		c.endpoint.log.Debug("cancelling a reverse request failed", "session", c.session,
			"error", err)
	}
}

// reverseCancellation returns the notification that cancels r, with the id that the client knows.
func (c *legacyClient) reverseCancellation(ctx context.Context, r *reverseRequest,
	cause error) pipeline.Passed {
	var cancelled *proxy.CancelledError
	if errors.As(cause, &cancelled) && cancelled.Notification.Message() != nil {
		if p, err := cancelled.Notification.Edit(mcp.Set("/requestId",
			[]byte(r.id))); err == nil {
			return p
		}
	}
	n := mcp.NewNotification("notifications/cancelled", append(append([]byte(`{"requestId":`),
		r.id...), '}'))
	n.Server, n.Exchange = r.request.Server, r.request.Exchange
	return c.endpoint.passOwn(ctx, c.peer, n, nil)
}
