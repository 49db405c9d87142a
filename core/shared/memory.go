package shared

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// DefaultMemoryBytes bounds a Memory, unless it has another bound.
const DefaultMemoryBytes = 64 << 20

// sweepInterval is the least time between two sweeps of a Memory.
const sweepInterval = time.Second

// entryBytes is roughly what an entry of a map needs, in addition to its names and values.
const entryBytes = 200

// Memory is the store of one process. It loses nothing until the process ends. Its memory is
// bounded: if nothing has expired when the bound is reached, calls that need room return
// ErrUnavailable. The zero value is empty and ready. It uses the clock of the process.
type Memory struct {
	MaxBytes int // 0 means DefaultMemoryBytes

	mu         sync.Mutex
	bytes      int // roughly, of everything below
	generation uint64
	swept      time.Time
	values     map[Key]*memoryValue
	listings   map[string]*memoryListing // by kind
	limits     map[Key]*memoryLimit
	tracked    map[Key]*memoryTrack
}

var _ Store = (*Memory)(nil)

// memoryListing has the listed values of a kind.
type memoryListing struct {
	version uint64
	keys    map[Key]struct{}
}

// memoryValue is a value in a Memory.
type memoryValue struct {
	data       []byte
	generation uint64
	expires    time.Time // zero means never
}

func hasExpired(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

func expiry(now time.Time, ttl time.Duration) time.Time {
	if ttl == 0 {
		return time.Time{}
	}
	return now.Add(ttl)
}

func keyBytes(k Key) int { return entryBytes + len(k.Kind) + len(k.Principal) + len(k.Name) }

// Lost implements Store. A Memory loses nothing.
func (m *Memory) Lost() time.Time { return time.Time{} }

// next returns a new generation. m.mu must be held.
func (m *Memory) next() uint64 {
	m.generation++
	return m.generation + 1 // 1 is the version of a listing that never changed
}

// reserve returns an error if there is no room for n more bytes. m.mu must be held.
func (m *Memory) reserve(n int, now time.Time) error {
	limit := cmp.Or(m.MaxBytes, DefaultMemoryBytes)
	if n <= 0 || m.bytes+n <= limit {
		return nil
	}
	if now.Sub(m.swept) >= sweepInterval {
		m.sweep(now)
	}
	if m.bytes+n > limit {
		return fmt.Errorf("%w: it has %d bytes, and may have %d", ErrUnavailable, m.bytes, limit)
	}
	return nil
}

// sweep removes what has expired. m.mu must be held.
func (m *Memory) sweep(now time.Time) {
	m.swept = now
	for k := range m.values {
		m.value(k, now)
	}
	for k, l := range m.limits {
		m.expireLeases(l, now)
		if len(l.leases) == 0 && !l.full.After(now) {
			delete(m.limits, k)
			m.bytes -= keyBytes(k)
		}
	}
	for k := range m.tracked {
		m.track(k, now)
	}
}

// value returns a value that has not expired, or nil. m.mu must be held.
func (m *Memory) value(k Key, now time.Time) *memoryValue {
	v := m.values[k]
	if v != nil && hasExpired(v.expires, now) {
		m.remove(k, v)
		return nil
	}
	return v
}

// remove removes a value. m.mu must be held.
func (m *Memory) remove(k Key, v *memoryValue) {
	delete(m.values, k)
	m.bytes -= keyBytes(k) + len(v.data)
	if k.Listed {
		l := m.listings[k.Kind]
		delete(l.keys, k)
		l.version = m.next()
	}
}

// Get implements Values.
func (m *Memory) Get(ctx context.Context, k Key) (value []byte, generation uint64, err error) {
	if err := CheckKey(k); err != nil {
		return nil, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.value(k, time.Now())
	if v == nil {
		return nil, 0, nil
	}
	return slices.Clone(v.data), v.generation, nil
}

// Swap implements Values.
func (m *Memory) Swap(ctx context.Context, k Key, was uint64, value []byte, ttl time.Duration) (
	generation uint64, err error) {
	if err := CheckSwap(k, value, ttl); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	old := m.value(k, now)
	if old != nil && old.generation != was || old == nil && was != 0 {
		return 0, ErrChanged
	}
	if value == nil {
		if old != nil {
			m.remove(k, old)
		}
		return 0, nil
	}
	need := len(value)
	if old == nil {
		need += keyBytes(k)
	} else {
		need -= len(old.data)
	}
	if k.Listed && old == nil {
		m.expireListed(k.Kind, now)
		if l := m.listings[k.Kind]; l != nil && len(l.keys) >= MaxListed {
			return 0, fmt.Errorf("%w: there are %d values of the kind %s", ErrFull, MaxListed,
				k.Kind)
		}
	}
	if err := m.reserve(need, now); err != nil {
		return 0, err
	}
	if m.values == nil {
		m.values, m.listings = map[Key]*memoryValue{}, map[string]*memoryListing{}
	}
	v := &memoryValue{append([]byte{}, value...), m.next(), expiry(now, ttl)}
	m.bytes += need
	m.values[k] = v
	if k.Listed {
		l := m.listings[k.Kind]
		if l == nil {
			l = &memoryListing{keys: map[Key]struct{}{}}
			m.listings[k.Kind] = l
		}
		l.keys[k] = struct{}{}
		l.version = v.generation
	}
	return v.generation, nil
}

// expireListed removes the listed values of a kind that have expired. m.mu must be held.
func (m *Memory) expireListed(kind string, now time.Time) {
	if l := m.listings[kind]; l != nil {
		for k := range l.keys {
			m.value(k, now)
		}
	}
}

// Take implements Values.
func (m *Memory) Take(ctx context.Context, k Key) (value []byte, ok bool, err error) {
	if err := CheckKey(k); err != nil {
		return nil, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.value(k, time.Now())
	if v == nil {
		return nil, false, nil
	}
	m.remove(k, v)
	return v.data, true, nil
}

// List implements Values.
func (m *Memory) List(ctx context.Context, kind string, seen uint64) (Listing, error) {
	if err := CheckKey(Key{Kind: kind}); err != nil {
		return Listing{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireListed(kind, time.Now()) // may change the version
	listing := m.listings[kind]
	if listing == nil {
		return Listing{Version: 1, Changed: seen != 1}, nil
	}
	l := Listing{Version: listing.version, Changed: listing.version != seen}
	if l.Changed {
		for k := range listing.keys {
			v := m.values[k]
			l.Entries = append(l.Entries, Entry{k, slices.Clone(v.data), v.generation})
		}
		slices.SortFunc(l.Entries, func(a, b Entry) int {
			return cmp.Compare(a.Generation, b.Generation)
		})
	}
	return l, nil
}
