package limits

import (
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"gatekit/core/mcp"
)

// Bounds of what is remembered. What has come to rest is forgotten when there is need for its
// place, which changes nothing; beyond that messages are refused.
const (
	maxCounts = 1024    // of one principal
	allCounts = 1 << 18 // of all
	// of one principal: sessions with calls that may be a loop's; beyond that the quietest is
	// forgotten
	maxTrails   = 256
	allTrails   = 8192 // of all
	maxOpen     = 4096 // of one principal: calls that a rule with concurrent counts
	sweepEvery  = time.Minute
	sweepInNeed = time.Second
)

// ledger is what was counted, by principal. It is safe for many goroutines.
type ledger struct {
	mu     sync.Mutex
	of     map[string]*account
	counts int // in all accounts
	trails int // in all accounts
	swept  time.Time
}

// account is what was counted of one principal.
type account struct {
	counts map[countKey]*count
	open   map[openKey]*open
	trails map[string]*trail // by session
	swept  time.Time
}

// countKey is what a count is of: the fields that the rule's per does not name are empty.
type countKey struct {
	rule         int
	to           mcp.Direction
	server, tool string
}

// count is a rule's for one key.
type count struct {
	rate *rate.Limiter // nil where the rule has none
	open int
}

// openKey is a request that waits for its answer. Exchanges are a session's.
type openKey struct{ session, exchange, server string }

// open is what such a request is counted in, and until when.
type open struct {
	in    []*count
	until time.Time
}

// numbered is a rule and its place in the configuration.
type numbered struct {
	*rule
	i int
}

// question is a message that asks to be admitted.
type question struct {
	m       *mcp.Message
	now     time.Time
	timeout time.Duration
	rules   []numbered // that fit m
	loop    *loop      // nil when no loop is looked for
	step    step
}

// refusal is why a message is not admitted.
type refusal struct{ kind, reason string }

func newLedger() *ledger { return &ledger{of: map[string]*account{}} }

// admit counts q's message, in all its counts or, when one of them refuses it, in none.
func (l *ledger) admit(q question) *refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.now.Sub(l.swept) >= sweepEvery {
		l.sweep(q.now)
	}
	a := l.of[q.m.Principal]
	if a == nil {
		a = &account{counts: map[countKey]*count{}, open: map[openKey]*open{},
			trails: map[string]*trail{}}
		l.of[q.m.Principal] = a
	}
	if q.loop != nil {
		if n := a.trails[q.m.Session].again(q); n >= q.loop.Same {
			return &refusal{"loop", fmt.Sprintf("loop: the same call %d times within %v, and "+
				"nothing new in between", n, q.loop.within)}
		}
	}
	key := openKey{q.m.Session, q.m.Exchange, q.m.Server}
	_, again := a.open[key] // a further round of a call that is open already
	var concurrent bool
	fresh := 0
	for _, r := range q.rules {
		c := a.counts[r.key(q.m)]
		if c == nil {
			fresh++
		} else if refused := r.refuses(a, c, q, again); refused != nil {
			return refused
		}
		concurrent = concurrent || r.Concurrent > 0
	}
	if refused := l.room(a, q, fresh, concurrent && !again); refused != nil {
		return refused
	}

	var in []*count
	for _, r := range q.rules {
		c := a.counts[r.key(q.m)]
		if c == nil {
			c = r.count()
			a.counts[r.key(q.m)] = c
			l.counts++
		}
		if c.rate != nil {
			c.rate.AllowN(q.now, 1)
		}
		if r.Concurrent > 0 {
			in = append(in, c)
		}
	}
	if len(in) > 0 && !again {
		for _, c := range in {
			c.open++
		}
		a.open[key] = &open{in, q.now.Add(q.timeout)}
	}
	if q.loop != nil {
		l.remember(a, q)
	}
	return nil
}

// key is the count of the rule that m belongs to.
func (r numbered) key(m *mcp.Message) countKey {
	k := countKey{rule: r.i, to: m.Direction}
	if r.Per != perPrincipal {
		k.server = m.Server
	}
	if r.Per == perTool {
		k.tool = m.Name
	}
	return k
}

