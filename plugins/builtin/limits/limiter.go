package limits

import (
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"gatekit/core/mcp"
	"gatekit/core/shared"
)

// Limits on the number of entries. When a limit is reached, entries that no longer affect a verdict
// are removed. If no entry can be removed, messages are denied.
const (
	maxCounters      = 1024        // of one principal
	maxAllCounters   = 1 << 18     // of all principals
	maxOpenRequests  = 4096        // of one principal
	maxHistories     = 256         // of one principal; a further one replaces the least active
	maxAllHistories  = 8192        // of all principals
	sweepInterval    = time.Minute // between two regular sweeps
	minSweepInterval = time.Second // between two sweeps that make room
)

// limiter counts the messages of all principals that this process inspects. Its methods may be
// called from many goroutines.
type limiter struct {
	seed maphash.Seed // of the hashes in call histories
	// replicas is by how many the limits are divided for messages that are counted only here,
	// although other replicas share them; 0 if there are none.
	replicas   int
	mu         sync.Mutex // guards the fields below and everything that they lead to
	principals map[string]*principalState
	counters   int       // of all principals
	histories  int       // of all principals
	swept      time.Time // when sweep ran last
}

// principalState has the counters of one principal.
type principalState struct {
	counters  map[counterKey]*counter
	open      map[requestKey]*openRequest
	histories map[string]*callHistory // by session
	swept     time.Time               // when sweepPrincipal ran last
}

// counterKey identifies a counter of a principal. The field tool is empty unless the rule counts by
// tool. The field server is empty if the rule counts the principal as a whole.
type counterKey struct {
	rule         int
	direction    mcp.Direction
	server, tool string
}

// counter counts the messages of one rule and key.
type counter struct {
	rate *rate.Limiter // nil if the rule has no rate
	part *rate.Limiter // the part of this replica; nil if the rule has no rate, or without replicas
	open int           // open requests
}

// requestKey identifies a request of a principal. An exchange is unique within its session.
type requestKey struct{ session, exchange, server string }

// openRequest is a request that waits for its response.
type openRequest struct {
	counters []*counter // the counters that count the request as open
	until    time.Time  // when the request no longer counts as open

	lease      shared.Lease // in the state that replicas share; the zero Lease if there is none
	leaseUntil time.Time    // when the lease ends
}

func (r *openRequest) hasExpired(now time.Time) bool { return !now.Before(r.until) }

// indexedRule is a rule and its index in the configuration.
type indexedRule struct {
	*rule
	index int
}

// admission is a message to be admitted.
type admission struct {
	message *mcp.Message
	now     time.Time
	timeout time.Duration // of open requests
	rules   []indexedRule // the rules that apply to message
	loop    *loop         // nil if loops are not looked for
	call    recordedCall  // valid if loop is not nil

	// alone is set if the message is counted only here, although other replicas share the limits.
	alone      bool
	lease      shared.Lease // for an open request, in the state that replicas share
	leaseUntil time.Time    // when the lease ends
}

// denial is why a message is not admitted.
type denial struct{ findingType, reason string }

func newLimiter() *limiter {
	return &limiter{seed: maphash.MakeSeed(), principals: map[string]*principalState{}}
}

// admit counts a message in all of its counters and returns nil, and how often an equal call was
// made with nothing new in between. If the message is not admitted, admit changes no counter and
// returns the reason.
func (l *limiter) admit(a admission) (repetitions int, denied *denial) {
	l.mu.Lock()
	defer l.mu.Unlock()
	repetitions, open, denied := l.check(a)
	if denied == nil {
		l.count(a, open, nil)
	}
	return repetitions, denied
}

// check returns how often an equal call was made, the open call that the message is a further round
// of, and why the message is not admitted. open is nil if there is none, and denied is nil if the
// message is admitted. The caller holds l.mu.
func (l *limiter) check(a admission) (repetitions int, open *openRequest, denied *denial) {
	if a.now.Sub(l.swept) >= sweepInterval {
		l.sweep(a.now)
	}
	m := a.message
	p := l.principals[m.Principal.ID()]
	if p == nil {
		p = &principalState{counters: map[counterKey]*counter{},
			open: map[requestKey]*openRequest{}, histories: map[string]*callHistory{}}
		l.principals[m.Principal.ID()] = p
	}
	if a.loop != nil {
		repetitions = p.histories[m.Session].repetitions(a)
		if repetitions >= a.loop.Same {
			return repetitions, nil, &denial{findingLoop, a.loop.reason(repetitions)}
		}
	}
	key := requestKey{m.Session, m.Exchange, m.Server}
	// A message with this key is a further round of an open call. A call whose time is over is
	// closed here, since otherwise reserve could close it after this check.
	open, isOpen := p.open[key]
	if isOpen && open.hasExpired(a.now) {
		p.close(key, open)
		isOpen = false
	}
	if !isOpen {
		open = nil
	}
	hasConcurrent := false
	for _, r := range a.rules {
		if c := p.counters[r.key(m)]; c != nil {
			if denied := l.checkRule(r, p, c, a, isOpen); denied != nil {
				return repetitions, nil, denied
			}
		}
		hasConcurrent = hasConcurrent || r.Concurrent > 0
	}
	if denied := l.reserve(p, a, hasConcurrent && !isOpen); denied != nil {
		return repetitions, nil, denied
	}
	return repetitions, open, nil
}

