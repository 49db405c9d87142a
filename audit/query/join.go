package query

import (
	"container/list"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"gatekit/audit"
	"gatekit/core/mcp"
)

const (
	maxOpen = 10_000                 // calls that are known at a time
	settles = 250 * time.Millisecond // how long nothing more has to come of what may go on
)

// Options of Calls.
type Options struct {
	Follow      bool // go on with what is written, until ctx ends
	KeepRecords bool // keep those of each call
}

// Calls answers the calls of a log with a record that the filter takes, as they end, and at last
// those that are open. Each may be kept. It ends at the first error, which has its place.
func Calls(ctx context.Context, log *audit.Reader, f *Filter, o Options) iter.Seq2[*Call, error] {
	return func(yield func(*Call, error) bool) {
		j := &joiner{filter: f, options: o, calls: map[callKey]*list.Element{},
			asked: map[askKey][]*list.Element{}}
		lines := log.Lines(ctx)
		if o.Follow {
			lines = log.FollowLines(ctx)
		}
		for line, err := range lines {
			if err == nil && line == nil {
				j.pause()
			} else if err == nil {
				if err = j.add(line); err != nil {
					err = fmt.Errorf("%s: %w", log.Position(), err)
				}
			}
			for _, c := range j.take() {
				if !yield(c, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
		if o.Follow {
			return
		}
		j.endAll()
		for _, c := range j.take() {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// callKey is what the records of a client's call have in common.
type callKey struct{ session, exchange string }

// askKey is what a server's question and its answer have in common. The answer may come with
// another request of the client than the question went with.
type askKey struct{ session, server, method string }

// joiner makes calls of records.
type joiner struct {
	filter  *Filter
	options Options

	open  list.List // of *open, in the order of their beginnings
	calls map[callKey]*list.Element
	asked map[askKey][]*list.Element // in their order
	// that end unless more comes, in the order of their last records
	quiet []*list.Element
	ended []*Call
}

// open is a call that has not ended.
type open struct {
	Call
	wanted    bool
	waiting   []string      // servers that have it and did not answer
	questions int           // of theirs that have no answer
	cause     *list.Element // of a question: the call
	asking    askKey        // of a question
	last      time.Time     // of its last record
	quiet     bool          // it ends if nothing more comes
	idle      bool          // and nothing did when all was read
	ended     bool
}

func of(at *list.Element) *open { return at.Value.(*open) }

// take answers what has ended.
func (j *joiner) take() (ended []*Call) {
	ended, j.ended = j.ended, nil
	return ended
}

// add takes in a line, which is not kept.
func (j *joiner) add(line []byte) error {
	r, err := audit.ParseSummary(line)
	if err != nil {
		return err
	}
	wanted, err := j.filter.matchLine(&r)
	if err != nil {
		return err
	}
	j.settle(r.Time)
	at := j.place(&r)
	if at == nil {
		return nil
	}
	o := of(at)
	o.wanted = o.wanted || wanted
	o.last, o.idle = r.Time, false
	if err := o.take(&r, j.options.KeepRecords); err != nil {
		return err
	}
	j.step(at, &r)
	if j.open.Len() > maxOpen {
		j.end(j.open.Front())
	}
	return nil
}

// place is the call of a record, which may begin with it; nil when it is of none.
func (j *joiner) place(r *audit.Record) *list.Element {
	at := j.calls[callKey{r.Session, r.Exchange}]
	toServer := r.Direction == "to_server"
	switch r.Kind {
	case "request":
		if !toServer {
			q := j.begin(r)
			o := of(q)
			o.FromServer, o.cause, o.asking = true, at, askKey{r.Session, r.Server, r.Method}
			j.asked[o.asking] = append(j.asked[o.asking], q)
			if at != nil {
				of(at).questions++
				j.rest(at)
			}
			return q
		}
	case "response", "error":
		if toServer {
			at = nil
			// of several, that of the same request, else the first
			for i, q := range j.asked[askKey{r.Session, r.Server, r.Method}] {
				if i == 0 || of(q).Exchange == r.Exchange && of(at).Exchange != r.Exchange {
					at = q
				}
			}
		}
	case "notification":
		let := (r.Action == "pass" || r.Action == "answer") && !j.filter.notifications()
		switch {
		case at != nil && (let || r.Method == "notifications/cancelled"):
			return at
		case let:
			return nil
		}
		at = nil
	default:
		if r.Action == "start" {
			j.endAll()
		}
		at = nil
	}
	if at != nil {
		return at
	}
	at = j.begin(r)
	of(at).FromServer = toServer && (r.Kind == "response" || r.Kind == "error") ||
		!toServer && r.Kind == "notification"
	if r.Exchange != "" && r.Kind != "notification" && !of(at).FromServer && !r.IsEvent() {
		j.calls[callKey{r.Session, r.Exchange}] = at
	}
	return at
}

func (j *joiner) begin(r *audit.Record) *list.Element {
	return j.open.PushBack(&open{Call: Call{Start: r.Time, FirstSeq: r.Seq, Session: r.Session,
		Exchange: r.Exchange, Kind: kindOf(r), Method: r.Method}})
}

// step goes on with a call after a record of it, and ends it if that was the last.
func (j *joiner) step(at *list.Element, r *audit.Record) {
	o := of(at)
	answer := r.Kind == "response" || r.Kind == "error"
	final := false
	switch {
	case r.IsEvent() || r.Kind == "notification" && o.Kind == "notification":
		o.Status, final = StatusDone, true
	case r.Kind == "notification":
		if r.Method == "notifications/cancelled" {
			o.Status, o.waiting = StatusCancelled, nil
		}
	case r.Action == "park" || r.Action == "resume" || r.Action == "approve" || r.Action == "drop":
	case r.Action == "deny" || r.Action == "reject":
		o.Status, final = StatusRefused, true
	case r.Action == "ask":
		o.Status = StatusRefused // until a human has approved
	case r.Kind == "error":
		o.Status, final = StatusError, true
	case r.Failed:
		o.Status, final = StatusToolFailed, true
	case answer:
		o.Status, final = StatusAnswered, true
	default:
		o.Status = StatusOpen
		if !o.FromServer && !slices.Contains(o.waiting, r.Server) {
			o.waiting = append(o.waiting, r.Server)
		}
	}
	if answer && !o.FromServer && r.Action != "park" {
		o.waiting = slices.DeleteFunc(o.waiting, func(s string) bool {
			return s == r.Server || r.Server == ""
		})
	}
	// what more there is of it cannot be found
	alone := o.FirstSeq == r.Seq && (r.Kind != "request" || o.Exchange == "" && !o.FromServer)
	if alone || final && (o.Kind == "event" || o.Kind == "notification" || o.FromServer ||
		answer && r.Server == "" || !broadcast(o.Method)) {
		j.end(at)
		return
	}
	j.rest(at)
}

// rest says whether a call is over if nothing more comes.
func (j *joiner) rest(at *list.Element) {
	o := of(at)
	was := o.quiet
	o.quiet = len(o.waiting) == 0 && o.questions == 0 && o.Status != StatusOpen
	if o.quiet && !was {
		j.quiet = append(j.quiet, at)
	}
}

// broadcast says whether a request of the method may be one to several servers, whose answers are
// put together.
func broadcast(method string) bool {
	m, known := mcp.LookupMethod(method)
	return known && m.Route == mcp.RouteBroadcast
}

// settle ends what was quiet for long enough.
func (j *joiner) settle(now time.Time) {
	j.endQuiet(func(o *open) bool { return now.Sub(o.last) > settles })
}

// pause is a moment without a line. Calls that were quiet in the one before, too, end.
func (j *joiner) pause() {
	j.endQuiet(func(o *open) bool {
		was := o.idle
		o.idle = true
		return was
	})
}

func (j *joiner) endQuiet(over func(*open) bool) {
	j.quiet = slices.DeleteFunc(j.quiet, func(at *list.Element) bool {
		o := of(at)
		if o.ended || !o.quiet {
			return true
		}
		if !over(o) {
			return false
		}
		j.end(at)
		return true
	})
}

func (j *joiner) endAll() {
	for at := j.open.Front(); at != nil; at = j.open.Front() {
		j.end(at)
	}
	j.quiet = nil
}

// end ends a call as it is.
func (j *joiner) end(at *list.Element) {
	o := of(at)
	j.open.Remove(at)
	o.ended = true
	key := callKey{o.Session, o.Exchange}
	if j.calls[key] == at {
		delete(j.calls, key)
	}
	if o.asking != (askKey{}) {
		left := slices.DeleteFunc(j.asked[o.asking], func(q *list.Element) bool { return q == at })
		if j.asked[o.asking] = left; len(left) == 0 {
			delete(j.asked, o.asking)
		}
	}
	if o.cause != nil && !of(o.cause).ended {
		c := of(o.cause)
		c.questions--
		c.last = o.last
		j.rest(o.cause)
	}
	if o.wanted {
		j.ended = append(j.ended, &o.Call)
	}
}
