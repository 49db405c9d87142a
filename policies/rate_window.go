package policies

import (
	"slices"
	"strings"
	"time"
)

// rateWindow is the calls of the last minute of one session, by what they count as. It is bounded, and
// grows with what is called and not with how often.
type rateWindow struct {
	buckets     map[string][]bucket // oldest first
	bucketCount int                 // in bursts
}

// maxBuckets is how many bursts of calls of one session are kept.
const maxBuckets = 20_000

// bucket is calls within a second of each other, which are forgotten together, when the last of them
// is a minute old.
type bucket struct {
	first, last time.Time
	calls       int
}

const bucketBytes = 56 // two times and a number

// bytes are about what the bursts take.
func (m *rateWindow) bytes() int { return m.bucketCount * bucketBytes }

// countExpired is how many of the bursts are a minute old.
func countExpired(bursts []bucket, now time.Time) (n int) {
	for n < len(bursts) && now.Sub(bursts[n].last) >= time.Minute {
		n++
	}
	return n
}

func (m *rateWindow) dropExpired(key string, now time.Time) {
	bursts := m.buckets[key]
	n := countExpired(bursts, now)
	m.bucketCount -= n
	if n == len(bursts) {
		delete(m.buckets, key)
		return
	}
	m.buckets[key] = slices.Delete(bursts, 0, n)
}

// count counts a call, and says whether there was room.
func (m *rateWindow) count(key string, now time.Time) bool {
	m.dropExpired(key, now)
	if bursts := m.buckets[key]; len(bursts) > 0 {
		if b := &bursts[len(bursts)-1]; now.Sub(b.first) < time.Second {
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

// undo takes back a call that was counted at that time.
func (m *rateWindow) undo(key string, at time.Time) {
	bursts := m.buckets[key]
	for i := len(bursts) - 1; i >= 0; i-- {
		if bursts[i].first.After(at) && i > 0 {
			continue
		}
		if bursts[i].calls--; bursts[i].calls == 0 {
			m.buckets[key] = slices.Delete(bursts, i, i+1)
			m.bucketCount--
		}
		return
	}
}

// calls are how many there are; "" is all of tools.
func (m *rateWindow) calls(now time.Time) map[string]int {
	all := map[string]int{}
	for key, bursts := range m.buckets {
		for _, b := range bursts[countExpired(bursts, now):] {
			all[key] += b.calls
			// and no method, so a tool's call
			if server, _, _ := strings.Cut(key, " "); !strings.Contains(server, "/") {
				all[""] += b.calls
			}
		}
	}
	return all
}

// reset puts calls that were made at that time in the place of what was counted.
func (m *rateWindow) reset(calls map[string]int, at time.Time) {
	*m = rateWindow{}
	for key, n := range calls {
		if key != "" && n > 0 && m.bucketCount < maxBuckets { // "" is their sum
			m.add(key, bucket{at, at, n})
		}
	}
}