func (r *rule) count() *count {
	if r.Rate == 0 {
		return &count{}
	}
	return &count{rate: rate.NewLimiter(rate.Limit(float64(r.Rate)/60), r.Burst)}
}

// refuses says why c, which is a's and r's, does not admit q's message, or nil.
func (r numbered) refuses(a *account, c *count, q question, again bool) *refusal {
	if r.Concurrent > 0 && !again && c.open >= r.Concurrent {
		a.expire(q.now)
		if c.open >= r.Concurrent {
			return &refusal{"concurrency",
				fmt.Sprintf("calls[%d]: %d are open per %s, as many as may be", r.i, c.open, r.Per)}
		}
	}
	if c.rate == nil {
		return nil
	}
	if have := c.rate.TokensAt(q.now); have < 1 {
		wait := time.Duration((1 - have) / float64(r.Rate) * float64(time.Minute))
		tenths := time.Duration(math.Ceil(wait.Seconds()*10)) * 100 * time.Millisecond
		return &refusal{"rate", fmt.Sprintf("calls[%d]: more than %d a minute per %s (burst "+
			"%d), the next in %v", r.i, r.Rate, r.Per, r.Burst, tenths)}
	}
	return nil
}

// room says why there is no place for fresh counts more, a request that waits, and a trail; or nil.
func (l *ledger) room(a *account, q question, fresh int, waits bool) *refusal {
	trail := q.loop != nil && a.trails[q.m.Session] == nil
	full := func() string {
		switch {
		case len(a.counts)+fresh > maxCounts:
			return fmt.Sprintf("more than %d tools and servers at once", maxCounts)
		case l.counts+fresh > allCounts, trail && l.trails >= allTrails:
			return "too many principals at once"
		case waits && len(a.open) >= maxOpen:
			return fmt.Sprintf("more than %d requests that wait for their answer", maxOpen)
		}
		return ""
	}
	if full() == "" {
		return nil
	}
	if q.now.Sub(a.swept) >= sweepInNeed {
		l.sweepAccount(a, q.now)
	}
	if full() != "" && q.now.Sub(l.swept) >= sweepInNeed {
		l.sweep(q.now)
		l.of[q.m.Principal] = a // also when it had come to rest
	}
	if why := full(); why != "" {
		return &refusal{"full", "not counted: " + why}
	}
	return nil
}

// alive says that the call that m belongs to is being worked on, so that it counts as open until
// then.
func (l *ledger) alive(m *mcp.Message, until time.Time) {
	if m.Exchange == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.of[m.Principal]; a != nil {
		if o := a.open[openKey{m.Session, m.Exchange, m.Server}]; o != nil {
			o.until = until
		}
	}
}

// end says that the call that m belongs to is over.
func (l *ledger) end(m *mcp.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.of[m.Principal]; a != nil {
		key := openKey{m.Session, m.Exchange, m.Server}
		if o := a.open[key]; o != nil {
			a.close(key, o)
		}
	}
}

func (a *account) close(key openKey, o *open) {
	for _, c := range o.in {
		c.open--
	}
	delete(a.open, key)
}

// expire closes the requests whose answer is no longer waited for.
func (a *account) expire(now time.Time) {
	for key, o := range a.open {
		if !now.Before(o.until) {
			a.close(key, o)
		}
	}
}

// sweep forgets what has come to rest: a count that is as if nothing had been counted, a trail that
// nothing is remembered of.
func (l *ledger) sweep(now time.Time) {
	l.swept = now
	for principal, a := range l.of {
		l.sweepAccount(a, now)
		if len(a.counts)+len(a.open)+len(a.trails) == 0 {
			delete(l.of, principal)
		}
	}
}

func (l *ledger) sweepAccount(a *account, now time.Time) {
	a.swept = now
	a.expire(now)
	for key, c := range a.counts {
		if c.open == 0 && (c.rate == nil || c.rate.TokensAt(now) >= float64(c.rate.Burst())) {
			delete(a.counts, key)
			l.counts--
		}
	}
	for session, t := range a.trails {
		if t.until.Before(now) {
			delete(a.trails, session)
			l.trails--
		}
	}
}
