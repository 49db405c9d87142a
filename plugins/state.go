package plugins

import (
	"cmp"
	"slices"
)

// ProcessStatus is how a process is that runs a plugin, or several.
type ProcessStatus struct {
	Name     string // as it is in the log
	Running  bool
	Err      error // why it is not
	Starts   int   // of the process, the first among them
	InFlight int   // questions that it has not answered
	// questions in a row without a verdict in time; when there are three it is killed
	ConsecutiveTimeouts int
}

// Status says how the processes are, without asking them, in the order of their names.
func (h *Host) Status() []ProcessStatus {
	h.mu.Lock()
	processes := make([]*supervised, 0, len(h.processes))
	for _, p := range h.processes {
		processes = append(processes, p)
	}
	h.mu.Unlock()
	states := make([]ProcessStatus, len(processes))
	for i, p := range processes {
		p.mu.Lock()
		s := ProcessStatus{Name: p.spec.label(), Err: p.err, Starts: p.starts,
			ConsecutiveTimeouts: p.late}
		if g := p.now; g != nil && !g.ended() {
			s.Running, s.InFlight = true, len(g.inFlight)
		}
		p.mu.Unlock()
		states[i] = s
	}
	slices.SortFunc(states, func(a, b ProcessStatus) int { return cmp.Compare(a.Name, b.Name) })
	return states
}
