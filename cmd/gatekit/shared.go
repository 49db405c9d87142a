package main

import (
	"context"
	"fmt"
	"sync"

	"gatekit/core/config"
	"gatekit/core/shared"
	"gatekit/policies"
	"gatekit/transport/valkey"
)

// sharedOptions returns the options for the server of [shared].
func sharedOptions(c *config.Config) (valkey.Options, error) {
	s := c.Shared
	address, encrypted, database := s.Server()
	ring, err := shared.NewRing([]byte(c.Listen.StateKey))
	if err != nil {
		return valkey.Options{}, err
	}
	o := valkey.Options{Address: address, User: s.User, Password: string(s.Password),
		Database: database, Ring: ring, Prefix: s.Prefix, Copies: s.Copies, Timeout: s.Timeout,
		Durable: c.HasLogins()}
	if encrypted {
		o.TLS, err = s.TLS().Load()
	}
	return o, err
}

// openShared connects to the server of [shared], if there is one.
func (g *gateway) openShared(ctx context.Context) error {
	if g.active.config.Shared == nil {
		return nil
	}
	o, err := sharedOptions(g.active.config)
	if err != nil {
		return fmt.Errorf("[shared]: %w", err)
	}
	if t := g.recording.telemetry; t != nil {
		o.Observe = t.SharedCall
	}
	if g.shared, err = valkey.Open(ctx, o); err != nil {
		return fmt.Errorf("[shared]: %w", err)
	}
	if lost := g.shared.Lost(); !lost.IsZero() {
		g.log.Warn("shared state was lost before this start", "at", lost)
	}
	return nil
}

// sharedSessions returns where the policies keep what replicas share, or nil.
func (g *gateway) sharedSessions(c *config.Config) *policies.SharedSessions {
	if g.shared == nil {
		return nil
	}
	return &policies.SharedSessions{State: g.shared, Idle: c.Limits.SessionIdle,
		DenyLost: c.Shared.Lost == "deny"}
}

// approvals returns the approvals of requests to the servers of a configuration.
func (g *gateway) approvals(c *config.Config) (*policies.Approvals, error) {
	if g.shared != nil {
		return sharedApprovals(c, g.shared), nil
	}
	return approvals(c)
}

// sharedApprovals returns the approvals in the state that replicas share.
func sharedApprovals(c *config.Config, state shared.Values) *policies.Approvals {
	return &policies.Approvals{Shared: state, Servers: serverIdentities(c)}
}

func (g *gateway) closeShared() error {
	if g.shared != nil {
		g.shared.Close()
	}
	return nil
}

// sharedHealth returns the results for /readyz: one if there is a [shared].
func (g *gateway) sharedHealth(ctx context.Context) []healthResult {
	if g.shared == nil {
		return nil
	}
	return []healthResult{{"shared", "available", g.shared.Check(ctx)}}
}

// checkShared connects to the server of [shared], as part of group. It writes nothing there.
func checkShared(ctx context.Context, r *checkReport, c *config.Config, group *sync.WaitGroup) {
	if c.Shared == nil {
		return
	}
	group.Go(func() {
		o, err := sharedOptions(c)
		var server valkey.Server
		if err == nil {
			server, err = valkey.Probe(ctx, o)
		}
		if err != nil {
			r.fail("shared", "[shared]", err)
			return
		}
		r.ok("shared", "[shared]", fmt.Sprintf("server %s: version %s, %s", o.Address,
			server.Version, plural(server.Replicas, "replica")))
	})
}
