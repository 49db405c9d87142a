package downstream

import "sync"

// idleWorkers is how many goroutines wait for the next call.
const idleWorkers = 64

// workers runs calls in goroutines of their own, and keeps some of these for the next ones: a call needs more stack than a new goroutine has, and to
// grow that costs more than all else that is done for a small message here.
type workers struct {
	idle   chan func() // taken by those that wait
	places chan struct{}
	ended  chan struct{}
	end    func()
}

func newWorkers() workers {
	w := workers{idle: make(chan func()), places: make(chan struct{}, idleWorkers), ended: make(chan struct{})}
	w.end = sync.OnceFunc(func() { close(w.ended) })
	return w
}

// run runs f, and does not wait for it.
func (w *workers) run(f func()) {
	select {
	case w.idle <- f:
	default:
		go w.work(f)
	}
}

func (w *workers) work(f func()) {
	for {
		f()
		select {
		case w.places <- struct{}{}:
		default:
			return // enough wait
		}
		select {
		case f = <-w.idle:
			<-w.places
		case <-w.ended:
			return
		}
	}
}

// close lets those go that wait. run can still be called.
func (w *workers) close() { w.end() }
