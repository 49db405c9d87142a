package proxy

import (
	"slices"
	"sync"
	"time"
)

// Limits on the wait for one of several servers, counted from the first answer of another one.
const (
	// for a server that has not been asked before
	firstPatience = 5 * time.Second
	// for a server that has answered before: this many times the time that it took, within bounds
	patienceFactor   = 4
	shortestPatience = 3 * time.Second
	longestPatience  = 20 * time.Second
	// for a server that was too late the last time
	latePatience = 100 * time.Millisecond
)

// patience remembers how long servers took for the requests that all servers get, in all sessions.
// A server that did not answer in time is hardly waited for again, until it has answered.
type patience struct {
	mu    sync.Mutex
	known map[patienceKey]responseTime
}

type patienceKey struct {
	upstream Upstream
	method   string
}

// responseTime holds the facts about a server and a method that the next wait depends on.
type responseTime struct {
	took   time.Duration // for the last answer; 0 before the first
	isLate bool          // the server was not waited for the last time, and has not answered since
}

// limit returns how long a server is waited for once another has answered.
func (p *patience) limit(key patienceKey) (limit time.Duration, isLate bool) {
	p.mu.Lock()
	known := p.known[key]
	p.mu.Unlock()
	switch {
	case known.isLate:
		return latePatience, true
	case known.took == 0:
		return firstPatience, false
	}
	return min(max(patienceFactor*known.took, shortestPatience), longestPatience), false
}

// noteAnswer notes that the server has answered, or failed by itself.
func (p *patience) noteAnswer(key patienceKey, took time.Duration) {
	p.set(key, responseTime{took: max(took, 1)})
}

// noteLate notes that the server is not waited for any longer.
func (p *patience) noteLate(key patienceKey) { p.set(key, responseTime{isLate: true}) }

func (p *patience) set(key patienceKey, r responseTime) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[patienceKey]responseTime{}
	}
	p.known[key] = r
}

// isLate reports whether the server was too late for the method the last time.
func (p *patience) isLate(key patienceKey) bool {
	_, isLate := p.limit(key)
	return isLate
}

// keepOnly forgets all servers but these.
func (p *patience) keepOnly(servers []ServerConfig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.known {
		if !slices.ContainsFunc(servers, func(s ServerConfig) bool {
			return s.Upstream == key.upstream
		}) {
			delete(p.known, key)
		}
	}
}

// answerWait decides how long to wait for the answers of several servers to one request. While no
// server has answered there is nothing to give to the client, so the wait goes on.
type answerWait struct {
	began, firstGood time.Time
	servers          []serverWait
	// how long to wait when no server has answered: for any of them, and for those that were late
	// the last time
	withoutAnswer, withoutAnswerLate time.Duration
}

// serverWait is the wait for one server.
type serverWait struct {
	limit            time.Duration
	isLate, isWaited bool
}

// add adds a server that is being asked.
func (w *answerWait) add(i int, limit time.Duration, isLate bool) {
	w.servers[i] = serverWait{limit, isLate, true}
}

// note notes that a server has answered, or failed.
func (w *answerWait) note(i int, isGood bool) {
	w.servers[i].isWaited = false
	if isGood {
		w.noteGood()
	}
}

// noteGood notes that there is something to give to the client.
func (w *answerWait) noteGood() {
	if w.firstGood.IsZero() {
		w.firstGood = time.Now()
	}
}

// left returns how long to wait still. It is zero or less when the wait is over.
func (w *answerWait) left() (longest time.Duration) {
	for _, s := range w.servers {
		if !s.isWaited {
			continue
		}
		since, limit := w.firstGood, s.limit
		if since.IsZero() {
			if since, limit = w.began, w.withoutAnswer; s.isLate {
				limit = w.withoutAnswerLate
			}
		}
		longest = max(longest, limit-time.Since(since))
	}
	return longest
}
