package limits

import (
	"bytes"
	"slices"
	"time"

	"gatekit/core/mcp"
)

// maxHistory is how many calls of a session are remembered. A loop is detected only if all its
// calls, each made loop.same times, fit into the history.
const maxHistory = 256

// recordedCall is a call that was made.
type recordedCall struct {
	digest [16]byte // of the server, the tool, the arguments, and the answers of a retry
	time   time.Time
	isNew  bool // no equal call was remembered when the call was made
}

// callHistory is the calls of one session, oldest first.
type callHistory struct {
	calls []recordedCall
	until time.Time // when all calls are forgotten
}

// newRecordedCall returns the call m with its digest, which does not depend on how the arguments
// are spelt. The answers that a retry carries (MCP 2026-07-28) are part of the digest, so that each
// round of a call counts as another call.
func newRecordedCall(m *mcp.Message) (c recordedCall, err error) {
	parts := [][]byte{mcp.Quote(m.Server), mcp.Quote(m.Name)}
	for _, pointer := range []string{"/arguments", "/inputResponses", "/requestState"} {
		part, ok := m.Get(pointer)
		if !ok {
			part = []byte("{}")
		}
		parts = append(parts, part)
	}
	sum, err := mcp.CanonicalDigest(slices.Concat([]byte("["), bytes.Join(parts, []byte(",")),
		[]byte("]")))
	copy(c.digest[:], sum)
	return c, err
}

// repetitions returns how many of the remembered calls are equal to the call. It counts from the
// last new call on, and includes that call. h may be nil.
func (h *callHistory) repetitions(a admission) (n int) {
	if h == nil {
		return 0
	}
	h.forgetBefore(a.now.Add(-a.loop.within))
	for _, c := range slices.Backward(h.calls) {
		if c.digest == a.call.digest {
			n++
		}
		if c.isNew {
			break
		}
	}
	return n
}

// forgetBefore removes the calls that were made before t.
func (h *callHistory) forgetBefore(t time.Time) {
	n := 0
	for n < len(h.calls) && h.calls[n].time.Before(t) {
		n++
	}
	h.calls = slices.Delete(h.calls, 0, n)
}

// recordCall adds a call to the history of its session.
func (l *limiter) recordCall(p *principalState, a admission) {
	session := a.message.Session
	h := p.histories[session]
	if h == nil {
		if len(p.histories) >= maxHistories {
			p.removeLeastActive()
			l.histories--
		}
		h = &callHistory{}
		p.histories[session] = h
		l.histories++
	}
	if len(h.calls) == maxHistory {
		h.calls = slices.Delete(h.calls, 0, 1)
	}
	call := a.call
	call.time = a.now
	call.isNew = !slices.ContainsFunc(h.calls, func(c recordedCall) bool {
		return c.digest == call.digest
	})
	h.calls = append(h.calls, call)
	h.until = a.now.Add(a.loop.within)
}

// removeLeastActive removes the history whose last call is the oldest.
func (p *principalState) removeLeastActive() {
	var oldest string
	var until time.Time
	for session, h := range p.histories {
		if until.IsZero() || h.until.Before(until) {
			oldest, until = session, h.until
		}
	}
	delete(p.histories, oldest)
}
