package main

import (
	"context"
	"sync"

	"gatekit/transport/console"
)

// consoleFleetAudit implements console.FleetAudit.
type consoleFleetAudit struct {
	fleet *consoleFleet

	turns verifyTurns // only the viewer whose turn it is uses fleetLog.verified and next
	next  string      // fleetLog.id of the log that is verified first

	mu sync.Mutex // guards fleetLog.state
}

// States implements console.FleetAudit.
func (a *consoleFleetAudit) States(ctx context.Context) ([]console.ReplicaState, error) {
	logs, err := a.fleet.list()
	if err != nil {
		return nil, err
	}
	a.turns.next(ctx, func(ctx context.Context) { a.verify(ctx, logs) })
	var states []console.ReplicaState
	for _, l := range logs {
		s := console.ReplicaState{Replica: l.Name}
		a.mu.Lock()
		s.AuditState = l.state
		a.mu.Unlock()
		s.File = displayPath(l.File)
		if s.Committed, err = l.end.read(); err == nil {
			err = addFiles(&s.AuditState, l.File)
		}
		if err != nil {
			s.Unreadable = err.Error()
		}
		states = append(states, s)
	}
	return states, ctx.Err()
}

// verify verifies parts of the logs until ctx ends. Each time, it goes on after the log at which
// the time was over.
func (a *consoleFleetAudit) verify(ctx context.Context, logs []*fleetLog) {
	first := 0
	for i, l := range logs {
		if l.id == a.next {
			first = i
		}
	}
	for i := range logs {
		l := logs[(first+i)%len(logs)]
		if a.next = l.id; ctx.Err() != nil {
			break
		}
		if l.File == "" {
			continue
		}
		state := continueVerification(ctx, &l.verified)
		a.mu.Lock()
		l.state = state
		a.mu.Unlock()
	}
}
