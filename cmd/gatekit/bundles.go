package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"gatekit/core/config"
	"gatekit/policies"
	"gatekit/policies/service"
)

// openBundles gets the bundles of a configuration from their services, or those that were kept, and
// begins to tell services what it does. The client is nil when there is neither.
func openBundles(ctx context.Context, c *config.Config, log *slog.Logger, refused func(name string,
	err error)) (*service.Client, []*policies.Bundle, error) {
	if c.Policy == nil || len(c.Policy.Bundles) == 0 && c.Policy.DecisionLogs == nil &&
		c.Policy.Status == nil {
		return nil, nil, nil
	}
	remotes := map[string]service.Endpoint{}
	for _, s := range c.Policy.Services {
		r := service.Endpoint{URL: s.URL, Headers: plain(s.Headers)}
		if s.CA != "" {
			r.CA = []byte(s.CA)
		}
		remotes[s.Name] = r
	}
	o := service.Options{Version: version(), Log: log, BundleRejected: refused}
	for _, b := range c.Policy.Bundles {
		keys := policyKeys(c)
		if b.Key != "" {
			keys = map[string]policies.Key{b.Key: keys[b.Key]}
		}
		o.Bundles = append(o.Bundles, service.BundleSource{
			Name: b.Name, Endpoint: remotes[b.Service], Resource: b.Resource, Keys: keys,
			CacheFile: b.Persist, MinDelay: b.MinDelay, MaxDelay: b.MaxDelay,
		})
	}
	if d := c.Policy.DecisionLogs; d != nil {
		o.DecisionLogs = &service.DecisionLogs{Endpoint: remotes[d.Service], Resource: d.Resource,
			Buffer: d.Buffer, MinDelay: d.MinDelay, MaxDelay: d.MaxDelay}
	}
	if s := c.Policy.Status; s != nil {
		remote := remotes[s.Service]
		o.Status = &remote
	}
	client, err := service.Open(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	return client, client.Bundles(), nil
}

// bundlesOnce are the bundles of a configuration, for a command that judges nothing: what is kept,
// and what their services have.
func bundlesOnce(ctx context.Context, c *config.Config,
	log *slog.Logger) ([]*policies.Bundle, error) {
	asked := *c
	if c.Policy != nil {
		p := *c.Policy
		p.DecisionLogs, p.Status = nil, nil
		asked.Policy = &p
	}
	client, all, err := openBundles(ctx, &asked, log, nil)
	if client != nil {
		client.Close()
	}
	return all, err
}

// sameBundles says whether two configurations speak with the same services in the same way.
func sameBundles(a, b *config.Config) bool {
	polled := func(c *config.Config) config.Policy {
		if c.Policy == nil {
			return config.Policy{}
		}
		return config.Policy{Keys: c.Policy.Keys, Services: c.Policy.Services,
			Bundles: c.Policy.Bundles, DecisionLogs: c.Policy.DecisionLogs, Status: c.Policy.Status}
	}
	return reflect.DeepEqual(polled(a), polled(b))
}

// startBundles lets changed bundles be put in force.
func (g *gate) startBundles(client *service.Client) {
	if client != nil {
		client.Start(func(all []*policies.Bundle) error { return g.activate(client, all) })
	}
}

// activate puts bundles that came to work, as apply does a configuration.
func (g *gate) activate(from *service.Client, all []*policies.Bundle) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bundles != from {
		return errors.New("they are polled no longer")
	}
	stage, err := loadPolicies(g.config, all, &g.memory)
	if err != nil {
		return err
	}
	if inForce(stage) == inForce(g.judges.policies) {
		g.polled = all
		return nil // it came once more
	}
	j := &judges{g.judges.plugins, g.judges.first, stage, from.WithDecisionLog(stage)}
	o, servers, err := g.options(g.config, j)
	if err == nil {
		err = g.event(context.Background(), "reload", listed(g.config.String(), inForce(stage)),
			nil)
	}
	if err == nil {
		err = g.proxy.Apply(o)
	}
	if err != nil {
		return err
	}
	g.servers, g.judges, g.polled = servers, j, all
	g.log.Info("the changed bundles are in force")
	g.sayPolicies(g.config, stage)
	return nil
}

// bundleRefused records that a bundle came that cannot be used.
func (g *gate) bundleRefused(name string, why error) {
	if err := g.event(context.Background(), "reload", fmt.Sprintf("refused: bundle %q", name),
		why); err != nil {
		g.log.Error("record a refused bundle", "bundle", name, "error", err)
	}
}
