package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"gatekit/audit"
	"gatekit/audit/query"
	"gatekit/transport/console"
)

// retryFollow is how long Follow waits before it reads a log again that could not be read.
const retryFollow = 5 * time.Second

// consoleFleetTraffic implements console.FleetTraffic.
type consoleFleetTraffic struct{ fleet *consoleFleet }

// Calls implements console.FleetTraffic. It reads one log after the other, and keeps the calls of
// one page.
func (t *consoleFleetTraffic) Calls(ctx context.Context, q console.FleetQuery,
	before string) (*console.FleetCallList, error) {
	_, words, err := parseFilter(q.Filter)
	if err != nil {
		return nil, &console.FilterError{Err: err}
	}
	starts, err := parsePositions(before)
	if err != nil {
		return nil, err
	}
	all, err := t.fleet.list()
	if err != nil {
		return nil, err
	}
	logs, err := t.fleet.selected(q.Replica)
	if err != nil {
		return nil, err
	}
	list := &console.FleetCallList{Words: words}
	for _, l := range all {
		list.Replicas = append(list.Replicas, l.Name)
	}
	through, merged := positions{}, &callMerge{}
	for _, l := range logs {
		start, isOlder := starts[l.id]
		if before != "" && !isOlder {
			continue // all of its calls were shown, or it is new
		}
		end, err := l.end.read()
		if err == nil {
			through[l.id] = end
			if !isOlder {
				start = end + 1
			}
			err = merged.add(ctx, l, q.Filter, start)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			list.Failures = append(list.Failures, l.failure(err))
		}
	}
	list.Calls, list.Before = merged.result()
	list.Through = through.String()
	return list, nil
}

// callMerge merges the newest calls of several logs, newest first. It keeps the calls of one page.
type callMerge struct {
	calls []mergedCall
	parts map[string]callPart // by fleetLog.id
	// Some calls that began before this time are not known. So those that are known are left out.
	horizon time.Time
}

// callPart is the part of a log that was read.
type callPart struct {
	start  uint64 // the calls began before this record
	found  int    // calls
	before uint64 // older calls begin before this record; 0 if there are none
}

// mergedCall is a call of a log.
type mergedCall struct {
	*query.Call
	log string // fleetLog.id
	// time of the call's start; not later than that of the call after it in the log, even if the
	// clock was set
	order time.Time
}

// add adds the calls of a log that began before the record start.
func (m *callMerge) add(ctx context.Context, l *fleetLog, filter string, start uint64) error {
	list, err := l.traffic.Calls(ctx, filter, start)
	if err != nil {
		return err
	}
	if m.parts == nil {
		m.parts = map[string]callPart{}
	}
	m.parts[l.id] = callPart{start, len(list.Calls), list.Before}
	var order time.Time
	for i, c := range list.Calls {
		if i == 0 || c.Start.Before(order) {
			order = c.Start
		}
		c.Replica = l.Name
		m.calls = append(m.calls, mergedCall{c, l.id, order})
	}
	if list.Before != 0 {
		searched, err := timeOfRecord(ctx, l.File, list.Before)
		if err != nil {
			return err
		}
		if len(list.Calls) > 0 && order.Before(searched) {
			searched = order
		}
		m.cut(searched)
	}
	slices.SortStableFunc(m.calls, func(a, b mergedCall) int { return b.order.Compare(a.order) })
	if len(m.calls) > consoleCalls {
		m.cut(m.calls[consoleCalls-1].order)
		clear(m.calls[consoleCalls:])
		m.calls = m.calls[:consoleCalls]
	}
	return nil
}

// cut leaves out the calls that began before a time.
func (m *callMerge) cut(horizon time.Time) {
	if horizon.After(m.horizon) {
		m.horizon = horizon
	}
}

