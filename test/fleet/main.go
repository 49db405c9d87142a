package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"gatekit/core/shared"
	"gatekit/transport/valkey"
)

// plan has the sizes of the measurement.
type plan struct {
	server                    string
	replicas, kinds, sessions int
	rates                     []float64
	length                    time.Duration
	timeout                   time.Duration
}

func main() {
	p := plan{}
	flag.StringVar(&p.server, "server", "",
		"host:port of an empty Valkey or Redis server; default: starts redis-server")
	flag.IntVar(&p.replicas, "replicas", 50, "number of replicas")
	flag.IntVar(&p.kinds, "kinds", 4, "kinds of values that each replica watches")
	flag.IntVar(&p.sessions, "sessions", 20000, "number of sessions")
	flag.DurationVar(&p.length, "for", 10*time.Second, "length of each phase")
	flag.DurationVar(&p.timeout, "timeout", time.Second, "timeout of each request")
	rates := flag.String("rates", "100,1000,0",
		"calls per second of all replicas, separated by commas; 0 means as many as possible")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := p.run(ctx, *rates); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func (p *plan) run(ctx context.Context, rates string) (err error) {
	for text := range strings.SplitSeq(rates, ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || rate < 0 {
			return fmt.Errorf("-rates: %q is no rate", text)
		}
		p.rates = append(p.rates, rate)
	}
	if p.replicas < 1 || p.sessions < 1 || p.kinds < 0 || p.length <= 0 {
		return errors.New("-replicas, -sessions and -for must be positive")
	}
	if p.server == "" {
		end, err := p.startServer()
		if err != nil {
			return err
		}
		defer end()
	}
	f := &fleet{plan: *p}
	if err := f.open(ctx); err != nil {
		return err
	}
	defer f.close()
	return f.measure(ctx, tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0))
}

// startServer starts Debian's redis-server, and waits until it answers.
func (p *plan) startServer() (end func(), err error) {
	p.server = "127.0.0.1:16399"
	dir, err := os.MkdirTemp("", "gatekit-fleet-")
	if err != nil {
		return nil, err
	}
	c := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", "16399", "--save", "",
		"--appendonly", "yes", "--dir", dir, "--loglevel", "warning")
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("%w\nhint: apt-get install redis-server, or -server", err)
	}
	end = func() {
		c.Process.Kill()
		c.Wait()
		os.RemoveAll(dir)
	}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		a, err := newAdmin(p.server)
		if err == nil {
			a.Close()
			return end, nil
		}
		if time.Since(begun) > 10*time.Second {
			end()
			return nil, err
		}
	}
}

// fleet is the replicas and their server.
type fleet struct {
	plan
	admin  *admin
	stores []*valkey.Store
	stats  stats
}

func (f *fleet) open(ctx context.Context) (err error) {
	ring, err := shared.NewRing([]byte(strings.Repeat("k", 32)))
	if err != nil {
		return err
	}
	if f.admin, err = newAdmin(f.server); err != nil {
		return err
	}
	for range f.replicas {
		s, err := valkey.Open(ctx, valkey.Options{Address: f.server, Ring: ring,
			Prefix: "gatekit:", Timeout: f.timeout, Observe: f.stats.add})
		if err != nil {
			f.close()
			return err
		}
		f.stores = append(f.stores, s)
	}
	return nil
}

func (f *fleet) close() {
	for _, s := range f.stores {
		s.Close()
	}
	f.admin.Close()
}

// measure prints the results of all phases.
func (f *fleet) measure(ctx context.Context, w *tabwriter.Writer) error {
	if err := f.makeSessions(ctx, w); err != nil {
		return err
	}
	fmt.Fprintln(w, "phase\trequests/s\tp50\tp99\tserver core\tserver µs\treplica µs\t"+
		"bytes in, out\terrors")
	for _, r := range f.requests() {
		if err := f.phase(ctx, w, "only "+r.name, func(ctx context.Context) {
			f.repeat(ctx, 1, r.send)
		}); err != nil {
			return err
		}
	}
	watching, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for i, s := range f.stores {
		for kind := range f.kinds {
			running.Go(func() {
				// replicas do not start at the same time
				time.Sleep(shared.WatchInterval * time.Duration(i) / time.Duration(f.replicas))
				for range shared.Watch(watching, s, fmt.Sprint("kind ", kind)) {
				}
			})
		}
	}
	err := f.phase(ctx, w, "idle", func(ctx context.Context) { <-ctx.Done() })
	for _, rate := range f.rates {
		if err == nil && rate == 0 {
			err = f.phase(ctx, w, "calls without end", func(ctx context.Context) {
				f.repeat(ctx, 4, func(s *valkey.Store) { f.call(s) })
			})
		} else if err == nil {
			err = f.phase(ctx, w, fmt.Sprintf("%.0f calls/s", rate),
				func(ctx context.Context) { f.callAt(ctx, rate) })
		}
	}
	cancel()
	running.Wait()
	return errors.Join(err, w.Flush())
}

// phase measures the requests that run makes until its context ends.
func (f *fleet) phase(ctx context.Context, w *tabwriter.Writer, name string,
	run func(context.Context)) error {
	ctx, cancel := context.WithTimeout(ctx, f.length)
	defer cancel()
	before, err := f.admin.usage()
	if err != nil {
		return err
	}
	f.stats.reset()
	own, began := ownCPU(), time.Now()
	run(ctx)
	took := time.Since(began)
	own = ownCPU() - own
	r := f.stats.reset()
	after, err := f.admin.usage()
	if err != nil || len(r.times) == 0 {
		return cmp.Or(err, fmt.Errorf("no request in the phase %q", name))
	}
	n := float64(len(r.times))
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / n }
	server := after.cpu - before.cpu
	fmt.Fprintf(w, "%s\t%.0f\t%v\t%v\t%.1f %%\t%.1f\t%.1f\t%.0f, %.0f\t%d\n", name,
		n/took.Seconds(), r.percentile(50), r.percentile(99),
		100*server.Seconds()/took.Seconds(), each(server), each(own),
		float64(after.in-before.in)/n, float64(after.out-before.out)/n, r.errors)
	methods := r.methods()
	if len(methods) == 1 {
		methods = nil
	}
	for _, m := range methods {
		fmt.Fprintf(w, "  %s\t%.0f\t%v\t%v\n", m.name, float64(len(m.times))/took.Seconds(),
			m.percentile(50), m.percentile(99))
	}
	return nil
}
