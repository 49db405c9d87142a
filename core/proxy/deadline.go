package proxy

import (
	"sync"
	"time"
)

// deadline bounds a call at a server. It expires when the server has made no progress for
// idleLimit, or the whole call took longer than totalLimit. The time while the client is being
// asked something does not count: that time has a bound of its own. A nil deadline never expires.
type deadline struct {
	idleLimit, totalLimit time.Duration
	onExpiry              func(after string) // gets "1m0s without progress" or "10m0s"

	mu       sync.Mutex // held during onExpiry, so that stop waits for it
	timer    *time.Timer
	idleDue  time.Time // when the server will have been silent for too long
	totalDue time.Time // when the call will have taken too long
	pauses   int       // number of pauses without their resume yet
	pausedAt time.Time // while pauses is above zero
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

// noteProgress starts the idle time anew. The timer is left alone: check finds the new time.
func (d *deadline) noteProgress() {
	if d == nil {
		return
	}
	d.mu.Lock()
	d.idleDue = time.Now().Add(d.idleLimit)
	d.mu.Unlock()
}

// pause stops the time while the client is asked something. Each pause needs a resume.
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

// stop ends d. onExpiry has returned by then, or will not be called.
func (d *deadline) stop() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	d.timer.Stop()
}
