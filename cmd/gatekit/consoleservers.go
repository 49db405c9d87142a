package main

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"gatekit/transport/console"
)

// confinements holds how the last process of each server is confined. The zero value is ready to
// use. It is safe for concurrent use.
type confinements struct {
	mu       sync.Mutex
	byServer map[string]confinementState
}

type confinementState struct {
	description string // "" if the sandbox says nothing
	confined    bool
}

func (c *confinements) set(server, description string, confined bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byServer == nil {
		c.byServer = map[string]confinementState{}
	}
	c.byServer[server] = confinementState{description, confined}
}

func (c *confinements) of(server string) (s confinementState, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known = c.byServer[server]
	return s, known
}

// consoleServers implements console.Servers.
type consoleServers struct {
	gateway  *gateway
	activity *activityReader
}

// Servers implements console.Servers.
func (s *consoleServers) Servers(ctx context.Context) (*console.ServerList, error) {
	g := s.gateway
	a, err := s.activity.read(ctx)
	if err != nil {
		return nil, err
	}
	list := &console.ServerList{Counted: periodOf(a)}
	guard := g.pins.Load()
	var waiting map[string]int
	if guard != nil {
		waiting = guard.Waiting()
	}
	for _, one := range *g.servers.Load() {
		name := one.config.Name
		counts := one.Processes()
		state := console.ServerState{Name: name, Era: one.Era(), State: one.State(),
			Transport: "HTTP", Processes: counts.Running, Refused: counts.Refused,
			HasPins: guard != nil, HeldBack: waiting[name]}
		if guard != nil {
			if class, moved := guard.Moved()[name]; moved {
				state.Moved = string(class)
			}
		}
		if isProgram(one.config) {
			state.Transport = "stdio"
			state.Sandbox, state.SandboxMissing = s.sandbox(one)
		}
		if counted := a.servers[name]; counted != nil {
			state.Calls, state.RefusedCalls = counted.calls, counted.refused
			state.FailedCalls = counted.failed
			state.Restarts, state.Lost = counted.restarts, counted.lost
		}
		list.Servers = append(list.Servers, state)
	}
	for _, p := range g.host.Status() {
		state := console.PluginState{Name: p.Name, Running: p.Running, Starts: p.Starts,
			InFlight: p.InFlight, Timeouts: p.ConsecutiveTimeouts}
		if p.Err != nil {
			state.Error = p.Err.Error()
		}
		list.Plugins = append(list.Plugins, state)
	}
	return list, nil
}

// sandbox describes how the program of a server is confined. The parameter missing reports whether
// it should be confined and is not.
func (s *consoleServers) sandbox(one *server) (text string, missing bool) {
	b := one.config.Sandbox
	if b == nil || b.Level == "off" {
		return "off", false
	}
	state, known := s.gateway.confined.of(one.config.Name)
	switch {
	case !known:
		return b.Level + " (not started yet)", false
	case state.confined:
		return cmp.Or(state.description, b.Level), false
	}
	return cmp.Or(state.description, "not held"), true
}

// periodOf returns the part of the log that an activity counts, in words.
func periodOf(a *activity) console.CountedPeriod {
	return console.CountedPeriod{Since: a.since, First: a.first, Cut: a.cut}
}

// consoleTools implements console.Tools.
type consoleTools struct {
	gateway  *gateway
	activity *activityReader
}

// maxConsoleTools is the number of tools that the console shows.
const maxConsoleTools = 1_000

// Tools implements console.Tools.
func (t *consoleTools) Tools(ctx context.Context, f console.ToolFilter) (*console.ToolList,
	error) {
	a, err := t.activity.read(ctx)
	if err != nil {
		return nil, err
	}
	known := map[toolKey]*console.ToolState{}
	add := func(key toolKey) *console.ToolState {
		if known[key] == nil {
			known[key] = &console.ToolState{Server: key.server, Name: key.name}
		}
		return known[key]
	}
	for key, listed := range t.gateway.listed.tools() {
		state := add(key)
		state.Annotations, state.Listed = listed.annotations, listed.at
	}
	if err := t.addPins(add); err != nil {
		return nil, err
	}
	for key, counted := range a.tools {
		state := add(key)
		state.Calls, state.Refused, state.HiddenBy = counted.calls, counted.refused,
			counted.hiddenBy
		if last := counted.last; last.seq > 0 {
			state.LastRefusal = &console.LastRefusal{Seq: last.seq, Time: last.time,
				Stage: last.stage, Reason: last.reason}
		}
	}
	list := &console.ToolList{Counted: periodOf(a), All: len(known)}
	for _, s := range t.gateway.activeConfig().Servers {
		list.Servers = append(list.Servers, s.Name)
	}
	for _, state := range known {
		if f.Matches(state) {
			list.Tools = append(list.Tools, state)
		}
	}
	slices.SortFunc(list.Tools, func(a, b *console.ToolState) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Name, b.Name))
	})
	if more := len(list.Tools) - maxConsoleTools; more > 0 {
		list.Tools, list.More = list.Tools[:maxConsoleTools], more
	}
	return list, nil
}
