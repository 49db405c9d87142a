//go:build linux

package main

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// reading is what one target showed in one round.
type reading struct {
	p50, p99 time.Duration
	rate     float64 // calls per second
	calls    int
	cpu      time.Duration // of the proxy's process, for all calls
	children time.Duration // and of its children's
}

// comparison holds the rounds of one case, in the order of ways; a way that was not taken has none.
type comparison [][]reading

// compare measures the targets in turn, round by round, so that what disturbs the machine disturbs
// all of them; the order turns round with every round.
func compare(targets []*target, workers int, m func(*target) message, rounds int,
	length time.Duration) (comparison, error) {
	c := make(comparison, len(targets))
	for _, t := range targets {
		if _, err := measure(t, workers, m(t), length/4); err != nil { // warm up
			return nil, err
		}
	}
	for round := range rounds {
		for i := range targets {
			if round%2 == 1 {
				i = len(targets) - 1 - i
			}
			r, err := measure(targets[i], workers, m(targets[i]), length)
			if err != nil {
				return nil, err
			}
			c[i] = append(c[i], r)
		}
	}
	return c, nil
}

func measure(t *target, workers int, m message, length time.Duration) (reading, error) {
	var before, after, childrenBefore, childrenAfter time.Duration
	if t.proxy != nil {
		before, childrenBefore = t.proxy.cpu(), t.proxy.childrenCPU()
	}
	start := time.Now()
	took, err := drive(t.client, workers, m, func(int64) bool { return time.Since(start) < length })
	elapsed := time.Since(start)
	if t.proxy != nil {
		after, childrenAfter = t.proxy.cpu(), t.proxy.childrenCPU()
	}
	if err != nil {
		return reading{}, err
	}
	slices.Sort(took)
	return reading{
		p50: took[len(took)/2], p99: took[len(took)*99/100],
		rate: float64(len(took)) / elapsed.Seconds(), calls: len(took), cpu: after - before,
		children: childrenAfter - childrenBefore,
	}, nil
}

// drive lets each worker call, one call after another, as long as more(number of the call) says so,
// and at least once. It answers how long each call took.
func drive(c client, workers int, m message, more func(n int64) bool) ([]time.Duration, error) {
	var (
		begun atomic.Int64
		all   sync.WaitGroup
		took  = make([][]time.Duration, workers)
		errs  = make([]error, workers)
	)
	for w := range workers {
		all.Go(func() {
			for {
				start := time.Now()
				if _, err := call(c, w, m); err != nil {
					errs[w] = err
					return
				}
				took[w] = append(took[w], time.Since(start))
				if !more(begun.Add(1)) {
					return
				}
			}
		})
	}
	all.Wait()
	return slices.Concat(took...), errors.Join(errs...)
}

// median of what f says of each round.
func median[T int | float64 | time.Duration](rounds int, f func(round int) T) T {
	values := make([]T, rounds)
	for i := range values {
		values[i] = f(i)
	}
	slices.Sort(values)
	return values[rounds/2]
}

// added is what a way added to the direct one of the same round: the median over the rounds.
func (c comparison) added(way int, of func(reading) time.Duration) time.Duration {
	return median(len(c[way]), func(i int) time.Duration { return of(c[way][i]) - of(c[0][i]) })
}

func (c comparison) p50(way int) time.Duration {
	return median(len(c[way]), func(i int) time.Duration { return c[way][i].p50 })
}

func (c comparison) rate(way int) float64 {
	return median(len(c[way]), func(i int) float64 { return c[way][i].rate })
}

// cpu is the proxy's time per call over all rounds: one round is short beside the kernel's 10 ms.
func (c comparison) cpu(way int) time.Duration {
	return c.perCall(way, func(r reading) time.Duration { return r.cpu })
}

func (c comparison) perCall(way int, of func(reading) time.Duration) time.Duration {
	var total time.Duration
	calls := 0
	for _, r := range c[way] {
		total, calls = total+of(r), calls+r.calls
	}
	return total / time.Duration(max(calls, 1))
}

// share is a way's rate by that of the first in the same round.
func (c comparison) share(way int) float64 {
	return median(len(c[way]), func(i int) float64 { return c[way][i].rate / c[0][i].rate })
}

func children(r reading) time.Duration { return r.children }

func p50(r reading) time.Duration { return r.p50 }
func p99(r reading) time.Duration { return r.p99 }
