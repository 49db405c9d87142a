package upstream

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxWaitForProcess is how long a start waits while the principal's limit of processes is reached
// and none of them can be ended.
const maxWaitForProcess = 5 * time.Second

// Processes limits the processes that run for the sessions of HTTP clients. Such a client may
// vanish and never end its session. All servers share one Processes. Processes for clients on pipes
// are not counted: they end with the pipe. Servers with Options.Keep have a limit of their own.
// Otherwise their processes, which must not be ended, could prevent other servers from starting.
type Processes struct {
	max int // how many processes one group may have

	mu      sync.Mutex
	running map[processGroup][]*processSlot // the oldest first
	changed chan struct{}                   // closed when a start may succeed; nil if nothing waits
}

// NewProcesses returns a limit of perPrincipal processes for each principal.
func NewProcesses(perPrincipal int) *Processes {
	return &Processes{max: perPrincipal, running: make(map[processGroup][]*processSlot)}
}

// processGroup identifies the processes that share one limit.
type processGroup struct {
	principal string
	keep      bool // processes of servers with Options.Keep
}

// processSlot is the place of one process in its group.
type processSlot struct {
	processes *Processes
	group     processGroup
	owner     processOwner
}

// processOwner is the session, or the shared connection, that uses a process. Its methods are
// called without a lock of Processes.
type processOwner interface {
	// unusedSince returns when the process was used last. ok is false while the process is in use.
	unusedSince() (at time.Time, ok bool)
	// endUnused ends the process unless it is in use, and returns when it has ended. It returns
	// false when the process is in use, or has ended already.
	endUnused(reason string) bool
}

// take returns a slot for a process that is about to be started. When the limit of the group is
// reached, take ends the process that has been unused for the longest time. When no process can be
// ended, take waits, but no longer than maxWaitForProcess. The slot must be released when the
// process has ended.
func (p *Processes) take(ctx context.Context, group processGroup,
	owner processOwner) (*processSlot, error) {
	var timeout <-chan time.Time
	for {
		slot, changed := p.tryTake(group, owner)
		if slot != nil {
			return slot, nil
		}
		if !group.keep && p.endLeastUsed(group) {
			continue
		}
		if timeout == nil {
			timer := time.NewTimer(maxWaitForProcess)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-changed:
		case <-timeout:
			return nil, errTooManyProcesses
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryTake returns a slot. If no slot is free, it returns a channel that is closed when a slot may
// be free.
func (p *Processes) tryTake(group processGroup,
	owner processOwner) (slot *processSlot, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.running[group]) < p.max {
		slot = &processSlot{processes: p, group: group, owner: owner}
		p.running[group] = append(p.running[group], slot)
		return slot, nil
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return nil, p.changed
}

// endLeastUsed ends the process of the group that has been unused for the longest time. It returns
// false when all processes of the group are in use.
func (p *Processes) endLeastUsed(group processGroup) bool {
	type unused struct {
		owner processOwner
		since time.Time
	}
	p.mu.Lock()
	slots := slices.Clone(p.running[group])
	p.mu.Unlock()
	var candidates []unused
	for _, s := range slots {
		if since, ok := s.owner.unusedSince(); ok {
			candidates = append(candidates, unused{s.owner, since})
		}
	}
	slices.SortStableFunc(candidates, func(a, b unused) int { return a.since.Compare(b.since) })
	return slices.ContainsFunc(candidates, func(c unused) bool {
		return c.owner.endUnused("the limit [limits] processes is reached, and another process " +
			"is needed")
	})
}

// wake lets the waiting starts try again. wake is called when a process has ended, or is no longer
// used.
func (p *Processes) wake() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// release frees the slot. A nil slot has nothing to free.
func (s *processSlot) release() {
	if s == nil {
		return
	}
	p := s.processes
	p.mu.Lock()
	p.running[s.group] = slices.DeleteFunc(p.running[s.group],
		func(other *processSlot) bool { return other == s })
	if len(p.running[s.group]) == 0 {
		delete(p.running, s.group)
	}
	p.mu.Unlock()
	p.wake()
}

// ProcessCounts counts the processes and connections of one server.
type ProcessCounts struct {
	Running int   // processes, and streams of the 2024-11-05 transport, that are open now
	Ended   int64 // processes that Gatekit ended because they were not used
	Refused int64 // starts that were refused because of the limit
}

// processCounters counts the processes of one server that were ended or refused.
type processCounters struct{ ended, refused atomic.Int64 }

// Processes returns the counts of the server.
func (u *Upstream) Processes() ProcessCounts {
	u.connector.mu.Lock()
	running := len(u.connector.conns)
	u.connector.mu.Unlock()
	return ProcessCounts{Running: running, Ended: u.connector.counters.ended.Load(),
		Refused: u.connector.counters.refused.Load()}
}

// takeSlot takes the slot for a process that is about to be started. The slot is nil when the
// process is not counted.
func (c *connector) takeSlot(ctx context.Context, principal string,
	owner processOwner) (*processSlot, error) {
	if c.opts.Processes == nil {
		return nil, nil
	}
	slot, err := c.opts.Processes.take(ctx, processGroup{principal, c.opts.Keep}, owner)
	if err == errTooManyProcesses {
		c.counters.refused.Add(1)
		c.opts.Log.Warn("too many server processes: start refused", "server", c.opts.Name,
			"principal", principal, "limit", c.opts.Processes.max)
		err = unavailable(c.opts.Name, "the limit [limits] processes is reached, and all "+
			"processes are in use", nil)
	}
	return slot, err
}
