//go:build linux

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"gatekit/test/clustertest"
)

// replicaVariants returns the variants of n replicas. If link is not 0, replicas reach each other
// through relays that add this round trip. The caller must call end, even after an error.
func (s setup) replicaVariants(n int, link time.Duration) (variants []variant, end func() error,
	err error) {
	var links []*process
	end = func() error {
		var errs []error
		for _, l := range links {
			errs = append(errs, l.stop())
		}
		return errors.Join(errs...)
	}
	if err := clustertest.WriteCertificates(s.dir); err != nil {
		return nil, end, err
	}
	for i := range n {
		between, err := freeAddress()
		if err != nil {
			return nil, end, err
		}
		config := clustertest.Config(i, between, s.dir)
		if link > 0 {
			l, err := startSelf("link", "to", between, link.String())
			if err != nil {
				return nil, end, err
			}
			links = append(links, l)
			address, err := l.firstLine()
			if err != nil {
				return nil, end, err
			}
			config = strings.Replace(config, fmt.Sprintf("advertise = %q", between),
				fmt.Sprintf("advertise = %q", address), 1)
		}
		variants = append(variants, variant{name: replicaNames[i], listenKeys: config})
	}
	return variants, end, nil
}

// replicaNames are the names of replicas in a setup.
var replicaNames = []string{"replica 1", "replica 2", "replica 3"}

// measureReplicas compares calls that a replica forwards to another one with calls that it serves
// itself. Two replicas share a backend. The client has a legacy session with each of them, and
// sends the calls of both sessions to the first replica, which forwards those of the second
// session. Calls of the modern era are never forwarded.
//
// In the same rounds, it compares calls through a bare proxy with calls of a bare server.
func (p *plan) measureReplicas(s setup, out report) (err error) {
	s.route, s.era = httpHTTP, legacy
	var endLinks func() error
	s.variants, endLinks, err = s.replicaVariants(2, p.link)
	defer func() { err = errors.Join(err, endLinks()) }()
	if err != nil {
		return err
	}
	out.replicasHeader()
	for _, s.workers = range p.workers {
		targets, end, err := s.open(replicaNames[:2]...)
		if err == nil {
			first := targets[0]
			targets[1].others = []*process{first.proxy}
			err = targets[1].client.(*httpClient).reconnect(first.client.(*httpClient).url)
		}
		bare, endBare, errBare := s.openBare()
		err = errors.Join(err, errBare)
		for _, size := range p.sizes {
			if err != nil {
				break
			}
			var c comparison
			c, err = compare(append(targets, bare...), s.workers, func(t *target) message {
				return echoCall(t.tool, size)
			}, p.rounds, p.length)
			if err != nil {
				break
			}
			out.pairRow("forwarded", s, size, c[:2])
			for i, protocol := range bareProtocols {
				out.pairRow("bare "+protocol, s, size, comparison{c[2], c[3+i]})
			}
		}
		if err = errors.Join(err, endBare(), end()); err != nil {
			return err
		}
	}
	return nil
}
