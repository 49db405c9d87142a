package bridge

import (
	"context"
	"slices"
	"time"
)

// waitingCall is a call that has questions for its client, and that waits until it may be parked.
type waitingCall struct {
	call  *parkedCall
	bytes int           // size of the call and its questions
	ready chan struct{} // has one element when the call may be parked
}

// hasRoom reports whether the limits allow one more parked call of this size. The caller holds
// p.mu.
func (p *ParkedCalls) hasRoom(c *parkedCall, bytes int) bool {
	own := p.byPrincipal[c.session.Principal]
	return p.total.calls < p.limits.Calls && own.calls < p.limits.CallsPerPrincipal &&
		p.total.bytes+bytes <= maxParkedBytes &&
		(own.calls == 0 || own.bytes+bytes <= maxParkedBytesPerPrincipal)
}

// mayOvertake reports whether the call c may be parked before all other calls that wait. It may not
// if one of these calls belongs to the same principal, or could be parked now. The caller holds
// p.mu.
func (p *ParkedCalls) mayOvertake(c *parkedCall) bool {
	return !slices.ContainsFunc(p.waiting, func(w *waitingCall) bool {
		return w.call != c && (w.call.session.Principal == c.session.Principal ||
			p.hasRoom(w.call, w.bytes))
	})
}

// enqueue adds a call to the waiting calls. It returns nil if too many calls wait: limits.Calls in
// all, or a quarter of them of one principal, or limits.CallsPerPrincipal if that is more.
func (p *ParkedCalls) enqueue(c *parkedCall, bytes int) *waitingCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	var total, own parkedAmounts
	for _, w := range p.waiting {
		total = total.add(1, w.bytes)
		if w.call.session.Principal == c.session.Principal {
			own = own.add(1, w.bytes)
		}
	}
	if total.calls >= p.limits.Calls || total.bytes+bytes > maxParkedBytes ||
		own.calls >= max(p.limits.CallsPerPrincipal, p.limits.Calls/4) ||
		own.calls > 0 && own.bytes+bytes > maxParkedBytesPerPrincipal {
		return nil
	}
	w := &waitingCall{c, bytes, make(chan struct{}, 1)}
	p.waiting = append(p.waiting, w)
	p.wakeNext() // room may have become free since p.keep refused the call
	return w
}

// dequeue removes a call from the waiting calls. Another waiting call may then be parked.
func (p *ParkedCalls) dequeue(w *waitingCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(other *waitingCall) bool { return other == w })
	p.wakeNext()
}

// resize sets the size of a waiting call.
func (p *ParkedCalls) resize(w *waitingCall, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.bytes = bytes
	p.wakeNext()
}

// wakeNext wakes the first waiting call that may be parked now. A call may not be parked before a
// call of the same principal that has waited longer. The caller holds p.mu.
func (p *ParkedCalls) wakeNext() {
	blocked := map[string]bool{} // principals whose first waiting call may not be parked yet
	for _, w := range p.waiting {
		principal := w.call.session.Principal
		if blocked[principal] {
			continue
		}
		if p.hasRoom(w.call, w.bytes) {
			select {
			case w.ready <- struct{}{}:
			default:
			}
			return
		}
		blocked[principal] = true
	}
}

// awaitRoom waits until the call may be parked, its answer comes, or the request's context ends. It
// returns false if none of these events happens before the deadline.
func (w *waitingCall) awaitRoom(ctx context.Context, deadline time.Time) bool {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-w.call.finished:
	case <-ctx.Done():
	case <-timer.C:
		return false
	}
	return true
}
