package main

import (
	"context"
	"sync"
	"time"

	"gatekit/transport/console"
)

// consoleFleetAudit implements console.FleetAudit. It verifies only while somebody looks.
type consoleFleetAudit struct {
	fleet *consoleFleet

	verifying sync.Mutex // held during a part; guards fleetLog.verified
	next      string     // fleetLog.id of the log that is verified first

	mu    sync.Mutex // guards fleetLog.state
	ended time.Time  // of the last part
}

// States implements console.FleetAudit.
func (a *consoleFleetAudit) States(ctx context.Context) ([]console.ReplicaState, error) {
	logs, err := a.fleet.list()
	if err != nil {
		return nil, err
	}
	a.verify(ctx, logs)
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

// verify verifies parts of the logs within verifyBudget, unless another viewer does, or did a
// moment ago. Each time, it goes on after the log at which the time was over.
func (a *consoleFleetAudit) verify(ctx context.Context, logs []*fleetLog) {
	if !a.verifying.TryLock() {
		return
	}
	defer a.verifying.Unlock()
	a.mu.Lock()
	isSoon := time.Since(a.ended) < verifyInterval
	a.mu.Unlock()
	if isSoon {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, verifyBudget)
	defer cancel()
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
	a.mu.Lock()
	a.ended = time.Now()
	a.mu.Unlock()
}
