package transport

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"gatekit/core/hostlist"
	"gatekit/transport/egress"
	"gatekit/transport/sandbox"
)

// Egress says which hosts a process may connect to.
type Egress struct {
	Hosts    hostlist.List  // not empty
	Networks []netip.Prefix // see egress.Options
	Resolver *net.Resolver  // nil: the resolver of the system
}

// childNetwork serves the network of a child. Connections wait until there is a recorder. A nil
// childNetwork does nothing.
type childNetwork struct {
	child   *Child
	sandbox *Sandbox
	ended   chan struct{} // closed by close
	ready   chan struct{} // closed when record is set
	once    sync.Once
	record  func(egress.Event) error

	mu    sync.Mutex    // guards relay, and whether ended is closed
	relay *egress.Relay // nil before open
}

func newChildNetwork(c *Child, s *Sandbox) *childNetwork {
	return &childNetwork{child: c, sandbox: s, ended: make(chan struct{}),
		ready: make(chan struct{})}
}

// RecordEgress makes record record the connections of a child with Sandbox.Egress. They wait for
// it: a connection that is not recorded is not made. See egress.Options.Record. The first call
// counts.
func (c *Child) RecordEgress(record func(egress.Event) error) {
	if n := c.network; n != nil {
		n.once.Do(func() { n.record = record; close(n.ready) })
	}
}

// open serves the network of the process, which has started.
func (n *childNetwork) open(box *sandbox.Sandbox) error {
	if n == nil {
		return nil
	}
	sockets, err := box.Network()
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.ended:
		for _, s := range sockets {
			s.Close()
		}
		return nil // Read reports that the process has ended
	default:
	}
	e := n.sandbox.Egress
	n.relay, err = egress.Serve(sockets, egress.Options{Hosts: e.Hosts, Networks: e.Networks,
		Resolver: e.Resolver, Record: n.event})
	return err
}

// close ends all connections. It returns when they are recorded.
func (n *childNetwork) close() {
	if n == nil {
		return
	}
	n.mu.Lock()
	close(n.ended)
	relay := n.relay
	n.mu.Unlock()
	if relay != nil {
		relay.Close()
	}
}

// event records an event, and adds a hint about a host that is not on the list.
func (n *childNetwork) event(e egress.Event) error {
	if e.Kind == egress.Refused && e.Unlisted && n.sandbox.Grant != nil {
		value := e.Host
		if e.Port != 0 {
			value = hostlist.Host{Name: e.Host, Port: e.Port}.String()
		}
		hint := n.sandbox.hint(sandbox.Refusal{Key: "network", Value: value})
		if n.child.hints.add(hint) {
			n.child.log.Warn("the sandbox refused a host that is not on its list", "host", value,
				"hint", hint)
		}
	}
	select {
	case <-n.ready:
		return n.record(e)
	default:
	}
	select {
	case <-n.ready:
		return n.record(e)
	case <-n.ended:
		return errors.New("the process ended before its connections could be recorded")
	}
}
