package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gatekit/core/pins"
	"gatekit/policies"
	"gatekit/transport/console"
)

// maxConsoleRequests is the number of waiting requests that the console shows.
const maxConsoleRequests = 100

// consoleWaiting implements console.Waiting.
type consoleWaiting struct{ gateway *gateway }

// Waiting implements console.Waiting.
func (w *consoleWaiting) Waiting(context.Context) (*console.WaitingList, error) {
	c := w.gateway.activeConfig()
	list := &console.WaitingList{WithValues: c.Audit.Bodies == "redacted"}
	own, elsewhere, err := w.requests()
	if err != nil {
		return nil, err
	}
	list.Elsewhere = elsewhere
	list.MoreRequests = max(0, len(own)-maxConsoleRequests)
	for _, r := range own[:min(len(own), maxConsoleRequests)] {
		shown := console.WaitingRequest{ID: r.ID, Server: r.Server, Method: r.Method,
			Name: r.Name, Principal: r.Principal, Reason: r.Reason, Expires: r.Expires,
			Approved: r.Approved}
		if list.WithValues { // the console shows no more than the log may hold
			shown.Values = r.Values
		}
		list.Requests = append(list.Requests, shown)
	}
	list.Pins, err = w.pins()
	return list, err
}

// Count implements console.Waiting.
func (w *consoleWaiting) Count(context.Context) int {
	own, _, err := w.requests()
	if err != nil {
		w.gateway.log.Warn("waiting requests not counted", "error", err)
	}
	count := 0
	for _, r := range own {
		if !r.Approved {
			count++
		}
	}
	waiting, err := w.pins()
	if err != nil {
		w.gateway.log.Warn("waiting pins not counted", "error", err)
	}
	return count + len(waiting)
}

// Approve implements console.Waiting.
func (w *consoleWaiting) Approve(_ context.Context, id string,
	by console.Viewer) (string, error) {
	c := w.gateway.activeConfig()
	a, err := w.gateway.approvals(c)
	if err != nil {
		return "", err
	}
	r, err := approveRecorded(a, id, describeViewer(by), c.Audit.File,
		w.gateway.recording.events)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Approved once, until %s UTC: %s", r.Expires.UTC().Format(time.TimeOnly),
		describeApproval(r)), nil
}

// requests returns the requests that wait for this process, and the number of those that wait for
// other processes.
func (w *consoleWaiting) requests() (own []policies.PendingApproval, elsewhere int, err error) {
	a, err := w.gateway.approvals(w.gateway.activeConfig())
	if err != nil {
		return nil, 0, err
	}
	all, err := a.List()
	for _, r := range all {
		switch {
		case a.Shared != nil || realPath(r.Log) == a.Log:
			own = append(own, r)
		case !r.Approved:
			elsewhere++
		}
	}
	return own, elsewhere, err
}

// pins returns the servers of which definitions wait.
func (w *consoleWaiting) pins() (all []console.WaitingPins, err error) {
	guard := w.gateway.pins.Load()
	if guard == nil {
		return nil, nil
	}
	counts, moved := guard.WaitingItems(), guard.Moved()
	servers := map[string]bool{}
	for name, items := range counts {
		servers[name] = len(items) > 0
	}
	for name, class := range moved {
		servers[name] = servers[name] || class == pins.Launch
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		if servers[name] {
			all = append(all, console.WaitingPins{Server: name, Items: len(counts[name]),
				Moved: moved[name] == pins.Launch})
		}
	}
	return all, nil
}
