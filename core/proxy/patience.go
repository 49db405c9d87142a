package proxy

import (
	"slices"
	"sync"
	"time"
)

// Limits on the wait for one of several servers, counted from the first answer of another server.
const (
	// for a server that has not been asked before
	firstPatience = 5 * time.Second
	// for a server that has answered before: patienceFactor times its last response time, but at
	// least shortestPatience and at most longestPatience
	patienceFactor   = 4
	shortestPatience = 3 * time.Second
	longestPatience  = 20 * time.Second
	// for a server that was too late the last time
	latePatience = 100 * time.Millisecond
)

// patience remembers, for all sessions, how long each server took to answer the requests that go to
// all servers. After a server was too late, later requests wait only latePatience for this server.
// The longer wait is restored when the server answers again.
type patience struct {
	mu    sync.Mutex
	known map[patienceKey]responseTime
}

type patienceKey struct {
	upstream Upstream
	method   string
}

// responseTime describes the last response of one server to one method. The length of the next wait
// for the server depends on this response.
type responseTime struct {
	// how long the last answer took; 0 before the first answer, and if isLate is true
	took time.Duration
	// the last wait for the server was given up, and the server has not answered since then
	isLate bool
}

// limit returns how long to wait for a server after another server has answered. isLate reports
// whether the server was too late the last time.
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

// noteAnswer notes that the server has answered, or failed before its time-out.
func (p *patience) noteAnswer(key patienceKey, took time.Duration) {
	p.set(key, responseTime{took: max(took, 1)})
}

// noteLate notes that the server was too late: the wait for its answer was given up.
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

// keepOnly forgets all servers that are not in servers.
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
// server has answered, there is no answer for the client. Then only the fields withoutAnswer and
// withoutAnswerLate limit the wait.
type answerWait struct {
	began, firstGood time.Time
	servers          []serverWait
	// how long to wait while no server has answered; withoutAnswerLate is for servers that were
	// late the last time
	withoutAnswer, withoutAnswerLate time.Duration
}

// serverWait is the wait for one server.
type serverWait struct {
	limit            time.Duration
	isLate, isWaited bool
}

// add adds the server with the index i, which is being asked.
func (w *answerWait) add(i int, limit time.Duration, isLate bool) {
	w.servers[i] = serverWait{limit, isLate, true}
}

// note notes that the server with the index i has answered, or failed. If isGood is true, there is
// now an answer for the client.
func (w *answerWait) note(i int, isGood bool) {
	w.servers[i].isWaited = false
	if isGood {
		w.noteGood()
	}
}

// noteGood notes that there is an answer for the client.
func (w *answerWait) noteGood() {
	if w.firstGood.IsZero() {
		w.firstGood = time.Now()
	}
}

// left returns the remaining time to wait. It is zero or less when the wait is over.
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
