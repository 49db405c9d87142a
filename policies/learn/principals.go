package learn

import (
	"hash/maphash"
	"math"

	"gatekit/policies"
)

// principal returns a hash of the principal of a request.
func (s seed) principal(c *policies.Case) uint64 {
	return maphash.String(s.Seed, c.Message.Principal.ID())
}

// users tells whether one principal or several account for something.
type users struct {
	first   uint64
	any     bool
	several bool
}

func (u *users) add(principal uint64) {
	u.several = u.several || u.any && principal != u.first
	if !u.any {
		u.first, u.any = principal, true
	}
}

// merge adds the principals of another part.
func (u *users) merge(o *users) {
	if o.any {
		u.add(o.first)
	}
	u.several = u.several || o.several
}

// addTo adds a principal to the part with a key.
func addTo[K comparable](parts map[K]*users, key K, principal uint64) {
	if parts[key] == nil {
		parts[key] = &users{}
	}
	parts[key].add(principal)
}

// extreme is the largest of some numbers, and the largest one of all principals but the one who
// sent the largest.
type extreme struct {
	any           bool
	most, others  float64
	by            uint64
	othersPresent bool
}

func (e *extreme) add(f float64, principal uint64) {
	switch {
	case !e.any:
		e.any, e.most, e.by = true, f, principal
	case principal == e.by:
		e.most = max(e.most, f)
	case f > e.most:
		e.others, e.othersPresent = e.most, true
		e.most, e.by = f, principal
	case !e.othersPresent || f > e.others:
		e.others, e.othersPresent = f, true
	}
}

// byOne reports whether only one principal sent numbers beyond a bound for the numbers of the
// others.
func (e *extreme) byOne(bound func(others float64) float64) bool {
	return e.othersPresent && e.most > bound(e.others)
}

// finite returns a number that can be written in Rego.
func finite(f float64) float64 { return min(max(f, -math.MaxFloat64), math.MaxFloat64) }
