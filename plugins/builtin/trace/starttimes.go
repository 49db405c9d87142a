package trace

import (
	"sync"
	"time"
)

// maxCalls is how many start times are remembered. A further call replaces the oldest call, which
// was most likely denied, or failed without a response.
const maxCalls = 10_000

// call identifies a tool call.
type call struct{ session, exchange string }

// startTimes remembers when calls started. The zero startTimes is ready to use.
type startTimes struct {
	mu     sync.Mutex // guards the fields below
	times  map[call]time.Time
	ring   []call // the last maxCalls calls, including calls that take removed from times
	oldest int    // index of the oldest call in ring, if ring is full
}

// add remembers when a call started. It does not change the time of a call that it knows already:
// the request of one call may be sent to the server several times.
func (s *startTimes) add(c call, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.times[c]; ok {
		return
	}
	if s.times == nil {
		s.times = map[call]time.Time{}
	}
	s.times[c] = now
	if len(s.ring) < maxCalls {
		s.ring = append(s.ring, c)
		return
	}
	delete(s.times, s.ring[s.oldest])
	s.ring[s.oldest] = c
	s.oldest = (s.oldest + 1) % maxCalls
}

// take returns when a call started, and forgets the call.
func (s *startTimes) take(c call) (start time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start, ok = s.times[c]
	delete(s.times, c)
	return start, ok
}
