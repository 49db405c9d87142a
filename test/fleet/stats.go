package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	client "github.com/valkey-io/valkey-go"
)

// stats has the requests of one phase. All methods may be called at the same time.
type stats struct {
	mu     sync.Mutex
	times  map[string][]time.Duration // by method
	errors int
}

// add is a valkey.Options.Observe.
func (s *stats) add(method string, took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times == nil {
		s.times = map[string][]time.Duration{}
	}
	s.times[method] = append(s.times[method], took)
	if err != nil {
		s.errors++
	}
}

// reset returns the requests since the last call.
func (s *stats) reset() result {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := result{byMethod: s.times, errors: s.errors}
	for _, times := range s.times {
		r.times = append(r.times, times...)
	}
	slices.Sort(r.times)
	s.times, s.errors = nil, 0
	return r
}

// sample has times in ascending order.
type sample struct {
	name  string
	times []time.Duration
}

// percentile returns a time that p percent of the requests did not exceed.
func (s sample) percentile(p int) time.Duration {
	if len(s.times) == 0 {
		return 0
	}
	return s.times[min(len(s.times)-1, len(s.times)*p/100)].Round(time.Microsecond)
}

// result has the requests of a phase.
type result struct {
	sample
	byMethod map[string][]time.Duration
	errors   int
}

// methods returns the requests of each method, the most frequent first.
func (r result) methods() (all []sample) {
	for _, name := range slices.Sorted(maps.Keys(r.byMethod)) {
		slices.Sort(r.byMethod[name])
		all = append(all, sample{name, r.byMethod[name]})
	}
	slices.SortStableFunc(all, func(a, b sample) int {
		return cmp.Compare(len(b.times), len(a.times))
	})
	return all
}

// ownCPU returns the processor time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// usage has figures of the server about itself.
type usage struct {
	version         string
	cpu             time.Duration
	memory, in, out int64
	clients         int64 // connections
}

// admin asks the server about itself.
type admin struct{ client.Client }

func newAdmin(address string) (*admin, error) {
	c, err := client.NewClient(client.ClientOption{InitAddress: []string{address},
		ForceSingleClient: true, DisableCache: true})
	if err != nil {
		return nil, err
	}
	return &admin{c}, nil
}

func (a *admin) usage() (u usage, err error) {
	text, err := a.Do(context.Background(), a.B().Info().Build()).ToString()
	if err != nil {
		return u, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	for name, n := range map[string]*int64{"used_memory": &u.memory,
		"connected_clients": &u.clients, "total_net_input_bytes": &u.in,
		"total_net_output_bytes": &u.out} {
		if *n, err = strconv.ParseInt(fields[name], 10, 64); err != nil {
			return u, fmt.Errorf("the server does not tell %s: %w", name, err)
		}
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(fields[name], 64)
		if err != nil {
			return u, fmt.Errorf("the server does not tell %s: %w", name, err)
		}
		u.cpu += time.Duration(seconds * float64(time.Second))
	}
	u.version = "Redis " + fields["redis_version"]
	if v := fields["valkey_version"]; v != "" {
		u.version = "Valkey " + v
	}
	return u, nil
}
