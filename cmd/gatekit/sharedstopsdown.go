package main

import (
	"context"
	"fmt"
	"slices"

	"gatekit/core/pipeline"
	"gatekit/core/shared"
	"gatekit/core/stop"
)

// Without a process here, gatekit stop and gatekit resume tell the other replicas themselves.

func (t stopTargets) isShared() bool { return t.config != nil && t.config.Shared != nil }

// publish tells the replicas that run of a stop, if there are any. It is for the time when no
// process runs here.
func (t stopTargets) publish(ctx context.Context, k *stop.Keeper, s stop.Stop) error {
	if !t.isShared() {
		return nil
	}
	state, closeState, err := dialShared(ctx, t.config)
	defer closeState()
	if err == nil {
		err = publishStop(ctx, state, s)
	}
	if err != nil {
		return fmt.Errorf("the stop holds here from the next start, and not yet in the other "+
			"replicas: %w\nhint: run the same command beside each of the others", err)
	}
	s.Shared = true
	_, err = k.Stop(s)
	return err
}

// resume ends stops, in all replicas if there are several. It is for the time when no process runs
// here.
func (t stopTargets) resume(ctx context.Context, k *stop.Keeper, events *pipeline.Pipeline,
	r resumeRequest) error {
	if !t.isShared() {
		return k.Resume(r.Scope, r.All, func(stops []stop.Stop) error {
			return recordResume(events, stops, r.By)
		})
	}
	state, closeState, err := dialShared(ctx, t.config)
	defer closeState()
	if err == nil {
		err = learnStops(ctx, state, k, r)
	}
	if err != nil {
		return fmt.Errorf("the stop stays in force, because the other replicas could not be "+
			"told: %w", err)
	}
	_, err = r.end(k, events, func(stops []stop.Stop) error {
		return withdrawStops(ctx, state, stops)
	})
	return err
}

// learnStops puts those stops of other replicas in force that a request ends.
func learnStops(ctx context.Context, state shared.Values, k *stop.Keeper, r resumeRequest) error {
	l, err := state.List(ctx, stopKind, 0)
	if err != nil {
		return err
	}
	all, err := decodeStops(l.Entries)
	if err != nil {
		return err
	}
	for _, x := range all {
		isKnown := slices.ContainsFunc(k.List(), func(o stop.Stop) bool {
			return o.Scope == x.Scope
		})
		if isKnown || !r.All && x.Scope != r.Scope {
			continue
		}
		if _, err := k.Stop(x); err != nil {
			return err
		}
	}
	return nil
}
