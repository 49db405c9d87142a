package proxy

import (
	"sync"
	"time"
)

// deadline bounds a call at a server. It expires when the server has made no progress for
// idleLimit, or the whole call took longer than totalLimit. While the client is asked something,
// the deadline is paused: that time has a bound of its own. A nil deadline never expires.
type deadline struct {
	idleLimit, totalLimit time.Duration
	onExpiry              func(after string) // after is "1m0s without progress" or "10m0s"

	mu       sync.Mutex // held while onExpiry runs, so that stop waits for onExpiry
	timer    *time.Timer
	idleDue  time.Time // when idleLimit is reached
	totalDue time.Time // when totalLimit is reached
	pauses   int       // calls of pause that no resume has ended yet
	pausedAt time.Time // when the current pause began; valid while pauses is above zero
	stopped  bool      // expired, or stop was called
}

func startDeadline(idle, total time.Duration, onExpiry func(after string)) *deadline {
	now := time.Now()
	d := &deadline{idleLimit: idle, totalLimit: total, onExpiry: onExpiry, idleDue: now.Add(idle),
		totalDue: now.Add(total)}
	d.mu.Lock() // until timer is set
	defer d.mu.Unlock()
	d.timer = time.AfterFunc(min(idle, total), d.check)
	return d
}

// check expires d, or sets the timer again if there was progress meanwhile.
func (d *deadline) check() {
	d.mu.Lock()
	defer d.mu.Unlock()
	due, after := d.totalDue, d.totalLimit.String()
	if d.idleDue.Before(d.totalDue) {
		due, after = d.idleDue, d.idleLimit.String()+" without progress"
	}
	switch left := time.Until(due); {
	case d.stopped, d.pauses > 0: // resume sets the timer
	case left > 0:
		d.timer.Reset(left)
	default:
		d.stopped = true
		d.onExpiry(after)
	}
}

// noteProgress restarts the idle time. It does not reset the timer: when the timer fires, check
// reads the new idleDue.
func (d *deadline) noteProgress() {
	if d == nil {
		return
	}
	d.mu.Lock()
	d.idleDue = time.Now().Add(d.idleLimit)
	d.mu.Unlock()
}

// pause pauses both limits while the client is asked something. Each call of pause needs a call of
// resume.
func (d *deadline) pause() {
	if d == nil {
		return
	}
	d.mu.Lock()
	if d.pauses++; d.pauses == 1 {
		d.pausedAt = time.Now()
	}
	d.mu.Unlock()
}

// isPaused reports whether the client is being asked something.
func (d *deadline) isPaused() bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pauses > 0
}

// resume undoes a pause.
func (d *deadline) resume() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pauses--; d.pauses > 0 {
		return
	}
	d.totalDue = d.totalDue.Add(time.Since(d.pausedAt))
	d.idleDue = time.Now().Add(d.idleLimit)
	if !d.stopped {
		d.timer.Reset(min(d.idleLimit, time.Until(d.totalDue)))
	}
}

// stop ends d. When stop returns, onExpiry has returned or will never be called.
func (d *deadline) stop() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	d.timer.Stop()
}
