package proxy

import (
	"sync"
	"time"
)

// watch fires when a server has been silent for too long, or the whole call took too long. While the client is being asked something the silence does
// not count. A nil watch never fires.
type watch struct {
	idle time.Duration
	end  time.Time
	fire func()

	mu      sync.Mutex
	timer   *time.Timer
	waiting int
}

func newWatch(idle, most time.Duration, fire func()) *watch {
	w := &watch{idle: idle, end: time.Now().Add(most), fire: fire}
	w.timer = time.AfterFunc(min(idle, most), w.check)
	return w
}

func (w *watch) check() {
	w.mu.Lock()
	left := time.Until(w.end)
	if w.waiting > 0 && left > 0 {
		w.timer.Reset(left)
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	w.fire()
}

// touch says that the server has been heard of.
func (w *watch) touch() {
	if w == nil {
		return
	}
	w.mu.Lock()
	if w.waiting == 0 && w.timer.Stop() {
		w.timer.Reset(min(w.idle, time.Until(w.end)))
	}
	w.mu.Unlock()
}

// hold says that the client is being asked; release undoes it.
func (w *watch) hold() { w.wait(1) }

func (w *watch) release() {
	w.wait(-1)
	w.touch()
}

func (w *watch) wait(n int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.waiting += n
	w.mu.Unlock()
}

func (w *watch) stop() {
	if w != nil {
		w.timer.Stop()
	}
}
