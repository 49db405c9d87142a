package policies

import (
	"slices"
	"strings"
	"time"
)

// minute is the calls of the last minute of one session, by what they count as. It is bounded, and
// grows with what is called and not with how often.
type minute struct {
	bursts map[string][]burst // oldest first
	n      int                // in bursts
}

// maxBursts is how many bursts of calls of one session are kept.
const maxBursts = 20_000

// burst is calls within a second of each other, which are forgotten together, when the last of them
// is a minute old.
type burst struct {
	first, last time.Time
	n           int
}

const burstBytes = 56 // two times and a number

// bytes are about what the bursts take.
func (m *minute) bytes() int { return m.n * burstBytes }

// over is how many of the bursts are a minute old.
func over(bursts []burst, now time.Time) (n int) {
	for n < len(bursts) && now.Sub(bursts[n].last) >= time.Minute {
		n++
	}
	return n
}

func (m *minute) forget(key string, now time.Time) {
	bursts := m.bursts[key]
	n := over(bursts, now)
	m.n -= n
	if n == len(bursts) {
		delete(m.bursts, key)
		return
	}
	m.bursts[key] = slices.Delete(bursts, 0, n)
}

// count counts a call, and says whether there was room.
func (m *minute) count(key string, now time.Time) bool {
	m.forget(key, now)
	if bursts := m.bursts[key]; len(bursts) > 0 {
		if b := &bursts[len(bursts)-1]; now.Sub(b.first) < time.Second {
			b.n++
			if now.After(b.last) {
				b.last = now
			}
			return true
		}
	}
	if m.n >= maxBursts {
		for other := range m.bursts {
			m.forget(other, now)
		}
	}
	if m.n >= maxBursts {
		return false
	}
	m.add(key, burst{now, now, 1})
	return true
}

func (m *minute) add(key string, b burst) {
	if m.bursts == nil {
		m.bursts = map[string][]burst{}
	}
	m.bursts[key] = append(m.bursts[key], b)
	m.n++
}

// takeBack takes back a call that was counted at that time.
func (m *minute) takeBack(key string, at time.Time) {
	bursts := m.bursts[key]
	for i := len(bursts) - 1; i >= 0; i-- {
		if bursts[i].first.After(at) && i > 0 {
			continue
		}
		if bursts[i].n--; bursts[i].n == 0 {
			m.bursts[key] = slices.Delete(bursts, i, i+1)
			m.n--
		}
		return
	}
}

// calls are how many there are; "" is all of tools.
func (m *minute) calls(now time.Time) map[string]int {
	all := map[string]int{}
	for key, bursts := range m.bursts {
		for _, b := range bursts[over(bursts, now):] {
			all[key] += b.n
			// and no method, so a tool's call
			if server, _, _ := strings.Cut(key, " "); !strings.Contains(server, "/") {
				all[""] += b.n
			}
		}
	}
	return all
}

// told puts calls that were made at that time in the place of what was counted.
func (m *minute) told(calls map[string]int, at time.Time) {
	*m = minute{}
	for key, n := range calls {
		if key != "" && n > 0 && m.n < maxBursts { // "" is their sum
			m.add(key, burst{at, at, n})
		}
	}
}
