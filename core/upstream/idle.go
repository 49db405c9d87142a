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
// itself has ended the connection because nothing used it for ServerIdle.
func (s *legacySession) awaitLoss(ctx context.Context, gone <-chan struct{}) bool {
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
		case <-check:
			if s.hasStream() {
				s.state.noteUse()
				continue
			}
			since, unused := s.state.unusedSince()
			if unused && time.Since(since) >= s.opts.ServerIdle && s.endConnection(
				"no client has used it for "+s.opts.ServerIdle.String()) {
				return false
			}
		case <-ctx.Done():
			return false
		}
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
		ended <- !s.hasStream() && s.endConnection(reason)
	}) && <-ended
}

// endConnection ends the connection unless it is in use. It returns when the process has ended.
func (s *legacySession) endConnection(reason string) bool {
	conn := s.state.takeUnused()
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
	return s.connector.process(ctx, mcp.Modern, slot)
}

// endWhenUnused ends the process when nothing has used it for ServerIdle. It returns when the
// process or ctx has ended.
func (s *sharedConn) endWhenUnused(ctx context.Context, pipe *modernPipe) {
	if s.opts.ServerIdle <= 0 || s.opts.Keep {
		return
	}
	ticker := time.NewTicker(max(s.opts.ServerIdle/idleChecks, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			since, unused := s.unusedSince()
			if unused && time.Since(since) >= s.opts.ServerIdle {
				s.endProcess("no client has used it for " + s.opts.ServerIdle.String())
			}
		case <-pipe.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// unusedSince implements processOwner.
func (s *sharedConn) unusedSince() (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastUse, s.pipe != nil && s.inUse == 0 && s.pipeUsers.Load() == 0
}

// endUnused implements processOwner.
func (s *sharedConn) endUnused(reason string) bool {
	ended := make(chan bool, 1)
	return s.goroutines.Go(func(context.Context) { ended <- s.endProcess(reason) }) && <-ended
}

// endProcess ends the process unless it is in use. The next call starts another process.
func (s *sharedConn) endProcess(reason string) bool {
	s.mu.Lock()
	pipe := s.pipe
	if pipe == nil || pipe.isGone() || s.inUse > 0 || s.pipeUsers.Load() > 0 {
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
