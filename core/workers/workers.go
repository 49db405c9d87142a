// Package workers runs calls in goroutines, and reuses the goroutines of finished calls.
//
// # Why not a new goroutine for each call
//
// A call needs a deeper stack than a new goroutine has, and growing the stack costs CPU time. A
// kept goroutine has a stack that is deep enough already. The table compares kept goroutines
// with new goroutines. The runs with either kind alternated, on 2 cores of an AMD EPYC with Go
// 1.26.8. Other programs used the machine (load 10 to 20), so only the CPU time can be compared:
//
//	go test ./core/workers -bench DeepCalls -benchtime 200000x   user CPU time, 3 runs each
//	    kept 6.1 to 6.8 s      new 8.6 to 10.1 s
//	go test ./test/bench -bench Core///1KiB -benchtime 5000x      median cpu-µs/op, 12 runs each
//	    HTTP, legacy   kept 60.5   new 69.1
//	    HTTP, modern   kept 57.6   new 57.9
//	    stdio, legacy  kept 61.5   new 64.8
//	    stdio, modern  kept 65.4   new 81.4
package workers

import "sync"

// maxIdle is the largest number of goroutines of one pool that wait for a call.
const maxIdle = 64

// Pool runs each call in a goroutine, and keeps some of these goroutines for the next calls. It is
// safe for many goroutines. A nil Pool runs each call in a new goroutine.
type Pool struct {
	next       chan func()   // functions to run, for the goroutines that wait
	idlePlaces chan struct{} // holds an element for each goroutine that waits
	ended      chan struct{}
	end        func()
}

// New returns a pool, which has no goroutine yet.
func New() *Pool {
	p := &Pool{next: make(chan func()), idlePlaces: make(chan struct{}, maxIdle),
		ended: make(chan struct{})}
	p.end = sync.OnceFunc(func() { close(p.ended) })
	return p
}

// Run runs f and does not wait for it. f must return, and must not panic. The number of functions
// that run at the same time is not bounded.
func (p *Pool) Run(f func()) {
	if p == nil {
		go f()
		return
	}
	select {
	case p.next <- f:
	default:
		go p.work(f)
	}
}

func (p *Pool) work(f func()) {
	for {
		f()
		select {
		case p.idlePlaces <- struct{}{}:
		default:
			return // enough goroutines wait already
		}
		select {
		case f = <-p.next:
			<-p.idlePlaces
		case <-p.ended:
			return
		}
	}
}

// Close ends the goroutines that wait. Run can still be called.
func (p *Pool) Close() { p.end() }
