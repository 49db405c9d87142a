package proto

import "context"

// SmallMessage is the size, in bytes, up to which messages do not count against a [ByteLimit].
const SmallMessage = 64 << 10

// byteUnit is the size in bytes of one unit of a ByteLimit, which counts in whole units.
const byteUnit = 1 << 20

// ByteLimit bounds the total size of the large messages that are inspected at a time. An inspection
// takes many times the size of its message in memory. Small messages never wait: their number is
// bounded elsewhere, and they must not wait for the large messages of another client.
type ByteLimit struct {
	// turn is held by the call of Acquire that takes units. Otherwise two calls could each hold
	// some units and wait for the other.
	turn  chan struct{}
	units chan struct{} // holds a value for each unit in use
}

// NewByteLimit returns a limit of about size bytes, at least one unit.
func NewByteLimit(size int64) *ByteLimit {
	return &ByteLimit{turn: make(chan struct{}, 1),
		units: make(chan struct{}, max(size/byteUnit, 1))}
}

// Acquire waits until a message of size bytes may be inspected, in the order of the calls. A
// message that is larger than the limit waits until it is alone. The error is the cause of ctx.
// The caller must call release exactly once.
func (l *ByteLimit) Acquire(ctx context.Context, size int) (release func(), err error) {
	if size <= SmallMessage {
		return func() {}, nil
	}
	wanted := min((size+byteUnit-1)/byteUnit, cap(l.units))
	taken := 0
	release = func() {
		for range taken {
			<-l.units
		}
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for taken < wanted {
		select {
		case l.units <- struct{}{}:
			taken++
		case <-ctx.Done():
			release()
			return nil, context.Cause(ctx)
		}
	}
	return release, nil
}
