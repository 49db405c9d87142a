package main

import (
	"context"
	"errors"
	"os"
	"reflect"

	"gatekit/core/config"
	"gatekit/policies"
)

// activeConfig is a configuration with its components. A reload keeps the components that the next
// configuration also needs.
type activeConfig struct {
	config   *config.Config
	servers  []*server // in the order of config.Servers
	bundles  *bundleSource
	policies *policySet
	pins     *pinSet
	plugins  *pluginSet
}

// components returns the components in the order in which they start.
func (a *activeConfig) components() []component {
	var list []component
	for _, s := range a.servers {
		list = append(list, s)
	}
	return append(list, a.bundles, a.policies, a.pins, a.plugins)
}

// plan returns the configuration c with its components. The parameter running is the active
// configuration, or nil. plan keeps the active components that c also needs. It makes all other
// components, but does not start them.
func (g *gateway) plan(c *config.Config, running *activeConfig) *activeConfig {
	var old []component
	if running != nil {
		old = running.components()
	}
	a := &activeConfig{config: c}
	for _, s := range c.Servers {
		a.servers = append(a.servers, kept(old, &server{gateway: g, config: s}))
	}
	a.bundles = kept(old, &bundleSource{gateway: g, config: c})
	// Policies, pins and plugins are always new: a file that they read may have changed.
	a.policies = &policySet{gateway: g, config: c, source: a.bundles}
	a.pins = &pinSet{gateway: g, config: c}
	if running != nil {
		a.pins.previous = running.pins
	}
	a.plugins = &pluginSet{gateway: g, config: c}
	return a
}

// watch applies changes of the configuration file until ctx ends. It reads the file when the file
// has changed, and when readNow delivers a signal. If the new configuration cannot be used, watch
// logs and records the error, and the active configuration stays.
func (g *gateway) watch(ctx context.Context, readNow <-chan os.Signal) {
	g.mu.Lock() // gatekit pin approve may replace the active configuration
	running := g.active.config
	g.mu.Unlock()
	config.Watch(ctx, running, readNow, func(c *config.Config, err error) {
		if err == nil {
			g.masked.add(c)
			if g.onReload != nil {
				g.onReload(c)
			}
			err = g.reload(ctx, c)
		}
		if err == nil {
			return
		}
		g.log.Error("new configuration rejected; keeping the previous one", "error", err,
			"hint", "correct the file, and Gatekit reads it again; gatekit check --config "+
				running.File+" prints all mistakes")
		if err := g.recording.event(ctx, "reload", "refused", err); err != nil {
			g.log.Error("event not recorded", "event", "reload", "error", err)
		}
	})
}

// reload makes c the active configuration without ending a session. It starts the new components,
// and stops the components that c does not need. If reload fails, the previous configuration stays
// active.
func (g *gateway) reload(ctx context.Context, c *config.Config) error {
	g.mu.Lock()
	before := g.active
	next := g.plan(g.keepUntilRestart(c), before)
	added := without(next.components(), before.components())
	err := startAll(ctx, added)
	if err == nil {
		if err = g.activate(ctx, next); err != nil {
			err = errors.Join(err, stopAll(added))
		}
	}
	g.mu.Unlock()
	if err != nil {
		return err
	}
	// mu must be free during stopAll: a bundle source stops only after applyBundles returned, and
	// applyBundles locks mu.
	if err := stopAll(without(before.components(), next.components())); err != nil {
		g.log.Warn("removed component not stopped cleanly", "error", err)
	}
	g.log.Info("configuration reloaded")
	g.logPolicies(next)
	g.logPins(next)
	g.replacePins(before.pins, next.pins)
	if next.bundles != before.bundles {
		next.bundles.poll(g.applyBundles)
	}
	return nil
}

// activate makes next the active configuration: it records the change, and then applies next to the
// proxy. The components of next must have started. The caller must hold g.mu.
func (g *gateway) activate(ctx context.Context, next *activeConfig) error {
	if err := g.recording.event(ctx, "reload", joinNonEmpty(next.config.String(),
		describePolicies(next.policies.stage), describePins(next.pins),
		describeCanaries(next.config)), nil); err != nil {
		return err
	}
	if err := g.proxy.Apply(g.proxyOptions(next)); err != nil {
		return err
	}
	g.active = next
	g.publishServers()
	g.publishState()
	return nil
}

// keepUntilRestart returns c with the active values of the tables that only a restart can change.
// It logs each of these tables that c would change. After the next change of the file, the new
// tables are compared with the tables of the returned configuration. The caller must hold g.mu.
func (g *gateway) keepUntilRestart(c *config.Config) *config.Config {
	next, active := *c, g.active.config
	for _, t := range []struct {
		name     string
		old, new any
	}{
		{"[listen]", active.Listen, c.Listen},
		{"[cluster]", active.Cluster, c.Cluster},
		{"[shared]", active.Shared, c.Shared},
		{"[audit]", active.Audit, c.Audit},
		{"[limits]", active.Limits, c.Limits},
		{"[tokens]", active.Tokens, c.Tokens},
		{"[admin]", active.Admin, c.Admin},
		{"[stop]", active.Stop, c.Stop},
		{"[telemetry]", active.Telemetry, c.Telemetry},
		{"[log]", active.Log, c.Log},
	} {
		if !reflect.DeepEqual(t.old, t.new) {
			g.log.Warn("change needs a restart; keeping the previous settings", "table", t.name)
		}
	}
	next.Listen, next.Audit, next.Limits = active.Listen, active.Audit, active.Limits
	next.Admin, next.Telemetry, next.Log = active.Admin, active.Telemetry, active.Log
	next.Tokens, next.Cluster, next.Stop = active.Tokens, active.Cluster, active.Stop
	next.Shared = active.Shared
	return &next
}

// applyBundles activates the changed bundles of a source without ending a session. If it fails, the
// previous bundles stay active.
func (g *gateway) applyBundles(source *bundleSource, changed []*policies.Bundle) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.active.bundles != source {
		return errors.New("the configuration that gets these bundles was replaced")
	}
	next := *g.active
	next.policies = &policySet{gateway: g, config: next.config, source: source, changed: changed}
	if err := next.policies.start(context.Background()); err != nil {
		return err
	}
	if describePolicies(next.policies.stage) == describePolicies(g.active.policies.stage) {
		source.bundles = changed
		return nil // the service sent the same bundles again
	}
	if err := g.activate(context.Background(), &next); err != nil {
		return err
	}
	source.bundles = changed
	g.log.Info("policy bundles updated")
	g.logPolicies(&next)
	return nil
}
