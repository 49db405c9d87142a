package limits

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/shared"
	"gatekit/plugins/sdk"
)

// sharedLimits counts the messages of all replicas, in the state that they share.
type sharedLimits struct {
	local  bool          // count in this replica only while the state is not available
	rules  []string      // for each rule, a name that is the same for equal rules
	leases string        // begins the names of the leases of this stage
	last   atomic.Uint64 // number of the last lease
}

const (
	// findingAlone is the type of findings about messages that are counted in this replica only.
	findingAlone = "unshared"
	reasonAlone  = "counted in this replica only: shared state is not available"
)

// UseSharedState implements sdk.StageWithSharedState.
func (s *stage) UseSharedState(state sdk.SharedState) {
	s.limiter.replicas = state.Replicas
	s.shared = &sharedLimits{local: state.Replicas > 0, leases: rand.Text()}
	for _, r := range s.config.Calls {
		s.shared.rules = append(s.shared.rules, r.name())
	}
}

// name returns a name that equal rules have. Replicas that have different rules, for example while
// they get a new configuration, must not count together.
func (r *rule) name() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d %d %d", r.Per, r.Methods, r.Tools,
		r.Except, r.Rate, r.Burst, r.Concurrent))
	return string(sum[:16])
}

// InspectShared implements sdk.StageWithSharedState.
func (s *stage) InspectShared(ctx context.Context, m *mcp.Message) (v sdk.Verdict, c sdk.Count,
	err error) {
	v, err = s.inspect(ctx, m, &c)
	return v, c, err
}

// admitShared is limiter.admit for all replicas together. It adds to c what the message counts in
// the state.
//
// The limiter of this replica counts first. The state would also refuse what this limiter refuses,
// so a client that is too fast costs no call of the state. The limiter also bounds how many
// counters a principal makes. If the state does not count the message, settle takes back what this
// limiter has counted.
func (s *stage) admitShared(a admission, c *sdk.Count) sdk.Verdict {
	a.message = withoutBody(a.message) // settle keeps it
	all, rules, keys := s.admission(a)
	l := s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	repetitions, open, denied := l.check(a)
	if denied != nil {
		return a.verdict(repetitions, denied)
	}
	var opened shared.Lease // by this message
	if keys != nil {
		a.lease.Keys = keys
		if open != nil {
			a.lease.Name = open.lease.Name
		}
		if a.lease.Name == "" {
			a.lease.Name = s.shared.leases + strconv.FormatUint(s.shared.last.Add(1), 10)
			opened = a.lease
		}
		all.Lease, all.TTL = a.lease.Name, leaseTime(a.timeout)
		a.leaseUntil = a.now.Add(all.TTL)
	}
	var done counted
	l.count(a, open, &done)
	c.Calls.Admission = all
	c.Settle = func(r shared.Admitted, err error) (sdk.Verdict, shared.Lease) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.takeBack(a, done)
		isAway := errors.Is(err, shared.ErrUnavailable) || errors.Is(err, shared.ErrLost)
		denied := &denial{"shared", shared.ErrUnavailable.Error()}
		switch {
		case errors.Is(err, sdk.ErrGivenUp):
			return a.verdict(0, denied), opened
		case errors.Is(err, shared.ErrFull):
			denied = &denial{"full", "the message cannot be counted: " + err.Error()}
		case isAway && s.shared.local:
			a.alone = true
			var repetitions int
			if repetitions, open, denied = l.check(a); denied == nil {
				l.count(a, open, nil)
			}
			return a.verdict(repetitions, denied), shared.Lease{}
		case err != nil:
		case r.TooMany:
			denied = rules[r.Refused].tooMany("")
		default:
			denied = rules[r.Refused].tooFast(r.RetryAfter, "")
		}
		return a.verdict(0, denied), shared.Lease{}
	}
	return a.verdict(repetitions, nil)
}

// withoutBody returns the parts of a message that the limiter reads, apart from its body.
func withoutBody(m *mcp.Message) *mcp.Message {
	h := mcp.NewRequest("", m.Method, nil)
	h.Direction, h.Session, h.Principal = m.Direction, m.Session, m.Principal
	h.Exchange, h.Server, h.Name = m.Exchange, m.Server, m.Name
	return h
}

// admission returns what the message of a counts in the state, without a lease, the rule of each
// limit, and the keys of the limits that need a lease.
func (s *stage) admission(a admission) (all shared.Admission, rules []indexedRule,
	keys []shared.Key) {
	for _, r := range a.rules {
		k := r.key(a.message)
		limit := shared.Limit{Rate: r.Rate, Per: time.Minute, Burst: r.Burst,
			Concurrent: r.Concurrent, Key: shared.Key{Kind: "limit",
				Principal: a.message.Principal.ID(), Name: shared.Join(s.shared.rules[r.index],
					k.direction.String(), k.server, k.tool)}}
		isSame := func(o shared.Limit) bool { return o.Key == limit.Key }
		if slices.ContainsFunc(all.Limits, isSame) {
			continue // two rules are equal
		}
		all.Limits, rules = append(all.Limits, limit), append(rules, r)
		if r.Concurrent > 0 {
			keys = append(keys, limit.Key)
		}
	}
	return all, rules, keys
}

// leaseTime returns for how long a lease is held so that a call counts as open for the given time.
// With the quarter more, a call with much progress renews its lease only now and then.
func leaseTime(timeout time.Duration) time.Duration { return timeout + timeout/4 }
