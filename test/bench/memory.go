//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
)

// measureMemory reads what the proxies hold after many calls of each size, one size after the other
// in one process.
func (p *plan) measureMemory(l lane, out report) error {
	out.memoryHead(p.calls, p.sizes)
	l.era = p.eras[0]
	for _, l.route = range p.routes {
		for _, l.workers = range p.at {
			for _, way := range p.proxies() {
				targets, end, err := l.open(way)
				var resident []int
				peak := 0
				for _, size := range p.sizes {
					if err != nil {
						break
					}
					t := targets[0]
					_, err = drive(t.client, l.workers, callEcho(t.tool, size), func(n int64) bool {
						return n < int64(p.calls)
					})
					now := 0
					now, peak = t.proxy.resident()
					resident = append(resident, now)
				}
				if err == nil {
					out.memory(l, way, resident, peak)
				}
				if err = errors.Join(err, end()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// measureSessions reads what an idle legacy session costs: opened over HTTP, with an HTTP server
// behind, its client's connection closed; and once more with a GET stream held open by the client.
func (p *plan) measureSessions(l lane, out report) error {
	out.sessionsHead(p.sessions)
	l.route, l.era, l.workers = httpHTTP, legacy, 1
	for _, streams := range []bool{false, true} {
		l.streams = streams
		targets, end, err := l.open("gatekit")
		if err == nil {
			var grown int
			if grown, err = idle(targets[0], p.sessions, streams); err == nil {
				out.sessions(streams, grown)
			}
		}
		if err = errors.Join(err, end()); err != nil {
			return err
		}
	}
	return nil
}

// idle opens sessions and answers by how much each let the proxy grow. A quarter more are opened
// before, so that what is allocated once is not counted.
func idle(t *target, sessions int, streams bool) (each int, err error) {
	var open []io.Closer
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	before := 0
	for i := range sessions + sessions/4 {
		if i == sessions/4 {
			before, _ = t.proxy.resident()
		}
		c, err := dialHTTP(t.client.(*httpClient).url.String(), legacy, 1)
		if err != nil {
			return 0, err
		}
		err = shake(c, legacy)
		if err == nil {
			_, err = call(c, 0, callEcho(t.tool, 100))
		}
		if err == nil && streams {
			var s io.Closer
			if s, err = c.openStream(); err == nil {
				open = append(open, s)
			}
		}
		if err = errors.Join(err, c.close()); err != nil {
			return 0, fmt.Errorf("session %d: %w", i+1, err)
		}
	}
	after, _ := t.proxy.resident()
	return (after - before) / sessions, nil
}
