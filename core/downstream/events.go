package downstream

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gatekit/core/conn"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

var errOver = errors.New("the stream has ended")

// events is what one stream of a legacy HTTP session carries: the messages of one POST, or those
// outside of any call. It is written to whether or not a connection is there to read it, and keeps
// what was sent, so that a client that lost its connection can go on where it was.
//
// It is bounded. While a connection reads too slowly, writers wait for it. While none does, the
// oldest goes: what was sent before what was not, and notifications before what somebody waits for.
type events struct {
	name      string // unique in the session
	maxEvents int
	maxBytes  int

	mu      sync.Mutex
	kept    []event
	bytes   int
	last    int           // number of the newest event; the first is 1
	sent    int           // number of the newest that a connection took
	answers int           // how many of kept, at its end, are the answer
	over    bool          // nothing comes after kept
	since   time.Time     // when it was over
	reader  *reader       // who is attached; nil
	changed chan struct{} // closed at the next change; nil while nobody waits
}

type event struct {
	n int
	p pipeline.Passed
}

// reader is one connection's place in a stream.
type reader struct{ at int } // number of the event it has read; guarded by events.mu

// newEvents makes a stream that nobody reads yet.
func (l Limits) newEvents(name string) *events {
	return &events{name: name, maxEvents: l.ResumeEvents, maxBytes: l.ResumeBytes}
}

// id is the id of an event as clients have it. It tells streams of a session apart, so that no
// other stream is ever replayed.
func (e *events) id(n int) string { return e.name + "-" + strconv.Itoa(n) }

// parseEventID takes an id apart.
func parseEventID(id string) (stream string, n int, ok bool) {
	stream, digits, ok := strings.Cut(id, "-")
	n, err := strconv.Atoi(digits)
	return stream, n, ok && err == nil && n >= 0
}

// send adds a message. It waits while the connection that reads has more to read than the bounds
// allow.
func (e *events) send(ctx context.Context, p pipeline.Passed) error {
	if p.Message() == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		if e.over {
			return errOver
		}
		if e.reader == nil || !e.behind() {
			break
		}
		if err := e.wait(ctx); err != nil {
			return err
		}
	}
	e.add(p)
	e.wake()
	return nil
}

// finish adds the answer, if there is one, and ends the stream.
func (e *events) finish(answer ...pipeline.Passed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range answer {
		if p.Message() != nil && !e.over {
			e.add(p)
			e.answers++
		}
	}
	if !e.over {
		e.over, e.since = true, time.Now()
	}
	e.wake()
}

// behind says whether what is kept and not yet read is over the bounds.
func (e *events) behind() bool {
	count, size := 0, 0
	for i := len(e.kept) - 1; i >= 0 && e.kept[i].n > e.reader.at; i-- {
		count, size = count+1, size+e.kept[i].p.Message().Size()
	}
	return count >= e.maxEvents || size >= e.maxBytes
}

func (e *events) add(p pipeline.Passed) {
	e.last++
	e.kept = append(e.kept, event{e.last, p})
	e.bytes += p.Message().Size()
	for len(e.kept) > e.maxEvents || e.bytes > e.maxBytes {
		i := e.spare()
		if i < 0 {
			return
		}
		e.bytes -= e.kept[i].p.Message().Size()
		e.kept = slices.Delete(e.kept, i, i+1)
	}
}

// spare is the index of what is to go first, the newest excepted; -1 when nothing may. An answer
// that was not sent never goes, and nothing that was not while a connection reads: senders wait for
// it, only the answer does not.
func (e *events) spare() int {
	old := e.kept[:len(e.kept)-1]
	if len(old) > 0 && old[0].n <= e.sent {
		return 0
	}
	if e.reader != nil {
		return -1
	}
	for _, kind := range []mcp.Kind{mcp.Notification, mcp.Request} {
		if i := slices.IndexFunc(old, func(ev event) bool {
			return ev.p.Message().Kind == kind
		}); i >= 0 {
			return i
		}
	}
	return -1
}

// wake tells all who wait that something changed.
func (e *events) wake() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// wait gives the lock away until something changed or ctx ends.
func (e *events) wait(ctx context.Context) error {
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	changed := e.changed
	e.mu.Unlock()
	defer e.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin waits until there is something to write. lone is set when that is the answer alone: it
// needs no stream. The error is ctx's, when that ends first.
func (e *events) begin(ctx context.Context) (answers []pipeline.Passed, lone bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.last == 0 && !e.over {
		if err := e.wait(ctx); err != nil {
			return nil, false, err
		}
	}
	if lone = e.over && e.answers == e.last; lone {
		for _, ev := range e.kept {
			answers = append(answers, ev.p)
		}
	}
	return answers, lone, nil
}

// attach makes a reader of what comes after event n, in the place of any other. n below zero is
// after what was sent, and only when nobody reads.
func (e *events) attach(n int) (r *reader, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n < 0 {
		if e.reader != nil {
			return nil, false
		}
		n = e.sent
	}
	e.reader = &reader{at: min(n, e.last)}
	e.wake()
	return e.reader, true
}

// detach ends r's reading.
func (e *events) detach(r *reader) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reader == r {
		e.reader = nil
		e.wake()
	}
}

// next waits for the next event. ok is false when there is none any more, ctx has ended, or another
// reader has taken the place.
func (e *events) next(ctx context.Context, r *reader) (ev event, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.reader == r {
		if i := slices.IndexFunc(e.kept, func(ev event) bool { return ev.n > r.at }); i >= 0 {
			return e.kept[i], true
		}
		if e.over || e.wait(ctx) != nil {
			break
		}
	}
	return event{}, false
}

// took notes that r's connection has the event.
func (e *events) took(r *reader, ev event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.at, e.sent = ev.n, max(e.sent, ev.n)
	e.wake()
}

// pump writes the stream to a connection from r's place on, until one of the two ends. When prime
// is set it begins with an event that holds only an id, from which the client can resume before it
// has seen a message.
func (e *events) pump(ctx context.Context, r *reader, to Stream, prime bool) {
	defer e.detach(r)
	if prime && to.Send(conn.Event{ID: e.id(r.at), Retry: retryMillis}) != nil {
		return
	}
	for {
		ev, ok := e.next(ctx, r)
		if !ok {
			return
		}
		m := ev.p.Message()
		if to.Send(conn.Event{ID: e.id(ev.n), Data: m.Append(make([]byte, 0, m.Size()))}) != nil {
			return
		}
		e.took(r, ev)
	}
}

// retryMillis is how long a client is asked to wait before it resumes a stream.
const retryMillis = 1000

// state is what decides how long the stream is kept.
func (e *events) state() (over, delivered bool, since time.Time, size int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.over, e.sent == e.last, e.since, e.bytes
}
