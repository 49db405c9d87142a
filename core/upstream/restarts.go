package upstream

import (
	"time"

	"gatekit/core/backoff"
)

// Limits on how often a server is started.
const (
	firstRestartDelay   = 200 * time.Millisecond
	longestRestartDelay = 30 * time.Second
	startsPeriod        = 5 * time.Minute
	maxStarts           = 5 // starts of processes in startsPeriod
	// how long a connection must have been open so that its loss resets the delays
	stableAfter = 10 * time.Second
	// how long a call waits for a start that is not due yet
	maxWaitForStart = 2 * time.Second
)

// restartSchedule decides when a lost server may be started again. The delay doubles with each
// failure. A process is started at most maxStarts times in startsPeriod. The zero value has no
// failures.
type restartSchedule struct {
	failures int
	starts   []time.Time // times of the last starts of processes, at most maxStarts
}

// next returns when the next start may be made.
func (s *restartSchedule) next(now time.Time) time.Time {
	next := now.Add(backoff.Delay(firstRestartDelay, longestRestartDelay, s.failures))
	if len(s.starts) >= maxStarts {
		if free := s.starts[len(s.starts)-maxStarts].Add(startsPeriod); free.After(next) {
			next = free
		}
	}
	return next
}

// started records that a process was started.
func (s *restartSchedule) started(now time.Time) {
	s.starts = append(s.starts, now)
	if len(s.starts) > maxStarts {
		s.starts = s.starts[1:]
	}
}

// failed records a failure: a start failed, or a connection was lost. lived is how long that
// connection was open; it is 0 for a failed start.
func (s *restartSchedule) failed(lived time.Duration) {
	if lived >= stableAfter {
		s.failures = 0
	}
	s.failures++
}
