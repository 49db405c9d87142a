package shared

import (
	"context"
	"time"
)

// memoryLimit has the counts of a limit in a Memory.
type memoryLimit struct {
	// full is when the limit admits a whole burst again: the theoretical arrival time of GCRA
	full   time.Time
	leases map[string]time.Time // when each expires
}

// refusal returns why the limit does not admit one more, or an admission.
func (l *memoryLimit) refusal(limit Limit, index int, isHeld bool, now time.Time) Admitted {
	if limit.Concurrent > 0 && !isHeld && len(l.leases) >= limit.Concurrent {
		return Admitted{Refused: index, TooMany: true}
	}
	if limit.Rate > 0 && l.full.After(now) {
		tolerance := time.Duration(limit.Burst-1) * limit.Interval()
		if wait := l.full.Sub(now) - tolerance; wait > 0 {
			return Admitted{Refused: index, RetryAfter: wait}
		}
	}
	return Admitted{Refused: -1}
}

// limit returns the counts of a limit, which are empty if it is new. m.mu must be held.
func (m *Memory) limit(k Key, now time.Time) *memoryLimit {
	l := m.limits[k]
	if l == nil {
		return &memoryLimit{leases: map[string]time.Time{}}
	}
	m.expireLeases(l, now)
	return l
}

// expireLeases removes the leases whose time is over. m.mu must be held.
func (m *Memory) expireLeases(l *memoryLimit, now time.Time) {
	for name, until := range l.leases {
		if hasExpired(until, now) {
			m.endLease(l, name)
		}
	}
}

// endLease removes a lease. m.mu must be held.
func (m *Memory) endLease(l *memoryLimit, name string) {
	delete(l.leases, name)
	m.bytes -= entryBytes + len(name)
}

// Admit implements Admitter.
func (m *Memory) Admit(ctx context.Context, a Admission) (Admitted, error) {
	if err := a.Check(); err != nil {
		return Admitted{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	need := 0
	states := make([]*memoryLimit, len(a.Limits))
	for i, limit := range a.Limits {
		l := m.limit(limit.Key, now)
		states[i] = l
		_, isHeld := l.leases[a.Lease]
		if r := l.refusal(limit, i, isHeld, now); !r.OK() {
			return r, nil
		}
		if m.limits[limit.Key] == nil {
			need += keyBytes(limit.Key)
		}
		if limit.Concurrent > 0 && !isHeld {
			need += entryBytes + len(a.Lease)
		}
	}
	if err := m.reserve(need, now); err != nil {
		return Admitted{}, err
	}
	if m.limits == nil {
		m.limits = map[Key]*memoryLimit{}
	}
	for i, limit := range a.Limits {
		l := states[i]
		if m.limits[limit.Key] == nil { // new, or removed by the sweep of reserve
			m.limits[limit.Key] = l
			m.bytes += keyBytes(limit.Key)
		}
		if limit.Rate > 0 {
			if l.full.Before(now) {
				l.full = now
			}
			l.full = l.full.Add(limit.Interval())
		}
		if limit.Concurrent > 0 {
			if _, isHeld := l.leases[a.Lease]; !isHeld {
				m.bytes += entryBytes + len(a.Lease)
			}
			l.leases[a.Lease] = now.Add(a.TTL)
		}
	}
	return Admitted{Refused: -1}, nil
}

// Renew implements Admitter.
func (m *Memory) Renew(ctx context.Context, lease Lease, ttl time.Duration) error {
	if err := CheckLease(lease, ttl); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, k := range lease.Keys {
		l := m.limit(k, now)
		if _, isHeld := l.leases[lease.Name]; isHeld {
			l.leases[lease.Name] = now.Add(ttl)
		}
	}
	return nil
}

// Release implements Admitter.
func (m *Memory) Release(ctx context.Context, lease Lease) error {
	if err := CheckLease(lease, time.Second); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, k := range lease.Keys {
		l := m.limit(k, now)
		if _, isHeld := l.leases[lease.Name]; isHeld {
			m.endLease(l, lease.Name)
		}
	}
	return nil
}
