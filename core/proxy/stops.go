package proxy

import (
	"maps"
	"slices"

	"gatekit/core/stop"
)

// stoppedError is the cause of a call's context when an operator has stopped the call. The client
// gets the denial of the stop as the answer.
type stoppedError struct {
	*CancelledError
	stop stop.Stop
}

func (e *stoppedError) Error() string { return "stopped by an operator: " + e.stop.Reason }
func (e *stoppedError) Unwrap() error { return e.CancelledError }

// EndStopped ends the calls in flight that a stop covers, and the subscriptions: the client gets an
// error, and the servers are told that the request is cancelled. A list that several servers are
// asked for goes on without the part of a stopped server. EndStopped returns the number of calls,
// and does not wait until the answers are written. The stop must be in force already.
func (p *Proxy) EndStopped(s stop.Stop) (ended int) {
	p.mu.Lock()
	sessions := slices.Collect(maps.Keys(p.sessions))
	p.mu.Unlock()
	for _, session := range sessions {
		session.mu.Lock()
		calls := slices.Collect(maps.Values(session.calls))
		session.mu.Unlock()
		for _, call := range calls {
			asked := *call.request
			if asked.Server = call.askedServer(); !s.Covers(&asked) {
				continue
			}
			ended++
			call.cancel(&stoppedError{&CancelledError{
				call.cancelNotification("stopped by an operator")}, s})
		}
	}
	return ended
}

// Resumed notes that a stop has ended. The sessions repeat an initialize that the stop refused, or
// notify their clients that lists may have changed.
func (p *Proxy) Resumed(s stop.Stop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for session := range p.sessions {
		if s.Session != "" && s.Session != session.options.Session ||
			s.Principal != "" && s.Principal != session.principal.Load().ID() {
			continue
		}
		for _, server := range session.proxy.settings.Load().Servers {
			if s.Server == "" || s.Server == server.Name {
				session.useNewCredentials(server.Name)
			}
		}
	}
}
