package upstream

import "time"

// How often a server is started again.
const (
	firstWait   = 200 * time.Millisecond
	longestWait = 30 * time.Second
	startsIn    = 5 * time.Minute
	maxStarts   = 5                // of a process in startsIn
	goodFor     = 10 * time.Second // a connection that lived this long was no failure
	patience    = 2 * time.Second  // how long a call waits for the next start to be due
)

// pace says when a server that was lost may be started again: after a wait that doubles with each
// failure, and a process not more than maxStarts times in startsIn. Its zero value is one that
// never failed.
type pace struct {
	fails  int
	starts []time.Time // of the last startsIn; not kept for what is no process
}

// due is when the next start may be made.
func (p *pace) due(now time.Time) time.Time {
	at := now
	if p.fails > 0 {
		at = now.Add(min(firstWait<<min(p.fails-1, 16), longestWait))
	}
	if len(p.starts) >= maxStarts {
		if free := p.starts[len(p.starts)-maxStarts].Add(startsIn); free.After(at) {
			at = free
		}
	}
	return at
}

// started notes that a process was started.
func (p *pace) started(now time.Time) {
	p.starts = append(p.starts, now)
	if len(p.starts) > maxStarts {
		p.starts = p.starts[1:]
	}
}

// failed notes that a start failed, or that what was started has ended after it lived for a while.
func (p *pace) failed(lived time.Duration) {
	if lived >= goodFor {
		p.fails = 0
	}
	p.fails++
}
