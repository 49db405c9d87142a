package proxy

import (
	"cmp"
	"slices"
	"sync"
)

// Bounds of the answered rounds that are remembered.
const (
	maxUsedRoundsOfOne = 1 << 14 // of one principal
	maxUsedRounds      = 1 << 16 // of all principals
)

// usedRounds remembers the input rounds that clients have answered, until the rounds expire. The
// client keeps the state of a round, and could send the answers again. When there are too many
// rounds to remember, the oldest rounds expire early, whether they were answered or not. So no
// round is answered twice in this process.
type usedRounds struct {
	mu          sync.Mutex // guards the fields below
	byPrincipal map[string]*usedRoundsOfOne
	count       int // number of rounds of all principals
	sweepAt     int // number of principals at which all expired rounds are removed
}

// usedRoundsOfOne are the answered rounds of one principal.
type usedRoundsOfOne struct {
	rounds []usedRound         // sorted by expiry, the earliest first
	ids    map[string]struct{} // of the rounds
	// rounds whose until is not later than expiredUntil have expired early; in Unix seconds
	expiredUntil int64
}

type usedRound struct {
	id    string
	until int64 // when the round expires, in Unix seconds
}

// use remembers that the client has answered a round. It returns false if the client had answered
// the round before, or if the round has expired. until is when the round expires; until and now are
// in Unix seconds.
func (u *usedRounds) use(principal, id string, until, now int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.byPrincipal[principal]
	if until < now || p != nil && p.isUnusable(id, until) {
		return false
	}
	if u.count >= maxUsedRounds || len(u.byPrincipal) >= u.sweepAt {
		u.makeRoom(now)
		p = u.byPrincipal[principal]
	}
	if p == nil {
		p = &usedRoundsOfOne{ids: map[string]struct{}{}}
		u.byPrincipal[principal] = p
	}
	u.count -= p.removeExpired(now)
	if len(p.rounds) >= maxUsedRoundsOfOne {
		u.expireEarly(p)
	}
	if p.isUnusable(id, until) { // the round has expired early just now
		return false
	}
	at, _ := slices.BinarySearchFunc(p.rounds, until, func(r usedRound, until int64) int {
		return cmp.Compare(r.until, until)
	})
	p.rounds = slices.Insert(p.rounds, at, usedRound{id, until})
	p.ids[id] = struct{}{}
	u.count++
	return true
}

// isUnusable reports whether a round has been answered or has expired early.
func (p *usedRoundsOfOne) isUnusable(id string, until int64) bool {
	_, used := p.ids[id]
	return used || until <= p.expiredUntil
}

// makeRoom removes the expired rounds of all principals, and the principals without rounds. If too
// many rounds remain, it lets rounds of the principal with the most rounds expire early. u.mu is
// held.
func (u *usedRounds) makeRoom(now int64) {
	var most *usedRoundsOfOne
	for principal, p := range u.byPrincipal {
		u.count -= p.removeExpired(now)
		if len(p.rounds) == 0 && p.expiredUntil < now {
			// no round that expired early could still be valid
			delete(u.byPrincipal, principal)
		} else if most == nil || len(p.rounds) > len(most.rounds) {
			most = p
		}
	}
	if u.byPrincipal == nil {
		u.byPrincipal = map[string]*usedRoundsOfOne{}
	}
	u.sweepAt = 64 + 2*len(u.byPrincipal) // so that not every new principal causes a sweep
	if u.count >= maxUsedRounds {
		u.expireEarly(most)
	}
}

// expireEarly removes the earliest round of the principal p, and all its rounds that would expire
// in the same second. From now on, none of them can be used. u.mu is held.
func (u *usedRounds) expireEarly(p *usedRoundsOfOne) {
	p.expiredUntil = p.rounds[0].until
	u.count -= p.removeExpired(p.expiredUntil + 1)
}

// removeExpired removes the rounds that have expired at the time now, and returns their number.
func (p *usedRoundsOfOne) removeExpired(now int64) int {
	n := 0
	for n < len(p.rounds) && p.rounds[n].until < now {
		delete(p.ids, p.rounds[n].id)
		n++
	}
	p.rounds = slices.Delete(p.rounds, 0, n)
	return n
}
