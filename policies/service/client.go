package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"gatekit/core/atomicfile"
	"gatekit/policies"
)

// firstTimeout is how long Open waits for bundles that nothing was kept of.
const firstTimeout = 10 * time.Second

// BundleSource is one that a service is asked for, again and again.
type BundleSource struct {
	Name     string // how errors, the log and the record call it
	Endpoint Endpoint
	Resource string                  // its path below the URL
	Keys     map[string]policies.Key // as policies.ReadBundle wants them
	// the file that the latest that was in force is kept in; "" is none
	CacheFile string

	MinDelay, MaxDelay time.Duration // between requests; whole seconds
}

// Options are a Client's.
type Options struct {
	Bundles      []BundleSource
	DecisionLogs *DecisionLogs // nil: none are sent
	Status       *Endpoint     // nil: none is sent

	Version string // of Gatekit
	Log     *slog.Logger
	// is told of a bundle that came and could not be used, once; not of a service that has none.
	// nil: only the log is
	BundleRejected func(name string, err error)
}

// Client fetches bundles. Its methods may be called at once.
type Client struct {
	log     *slog.Logger
	refused func(string, error)
	polls   []*poll
	reports *reports      // nil when nothing is sent
	started chan struct{} // closed by Start
	closed  chan struct{} // closed by Close
	close   func()

	mu       sync.Mutex // held while bundles are put in force
	activate func([]*policies.Bundle) error
	held     map[string]*policies.Bundle // from Open on one for each name
}

// Open begins to ask for the bundles. It answers when each of them is here: those that were kept in
// a file are at once. The error says which is not, and why.
func Open(ctx context.Context, o Options) (*Client, error) {
	c := &Client{log: o.Log, refused: o.BundleRejected, started: make(chan struct{}),
		closed: make(chan struct{}), held: map[string]*policies.Bundle{}}
	c.close = sync.OnceFunc(func() {
		close(c.closed)
		for _, p := range c.polls {
			p.stop()
		}
		if c.reports != nil {
			c.reports.stop()
		}
	})
	for _, b := range o.Bundles {
		p, err := newPoll(c, b, o.Version)
		if err != nil {
			return nil, fmt.Errorf("bundle %q: %w", b.Name, err)
		}
		c.polls = append(c.polls, p)
	}
	if o.DecisionLogs != nil || o.Status != nil {
		var err error
		if c.reports, err = newReports(ctx, o); err != nil {
			return nil, fmt.Errorf("send decision logs and status: %w", err)
		}
	}
	for _, p := range c.polls {
		if b := p.kept(); b != nil {
			c.held[p.of.Name] = b
			close(p.first)
		}
	}
	for _, p := range c.polls {
		p.downloader.Start(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	for _, p := range c.polls {
		select {
		case <-p.first:
		case <-ctx.Done():
			c.Close()
			return nil, fmt.Errorf("bundle %q: none came from service %s, and none is kept: "+
				"%w\nhint: persist = \"FILE\" in [policy.bundle.%[1]s] keeps the latest for a "+
				"start without the service",
				p.of.Name, p.transport.origin.Host, cmp.Or(p.why(), errors.New("no answer")))
		}
	}
	return c, nil
}

// Bundles are those in force, or, before Start, to be put in force, by name.
func (c *Client) Bundles() []*policies.Bundle {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ordered(c.held)
}

func ordered(held map[string]*policies.Bundle) []*policies.Bundle {
	all := make([]*policies.Bundle, 0, len(held))
	for _, name := range slices.Sorted(maps.Keys(held)) {
		all = append(all, held[name])
	}
	return all
}

// Start says that Bundles are in force, and how others are to be put there: all of them at once,
// whenever one has changed. When activate fails, those before are kept. It is called by one
// goroutine at a time, and not after Close has returned.
func (c *Client) Start(activate func([]*policies.Bundle) error) {
	c.mu.Lock()
	c.activate = activate
	for _, p := range c.polls {
		if p.latest != nil {
			p.keep(p.latest)
			p.latest = nil
		}
		c.reports.settled(p.of.Name, c.held[p.of.Name], nil)
	}
	c.mu.Unlock()
	close(c.started)
}

// Close ends all requests, and waits for activate where it runs.
func (c *Client) Close() { c.close() }

// offer takes a bundle that came.
func (c *Client) offer(p *poll, b *policies.Bundle, raw []byte) error {
	select {
	case <-p.first: // one is in use: the next has to wait until that can be changed
		select {
		case <-c.started:
		case <-c.closed:
			return errors.New("closed")
		}
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held[p.of.Name], p.latest = b, raw
		close(p.first)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := maps.Clone(c.held)
	next[p.of.Name] = b
	if err := c.activate(ordered(next)); err != nil {
		return err
	}
	c.held = next
	p.keep(raw)
	return nil
}

// kept reads the bundle that was kept; nil when there is none that can be used.
func (p *poll) kept() *policies.Bundle {
	if p.of.CacheFile == "" {
		return nil
	}
	f, err := os.Open(p.of.CacheFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var b *policies.Bundle
	if err == nil {
		defer f.Close()
		var raw []byte
		if raw, err = io.ReadAll(io.LimitReader(f, policies.MaxBundle+1)); err == nil {
			b, err = policies.ReadBundle(p.of.Name, raw, p.of.Keys)
		}
	}
	if err != nil {
		p.log.Error("the bundle that was kept cannot be used", "file", p.of.CacheFile, "error", err)
		if p.client.refused != nil {
			p.client.refused(p.of.Name, fmt.Errorf("kept in %s: %w", p.of.CacheFile, err))
		}
		return nil
	}
	p.log.Info("the bundle that was kept is used until a newer comes", "file", p.of.CacheFile,
		"revision", b.Revision)
	return b
}

// keep writes a bundle that is in force where kept finds it. What fails is only said: the bundle is
// in force.
func (p *poll) keep(raw []byte) {
	if p.of.CacheFile == "" {
		return
	}
	if err := atomicfile.Write(p.of.CacheFile, raw); err != nil {
		p.log.Error("keep the bundle: a start without its service has none, or an older one",
			"file", p.of.CacheFile, "error", err)
	}
}
