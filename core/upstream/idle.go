package upstream

import (
	"context"
	"errors"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/taskgroup"
)

// idleChecks is how many times within ServerIdle Gatekit checks whether a connection is in use. A
// client that loses its stream may soon open another stream. Several checks make it likely that
// Gatekit sees one of these streams, and does not end the connection.
const idleChecks = 4

// mayEnd reports whether the session's connection may be ended for lack of use.
func (s *legacySession) mayEnd() bool {
	return s.hasStream != nil && s.opts.ServerIdle > 0 && !s.opts.Keep
}

// endUse notes that a request or notification has ended. If the session is unused now, endUse wakes
// the starts that wait for a slot. One of them may then end the session's process.
func (s *legacySession) endUse() {
	if s.state.endUse() && s.dialer.owner != nil {
		s.opts.Processes.wake()
	}
}

// awaitLoss waits until the connection is lost. It returns false when ctx ends, or when awaitLoss
// itself has ended the connection because nothing used it for ServerIdle, or because of its lease.
func (s *legacySession) awaitLoss(ctx context.Context, gone <-chan struct{}, lease Lease) bool {
	var check <-chan time.Time
	if s.mayEnd() {
		ticker := time.NewTicker(max(s.opts.ServerIdle/idleChecks, time.Millisecond))
		defer ticker.Stop()
		check = ticker.C
	}
	for {
		select {
		case <-gone:
			return true
		case <-lease.Due:
			return s.endLease(ctx, gone, lease)
		case <-check:
			if s.hasStream() {
				s.state.noteUse()
				continue
			}
			since, unused := s.state.unusedSince()
			if unused && time.Since(since) >= s.opts.ServerIdle && s.endConnection(
				"no client has used it for "+s.opts.ServerIdle.String(), false) {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// leaseChecks is how often Gatekit checks whether a process whose lease is due is in use.
const leaseChecks = 100 * time.Millisecond

// leaseReason is the reason with which a process is ended because of its lease.
const leaseReason = "its token is replaced"

// endLease ends the connection as soon as it is not in use, and at the latest when the lease ends.
// It returns true if the connection was lost before.
func (s *legacySession) endLease(ctx context.Context, gone <-chan struct{},
	lease Lease) (lost bool) {
	tick := time.NewTicker(leaseChecks)
	defer tick.Stop()
	for !s.endConnection(leaseReason, false) {
		select {
		case <-gone:
			return true
		case <-tick.C:
		case <-lease.Ended:
			s.endConnection(leaseReason, true)
			return false
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// endExpired ends the connection, in use or not, if its lease has ended.
func (s *legacySession) endExpired() {
	if conn, _ := s.state.current(); conn != nil && conn.leased().hasEnded() {
		s.endConnection(leaseReason, true)
	}
}

// unusedSince implements processOwner.
func (s *legacySession) unusedSince() (at time.Time, ok bool) {
	if s.hasStream() {
		return time.Time{}, false
	}
	return s.state.unusedSince()
}

// endUnused implements processOwner.
func (s *legacySession) endUnused(reason string) bool {
	ended := make(chan bool, 1)
	// in a goroutine of the session, so that Close waits for the end of the process
	return s.goroutines.Go(func(context.Context) {
		ended <- !s.hasStream() && s.endConnection(reason, false)
	}) && <-ended
}

// endConnection ends the connection unless it is in use, or in any case with evenInUse. It returns
// when the process has ended.
func (s *legacySession) endConnection(reason string, evenInUse bool) bool {
	conn := s.state.takeUnused(evenInUse)
	if conn == nil {
		return false
	}
	s.dialer.counters.ended.Add(1)
	s.opts.reportEvent("ended", errors.New(reason))
	s.dialer.discard(conn)
	return true
}

// wake opens a connection in the background if the session is dormant.
func (s *legacySession) wake() {
	if s.state.startWaking() && !s.goroutines.Go(s.openAgain) {
		s.state.failWaking(closingError(s.opts.Name), time.Time{})
	}
}

// openAgain opens a connection, repeats the messages that set up the session, and supervises the
// connection.
func (s *legacySession) openAgain(ctx context.Context) {
	s.state.mu.Lock()
	expected := s.state.expected
	s.state.mu.Unlock()
	answer, err := s.reconnect(ctx)
	if err != nil {
		if !errors.Is(err, taskgroup.ErrClosed) {
			s.prober.discardAny()
			s.dialer.answers.forget()
		}
		if errors.As(err, new(*CredentialsError)) { // the user may log in at any time
			s.state.failWaking(err, time.Time{})
			return
		}
		s.wakeSchedule.failed(0)
		s.state.failWaking(err, s.wakeSchedule.next(time.Now()))
		return
	}
	s.wakeSchedule = restartSchedule{}
	s.state.change(func() { s.state.expected = nil })
	switch {
	case expected == nil:
		s.opts.reportEvent("resumed", nil)
		s.announceChanges(answer)
	case string(expected.Body()) != string(answer.Body()):
		s.opts.Log.Warn("server answered initialize in another way than before",
			"server", s.opts.Name)
		s.dialer.answers.forget()
		s.announceChanges(answer)
	}
	s.supervise(ctx)
}

// beginUse notes that a request or notification is under way.
func (s *sharedConn) beginUse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse++
}

// endUse undoes beginUse.
func (s *sharedConn) endUse() {
	s.mu.Lock()
	s.inUse--
	s.lastUse = time.Now()
	unused := s.inUse == 0
	s.mu.Unlock()
	if unused {
		s.opts.Processes.wake()
	}
}

// open starts the process. The process does not count towards the limit of processes if a client on
// a pipe uses it.
func (s *sharedConn) open(ctx context.Context) (*pipeConn, error) {
	var slot *processSlot
	if s.pipeUsers.Load() == 0 {
		var err error
		if slot, err = s.connector.takeSlot(ctx, s.principal.ID(), s); err != nil {
			return nil, err
		}
	}
	return s.connector.process(ctx, mcp.Modern, s.principal, slot)
}

// endWhenUnused ends the process when nothing has used it for ServerIdle, and because of its lease.
// It returns when the process or ctx has ended.
func (s *sharedConn) endWhenUnused(ctx context.Context, pipe *modernPipe) {
	var check <-chan time.Time
	if s.opts.ServerIdle > 0 && !s.opts.Keep {
		ticker := time.NewTicker(max(s.opts.ServerIdle/idleChecks, time.Millisecond))
		defer ticker.Stop()
		check = ticker.C
	}
	for {
		select {
		case <-check:
			since, unused := s.unusedSince()
			if unused && time.Since(since) >= s.opts.ServerIdle {
				s.endProcess(pipe, "no client has used it for "+s.opts.ServerIdle.String(),
					s.isInUse)
			}
		case <-pipe.lease.Due:
			s.endLease(ctx, pipe)
			return
		case <-pipe.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// endLease ends the process as soon as no request is under way, and at the latest when the lease
// ends. A client on a pipe keeps an idle process, but not one whose lease is due.
func (s *sharedConn) endLease(ctx context.Context, pipe *modernPipe) {
	tick := time.NewTicker(leaseChecks)
	defer tick.Stop()
	for !s.endProcess(pipe, leaseReason, func() bool { return s.inUse > 0 }) {
		select {
		case <-pipe.gone:
			return
		case <-tick.C:
		case <-pipe.lease.Ended:
			s.endProcess(pipe, leaseReason, func() bool { return false })
			return
		case <-ctx.Done():
			return
		}
	}
}

// isInUse reports whether the process is in use. s.mu is held.
func (s *sharedConn) isInUse() bool { return s.inUse > 0 || s.pipeUsers.Load() > 0 }

// unusedSince implements processOwner.
func (s *sharedConn) unusedSince() (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastUse, s.pipe != nil && !s.isInUse()
}

// endUnused implements processOwner.
func (s *sharedConn) endUnused(reason string) bool {
	s.mu.Lock()
	pipe := s.pipe
	s.mu.Unlock()
	ended := make(chan bool, 1)
	return s.goroutines.Go(func(context.Context) {
		ended <- s.endProcess(pipe, reason, s.isInUse)
	}) && <-ended
}

// endProcess ends a process, which may be nil, if it is still the one in use, and unless isBusy
// returns true. The next call starts another process. s.mu is held while isBusy runs.
func (s *sharedConn) endProcess(pipe *modernPipe, reason string, isBusy func() bool) bool {
	s.mu.Lock()
	if pipe == nil || s.pipe != pipe || pipe.isGone() || isBusy() {
		s.mu.Unlock()
		return false
	}
	s.pipe, s.startedAt, s.ended = nil, time.Time{}, true
	s.mu.Unlock()
	s.connector.counters.ended.Add(1)
	s.opts.reportEvent("ended", errors.New(reason))
	s.connector.discard(pipe)
	return true
}

var (
	_ processOwner = (*legacySession)(nil)
	_ processOwner = (*sharedConn)(nil)
)
