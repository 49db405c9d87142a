package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gatekit/core/backoff"
	"gatekit/core/conn"
	"gatekit/core/mcp"
)

// Delays before a stream is requested again.
const (
	firstStreamDelay = time.Second // when the server names no delay
	// bounds of the delay that a server may ask for
	shortestStreamDelay = 100 * time.Millisecond
	longestServerDelay  = 5 * time.Minute
)

// streamPosition holds how far an event stream was read, and the delays before it is resumed.
type streamPosition struct {
	lastEvent string        // id of the last event that had an id
	retry     time.Duration // the delay that the server asks for; 0 when it asks for none
	failures  int           // consecutive attempts to resume the stream that brought no event
}

// advance records an event.
func (p *streamPosition) advance(e conn.Event) {
	p.failures = 0
	if e.ID != "" {
		p.lastEvent = e.ID
	}
	if e.Retry > 0 {
		p.retry = max(shortestStreamDelay,
			min(time.Duration(e.Retry)*time.Millisecond, longestServerDelay))
	}
}

// delay returns how long to wait before the stream is requested again. failures is the number of
// failed attempts.
func (p *streamPosition) delay(failures int) time.Duration {
	first := p.retry
	if first == 0 {
		first = firstStreamDelay
	}
	return max(first, backoff.Delay(first, longestRestartDelay, failures+1))
}

// readMessages reads a stream until the stream ends, ctx ends or f returns false. Then it closes
// the stream. It calls f for each message. If the message is invalid, f gets the reason instead.
func readMessages(ctx context.Context, stream EventStream, limits mcp.Limits, p *streamPosition,
	f func(m *mcp.Message, err error) bool) error {
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	defer stream.Close()
	invalid := 0
	for {
		if invalid > maxInvalid {
			return fmt.Errorf("more than %d messages are invalid", maxInvalid)
		}
		e, err := stream.Next()
		if large := (*conn.TooLargeError)(nil); errors.As(err, &large) {
			invalid++
			if !f(nil, err) {
				return nil
			}
			continue
		}
		if err != nil {
			return err
		}
		p.advance(e)
		if len(e.Data) == 0 || e.Name != "" && e.Name != "message" {
			continue
		}
		for m, err := range messages(limits, e.Data) {
			if err != nil {
				invalid++
			}
			if !f(m, err) {
				return nil
			}
		}
	}
}
