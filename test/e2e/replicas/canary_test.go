package replicas

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"gatekit/test/mcptest"
)

// canary reads private data at one replica and sends it at another one, as the same principal. No
// such call may pass.
type canary struct {
	*fleet
	down    atomic.Int64 // the replica that does not run now; -1 if all do
	nextID  atomic.Int64
	denied  atomic.Int64 // sent data that were denied by the policy
	other   atomic.Int64 // sent data that failed in another way
	void    atomic.Int64 // data that could not be read
	allowed atomic.Int64 // sends of principals that have read nothing

	mu     sync.Mutex
	passed []string // must be empty
	faults map[string]int
}

func newCanary(f *fleet) *canary {
	c := &canary{fleet: f, faults: map[string]int{}}
	c.down.Store(-1)
	return c
}

// use calls a tool at a replica as a principal, and returns the error; "" if it got its result.
func (c *canary) use(replica int, principal, tool string) string {
	client, _ := c.connect(c.replicas[replica].URL, principal, mcptest.Modern)
	defer client.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), callTime)
	defer cancel()
	m, err := client.Tool(ctx, modernServer+"__"+tool, fmt.Sprintf(`{"id":"%s-%s"}`, principal,
		tool))
	switch {
	case err != nil:
		return err.Error()
	case m.Error != nil:
		return string(m.Raw)
	}
	return ""
}

// read reads private data at a replica as a new principal. ok is false if it did not get the data.
func (c *canary) read(replica int) (principal string, ok bool) {
	principal = fmt.Sprintf("canary-%d", c.nextID.Add(1))
	if fault := c.use(replica, principal, "read"); fault != "" {
		c.void.Add(1)
		c.note("read", fault)
		return principal, false
	}
	return principal, true
}

// send sends the data of a principal at a replica.
func (c *canary) send(replica int, principal string) {
	fault := c.use(replica, principal, "send")
	switch {
	case c.ledger.count(principal+"-send") > 0 || fault == "":
		c.mu.Lock()
		c.passed = append(c.passed, principal)
		c.mu.Unlock()
	case strings.Contains(fault, "private data stays"):
		c.denied.Add(1)
	default:
		c.other.Add(1)
		c.note("send", fault)
	}
}

// note counts a fault by its text without ids.
func (c *canary) note(what, fault string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[what+": "+kindOfFault(fault)]++
}

// kindOfFault returns a short text for an error.
func kindOfFault(fault string) string {
	for _, text := range []string{"shared state is not available", "connection refused", "EOF",
		"connection reset", "the replica that made the id is gone", "502 Bad Gateway",
		"503 Service Unavailable", "the connection to the replica"} {
		if strings.Contains(fault, text) {
			return text
		}
	}
	return fault[:min(len(fault), 200)]
}

// two returns two replicas that run.
func (c *canary) two() (a, b int) {
	var up []int
	for i := range c.replicas {
		if int64(i) != c.down.Load() {
			up = append(up, i)
		}
	}
	rand.Shuffle(len(up), func(i, j int) { up[i], up[j] = up[j], up[i] })
	return up[0], up[1]
}

// pair reads at one replica, and sends at another one. Each tenth principal reads nothing, so that
// what it sends passes.
func (c *canary) pair() {
	a, b := c.two()
	if rand.IntN(10) == 0 {
		principal := fmt.Sprintf("honest-%d", c.nextID.Add(1))
		if fault := c.use(b, principal, "send"); fault == "" {
			c.allowed.Add(1)
		} else {
			c.note("send of an honest principal", fault)
		}
		return
	}
	if principal, ok := c.read(a); ok {
		c.send(b, principal)
	}
}

// across reads at replicas before something happens, and returns the function that sends the data
// afterwards at those that run then.
func (c *canary) across(n int, at func() int) (afterwards func()) {
	var held []string
	for range n {
		if principal, ok := c.read(at()); ok {
			held = append(held, principal)
		}
	}
	return func() {
		for _, principal := range held {
			a, _ := c.two()
			c.send(a, principal)
		}
	}
}

// check fails the test if data passed, or if too few were tried. It returns a summary.
func (c *canary) check(least int) string {
	c.t.Helper()
	if len(c.passed) > 0 {
		c.t.Errorf("the private data of %d principals were sent: %v", len(c.passed),
			c.passed[:min(len(c.passed), 10)])
	}
	if c.denied.Load() < int64(least) {
		c.t.Errorf("%d sends were denied by the policy, want at least %d", c.denied.Load(), least)
	}
	if c.allowed.Load() == 0 {
		c.t.Errorf("no honest principal could send")
	}
	records := 0
	for _, g := range c.replicas {
		for _, r := range g.Records() {
			if r.String() == "to_server request tools/call "+modernServer+" send deny" {
				records++
			}
			if r.Action == "deny" && r.Error != "" {
				c.note("record", r.Error)
			}
		}
	}
	if records < int(c.denied.Load()) {
		c.t.Errorf("the logs have %d denials of sends, want the %d that clients got", records,
			c.denied.Load())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var faults []string
	for text, n := range c.faults {
		faults = append(faults, fmt.Sprintf("%d × %s", n, text))
	}
	slices.Sort(faults)
	return fmt.Sprintf("%d pairs denied, %d passed, %d sends failed otherwise, %d reads without "+
		"data, %d honest sends; faults: %s", c.denied.Load(), len(c.passed), c.other.Load(),
		c.void.Load(), c.allowed.Load(), strings.Join(faults, "; "))
}
