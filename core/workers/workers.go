// Package workers keeps goroutines for the next call.
package workers

import "sync"

// idle is how many goroutines of a pool wait for the next call.
const idle = 64

// Pool runs calls in goroutines of their own, and keeps some of these for the next ones: a call
// needs more stack than a new goroutine has, and to grow that costs more than all else that is done
// for a small message here. It is safe for many goroutines. A nil Pool keeps none.
type Pool struct {
	waiting chan func() // taken by those that wait
	places  chan struct{}
	ended   chan struct{}
	end     func()
}

// New makes a pool without a goroutine.
func New() *Pool {
	p := &Pool{waiting: make(chan func()), places: make(chan struct{}, idle),
		ended: make(chan struct{})}
	p.end = sync.OnceFunc(func() { close(p.ended) })
	return p
}

// Run runs f, which must return and not panic, and does not wait for it. Nothing bounds how many
// run.
func (p *Pool) Run(f func()) {
	if p == nil {
		go f()
		return
	}
	select {
	case p.waiting <- f:
	default:
		go p.work(f)
	}
}

func (p *Pool) work(f func()) {
	for {
		f()
		select {
		case p.places <- struct{}{}:
		default:
			return // enough wait
		}
		select {
		case f = <-p.waiting:
			<-p.places
		case <-p.ended:
			return
		}
	}
}

// Close lets those go that wait. Run can still be called.
func (p *Pool) Close() { p.end() }
