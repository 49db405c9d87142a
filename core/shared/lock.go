package shared

import (
	"context"
	"errors"
	"time"
)

// lockRetry is how long Lock waits before it tries again.
const lockRetry = 50 * time.Millisecond

// Locked is a lock that is held until its time is over, or until Unlock.
type Locked struct {
	// Fence is larger than that of every earlier holder of the same lock.
	Fence  uint64
	key    Key
	values Values
}

// Lock waits until nobody holds the lock of a key, and takes it for ttl. A holder that takes longer
// loses it and does not notice. So a lock saves work that is done twice, and what the holder writes
// has to be written by Values.Swap with the generation that it read after Lock returned.
func Lock(ctx context.Context, v Values, k Key, ttl time.Duration) (*Locked, error) {
	for {
		fence, err := v.Swap(ctx, k, 0, []byte{}, ttl)
		switch {
		case err == nil:
			return &Locked{fence, k, v}, nil
		case !errors.Is(err, ErrChanged):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockRetry):
		}
	}
}

// Unlock gives the lock back. If somebody else holds it by now, Unlock does nothing. If the store
// is not available, the lock ends when its time is over.
func (l *Locked) Unlock(ctx context.Context) error {
	_, err := l.values.Swap(ctx, l.key, l.Fence, nil, 0)
	if errors.Is(err, ErrChanged) || errors.Is(err, ErrLost) {
		return nil
	}
	return err
}