// result returns the calls, and the position of the calls that continue them.
func (m *callMerge) result() (calls []*query.Call, before string) {
	kept, oldest := map[string]int{}, map[string]uint64{}
	for _, c := range m.calls {
		if c.order.Before(m.horizon) {
			break
		}
		calls = append(calls, c.Call)
		kept[c.log]++
		oldest[c.log] = c.FirstSeq
	}
	next := positions{}
	for id, part := range m.parts {
		switch {
		case kept[id] < part.found:
			next[id] = cmp.Or(oldest[id], part.start)
		case part.before != 0:
			next[id] = part.before
		}
	}
	return calls, next.String()
}

// timeOfRecord returns the time of a record, or of the first one after it that exists.
func timeOfRecord(ctx context.Context, file string, seq uint64) (time.Time, error) {
	for line, err := range (&audit.Reader{File: file, From: seq, Seek: true}).Lines(ctx) {
		if err != nil {
			return time.Time{}, err
		}
		r, err := audit.ParseSummary(line)
		return r.Time, err
	}
	return time.Time{}, ctx.Err()
}

// Follow implements console.FleetTraffic. It looks for new logs every second. All viewers share a
// reader of each log.
func (t *consoleFleetTraffic) Follow(ctx context.Context, q console.FleetQuery, after string,
	send func(console.FleetNewCalls) error) error {
	at, err := parsePositions(after)
	if err != nil {
		return err
	}
	var following sync.WaitGroup
	defer following.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &fleetFollower{filter: q.Filter, send: send, stop: cancel, at: at}
	known, failing := map[string]bool{}, map[string]bool{}
	look := time.NewTicker(newLogsInterval)
	defer look.Stop()
	for {
		// If the logs cannot be listed, the next attempt may succeed. The page shows the error when
		// it is loaded.
		logs, _ := t.fleet.selected(q.Replica)
		for _, l := range logs {
			if l.File == "" {
				continue
			}
			if !known[l.id] {
				known[l.id] = true
				following.Go(func() { f.follow(ctx, l) })
			}
			// The reader waits while the end of the log cannot be read.
			_, err := l.end.read()
			if err != nil && !failing[l.id] {
				f.deliverFailure(l, err)
			}
			failing[l.id] = err != nil
		}
		select {
		case <-ctx.Done():
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.err
		case <-look.C:
		}
	}
}

// fleetFollower sends the calls of several logs to one viewer.
type fleetFollower struct {
	filter string
	send   func(console.FleetNewCalls) error
	stop   func() // ends all follow

	mu  sync.Mutex // held during send
	at  positions
	err error // of send
}

// follow sends the calls of a log until ctx ends. If the log cannot be read, follow says so and
// tries again.
func (f *fleetFollower) follow(ctx context.Context, l *fleetLog) {
	for ctx.Err() == nil {
		f.mu.Lock()
		after := f.at[l.id]
		f.mu.Unlock()
		err := l.traffic.Follow(ctx, f.filter, after, func(n console.NewCalls) error {
			return f.deliver(l, n)
		})
		if err == nil || ctx.Err() != nil || f.deliverFailure(l, err) != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryFollow):
		}
	}
}

// deliver sends calls of a log.
func (f *fleetFollower) deliver(l *fleetLog, n console.NewCalls) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at[l.id] = n.Through
	return f.sendLocked(console.FleetNewCalls{Calls: n.Calls, Skipped: n.Skipped,
		Replica: l.Name})
}

// deliverFailure sends why a log cannot be read.
func (f *fleetFollower) deliverFailure(l *fleetLog, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sendLocked(console.FleetNewCalls{Failure: err.Error(), Replica: l.Name})
}

// sendLocked sends n with the positions. f.mu is held. After an error, nothing is sent any more.
func (f *fleetFollower) sendLocked(n console.FleetNewCalls) error {
	if f.err != nil {
		return f.err
	}
	n.Through = f.at.String()
	if f.err = f.send(n); f.err != nil {
		f.stop()
	}
	return f.err
}
