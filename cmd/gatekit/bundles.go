package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"

	"gatekit/core/config"
	"gatekit/policies"
	"gatekit/policies/service"
)

// bundleSource is the component that connects to the policy services of one configuration. It gets
// bundles, and sends decision logs and the status.
type bundleSource struct {
	gateway *gateway
	config  *config.Config
	client  *service.Client // set by start; nil when the configuration needs no service

	// bundles are the bundles in the active policies. start sets them. After poll was called,
	// gateway.mu guards them.
	bundles []*policies.Bundle
}

func (b *bundleSource) start(ctx context.Context) (err error) {
	b.client, b.bundles, err = openBundles(ctx, b.config, b.gateway.log,
		b.gateway.recording.bundleEvent)
	return err
}

// stop ends the polling. If bundles are being applied, it waits until they are active or rejected.
func (b *bundleSource) stop() error {
	if b.client != nil {
		b.client.Close()
	}
	return nil
}

// sameAs reports whether b and other have the same settings for services.
func (b *bundleSource) sameAs(other *bundleSource) bool {
	return reflect.DeepEqual(serviceSettings(b.config), serviceSettings(other.config))
}

// serviceSettings returns the settings of [policy] that concern services.
func serviceSettings(c *config.Config) config.Policy {
	if c.Policy == nil {
		return config.Policy{}
	}
	return config.Policy{Keys: c.Policy.Keys, Services: c.Policy.Services,
		Bundles: c.Policy.Bundles, DecisionLogs: c.Policy.DecisionLogs, Status: c.Policy.Status}
}

// poll begins to ask the services for changed bundles. When a bundle has changed, it calls apply
// with all bundles.
func (b *bundleSource) poll(apply func(*bundleSource, []*policies.Bundle) error) {
	if b.client != nil {
		b.client.Start(func(all []*policies.Bundle) error { return apply(b, all) })
	}
}

// openBundles gets the bundles of a configuration from their services, or from their persist files,
// and begins to send reports. It calls rejected, unless nil, for each rejected bundle. The client
// is nil when the configuration needs no service.
func openBundles(ctx context.Context, c *config.Config, log *slog.Logger, rejected func(name string,
	err error)) (*service.Client, []*policies.Bundle, error) {
	if c.Policy == nil || len(c.Policy.Bundles) == 0 && c.Policy.DecisionLogs == nil &&
		c.Policy.Status == nil {
		return nil, nil, nil
	}
	remotes := map[string]service.Endpoint{}
	for _, s := range c.Policy.Services {
		r := service.Endpoint{URL: s.URL, Headers: revealed(s.Headers)}
		if s.CA != "" {
			r.CA = []byte(s.CA)
		}
		remotes[s.Name] = r
	}
	o := service.Options{Version: version(), Log: log, BundleRejected: rejected}
	for _, b := range c.Policy.Bundles {
		keys := policyKeys(c)
		if b.Key != "" {
			keys = map[string]policies.Key{b.Key: keys[b.Key]}
		}
		revisions, err := revisionFile(b, remotes[b.Service].URL)
		if err != nil {
			return nil, nil, err
		}
		o.Bundles = append(o.Bundles, service.BundleSource{
			Name: b.Name, Endpoint: remotes[b.Service], Resource: b.Resource, Keys: keys,
			CacheFile: b.Persist, RevisionFile: revisions, MinDelay: b.MinDelay,
			MaxDelay: b.MaxDelay,
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

// revisionFile returns the path of the file that keeps the revisions of a bundle, in the state
// folder of the user. Each address of a bundle has its own file. revisionFile returns "" if the
// configuration allows older bundles.
func revisionFile(b config.Bundle, url string) (string, error) {
	if b.Rollback == "allow" {
		return "", nil
	}
	dir, err := stateFolder()
	if err != nil {
		return "", fmt.Errorf("find a place for the last revision of bundle %q: %w\nhint: set "+
			"XDG_STATE_HOME, or rollback = \"allow\" in [policy.bundle.%[1]s]", b.Name, err)
	}
	sum := sha256.Sum256([]byte(url + "\n" + b.Resource))
	return filepath.Join(dir, "bundles", fmt.Sprintf("%s-%x.json", b.Name, sum[:8])), nil
}

// bundlesOnce gets the bundles of a configuration, from the services or from their persist files,
// for commands such as gatekit check. It sends no reports.
func bundlesOnce(ctx context.Context, c *config.Config,
	log *slog.Logger) ([]*policies.Bundle, error) {
	withoutReports := *c
	if c.Policy != nil {
		p := *c.Policy
		p.DecisionLogs, p.Status = nil, nil
		withoutReports.Policy = &p
	}
	client, all, err := openBundles(ctx, &withoutReports, log, nil)
	if client != nil {
		client.Close()
	}
	return all, err
}
