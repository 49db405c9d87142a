//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
)

// measureMemory reads the resident memory of each proxy after many calls of each size. The same
// process serves the calls of all sizes, one size after the other.
func (p *plan) measureMemory(s setup, out report) error {
	out.memoryHeader(p.calls, p.sizes)
	s.era = p.eras[0]
	for _, s.route = range p.routes {
		for _, s.workers = range p.workers {
			for _, name := range p.proxies() {
				targets, end, err := s.open(name)
				var resident []int
				peak := 0
				for _, size := range p.sizes {
					if err != nil {
						break
					}
					t := targets[0]
					_, err = callRepeatedly(t.client, s.workers, echoCall(t.tool, size),
						func(n int64) bool {
							return n < int64(p.calls)
						})
					now := 0
					now, peak = t.proxy.resident()
					resident = append(resident, now)
				}
				if err == nil {
					out.memoryRow(s, name, resident, peak)
				}
				if err = errors.Join(err, end()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// measureSessions measures the memory of an idle legacy session whose client and server use HTTP.
// It measures sessions whose client has closed its connection, and sessions with open GET streams.
func (p *plan) measureSessions(s setup, out report) error {
	out.sessionsHeader(p.sessions)
	s.route, s.era, s.workers = httpHTTP, legacy, 1
	for _, streams := range []bool{false, true} {
		s.streams = streams
		targets, end, err := s.open("gatekit")
		if err == nil {
			var bytes int
			bytes, err = memoryPerClient(targets[0], legacy, p.sessions, streams,
				func(int) string { return "" })
			if err == nil {
				out.sessionsRow(streams, bytes)
			}
		}
		if err = errors.Join(err, end()); err != nil {
			return err
		}
	}
	return nil
}

// memoryPerClient returns the memory that the proxy needs for each of n idle clients. Each client
// of the legacy era has a session. With streams, it holds the session's GET stream open. token
// returns the bearer token of a client, or "". Before it measures, it serves a quarter as many
// further clients, so that one-time allocations are not counted.
func memoryPerClient(t *target, e era, n int, streams bool, token func(client int) string) (
	bytes int, err error,
) {
	var openStreams []io.Closer
	defer func() {
		for _, c := range openStreams {
			c.Close()
		}
	}()
	before := 0
	for i := range n + n/4 {
		if i == n/4 {
			before, _ = t.proxy.resident()
		}
		c, err := dialHTTP(t.client.(*httpClient).url.String(), e, 1)
		if err != nil {
			return 0, err
		}
		c.token = token(i)
		err = handshake(c, e)
		if err == nil {
			_, err = call(c, 0, echoCall(t.tool, 100))
		}
		if err == nil && streams {
			var s io.Closer
			if s, err = c.openStream(); err == nil {
				openStreams = append(openStreams, s)
			}
		}
		if err = errors.Join(err, c.close()); err != nil {
			return 0, fmt.Errorf("client %d: %w", i+1, err)
		}
	}
	after, _ := t.proxy.resident()
	return (after - before) / n, nil
}
