package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"gatekit/transport"
	"gatekit/transport/cluster"
)

// openReplica listens for the other replicas, if there is a [cluster].
func (g *gateway) openReplica(context.Context) error {
	c := g.active.config.Cluster
	if c == nil {
		return nil
	}
	secure, err := c.TLS().Load()
	if err != nil {
		return fmt.Errorf("[cluster]: %w", err)
	}
	o := cluster.Options{Name: c.Name, Listen: c.Listen,
		Advertise: c.Advertise, TLS: secure, StateKey: []byte(g.active.config.Listen.StateKey),
		RecordRefusal: func(ctx context.Context, r *http.Request, status int, reason string) {
			g.recording.refusedRequest(ctx, r.RemoteAddr,
				transport.Refusal{Status: status, Reason: reason})
		},
		Log: g.log}
	if g.shared == nil { // otherwise the replicas describe themselves in the shared state
		o.State = func() string { return g.currentState().String() }
		o.Describe, o.Meet = g.recording.describeLog, g.recording.meetReplica
	}
	g.replica, err = cluster.Listen(o)
	return err
}

func (g *gateway) closeReplica() error {
	if g.replica == nil {
		return nil
	}
	if err := g.replica.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// newParkedID returns the function that makes the ids of parked calls, or nil without [cluster].
func (g *gateway) newParkedID() func() string {
	if g.replica == nil {
		return nil
	}
	return g.replica.NewID
}
