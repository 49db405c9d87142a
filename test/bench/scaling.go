//go:build linux

package main

import "errors"

// spreadClient makes the calls of clients whose requests a load balancer sends to another replica
// each time. Each worker has a session with one of the replicas, and each replica has as many of
// these workers. In the legacy era, a replica forwards the calls of sessions with other replicas.
type spreadClient struct {
	// sessions[i][j] sends the calls of session i to replica j
	sessions [][]*httpClient
	calls    []int // of each worker
}

var _ client = (*spreadClient)(nil)

// newSpreadClient connects to replicas, each of which has the session of one client. The sessions
// are used further.
func newSpreadClient(replicas []*httpClient) (*spreadClient, error) {
	c := &spreadClient{calls: make([]int, len(replicas[0].workers))}
	for i, owner := range replicas {
		c.sessions = append(c.sessions, nil)
		for j, replica := range replicas {
			to, err := dialHTTP(replica.url.String(), owner.era, len(owner.workers))
			if err != nil {
				return nil, errors.Join(err, c.close())
			}
			to.session = owner.session
			for _, w := range to.workers { // an id is used only once in a session
				w.id += (1 + j) * len(owner.workers) * 1e8
			}
			c.sessions[i] = append(c.sessions[i], to)
		}
	}
	return c, nil
}

func (c *spreadClient) do(worker int, m message) ([]byte, error) {
	c.calls[worker]++
	session := c.sessions[worker%len(c.sessions)]
	return session[(worker+c.calls[worker])%len(session)].do(worker, m)
}

func (c *spreadClient) close() error {
	var errs []error
	for _, session := range c.sessions {
		for _, to := range session {
			errs = append(errs, to.close())
		}
	}
	return errors.Join(errs...)
}

// measureScaling compares two and three replicas with one. A client sends each request to another
// replica than the last. So with two replicas, half of the legacy calls are forwarded, and with
// three replicas two thirds.
func (p *plan) measureScaling(s setup, out report) (err error) {
	s.route = httpHTTP
	out.scalingHeader()
	for _, s.era = range p.eras {
		if s.variants, _, err = s.replicaVariants(len(replicaNames), 0); err != nil {
			return err
		}
		for _, s.workers = range p.workers {
			replicas, end, err := s.open(replicaNames...)
			var clients []*httpClient
			var processes []*process
			var targets []*target
			for _, replica := range replicas {
				if err != nil {
					break
				}
				clients = append(clients, replica.client.(*httpClient))
				processes = append(processes, replica.proxy)
				var c *spreadClient
				if c, err = newSpreadClient(clients); err == nil {
					targets = append(targets, &target{client: c, proxy: processes[0],
						others: processes[1:len(processes):len(processes)], tool: replica.tool})
				}
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
					out.scalingRows(s, size, c)
				}
			}
			for _, t := range targets {
				err = errors.Join(err, t.client.close())
			}
			if err = errors.Join(err, end()); err != nil {
				return err
			}
		}
	}
	return nil
}
