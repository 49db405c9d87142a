package main

import (
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"os"
	"time"

	"gatekit/core/allowances"
	"gatekit/core/config"
	"gatekit/core/shared"
)

// openSharedAllowances is called when the shared state is open.
func (g *gateway) openSharedAllowances() {
	g.sharedAllowances = &allowances.Shared{Values: g.shared, Observer: allowanceRecorder{g}}
}

// watchSharedAllowances notifies the clients whose lists an allowance of any replica changes, until
// ctx ends.
func (g *gateway) watchSharedAllowances(ctx context.Context) {
	tick := time.NewTicker(shared.WatchInterval)
	defer tick.Stop()
	for {
		if g.activeConfig().Allow.Enabled {
			g.allowed.announce(g.sharedAllowances.Look(), g.listOf, g.announceAllowed)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sharedAllowanceKey returns the key of the ids of allowances. It is the same in all replicas, so
// that a decision has the same id at each of them.
func sharedAllowanceKey(c *config.Config) ([]byte, error) {
	return hkdf.Key(sha256.New, []byte(c.Listen.StateKey), nil, "gatekit shared allowances", 32)
}

// allowanceStore returns the allowances of this process, without the key of the ids.
func (g *gateway) allowanceStore() (*allowances.Store, error) {
	if g.sharedAllowances != nil {
		return &allowances.Store{Shared: g.sharedAllowances}, nil
	}
	return allowanceStore(nil, nil)
}

// replicaName returns how the records of other replicas name this one.
func replicaName(c *config.Config) string {
	if c.Cluster != nil {
		return c.Cluster.Name
	}
	host, _ := os.Hostname()
	return cmp.Or(host, "unknown")
}

// allowanceRecorder records the allowances of other replicas. So the log of each replica has all
// allowances that its messages may use.
type allowanceRecorder struct{ gateway *gateway }

// Began implements allowances.Observer.
func (r allowanceRecorder) Began(a allowances.Allowance) error {
	err := recordAllowance(r.gateway.recording.events, a, "allow",
		describeAllow(a)+", at replica "+a.Replica, nil)
	if err != nil {
		r.gateway.log.Error("allowance of another replica not recorded: it has no effect here",
			"id", a.ID, "error", err)
	}
	return err
}

// Ended implements allowances.Observer.
func (r allowanceRecorder) Ended(a allowances.Allowance, expired bool) {
	why := "used or removed at another replica, or lost with the shared state"
	if expired {
		why = "expired"
	}
	if err := recordAllowance(r.gateway.recording.events, a, "disallow",
		"allowance "+a.ID+": "+why, nil); err != nil {
		r.gateway.log.Error("end of an allowance not recorded", "id", a.ID, "error", err)
	}
}

// Unavailable implements allowances.Observer.
func (r allowanceRecorder) Unavailable(err error, known int) error {
	action, reason := "allow", "%s: the shared state is available again"
	if err != nil {
		r.gateway.log.Error("shared allowances have no effect", "error", err)
		action = "disallow"
		reason = "%s: no effect while the shared state is not available"
	}
	return r.gateway.recording.event(context.Background(), action,
		fmt.Sprintf(reason, plural(known, "allowance")), err)
}

// allowances returns the allowances that replicas share.
func (s *sharingConfig) allowances() *allowances.Store {
	return &allowances.Store{Shared: &allowances.Shared{Values: s.state}}
}
