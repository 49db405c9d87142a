//go:build linux

package main

import (
	"errors"

	"gatekit/test/clustertest"
)

// measureReplicas compares calls that a replica forwards to another one with calls that it serves
// itself. Two replicas share a backend. The client has a legacy session with each of them, and
// sends the calls of both sessions to the first replica, which forwards those of the second
// session. Calls of the modern era are never forwarded.
func (p *plan) measureReplicas(s setup, out report) error {
	if err := clustertest.WriteCertificates(s.dir); err != nil {
		return err
	}
	s.route, s.era, s.variants = httpHTTP, legacy, nil
	for i, name := range []string{"local", "forwarded"} {
		between, err := freeAddress()
		if err != nil {
			return err
		}
		s.variants = append(s.variants, variant{name: name,
			listenKeys: clustertest.Config(i, between, s.dir)})
	}
	out.replicasHeader()
	for _, s.workers = range p.workers {
		targets, end, err := s.open("local", "forwarded")
		if err == nil {
			first := targets[0]
			targets[1].via = first.proxy
			err = targets[1].client.(*httpClient).reconnect(first.client.(*httpClient).url)
		}
		for _, size := range p.sizes {
			if err != nil {
				break
			}
			var c comparison
			c, err = compare(targets, s.workers, func(t *target) message {
				return echoCall(t.tool, size)
			}, p.rounds, p.length)
			if err == nil {
				out.pairRow("forwarded", s, size, c)
			}
		}
		if err = errors.Join(err, end()); err != nil {
			return err
		}
	}
	return nil
}
