package plugins

import (
	"cmp"
	"slices"
)

// State is how a process is that runs a plugin, or several.
type State struct {
	Name   string // as it is in the log
	Up     bool
	Err    error // why it is not
	Starts int   // of the process, the first among them
	Active int   // questions that it has not answered
	Late   int   // questions in a row without a verdict in time; when there are three it is killed
}

// State says how the processes are, without asking them, in the order of their names.
func (h *Host) State() []State {
	h.mu.Lock()
	processes := make([]*supervised, 0, len(h.processes))
	for _, p := range h.processes {
		processes = append(processes, p)
	}
	h.mu.Unlock()
	states := make([]State, len(processes))
	for i, p := range processes {
		p.mu.Lock()
		s := State{Name: p.spec.label(), Err: p.err, Starts: p.starts, Late: p.late}
		if g := p.now; g != nil && !g.ended() {
			s.Up, s.Active = true, len(g.inFlight)
		}
		p.mu.Unlock()
		states[i] = s
	}
	slices.SortFunc(states, func(a, b State) int { return cmp.Compare(a.Name, b.Name) })
	return states
}
