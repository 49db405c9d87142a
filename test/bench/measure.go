//go:build linux

package main

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// measurement has the figures of one target in one round.
type measurement struct {
	p50, p99    time.Duration
	rate        float64 // calls per second
	calls       int
	cpu         time.Duration // processor time of the target's processes for all calls
	childrenCPU time.Duration // processor time of the proxy's child processes for all calls
}

// comparison has the measurements of one case: c[i][r] is the measurement of target i in round r.
// All other targets are compared with target 0.
type comparison [][]measurement

// compare measures the targets one after the other in each round, so that other load on the machine
// affects all targets. Each round reverses the order of the round before. The parameter length is
// the time for one target in one round.
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

// measure makes calls for as long as the parameter length says, and returns their figures.
func measure(t *target, workers int, m message, length time.Duration) (measurement, error) {
	var before, after, childrenBefore, childrenAfter time.Duration
	if t.proxy != nil {
		before, childrenBefore = t.proxyCPU(), t.proxy.childrenCPU()
	}
	start := time.Now()
	durations, err := callRepeatedly(t.client, workers, m, func(int64) bool {
		return time.Since(start) < length
	})
	elapsed := time.Since(start)
	if t.proxy != nil {
		after, childrenAfter = t.proxyCPU(), t.proxy.childrenCPU()
	}
	if err != nil {
		return measurement{}, err
	}
	slices.Sort(durations)
	return measurement{
		p50: durations[len(durations)/2], p99: durations[len(durations)*99/100],
		rate: float64(len(durations)) / elapsed.Seconds(), calls: len(durations),
		cpu:         after - before,
		childrenCPU: childrenAfter - childrenBefore,
	}, nil
}

// proxyCPU returns the processor time of the proxy, and of the other processes of its target.
func (t *target) proxyCPU() time.Duration {
	total := t.proxy.cpu()
	for _, p := range t.others {
		total += p.cpu()
	}
	return total
}

// callRepeatedly lets each worker make calls, one after another, and at least one call. After each
// call, more gets the number of calls of all workers so far; when it returns false, the worker
// stops. callRepeatedly returns the duration of each call.
func callRepeatedly(c client, workers int, m message,
	more func(n int64) bool) ([]time.Duration, error) {
	var (
		calls     atomic.Int64
		all       sync.WaitGroup
		durations = make([][]time.Duration, workers)
		errs      = make([]error, workers)
	)
	for w := range workers {
		all.Go(func() {
			for {
				start := time.Now()
				if _, err := call(c, w, m); err != nil {
					errs[w] = err
					return
				}
				durations[w] = append(durations[w], time.Since(start))
				if !more(calls.Add(1)) {
					return
				}
			}
		})
	}
	all.Wait()
	return slices.Concat(durations...), errors.Join(errs...)
}

// median returns the median of the values that f returns for the rounds.
func median[T int | float64 | time.Duration](rounds int, f func(round int) T) T {
	values := make([]T, rounds)
	for i := range values {
		values[i] = f(i)
	}
	slices.Sort(values)
	return values[rounds/2]
}

// added returns the time that a target adds to the time of target 0. For each round it takes the
// difference of the two times, and returns the median of these differences.
func (c comparison) added(target int, figure func(measurement) time.Duration) time.Duration {
	return median(len(c[target]), func(i int) time.Duration {
		return figure(c[target][i]) - figure(c[0][i])
	})
}

// p50 returns the median, over the rounds, of a target's p50.
func (c comparison) p50(target int) time.Duration {
	return median(len(c[target]), func(i int) time.Duration { return c[target][i].p50 })
}

// rate returns a target's median rate over the rounds.
func (c comparison) rate(target int) float64 {
	return median(len(c[target]), func(i int) float64 { return c[target][i].rate })
}

// cpu returns the processor time per call of a target's proxy.
func (c comparison) cpu(target int) time.Duration {
	return c.perCall(target, func(m measurement) time.Duration { return m.cpu })
}

// perCall returns a processor time per call, averaged over all rounds. One round would be too
// short, because the kernel counts in steps of 10 ms.
func (c comparison) perCall(target int, figure func(measurement) time.Duration) time.Duration {
	var total time.Duration
	calls := 0
	for _, m := range c[target] {
		total, calls = total+figure(m), calls+m.calls
	}
	return total / time.Duration(max(calls, 1))
}

// addedCPU returns the processor time of a call that a target's proxy needs in addition to that of
// target 0; see addedWithin.
func (c comparison) addedCPU(target int) (middle, low, high time.Duration) {
	return c.addedWithin(target, func(m measurement) time.Duration {
		return m.cpu / time.Duration(m.calls)
	})
}

// addedWithin returns what a target adds to a figure of target 0. It is the median of the
// differences of all rounds. The interval from low to high has a confidence of at least 95 %. With
// fewer than six rounds, there is no such interval, and low and high are the smallest and the
// largest difference.
func (c comparison) addedWithin(target int,
	figure func(measurement) time.Duration) (middle, low, high time.Duration) {
	n := len(c[target])
	differences := make([]time.Duration, n)
	for i := range differences {
		differences[i] = figure(c[target][i]) - figure(c[0][i])
	}
	slices.Sort(differences)
	// The true median is below difference k with the probability that at most k of n fair coins
	// show heads.
	k, coefficient, below := 0, 1.0, math.Exp2(-float64(n))
	for below <= 0.025 {
		k++
		coefficient *= float64(n-k+1) / float64(k)
		below += coefficient * math.Exp2(-float64(n))
	}
	k = max(k-1, 0)
	return differences[n/2], differences[k], differences[n-1-k]
}

// share returns a target's rate divided by the rate of target 0. It takes this quotient for each
// round, and returns the median.
func (c comparison) share(target int) float64 {
	return median(len(c[target]), func(i int) float64 { return c[target][i].rate / c[0][i].rate })
}

// These functions return one figure of a measurement.

func childrenCPUOf(m measurement) time.Duration { return m.childrenCPU }

func p50Of(m measurement) time.Duration { return m.p50 }
func p99Of(m measurement) time.Duration { return m.p99 }
