package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"gatekit/core/config"
	"gatekit/transport"
	"gatekit/transport/cluster"
)

// openReplica listens for the other replicas, if there is a [cluster].
func (g *gateway) openReplica(context.Context) error {
	c := g.active.config.Cluster
	if c == nil {
		return nil
	}
	secure, _, err := loadReplicaCertificate(c)
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

// loadReplicaCertificate returns the TLS configuration of [cluster], and when its certificate
// expires. It returns an error if the other replicas would refuse the certificate.
func loadReplicaCertificate(c *config.Cluster) (*tls.Config, time.Time, error) {
	secure, err := c.TLS().Load()
	if err != nil {
		return nil, time.Time{}, err
	}
	expires, err := cluster.CheckCertificate(secure, c.Advertise)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("the other replicas would refuse %s: %w\nhint: "+
			"cluster.cert must be signed by cluster.ca, and valid for the host of "+
			"cluster.advertise, for servers and for clients", c.Cert, err)
	}
	return secure, expires, nil
}

// expiresSoon is how long before its end gatekit check reports that a certificate expires.
const expiresSoon = 14 * 24 * time.Hour

// checkReplica checks the certificate of [cluster].
func checkReplica(r *checkReport, c *config.Config) {
	const kind, name = "cluster", "[cluster]"
	if c.Cluster == nil {
		return
	}
	_, expires, err := loadReplicaCertificate(c.Cluster)
	text := "the certificate is valid until " + expires.UTC().Format(time.RFC3339)
	switch {
	case err != nil:
		r.fail(kind, name, err)
	case time.Until(expires) < expiresSoon:
		r.note(kind, name, text+": renew it, and restart the replica, which reads it only then")
	default:
		r.ok(kind, name, text)
	}
	if all := c.Cluster.Replicas; len(all) > 0 && !slices.Contains(all, c.Cluster.Name) {
		r.note(kind, name, fmt.Sprintf("cluster.replicas does not have the name of this replica, "+
			"%q: add it in all replicas", c.Cluster.Name))
	}
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
