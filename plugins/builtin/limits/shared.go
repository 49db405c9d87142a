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
	state  shared.Admitter
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
	s.shared = &sharedLimits{state: state.Admitter, local: state.Replicas > 0, leases: rand.Text()}
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

// admitShared is limiter.admit for all replicas together. alone is set if the message was counted
// in this replica only. err is the cause of ctx.
//
// The limiter of this replica counts as well. The state would also refuse what this limiter
// refuses, so a client that is too fast costs no call of the state. The limiter also bounds how
// many counters a principal makes.
func (s *stage) admitShared(ctx context.Context, a admission) (repetitions int, alone bool,
	denied *denial, err error) {
	l := s.limiter
	l.mu.Lock()
	repetitions, open, denied := l.check(a)
	isFurtherRound := open != nil
	if isFurtherRound {
		a.lease = open.lease
	}
	l.mu.Unlock()
	if denied != nil {
		return repetitions, false, denied, nil
	}
	all, rules := s.admission(&a)
	result, err := s.shared.state.Admit(ctx, all)
	if errors.Is(err, shared.ErrLost) { // it has counted nothing, and now it can
		result, err = s.shared.state.Admit(ctx, all)
	}
	isAway := errors.Is(err, shared.ErrUnavailable) || errors.Is(err, shared.ErrLost)
	switch {
	case errors.Is(err, shared.ErrFull):
		return 0, false, &denial{"full", "the message cannot be counted: " + err.Error()}, nil
	case isAway && s.shared.local:
		a.alone = true
	case err != nil:
		return 0, false, &denial{"shared", shared.ErrUnavailable.Error()}, nil
	case result.TooMany:
		return 0, false, rules[result.Refused].tooMany(""), nil
	case !result.OK():
		return 0, false, rules[result.Refused].tooFast(result.RetryAfter, ""), nil
	default:
		a.admitted = true
	}
	if err = context.Cause(ctx); err == nil {
		// check again, because another message may have been counted meanwhile
		l.mu.Lock()
		repetitions, open, denied = l.check(a)
		if denied == nil {
			l.count(a, open)
		}
		l.mu.Unlock()
	}
	if (denied != nil || err != nil) && a.admitted && a.lease.Name != "" && !isFurtherRound {
		s.shared.state.Release(context.WithoutCancel(ctx), a.lease)
	}
	return repetitions, a.alone, denied, err
}

// admission returns what the message of a counts in the state, and the rule of each limit. It sets
// the lease of a.
func (s *stage) admission(a *admission) (all shared.Admission, rules []indexedRule) {
	var keys []shared.Key
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
	if keys == nil {
		return all, rules
	}
	if a.lease.Name == "" {
		a.lease.Name = s.shared.leases + strconv.FormatUint(s.shared.last.Add(1), 10)
	}
	a.lease.Keys = keys
	all.Lease, all.TTL = a.lease.Name, leaseTime(a.timeout)
	a.leaseUntil = a.now.Add(all.TTL)
	return all, rules
}

// leaseTime returns for how long a lease is held so that a call counts as open for the given time.
// With the quarter more, a call with much progress renews its lease only now and then.
func leaseTime(timeout time.Duration) time.Duration { return timeout + timeout/4 }

// renew renews the lease of the call that m belongs to. After an error, the next sign of activity
// tries it again.
func (s *stage) renew(ctx context.Context, m *mcp.Message, lease shared.Lease, by time.Duration) {
	begun := time.Now()
	if s.shared.state.Renew(ctx, lease, leaseTime(by)) == nil {
		s.limiter.renewed(m, begun.Add(leaseTime(by)))
	}
}
