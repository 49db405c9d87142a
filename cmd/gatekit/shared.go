package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gatekit/core/config"
	"gatekit/core/pins"
	"gatekit/core/shared"
	"gatekit/plugins"
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
	if o.Epoch, err = readEpoch(c); err == nil && encrypted {
		o.TLS, err = s.TLS().Load()
	}
	return o, err
}

// openState connects to the server of [shared] for a command.
func openState(ctx context.Context, c *config.Config) (*valkey.Store, error) {
	o, err := sharedOptions(c)
	if err != nil {
		return nil, fmt.Errorf("[shared]: %w", err)
	}
	state, err := valkey.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("[shared]: %w", err)
	}
	return state, nil
}

// openShared connects to the server of [shared], if there is one.
func (g *gateway) openShared(ctx context.Context) error {
	c := g.active.config
	g.tasks.IsReplica = c.Cluster != nil || c.Shared != nil
	if c.Shared == nil {
		return nil
	}
	o, err := sharedOptions(c)
	if err != nil {
		return fmt.Errorf("[shared]: %w", err)
	}
	o.Observe = g.observeShared
	if g.shared, err = valkey.Open(ctx, o); err != nil {
		return fmt.Errorf("[shared]: %w", err)
	}
	g.tasks.State, g.memory.Tasks = g.shared, &g.tasks
	g.redacted.Shared = &sharedRedactions{state: g.shared, log: g.log}
	g.openSharedAllowances()
	g.sharedPins = &pins.Shared{Values: g.shared, Accept: g.recordSharedPins}
	if t := g.active.config.Tokens; t.File != "" || t.Key != "" {
		g.log.Warn("[tokens] is not used: with [shared], the logins at servers are in the shared " +
			"state")
	}
	if lost := g.shared.Lost(); !lost.IsZero() {
		g.log.Warn("shared state was lost before this start", "at", lost)
	}
	if was := o.Epoch.ID; was != "" && was != g.shared.Epoch().ID {
		g.recordLost(fmt.Errorf("%w while this replica did not run", shared.ErrLost))
	}
	return nil
}

// dialShared connects a command to the state of [shared]. Without [shared], the state is nil. The
// caller must call the function that is returned, also if there is an error.
func dialShared(ctx context.Context, c *config.Config) (shared.Store, func(), error) {
	if c.Shared == nil {
		return nil, func() {}, nil
	}
	state, err := openState(ctx, c)
	if err != nil {
		return nil, func() {}, err
	}
	return state, state.Close, nil
}

// sharedSessions returns where the policies keep what replicas share, or nil.
func (g *gateway) sharedSessions(c *config.Config) *policies.SharedSessions {
	if g.shared == nil {
		return nil
	}
	return &policies.SharedSessions{State: g.shared, Idle: c.Limits.SessionIdle,
		DenyLost: c.Shared.Lost == "deny"}
}

// sharedCounts returns where plugins count what replicas share, or nil.
func (g *gateway) sharedCounts() *plugins.SharedState {
	if g.shared == nil {
		return nil
	}
	s := &plugins.SharedState{State: g.shared}
	if c := g.active.config; c.Shared.Limits == "local" && c.Cluster != nil {
		s.Replicas = len(c.Cluster.Replicas)
	}
	return s
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

// observeShared measures a call of the store.
func (g *gateway) observeShared(method string, took time.Duration, err error) {
	if t := g.recording.telemetry; t != nil {
		t.SharedCall(method, took, err)
	}
	if errors.Is(err, shared.ErrLost) {
		g.recordLost(err)
	}
}

// recordLost logs and records that shared state was lost, once for each loss.
func (g *gateway) recordLost(err error) {
	lost := g.shared.Lost().UnixNano()
	if g.sharedLost.Swap(lost) == lost {
		return
	}
	g.log.Error("shared state was lost", "error", err)
	if err := g.recording.event(context.Background(), "lost", "shared state", err); err != nil {
		g.log.Error("event not recorded", "event", "lost", "error", err)
	}
}

// sharedStore returns the state that replicas share, or nil without [shared].
func (g *gateway) sharedStore() shared.Store {
	if g.shared == nil {
		return nil // an interface that holds a nil pointer is not nil
	}
	return g.shared
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
