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
	maxOpenCalls = 10_000 // bound of the open calls that are tracked
	// time without further records after which a call that may continue has ended
	settleTime = 250 * time.Millisecond
)

// Options are options of Calls.
type Options struct {
	Follow      bool // continue with new records until ctx ends
	KeepRecords bool // set Call.Records
}

// Calls returns the calls in a log that have a record that the filter selects: each when it ends,
// and the open ones at the end. The caller may keep a Call. Calls ends at the first error, which
// has the position.
func Calls(ctx context.Context, log *audit.Reader, f *Filter, o Options) iter.Seq2[*Call, error] {
	return func(yield func(*Call, error) bool) {
		j := &callJoiner{filter: f, options: o, calls: map[callKey]*list.Element{},
			serverRequests: map[serverRequestKey][]*list.Element{}}
		lines := log.Lines(ctx)
		if o.Follow {
			lines = log.FollowLines(ctx)
		}
		for line, err := range lines {
			if err == nil && line == nil {
				j.endIdle()
			} else if err == nil {
				if err = j.add(line); err != nil {
					err = fmt.Errorf("%s: %w", log.Position(), err)
				}
			}
			for _, c := range j.takeEnded() {
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
		for _, c := range j.takeEnded() {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// callKey identifies the records of a client's call.
type callKey struct{ session, exchange string }

// serverRequestKey identifies a server's request and its response. The response may come with
// another request of the client than the server's request went with.
type serverRequestKey struct{ session, server, method string }

// callJoiner joins records to calls.
type callJoiner struct {
	filter  *Filter
	options Options

	open           list.List // of *openCall, oldest first
	calls          map[callKey]*list.Element
	serverRequests map[serverRequestKey][]*list.Element // oldest first
	// calls that end unless they get another record, ordered by their last record
	settling []*list.Element
	ended    []*Call
}

// openCall is a call that has not ended.
type openCall struct {
	Call
	wanted             bool
	waitingServers     []string         // servers that have not responded
	openServerRequests int              // requests of servers within the call that are not answered
	parent             *list.Element    // of a server's request: the client's call
	requestKey         serverRequestKey // of a server's request
	lastTime           time.Time        // time of its last record
	settling           bool             // it ends unless it gets another record
	wasIdle            bool             // the reader has waited once since
	ended              bool
}

func callAt(at *list.Element) *openCall { return at.Value.(*openCall) }

// takeEnded returns the calls that have ended since the last time.
func (j *callJoiner) takeEnded() (ended []*Call) {
	ended, j.ended = j.ended, nil
	return ended
}

// add adds a line, and does not keep it.
func (j *callJoiner) add(line []byte) error {
	r, err := audit.ParseSummary(line)
	if err != nil {
		return err
	}
	wanted, err := j.filter.matchLine(&r)
	if err != nil {
		return err
	}
	j.endSettled(r.Time)
	at := j.callOf(&r)
	if at == nil {
		return nil
	}
	o := callAt(at)
	o.wanted = o.wanted || wanted
	o.lastTime, o.wasIdle = r.Time, false
	if err := o.addRecord(&r, j.options.KeepRecords); err != nil {
		return err
	}
	j.update(at, &r)
	if j.open.Len() > maxOpenCalls {
		j.end(j.open.Front())
	}
	return nil
}

// callOf returns the call of a record, which the record may start. It returns nil if the record
// belongs to no call.
func (j *callJoiner) callOf(r *audit.Record) *list.Element {
	at := j.calls[callKey{r.Session, r.Exchange}]
	toServer := r.Direction == "to_server"
	switch r.Kind {
	case "request":
		if !toServer {
			q := j.startCall(r)
			o := callAt(q)
			o.FromServer, o.parent, o.requestKey = true, at, serverRequestKey{r.Session, r.Server,
				r.Method}
			j.serverRequests[o.requestKey] = append(j.serverRequests[o.requestKey], q)
			if at != nil {
				callAt(at).openServerRequests++
				j.updateSettling(at)
			}
			return q
		}
	case "response", "error":
		if toServer {
			at = nil
			// of several requests, that of the same exchange, else the first
			for i, q := range j.serverRequests[serverRequestKey{r.Session, r.Server, r.Method}] {
				if i == 0 || callAt(q).Exchange == r.Exchange && callAt(at).Exchange != r.Exchange {
					at = q
				}
			}
		}
	case "notification":
		passedOn := (r.Action == "pass" || r.Action == "answer") && !j.filter.wantsNotifications()
		switch {
		case at != nil && (passedOn || r.Method == "notifications/cancelled"):
			return at
		case passedOn:
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
	at = j.startCall(r)
	callAt(at).FromServer = toServer && (r.Kind == "response" || r.Kind == "error") ||
		!toServer && r.Kind == "notification"
	if r.Exchange != "" && r.Kind != "notification" && !callAt(at).FromServer && !r.IsEvent() {
		j.calls[callKey{r.Session, r.Exchange}] = at
	}
	return at
}

func (j *callJoiner) startCall(r *audit.Record) *list.Element {
	return j.open.PushBack(&openCall{Call: Call{Start: r.Time, FirstSeq: r.Seq, Session: r.Session,
		Exchange: r.Exchange, Kind: recordKind(r), Method: r.Method}})
}

// update updates a call after a record, and ends it if that was its last.
func (j *callJoiner) update(at *list.Element, r *audit.Record) {
	o := callAt(at)
	answer := r.Kind == "response" || r.Kind == "error"
	final := false
	switch {
	case r.IsEvent() || r.Kind == "notification" && o.Kind == "notification":
		o.Status, final = StatusDone, true
	case r.Kind == "notification":
		if r.Method == "notifications/cancelled" {
			o.Status, o.waitingServers = StatusCancelled, nil
		}
	case r.Action == "park" || r.Action == "resume" || r.Action == "approve" || r.Action == "drop":
	case r.Action == "deny" || r.Action == "reject":
		o.Status, final = StatusRefused, true
	case r.Action == "ask":
		o.Status = StatusRefused // until somebody approves it
	case r.Kind == "error":
		o.Status, final = StatusError, true
	case r.Failed:
		o.Status, final = StatusToolFailed, true
	case answer:
		o.Status, final = StatusAnswered, true
	default:
		o.Status = StatusOpen
		if !o.FromServer && !slices.Contains(o.waitingServers, r.Server) {
			o.waitingServers = append(o.waitingServers, r.Server)
		}
	}
	if answer && !o.FromServer && r.Action != "park" {
		o.waitingServers = slices.DeleteFunc(o.waitingServers, func(s string) bool {
			return s == r.Server || r.Server == ""
		})
	}
	// further records could not be assigned to it
	isOnlyRecord := o.FirstSeq == r.Seq && (r.Kind != "request" || o.Exchange == "" &&
		!o.FromServer)
	if isOnlyRecord || final && (o.Kind == "event" || o.Kind == "notification" || o.FromServer ||
		answer && r.Server == "" || !isBroadcast(o.Method)) {
		j.end(at)
		return
	}
	j.updateSettling(at)
}

// updateSettling notes whether a call ends unless it gets another record.
func (j *callJoiner) updateSettling(at *list.Element) {
	o := callAt(at)
	was := o.settling
	o.settling = len(o.waitingServers) == 0 && o.openServerRequests == 0 && o.Status != StatusOpen
	if o.settling && !was {
		j.settling = append(j.settling, at)
	}
}

// isBroadcast reports whether requests of the method may go to several servers, whose responses are
// merged.
func isBroadcast(method string) bool {
	m, known := mcp.LookupMethod(method)
	return known && m.Route == mcp.RouteBroadcast
}

// endSettled ends the calls that have settled.
func (j *callJoiner) endSettled(now time.Time) {
	j.endSettling(func(o *openCall) bool { return now.Sub(o.lastTime) > settleTime })
}

// endIdle ends the calls that were settling when the reader last waited for lines, too.
func (j *callJoiner) endIdle() {
	j.endSettling(func(o *openCall) bool {
		was := o.wasIdle
		o.wasIdle = true
		return was
	})
}

func (j *callJoiner) endSettling(over func(*openCall) bool) {
	j.settling = slices.DeleteFunc(j.settling, func(at *list.Element) bool {
		o := callAt(at)
		if o.ended || !o.settling {
			return true
		}
		if !over(o) {
			return false
		}
		j.end(at)
		return true
	})
}

func (j *callJoiner) endAll() {
	for at := j.open.Front(); at != nil; at = j.open.Front() {
		j.end(at)
	}
	j.settling = nil
}

// end ends a call with its current status.
func (j *callJoiner) end(at *list.Element) {
	o := callAt(at)
	j.open.Remove(at)
	o.ended = true
	key := callKey{o.Session, o.Exchange}
	if j.calls[key] == at {
		delete(j.calls, key)
	}
	if o.requestKey != (serverRequestKey{}) {
		left := slices.DeleteFunc(j.serverRequests[o.requestKey], func(q *list.Element) bool {
			return q == at
		})
		if j.serverRequests[o.requestKey] = left; len(left) == 0 {
			delete(j.serverRequests, o.requestKey)
		}
	}
	if o.parent != nil && !callAt(o.parent).ended {
		c := callAt(o.parent)
		c.openServerRequests--
		c.lastTime = o.lastTime
		j.updateSettling(o.parent)
	}
	if o.wanted {
		j.ended = append(j.ended, &o.Call)
	}
}
