package workers

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestCallsRunAtOnceAndCloseLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // synctest fails the test when goroutines are left
		p := New()
		for range 2 { // in the second round, goroutines of the first round wait in the pool
			var ran atomic.Int32
			release := make(chan struct{})
			for range 3 * maxIdle {
				p.Run(func() { ran.Add(1); <-release })
			}
			synctest.Wait()
			if n := ran.Load(); n != 3*maxIdle {
				t.Errorf("%d calls run at once, want %d", n, 3*maxIdle)
			}
			close(release)
			synctest.Wait()
			if n := len(p.idlePlaces); n != maxIdle {
				t.Errorf("%d goroutines wait for calls, want %d", n, maxIdle)
			}
		}
		p.Close()
		done := make(chan struct{})
		p.Run(func() { close(done) })
		<-done
	})
}

func TestNilPoolRunsFunctions(t *testing.T) {
	var p *Pool
	done := make(chan struct{})
	p.Run(func() { close(done) })
	<-done
}

// BenchmarkDeepCalls compares new and kept goroutines for calls that need a deep stack.
func BenchmarkDeepCalls(b *testing.B) {
	for name, p := range map[string]*Pool{"new goroutines": nil, "kept": New()} {
		b.Run(name, func(b *testing.B) {
			var wg sync.WaitGroup
			for b.Loop() {
				wg.Add(1)
				p.Run(func() { deep(100); wg.Done() })
				wg.Wait()
			}
		})
	}
}

// deep calls itself n times and takes about half a KiB of stack each time.
//
//go:noinline
func deep(n int) (sum byte) {
	var frame [512]byte
	frame[n%len(frame)] = byte(n)
	if n > 0 {
		frame[0] = deep(n - 1)
	}
	for _, b := range frame {
		sum += b
	}
	return sum
}
