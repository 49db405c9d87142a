package limits

import (
	"bytes"
	"hash/maphash"
	"slices"
	"time"

	"gatekit/core/mcp"
)

// maxHistory is how many calls of a session are remembered. A loop is detected only if all its
// calls, each made loop.same times, fit into the history.
const maxHistory = 256

// recordedCall is a call that was made.
type recordedCall struct {
	digest   [16]byte // of the server, the tool, the arguments, and the answers of a retry
	time     time.Time
	exchange uint64 // hash of the server and the exchange
	result   uint64 // hash of the result; valid if isAnswered is set
	// isAnswered is false while the call is in flight, and for a call whose result this stage never
	// sees
	isAnswered bool
	// isNew means that no equal call was remembered when the call was made, or that its result is
	// another than the results of the equal calls
	isNew bool
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
// last new call on, and includes that call. A call with a new result is new, too. h may be nil.
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
	call.exchange = l.hashExchange(a.message)
	call.isNew = !slices.ContainsFunc(h.calls, func(c recordedCall) bool {
		return c.digest == call.digest
	})
	h.calls = append(h.calls, call)
	h.until = a.now.Add(a.loop.within)
}

// remove removes a call that was not made after all. exchange is the hash of its exchange. h may be
// nil.
func (h *callHistory) remove(a admission, exchange uint64) {
	if h == nil {
		return
	}
	for i, c := range slices.Backward(h.calls) {
		if c.exchange == exchange && c.digest == a.call.digest && c.time.Equal(a.now) {
			h.calls = slices.Delete(h.calls, i, i+1)
			return
		}
	}
}

// recordResult adds the hash of a result to the call that m answers. All denied results have the
// hash 0, since they look the same to the client.
func (l *limiter) recordResult(m *mcp.Message, result uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.principals[m.Principal.ID()]
	if p == nil || p.histories[m.Session] == nil {
		return
	}
	exchange, calls := l.hashExchange(m), p.histories[m.Session].calls
	for i := range slices.Backward(calls) {
		if calls[i].exchange == exchange && !calls[i].isAnswered {
			calls[i].isNew = calls[i].isNew || isNewResult(calls, calls[i].digest, result)
			calls[i].isAnswered, calls[i].result = true, result
			return
		}
	}
}

// isNewResult reports whether the calls with the digest have results, and none of them is equal to
// the given one.
func isNewResult(calls []recordedCall, digest [16]byte, result uint64) bool {
	hasResult := false
	for _, c := range calls {
		if c.digest == digest && c.isAnswered {
			if c.result == result {
				return false
			}
			hasResult = true
		}
	}
	return hasResult
}

// hashExchange returns a hash of the server and the exchange of m. A call and its result have the
// same hash.
func (l *limiter) hashExchange(m *mcp.Message) uint64 {
	return maphash.Comparable(l.seed, [2]string{m.Server, m.Exchange})
}

// hashResult returns a hash of a result or an error of tools/call. The hash does not depend on
// members that differ although the result is the same to a model: _meta, the state of a request,
// and the id of a new task.
func (l *limiter) hashResult(m *mcp.Message) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	if _, ok := mcp.CreatedTaskID(m); ok {
		h.WriteString("task")
		return h.Sum64()
	}
	h.WriteString(m.Kind.String())
	m.Members("", func(name string, raw []byte) bool {
		if name != "_meta" && name != "requestState" {
			h.Write(mcp.Quote(name))
			h.Write(raw)
		}
		return true
	})
	return h.Sum64()
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
