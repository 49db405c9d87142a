package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gatekit/core/display"
)

// replicas lists the replicas of [cluster] that share state, and reports those that have another
// configuration than this one, or other policies than each other.
func (d *diagnosis) replicas(ctx context.Context) {
	const kind = "replica"
	c := d.config
	if c.Cluster == nil || c.Shared == nil {
		return
	}
	store, err := openState(ctx, c)
	if err != nil {
		return // the check of [shared] has reported it
	}
	defer store.Close()
	all, err := replicaEntries(ctx, store)
	if err != nil {
		d.report.fail(kind, "roster", err)
		return
	}
	slices.SortFunc(all, func(a, b replicaEntry) int { return strings.Compare(a.Name, b.Name) })
	own, now := configDigest(c), time.Now()
	policies := map[string]bool{}
	for _, e := range all {
		name := display.EscapeLine(e.Name, maxApprovalName)
		text := describeReplica(e, now)
		switch {
		case !e.isAlive(now):
			d.report.note(kind, name, text)
			continue
		case e.Configuration != own:
			d.report.fail(kind, name, fmt.Errorf("%s: another configuration than %s here\nhint: "+
				"deploy one configuration to all replicas", text, own))
		default:
			d.report.ok(kind, name, text)
		}
		policies[e.Policies] = true
	}
	if len(policies) > 1 {
		d.report.fail(kind, "policies", errors.New("the replicas have different policies\nhint: "+
			"deploy the same policies to all replicas, or wait until all have the same bundle"))
	}
	if missing := missingReplicas(c.Cluster.Replicas, all); len(missing) > 0 {
		d.report.note(kind, "roster", "not entered within a day: "+strings.Join(missing, ", "))
	}
}

// describeReplica describes a replica for a person.
func describeReplica(e replicaEntry, now time.Time) string {
	ago := now.Sub(e.At).Truncate(time.Second)
	text := e.state().String()
	if e.Log != nil {
		text += fmt.Sprintf(", log %s since %s", display.EscapeLine(e.Log.Origin, maxApprovalName),
			e.Log.Since.Format(time.RFC3339))
	}
	switch {
	case e.Ended:
		return fmt.Sprintf("%s; ended %s ago", text, ago)
	case !e.isAlive(now):
		return fmt.Sprintf("%s; silent for %s", text, ago)
	}
	return fmt.Sprintf("%s; described itself %s ago", text, ago)
}

// missingReplicas returns the names that have no entry.
func missingReplicas(names []string, all []replicaEntry) (missing []string) {
	for _, name := range names {
		if !slices.ContainsFunc(all, func(e replicaEntry) bool { return e.Name == name }) {
			missing = append(missing, name)
		}
	}
	return missing
}
