package proxy

import (
	"sync"
	"time"
)

// watch fires when a server has been silent for too long, or the whole call took too long. The time
// in which the client is being asked something does not count: it has a bound of its own. A nil
// watch never fires.
type watch struct {
	idle, most time.Duration
	fire       func(after string)

	mu      sync.Mutex // held while firing, so that stop waits for it
	timer   *time.Timer
	due     time.Time // when the silence is too long
	end     time.Time
	waiting int
	since   time.Time // waiting is above zero
	over    bool
}

func newWatch(idle, most time.Duration, fire func(after string)) *watch {
	now := time.Now()
	w := &watch{idle: idle, most: most, fire: fire, due: now.Add(idle), end: now.Add(most)}
	w.mu.Lock() // until timer is set
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(min(idle, most), w.check)
	return w
}

func (w *watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	until, after := w.end, w.most.String()
	if w.due.Before(w.end) {
		until, after = w.due, w.idle.String()+" without progress"
	}
	switch left := time.Until(until); {
	case w.over, w.waiting > 0: // release sets the timer
	case left > 0:
		w.timer.Reset(left)
	default:
		w.over = true
		w.fire(after)
	}
}

// touch says that the server has been heard of. The timer finds that out when it fires.
func (w *watch) touch() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.due = time.Now().Add(w.idle)
	w.mu.Unlock()
}

// hold says that the client is being asked; release undoes it.
func (w *watch) hold() {
	if w == nil {
		return
	}
	w.mu.Lock()
	if w.waiting++; w.waiting == 1 {
		w.since = time.Now()
	}
	w.mu.Unlock()
}

func (w *watch) release() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting--; w.waiting > 0 {
		return
	}
	w.end = w.end.Add(time.Since(w.since))
	w.due = time.Now().Add(w.idle)
	if !w.over {
		w.timer.Reset(min(w.idle, time.Until(w.end)))
	}
}

// stop says that the call is over. After it nothing fires.
func (w *watch) stop() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}
