package upstream

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"gatekit/core/mcp"
)

// What may wait in one lane.
const (
	laneMessages = 1024
	laneBytes    = 32 << 20
)

var errLaneFull = errors.New("the client does not take what the server sends")

// lane hands what a server sent over a pipe to one session, in the order in which it was read, and
// without the reader waiting for it.
//
// # Why one lane for all of a session
//
// A log line on stdio carries no link to the call that it is about, and yet has to reach the client
// before that call's answer, as it does without Gatekit. So everything goes in order, and an answer
// waits for what was read before it. An answer that nothing is waiting before does not enter the
// lane at all.
type lane struct {
	mu    sync.Mutex
	queue []delivery
	bytes int
	busy  bool          // a delivery has been taken out of the queue and is running
	wake  chan struct{} // holds one
	lost  int           // deliveries that were dropped
}

// delivery is one step of a lane.
type delivery struct {
	size int
	drop bool // may be left out when the lane is full
	run  func(ctx context.Context)
}

func newLane() *lane { return &lane{wake: make(chan struct{}, 1)} }

// add puts a delivery at the end. When the lane is full, the oldest that may be left out makes
// room.
func (l *lane) add(d delivery) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) >= laneMessages || len(l.queue) > 0 && l.bytes+d.size > laneBytes {
		i := 0
		for i < len(l.queue) && !l.queue[i].drop {
			i++
		}
		if i < len(l.queue) {
			l.bytes -= l.queue[i].size
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			l.lost++
			continue
		}
		if d.drop {
			l.lost++
			return nil
		}
		return errLaneFull
	}
	l.queue = append(l.queue, d)
	l.bytes += d.size
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

// after runs f once all that was added before has been delivered: at once when nothing waits. It
// may be called beyond the lane's bounds, which answers (as many as there are calls) cannot break
// by much.
func (l *lane) after(f func()) {
	l.mu.Lock()
	if !l.busy && len(l.queue) == 0 {
		l.mu.Unlock()
		f()
		return
	}
	l.queue = append(l.queue, delivery{run: func(context.Context) { f() }})
	l.mu.Unlock()
}

// run delivers until ctx ends.
func (l *lane) run(ctx context.Context) {
	for {
		d, ok := l.next()
		if !ok {
			select {
			case <-l.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		d.run(ctx)
		if ctx.Err() != nil {
			return
		}
	}
}

func (l *lane) next() (delivery, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = len(l.queue) > 0
	if !l.busy {
		return delivery{}, false
	}
	d := l.queue[0]
	l.queue[0] = delivery{}
	l.queue = l.queue[1:]
	l.bytes -= d.size
	return d, true
}

// report logs what was dropped, when the lane has ended.
func (l *lane) report(log *slog.Logger, server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost > 0 {
		log.Warn("dropped progress and logs that a client did not take in time", "server", server,
			"messages", l.lost)
	}
}

// droppable says that a notification may be left out when there are too many: it tells of something
// in passing.
func droppable(m *mcp.Message) bool {
	return m.Method == "notifications/progress" || m.Method == "notifications/message"
}