// counted has the changes that count has made for a message, so that they can be taken back.
type counted struct {
	rates   []*rate.Limiter // those that the message was taken from
	open    *openRequest    // the open call that count added; nil if it added none
	renewed *openRequest    // the open call that got the lease; nil if none got it
	lease   shared.Lease    // that renewed had before
	until   time.Time       // when lease ends
	isCall  bool            // the message is in the history of its session
}

// count counts a message that check has admitted. open is the result of check. The caller has held
// l.mu since then. If done is not nil, count adds to it what it does.
func (l *limiter) count(a admission, open *openRequest, done *counted) {
	take := func(from *rate.Limiter) {
		if from != nil && from.AllowN(a.now, 1) && done != nil {
			done.rates = append(done.rates, from)
		}
	}
	m, p := a.message, l.principals[a.message.Principal.ID()]
	var concurrent []*counter
	for _, r := range a.rules {
		c := p.counters[r.key(m)]
		if c == nil {
			c = l.newCounter(r)
			p.counters[r.key(m)] = c
			l.counters++
		}
		take(c.rate)
		take(c.part)
		if r.Concurrent > 0 {
			concurrent = append(concurrent, c)
		}
	}
	switch {
	case len(concurrent) > 0 && open == nil:
		for _, c := range concurrent {
			c.open++
		}
		added := &openRequest{concurrent, a.now.Add(a.timeout), a.lease, a.leaseUntil}
		p.open[requestKey{m.Session, m.Exchange, m.Server}] = added
		if done != nil {
			done.open = added
		}
	case open != nil && a.leaseUntil.After(open.leaseUntil):
		if done != nil {
			done.renewed, done.lease, done.until = open, open.lease, open.leaseUntil
		}
		open.lease, open.leaseUntil = a.lease, a.leaseUntil
	}
	if a.loop != nil {
		l.recordCall(p, a)
		if done != nil {
			done.isCall = true
		}
	}
}

// takeBack takes back what count has done for a message. The caller holds l.mu.
func (l *limiter) takeBack(a admission, done counted) {
	now := time.Now()
	for _, r := range done.rates {
		r.AllowN(now, -1) // gives back what AllowN(a.now, 1) took
	}
	m := a.message
	p := l.principals[m.Principal.ID()]
	if p == nil {
		return // everything else was removed meanwhile
	}
	key := requestKey{m.Session, m.Exchange, m.Server}
	switch open := p.open[key]; {
	case open == nil: // closed meanwhile
	case open == done.open:
		p.close(key, open)
	case open == done.renewed:
		open.lease, open.leaseUntil = done.lease, done.until
	}
	if done.isCall {
		p.histories[m.Session].remove(a, l.hashExchange(m))
	}
}

// key returns the key of the rule's counter for m.
func (r indexedRule) key(m *mcp.Message) counterKey {
	k := counterKey{rule: r.index, direction: m.Direction}
	if r.Per != perPrincipal {
		k.server = m.Server
	}
	if r.Per == perTool {
		k.tool = m.Name
	}
	return k
}

func (l *limiter) newCounter(r indexedRule) *counter {
	if r.Rate == 0 {
		return &counter{}
	}
	perSecond := rate.Limit(float64(r.Rate) / 60)
	c := &counter{rate: rate.NewLimiter(perSecond, r.Burst)}
	if l.replicas > 0 {
		c.part = rate.NewLimiter(perSecond/rate.Limit(l.replicas), l.partOf(r.Burst))
	}
	return c
}

// partOf returns the part of a limit that this replica admits when it counts alone, at least 1.
func (l *limiter) partOf(limit int) int { return max(limit/l.replicas, 1) }

// checkRule returns why the rule does not admit another message in its counter c, or nil. isOpen
// means that the call of the message already counts as open. The rule's limit concurrent does not
// apply to such a message.
func (l *limiter) checkRule(r indexedRule, p *principalState, c *counter, a admission,
	isOpen bool) *denial {
	concurrent, limiter, note := r.Concurrent, c.rate, ""
	if a.alone {
		limiter, concurrent = c.part, min(concurrent, l.partOf(concurrent))
		note = fmt.Sprintf("; %v, so this replica admits 1/%d", shared.ErrUnavailable, l.replicas)
	}
	if concurrent > 0 && !isOpen && c.open >= concurrent {
		p.closeExpired(a.now)
		if c.open >= concurrent {
			return r.tooMany(note)
		}
	}
	if limiter == nil {
		return nil
	}
	if tokens := limiter.TokensAt(a.now); tokens < 1 {
		seconds := (1 - tokens) / float64(limiter.Limit())
		return r.tooFast(time.Duration(seconds*float64(time.Second)), note)
	}
	return nil
}

