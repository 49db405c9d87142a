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
	"gatekit/core/regularfile"
	"gatekit/policies"
)

// openTimeout is how long Open waits for bundles that are not cached.
const openTimeout = 10 * time.Second

// BundleSource is a bundle that is polled from a service.
type BundleSource struct {
	Name     string // name of the bundle in errors, the log and audit records
	Endpoint Endpoint
	Resource string                  // the path below the URL
	Keys     map[string]policies.Key // the keys for policies.ReadBundle
	// path of the file that caches the last active bundle; "" caches nothing
	CacheFile string
	// path of the file that keeps the revisions that were active. An older bundle is rejected, also
	// after a restart. With "", any revision is accepted.
	RevisionFile string

	MinDelay, MaxDelay time.Duration // bounds of the time between requests, in whole seconds
}

// Options configure a Client.
type Options struct {
	Bundles      []BundleSource
	DecisionLogs *DecisionLogs // nil sends no decision logs
	Status       *Endpoint     // nil sends no status

	Version string // version of Gatekit
	Log     *slog.Logger
	// BundleRejected is called when a bundle is rejected, but not when a download fails. If the
	// bundle is rejected again with the same error, BundleRejected is not called again. It may be
	// nil.
	BundleRejected func(name string, err error)
}

// Client downloads bundles, and sends decision logs and status. Its methods may be called
// concurrently.
type Client struct {
	log            *slog.Logger
	bundleRejected func(string, error)
	polls          []*bundlePoll
	reports        *reporter     // nil when neither decision logs nor status are sent
	started        chan struct{} // closed by Start
	closed         chan struct{} // closed by Close
	close          func()

	mu       sync.Mutex // held while bundles are activated
	activate func([]*policies.Bundle) error
	active   map[string]*policies.Bundle // by name; complete after Open
}

// Open starts polling the bundles, and returns when all of them are available. A cached bundle is
// available at once. If a bundle is missing, the error names the bundle and the reason.
func Open(ctx context.Context, o Options) (*Client, error) {
	c := &Client{log: o.Log, bundleRejected: o.BundleRejected, started: make(chan struct{}),
		closed: make(chan struct{}), active: map[string]*policies.Bundle{}}
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
		p, err := newBundlePoll(c, b, o.Version)
		if err != nil {
			return nil, fmt.Errorf("bundle %q: %w", b.Name, err)
		}
		c.polls = append(c.polls, p)
	}
	if o.DecisionLogs != nil || o.Status != nil {
		var err error
		if c.reports, err = newReporter(ctx, o); err != nil {
			return nil, fmt.Errorf("send decision logs and status: %w", err)
		}
	}
	for _, p := range c.polls {
		if b := p.readCache(); b != nil {
			c.active[p.source.Name] = b
			close(p.available)
		}
	}
	for _, p := range c.polls {
		p.downloader.Start(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for _, p := range c.polls {
		select {
		case <-p.available:
		case <-ctx.Done():
			c.Close()
			return nil, fmt.Errorf("bundle %q: service %s did not provide the bundle, and no "+
				"copy is cached: %w\nhint: persist = \"FILE\" in [policy.bundle.%[1]s] caches "+
				"the latest bundle for a start without the service",
				p.source.Name, p.transport.origin.Host, cmp.Or(p.lastError(),
					errors.New("no answer")))
		}
	}
	return c, nil
}

// Bundles returns the active bundles, sorted by name. Before Start, it returns the bundles that the
// caller has to activate.
func (c *Client) Bundles() []*policies.Bundle {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sortedByName(c.active)
}

// sortedByName returns bundles sorted by name.
func sortedByName(bundles map[string]*policies.Bundle) []*policies.Bundle {
	all := make([]*policies.Bundle, 0, len(bundles))
	for _, name := range slices.Sorted(maps.Keys(bundles)) {
		all = append(all, bundles[name])
	}
	return all
}

// Start begins to activate changed bundles. The caller must have activated Bundles before. Client
// calls activate with all bundles whenever a bundle has changed. If activate fails, the previous
// bundles stay active. Only one goroutine at a time calls activate, and none calls it after Close
// has returned.
func (c *Client) Start(activate func([]*policies.Bundle) error) {
	c.mu.Lock()
	c.activate = activate
	for _, p := range c.polls {
		if p.firstRaw != nil {
			p.writeCache(p.firstRaw)
			p.firstRaw = nil
		}
		p.keepRevision(c.active[p.source.Name])
		c.reports.updateBundleStatus(p.source.Name, c.active[p.source.Name], nil)
	}
	c.mu.Unlock()
	close(c.started)
}

// Close stops all requests. It waits for a running call of activate.
func (c *Client) Close() { c.close() }

// activateBundle activates a downloaded bundle. Before Start, it only stores the first bundle of p,
// and a later bundle of p waits for Start.
func (c *Client) activateBundle(p *bundlePoll, b *policies.Bundle, raw []byte) error {
	select {
	case <-p.available: // before Start, the first bundle cannot be replaced
		select {
		case <-c.started:
		case <-c.closed:
			return errors.New("closed")
		}
	default:
		if err := p.checkRollback(b); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.active[p.source.Name], p.firstRaw = b, raw
		close(p.available)
		return nil
	}
	if err := p.checkRollback(b); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := maps.Clone(c.active)
	next[p.source.Name] = b
	if err := c.activate(sortedByName(next)); err != nil {
		return err
	}
	c.active = next
	p.writeCache(raw)
	p.keepRevision(b)
	return nil
}

// readCache returns the cached bundle. It returns nil if no bundle is cached, or if the cached
// bundle is invalid.
func (p *bundlePoll) readCache() *policies.Bundle {
	if p.source.CacheFile == "" {
		return nil
	}
	f, err := regularfile.Open(p.source.CacheFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var b *policies.Bundle
	if err == nil {
		defer f.Close()
		var raw []byte
		if raw, err = io.ReadAll(io.LimitReader(f, policies.MaxBundle+1)); err == nil {
			b, err = policies.ReadBundle(p.source.Name, raw, p.source.Keys)
		}
		if err == nil {
			err = p.checkRollback(b)
		}
	}
	if err != nil {
		p.log.Error("cached bundle rejected", "file", p.source.CacheFile, "error", err)
		if p.client.bundleRejected != nil {
			p.client.bundleRejected(p.source.Name, fmt.Errorf("cached in %s: %w",
				p.source.CacheFile, err))
		}
		return nil
	}
	p.log.Info("cached bundle loaded, until a newer one is downloaded", "file", p.source.CacheFile,
		"revision", b.Revision)
	return b
}

// writeCache caches a bundle that is active. An error is only logged.
func (p *bundlePoll) writeCache(raw []byte) {
	if p.source.CacheFile == "" {
		return
	}
	if err := atomicfile.Write(p.source.CacheFile, raw); err != nil {
		p.log.Error("bundle not cached: a start without its service fails, or uses an older bundle",
			"file", p.source.CacheFile, "error", err)
	}
}
