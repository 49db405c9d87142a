package sharedtest

import (
	"context"
	"sync"
	"time"

	"gatekit/core/shared"
)

// Faulty is a store whose failures a test chooses. All methods may be called at the same time.
type Faulty struct {
	mu    sync.Mutex
	store shared.Store
	err   error
	lost  time.Time
	tell  bool // whether the next call returns ErrLost
}

var _ shared.Store = (*Faulty)(nil)

// NewFaulty returns a store that does what s does, until it is told otherwise.
func NewFaulty(s shared.Store) *Faulty { return &Faulty{store: s} }

// Fail makes every call return err, such as shared.ErrUnavailable, without doing anything. With
// nil, the calls work again.
func (f *Faulty) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// Lose replaces the store by an empty one. The next call returns ErrLost.
func (f *Faulty) Lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store, f.lost, f.tell = &shared.Memory{}, time.Now(), true
}

// use returns the store for a call.
func (f *Faulty) use() (shared.Store, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	if f.tell {
		f.tell = false
		return nil, shared.ErrLost
	}
	return f.store, nil
}

// Lost implements shared.Store.
func (f *Faulty) Lost() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tell { // nobody knows of the loss yet
		return time.Time{}
	}
	return f.lost
}

// Get implements shared.Values.
func (f *Faulty) Get(ctx context.Context, k shared.Key) ([]byte, uint64, error) {
	s, err := f.use()
	if err != nil {
		return nil, 0, err
	}
	return s.Get(ctx, k)
}

// Swap implements shared.Values.
func (f *Faulty) Swap(ctx context.Context, k shared.Key, was uint64, value []byte,
	ttl time.Duration) (uint64, error) {
	s, err := f.use()
	if err != nil {
		return 0, err
	}
	return s.Swap(ctx, k, was, value, ttl)
}

// Take implements shared.Values.
func (f *Faulty) Take(ctx context.Context, k shared.Key) ([]byte, bool, error) {
	s, err := f.use()
	if err != nil {
		return nil, false, err
	}
	return s.Take(ctx, k)
}

// List implements shared.Values.
func (f *Faulty) List(ctx context.Context, kind string, seen uint64) (shared.Listing, error) {
	s, err := f.use()
	if err != nil {
		return shared.Listing{}, err
	}
	return s.List(ctx, kind, seen)
}

// Admit implements shared.Admitter.
func (f *Faulty) Admit(ctx context.Context, a shared.Admission) (shared.Admitted, error) {
	s, err := f.use()
	if err != nil {
		return shared.Admitted{}, err
	}
	return s.Admit(ctx, a)
}

// Renew implements shared.Admitter.
func (f *Faulty) Renew(ctx context.Context, l shared.Lease, ttl time.Duration) error {
	s, err := f.use()
	if err != nil {
		return err
	}
	return s.Renew(ctx, l, ttl)
}

// Release implements shared.Admitter.
func (f *Faulty) Release(ctx context.Context, l shared.Lease) error {
	s, err := f.use()
	if err != nil {
		return err
	}
	return s.Release(ctx, l)
}

// Track implements shared.Tracker.
func (f *Faulty) Track(ctx context.Context, k shared.Key, c shared.Change) (shared.Tracked, error) {
	s, err := f.use()
	if err != nil {
		return shared.Tracked{}, err
	}
	return s.Track(ctx, k, c)
}