// tooMany is why the rule admits no further open request.
func (r indexedRule) tooMany(note string) *denial {
	return &denial{"concurrency", fmt.Sprintf("calls[%d]: limit of %d open requests per %s "+
		"reached%s", r.index, r.Concurrent, r.Per, note)}
}

// tooFast is why the rule admits no further message for some time.
func (r indexedRule) tooFast(wait time.Duration, note string) *denial {
	tenths := time.Duration(math.Ceil(wait.Seconds()*10)) * 100 * time.Millisecond
	return &denial{"rate", fmt.Sprintf("calls[%d]: limit of %d messages per minute per %s "+
		"reached (burst %d); retry in %v%s", r.index, r.Rate, r.Per, r.Burst, tenths, note)}
}

// reserve makes sure that there is room for the entries that the message adds: new counters, an
// open request if opens is set, and a call history. It returns nil, or a denial if there is no
// room.
func (l *limiter) reserve(p *principalState, a admission, opens bool) *denial {
	full := func() string {
		// A sweep may remove entries that the message needs, so they are counted each time.
		newHistory := a.loop != nil && p.histories[a.message.Session] == nil
		newCounters := 0
		for _, r := range a.rules {
			if p.counters[r.key(a.message)] == nil {
				newCounters++
			}
		}
		switch {
		case len(p.counters)+newCounters > maxCounters:
			return fmt.Sprintf("more than %d tools and servers at once", maxCounters)
		case l.counters+newCounters > maxAllCounters,
			newHistory && l.histories >= maxAllHistories:
			return "too many principals at once"
		case opens && len(p.open) >= maxOpenRequests:
			return fmt.Sprintf("more than %d open requests", maxOpenRequests)
		}
		return ""
	}
	if full() == "" {
		return nil
	}
	if a.now.Sub(p.swept) >= minSweepInterval {
		l.sweepPrincipal(p, a.now)
	}
	if full() != "" && a.now.Sub(l.swept) >= minSweepInterval {
		l.sweep(a.now)
		l.principals[a.message.Principal.ID()] = p // sweep may have removed it
	}
	if reason := full(); reason != "" {
		return &denial{"full", "the message cannot be counted: " + reason}
	}
	return nil
}

// extend keeps the call that m belongs to open until the given time. m shows that the call goes on.
// If the lease of the call ends before that, extend returns it, and takes it as renewed until
// leaseUntil; otherwise it returns a lease without a name.
func (l *limiter) extend(m *mcp.Message, until, leaseUntil time.Time) (short shared.Lease) {
	if m.Exchange == "" {
		return short
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.openRequest(m); r != nil {
		r.until = until
		if r.lease.Name != "" && r.leaseUntil.Before(until) {
			r.leaseUntil = leaseUntil
			return r.lease
		}
	}
	return short
}

// openRequest returns the open call that m belongs to, or nil. The caller holds l.mu.
func (l *limiter) openRequest(m *mcp.Message) *openRequest {
	p := l.principals[m.Principal.ID()]
	if p == nil {
		return nil
	}
	return p.open[requestKey{m.Session, m.Exchange, m.Server}]
}

// finish closes the call that m belongs to. It returns the lease of the call, without a name if
// there is none.
func (l *limiter) finish(m *mcp.Message) (ended shared.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.openRequest(m); r != nil {
		l.principals[m.Principal.ID()].close(requestKey{m.Session, m.Exchange, m.Server}, r)
		return r.lease
	}
	return ended
}

func (p *principalState) close(key requestKey, r *openRequest) {
	for _, c := range r.counters {
		c.open--
	}
	delete(p.open, key)
}

// closeExpired closes the requests whose time is over.
func (p *principalState) closeExpired(now time.Time) {
	for key, r := range p.open {
		if r.hasExpired(now) {
			p.close(key, r)
		}
	}
}

// sweep removes entries that no longer affect a verdict: counters that equal new ones, call
// histories whose calls are all forgotten, and principals without entries.
func (l *limiter) sweep(now time.Time) {
	l.swept = now
	for name, p := range l.principals {
		l.sweepPrincipal(p, now)
		if len(p.counters)+len(p.open)+len(p.histories) == 0 {
			delete(l.principals, name)
		}
	}
}

// isFull reports whether a limiter admits as much as a new one. It may be nil.
func isFull(l *rate.Limiter, now time.Time) bool {
	return l == nil || l.TokensAt(now) >= float64(l.Burst())
}

func (l *limiter) sweepPrincipal(p *principalState, now time.Time) {
	p.swept = now
	p.closeExpired(now)
	for key, c := range p.counters {
		if c.open == 0 && isFull(c.rate, now) && isFull(c.part, now) {
			delete(p.counters, key)
			l.counters--
		}
	}
	for session, h := range p.histories {
		if h.until.Before(now) {
			delete(p.histories, session)
			l.histories--
		}
	}
}
