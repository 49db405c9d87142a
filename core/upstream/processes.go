package upstream

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxWaitForProcess is how long a start waits while a principal has as many processes as it may,
// and none of them can be ended.
const maxWaitForProcess = 5 * time.Second

// Processes bounds the processes that run for the sessions of HTTP clients. Such a client may
// vanish and never end its session. All servers share one Processes. Processes for clients on pipes
// are not counted: they end with the pipe. Servers that are configured to be kept have a bound of
// their own, so that processes that must not be ended do not keep other servers from starting.
type Processes struct {
	max int // of one owner

	mu      sync.Mutex
	running map[processGroup][]*processSlot // the oldest first
	changed chan struct{}                   // closed when a start may succeed; nil while none waits
}

// NewProcesses returns a bound of perPrincipal processes for each principal.
func NewProcesses(perPrincipal int) *Processes {
	return &Processes{max: perPrincipal, running: make(map[processGroup][]*processSlot)}
}

// processGroup names the processes that count together.
type processGroup struct {
	principal string
	keep      bool // those of servers that are configured to be kept
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
	// unusedSince returns when the process was used last. ok is false while it is in use.
	unusedSince() (at time.Time, ok bool)
	// endUnused ends the process unless it is in use, and returns when it has ended. It reports
	// false when the process is in use, or has ended already.
	endUnused(reason string) bool
}

// take returns a slot for a process that is about to be started. When the group has too many, the
// process that has not been used for longest is ended first. While all are in use or kept, take
// waits, but no longer than maxWaitForProcess. The slot must be released when the process has
// ended.
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

// tryTake returns a slot. If there is none, it returns a channel that is closed when there may be
// one.
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

// endLeastUsed ends the process of the group that has not been used for longest. It reports false
// when all are in use.
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
		return c.owner.endUnused("[limits] processes is reached, and another process is needed")
	})
}

// wake lets the starts that wait try again: a process has ended, or is unused.
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

// ProcessCounts are figures about the processes, or connections, of one server.
type ProcessCounts struct {
	Running int   // processes, and streams of the 2024-11-05 transport, that are open now
	Ended   int64 // that Gatekit ended because they were not used
	Refused int64 // starts that were refused because of the limit
}

// processCounters count the ends and refusals of one server.
type processCounters struct{ ended, refused atomic.Int64 }

// Processes returns the figures of the server.
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
		err = unavailable(c.opts.Name, "[limits] processes is reached, and all of them are in use",
			nil)
	}
	return slot, err
}
