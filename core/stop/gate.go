package stop

import (
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/mcp"
)

// Gate refuses the messages of the stops in force. Any source may feed it: a file ([Keeper]), or a
// store that several processes share. The zero Gate refuses every message, until Set. All methods
// may be called at the same time. While nothing is stopped, Refuses costs one atomic load.
type Gate struct {
	state atomic.Pointer[state]
}

// state is the stops from one Set to the next.
type state struct {
	stops []Stop
	// number of writes that began under these stops and have not ended, plus one until the next Set
	writing atomic.Int64
	drained chan struct{} // closed when writing falls to zero
	once    sync.Once     // closes drained
}

func (s *state) release() {
	if s.writing.Add(-1) == 0 {
		s.once.Do(func() { close(s.drained) })
	}
}

// refuses returns the first stop that covers m, or nil.
func (s *state) refuses(m *mcp.Message) *Stop {
	for i := range s.stops {
		if s.stops[i].Covers(m) {
			return &s.stops[i]
		}
	}
	return nil
}

// unknown returns the stop of a Gate that was never set.
func unknown() *Stop {
	return &Stop{By: "Gatekit", At: time.Now(), Reason: "the stops in force are not known"}
}

// Set puts the stops in force, in place of all earlier ones. No write that a stop covers begins
// after Set has returned. drained is closed when every write that began earlier has ended. Set
// keeps stops, which must not change.
func (g *Gate) Set(stops []Stop) (drained <-chan struct{}) {
	next := &state{stops: stops, drained: make(chan struct{})}
	next.writing.Store(1)
	last := g.state.Swap(next)
	if last == nil { // the zero Gate let nothing begin
		done := make(chan struct{})
		close(done)
		return done
	}
	last.release()
	return last.drained
}

// Refuses returns the stop that refuses m, or nil. The caller must not change it.
func (g *Gate) Refuses(m *mcp.Message) *Stop {
	s := g.state.Load()
	if s == nil {
		return unknown()
	}
	return s.refuses(m)
}

// Write is a write that has begun. The zero Write is of a message that no Gate covers.
type Write struct{ under *state }

// End ends the write. It must be called once.
func (w Write) End() {
	if w.under != nil {
		w.under.release()
	}
}

// Begin begins the write of m to its receiver. If a stop refuses m, Begin returns the stop, and m
// must not be written. Otherwise the caller must call End when the write has ended.
func (g *Gate) Begin(m *mcp.Message) (Write, *Stop) {
	for {
		s := g.state.Load()
		if s == nil {
			return Write{}, unknown()
		}
		s.writing.Add(1)
		if g.state.Load() != s { // Set was called; it may not have seen this write
			s.release()
			continue
		}
		if refused := s.refuses(m); refused != nil {
			s.release()
			return Write{}, refused
		}
		return Write{s}, nil
	}
}
