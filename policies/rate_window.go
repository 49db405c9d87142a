package policies

import (
	"slices"
	"strings"
	"time"
)

// rateWindow counts the calls of one session in the last minute, by key (see callKey). It has at
// most maxBuckets buckets, whatever the number of calls.
type rateWindow struct {
	buckets     map[string][]bucket // oldest first
	bucketCount int                 // the number of buckets of all keys
}

// maxBuckets bounds the buckets of one session, which then need about 1 MiB.
const maxBuckets = 20_000

// bucket counts the calls within one second. It expires when its last call is a minute old.
type bucket struct {
	first, last time.Time
	calls       int
}

const bucketBytes = 56 // two time.Time and a number

// bytes returns roughly how much memory the buckets need.
func (m *rateWindow) bytes() int { return m.bucketCount * bucketBytes }

// countExpired returns the number of buckets that have expired.
func countExpired(buckets []bucket, now time.Time) (n int) {
	for n < len(buckets) && now.Sub(buckets[n].last) >= time.Minute {
		n++
	}
	return n
}

// dropExpired removes the expired buckets of a key.
func (m *rateWindow) dropExpired(key string, now time.Time) {
	buckets := m.buckets[key]
	n := countExpired(buckets, now)
	m.bucketCount -= n
	if n == len(buckets) {
		delete(m.buckets, key)
		return
	}
	m.buckets[key] = slices.Delete(buckets, 0, n)
}

// count counts a call, and reports whether there was room for it.
func (m *rateWindow) count(key string, now time.Time) bool {
	m.dropExpired(key, now)
	if buckets := m.buckets[key]; len(buckets) > 0 {
		if b := &buckets[len(buckets)-1]; now.Sub(b.first) < time.Second {
			b.calls++
			if now.After(b.last) {
				b.last = now
			}
			return true
		}
	}
	if m.bucketCount >= maxBuckets {
		for other := range m.buckets {
			m.dropExpired(other, now)
		}
	}
	if m.bucketCount >= maxBuckets {
		return false
	}
	m.add(key, bucket{now, now, 1})
	return true
}

func (m *rateWindow) add(key string, b bucket) {
	if m.buckets == nil {
		m.buckets = map[string][]bucket{}
	}
	m.buckets[key] = append(m.buckets[key], b)
	m.bucketCount++
}

// undo removes a call that was counted at the given time.
func (m *rateWindow) undo(key string, at time.Time) {
	buckets := m.buckets[key]
	for i := len(buckets) - 1; i >= 0; i-- {
		if buckets[i].first.After(at) && i > 0 {
			continue
		}
		if buckets[i].calls--; buckets[i].calls == 0 {
			m.buckets[key] = slices.Delete(buckets, i, i+1)
			m.bucketCount--
		}
		return
	}
}

// calls returns the number of calls by key; "" is the key of all tools together.
func (m *rateWindow) calls(now time.Time) map[string]int {
	all := map[string]int{}
	for key, buckets := range m.buckets {
		for _, b := range buckets[countExpired(buckets, now):] {
			all[key] += b.calls
			// a tool's key begins with the server's name, which contains no slash
			if server, _, _ := strings.Cut(key, " "); !strings.Contains(server, "/") {
				all[""] += b.calls
			}
		}
	}
	return all
}

// reset replaces all counts with the given number of calls, all made at the given time.
func (m *rateWindow) reset(calls map[string]int, at time.Time) {
	*m = rateWindow{}
	for key, n := range calls {
		if key != "" && n > 0 && m.bucketCount < maxBuckets { // "" is the sum of all tools
			m.add(key, bucket{at, at, n})
		}
	}
}
