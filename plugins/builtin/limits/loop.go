package limits

import (
	"bytes"
	"slices"
	"time"

	"gatekit/core/mcp"
)

// maxSteps bounds a trail, and so the loops that are seen: the same call so often, times as many
// calls as the loop has, must be within it.
const maxSteps = 256

// step is a call that was made.
type step struct {
	what [16]byte // digest of the server, the tool, and what it was asked
	at   time.Time
	new  bool // it was not among the calls that were remembered
}

// trail is the calls of one session, oldest first.
type trail struct {
	steps []step
	until time.Time // when all are forgotten
}

// digest is what call m is, however its arguments are spelt. What a retry brings along (2026-07-28)
// is part of it: a call's next round is another step, not the same again.
func digest(m *mcp.Message) (s step, err error) {
	parts := [][]byte{mcp.Quote(m.Server), mcp.Quote(m.Name)}
	for _, at := range []string{"/arguments", "/inputResponses", "/requestState"} {
		part, ok := m.Get(at)
		if !ok {
			part = []byte("{}")
		}
		parts = append(parts, part)
	}
	sum, err := mcp.CanonicalDigest(slices.Concat([]byte("["), bytes.Join(parts, []byte(",")),
		[]byte("]")))
	copy(s.what[:], sum)
	return s, err
}

// again is how often the call was made since there was a new one, itself included; 0 for a call
// that is new.
func (t *trail) again(q question) (n int) {
	if t == nil {
		return 0
	}
	t.forget(q.now.Add(-q.loop.within))
	for i := len(t.steps) - 1; i >= 0; i-- {
		if t.steps[i].what == q.step.what {
			n++
		}
		if t.steps[i].new {
			break
		}
	}
	return n
}

// forget drops the steps before a time.
func (t *trail) forget(before time.Time) {
	n := 0
	for n < len(t.steps) && t.steps[n].at.Before(before) {
		n++
	}
	t.steps = slices.Delete(t.steps, 0, n)
}

// remember puts q's call on the trail of its session.
func (l *ledger) remember(a *account, q question) {
	t := a.trails[q.m.Session]
	if t == nil {
		if len(a.trails) >= maxTrails {
			a.forgetQuietest()
			l.trails--
		}
		t = &trail{}
		a.trails[q.m.Session] = t
		l.trails++
	}
	if len(t.steps) == maxSteps {
		t.steps = slices.Delete(t.steps, 0, 1)
	}
	s := q.step
	s.at = q.now
	s.new = !slices.ContainsFunc(t.steps, func(before step) bool { return before.what == s.what })
	t.steps = append(t.steps, s)
	t.until = q.now.Add(q.loop.within)
}

// forgetQuietest drops the trail that was left alone for the longest time.
func (a *account) forgetQuietest() {
	var quietest string
	var until time.Time
	for session, t := range a.trails {
		if until.IsZero() || t.until.Before(until) {
			quietest, until = session, t.until
		}
	}
	delete(a.trails, quietest)
}
