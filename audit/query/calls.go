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
	maxOpenCalls = 10_000 // when there are more, the oldest open call ends
	// how long a call that has its response waits for further records before it ends
	settleTime = 250 * time.Millisecond
)

// Options are options of Calls.
type Options struct {
	Follow      bool // continue with new records until ctx ends
	KeepRecords bool // set Call.Records
	// ByStart returns the calls in the order of their starts, not of their ends. It is ignored with
	// Follow. A call is out of order if more than 50,000 later calls end before it does.
	ByStart bool
	// Notifications and Own return notifications that passed, and Gatekit's own messages to
	// servers, as if the filter asked for them.
	Notifications, Own bool
	// Idle is called when all existing records were read, with Follow only; may be nil.
	Idle func()
}

// Calls returns the calls of a log that have at least one record that the filter selects. A call is
// returned when it ends; without Follow, open calls are returned at the end of the log. The caller
// may keep a Call. The sequence ends at the first error, which contains the file and the line.
func Calls(ctx context.Context, log *audit.Reader, f *Filter, o Options) iter.Seq2[*Call, error] {
	return func(yield func(*Call, error) bool) {
		j := &callJoiner{filter: f, options: o, calls: map[callKey]*list.Element{},
			serverRequests: map[serverRequestKey][]*list.Element{}}
		byStart := o.ByStart && !o.Follow
		lines := log.Lines(ctx)
		if o.Follow {
			lines = log.FollowLines(ctx)
		}
		for line, err := range lines {
			if err == nil && line == nil {
				j.endIdle()
				if o.Idle != nil {
					o.Idle()
				}
			} else if err == nil {
				if err = j.add(line); err != nil {
					err = fmt.Errorf("%s: %w", log.Position(), err)
				}
			}
			for _, c := range j.takeEnded(byStart) {
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
		for _, c := range j.takeEnded(byStart) {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// callKey identifies the records of a client's call.
type callKey struct{ session, exchange string }

// serverRequestKey identifies the open requests of a server and their responses. The key does not
// contain the exchange: a request and its response may belong to different exchanges of the client.
type serverRequestKey struct{ session, server, method string }

// callJoiner joins the records of a log to calls.
type callJoiner struct {
	filter  *Filter
	options Options

	open           list.List // of *openCall, oldest first
	calls          map[callKey]*list.Element
	serverRequests map[serverRequestKey][]*list.Element // oldest first
	// calls that end unless they get another record
	settling []*list.Element
	ended    []*Call
	order    startOrder
}

// openCall is a call that has not ended.
type openCall struct {
	Call
	isSelected         bool             // the filter selects one of its records
	waitingServers     []string         // servers that have not responded
	openServerRequests int              // open requests of servers within the call
	parent             *list.Element    // for a server's request: the client's call, nil if unknown
	requestKey         serverRequestKey // for a server's request: its key in serverRequests
	lastTime           time.Time        // time of its last record
	settling           bool             // the call ends unless it gets another record
	wasIdle            bool             // endIdle was called since its last record
	ended              bool
}

// callIn returns the call in an element of callJoiner.open.
func callIn(e *list.Element) *openCall { return e.Value.(*openCall) }

// takeEnded returns the calls that have ended since takeEnded was last called. If byStart is set,
// it keeps back the calls that started after the oldest open call.
func (j *callJoiner) takeEnded(byStart bool) (ended []*Call) {
	ended, j.ended = j.ended, nil
	if !byStart {
		return ended
	}
	for _, c := range ended {
		j.order.add(c)
	}
	var oldest time.Time
	if e := j.open.Front(); e != nil {
		oldest = callIn(e).Start
	}
	return j.order.take(oldest)
}

// add adds the record in a line to its call. It does not keep the line.
func (j *callJoiner) add(line []byte) error {
	r, err := audit.ParseSummary(line)
	if err != nil {
		return err
	}
	selected, err := j.filter.matchLine(&r)
	if err != nil {
		return err
	}
	j.endSettled(r.Time)
	e := j.callOf(&r)
	if e == nil {
		return nil
	}
	o := callIn(e)
	o.isSelected = o.isSelected || selected
	o.lastTime, o.wasIdle = r.Time, false
	if err := o.addRecord(&r, j.options.KeepRecords); err != nil {
		return err
	}
	j.update(e, &r)
	if j.open.Len() > maxOpenCalls {
		j.end(j.open.Front())
	}
	return nil
}

// callOf returns the call that a record belongs to. If the record is the first of its call, callOf
// starts the call. It returns nil for a forwarded notification that belongs to no call, and for
// Gatekit's own messages to servers, unless the filter asks for such records.
func (j *callJoiner) callOf(r *audit.Record) *list.Element {
	if r.Action == "own" && !j.options.Own && !j.filter.WantsOwn() {
		return nil // Gatekit's own exchange with a server
	}
	e := j.calls[callKey{r.Session, r.Exchange}]
	toServer := r.Direction == "to_server"
	switch r.Kind {
	case "request":
		if !toServer {
			request := j.startCall(r)
			o := callIn(request)
			o.FromServer, o.parent, o.requestKey = true, e, serverRequestKey{r.Session, r.Server,
				r.Method}
			j.serverRequests[o.requestKey] = append(j.serverRequests[o.requestKey], request)
			if e != nil {
				callIn(e).openServerRequests++
				j.updateSettling(e)
			}
			return request
		}
	case "response", "error":
		if toServer {
			e = nil
			// prefer the oldest request of the same exchange; otherwise take the oldest request
			key := serverRequestKey{r.Session, r.Server, r.Method}
			for i, request := range j.serverRequests[key] {
				if i == 0 || callIn(request).Exchange == r.Exchange &&
					callIn(e).Exchange != r.Exchange {
					e = request
				}
			}
		}
	case "notification":
		if request := j.withdrawn(r); request != nil {
			return request
		}
		noOwnCall := (r.Action == "pass" || r.Action == "answer") && !j.options.Notifications &&
			!j.filter.WantsNotifications()
		switch {
		case e != nil && (noOwnCall || r.Method == "notifications/cancelled"):
			return e
		case noOwnCall:
			return nil
		}
		e = nil
	default:
		if r.Action == "start" {
			j.endAll()
		}
		e = nil
	}
	if e != nil {
		return e
	}
	e = j.startCall(r)
	callIn(e).FromServer = toServer && (r.Kind == "response" || r.Kind == "error") ||
		!toServer && r.Kind == "notification"
	if r.Exchange != "" && r.Kind != "notification" && !callIn(e).FromServer && !r.IsEvent() {
		j.calls[callKey{r.Session, r.Exchange}] = e
	}
	return e
}

// withdrawn returns the request that a server withdraws with the notification r, or nil when r is
// another notification or the request is not known. Records do not have the ids of requests, so
// withdrawn returns the oldest open request of the server in the exchange.
func (j *callJoiner) withdrawn(r *audit.Record) *list.Element {
	if r.Method != "notifications/cancelled" || r.Direction != "to_client" {
		return nil
	}
	var oldest *list.Element
	for key, requests := range j.serverRequests {
		for _, request := range requests {
			o := callIn(request)
			if key.session == r.Session && key.server == r.Server && o.Exchange == r.Exchange &&
				(oldest == nil || o.FirstSeq < callIn(oldest).FirstSeq) {
				oldest = request
			}
		}
	}
	return oldest
}

func (j *callJoiner) startCall(r *audit.Record) *list.Element {
	return j.open.PushBack(&openCall{Call: Call{Start: r.Time, FirstSeq: r.Seq, Session: r.Session,
		Exchange: r.Exchange, Kind: recordKind(r), Method: r.Method}})
}

// update updates the status of a call after a record, and ends the call if the record is its last.
func (j *callJoiner) update(e *list.Element, r *audit.Record) {
	o := callIn(e)
	isResponse := r.Kind == "response" || r.Kind == "error"
	final := false
	switch {
	case r.IsEvent() || r.Kind == "notification" && o.Kind == "notification":
		o.Status, final = StatusDone, true
	case r.Kind == "notification":
		if r.Method == "notifications/cancelled" {
			o.Status, o.waitingServers, final = StatusCancelled, nil, o.FromServer
		}
	case r.Action == "drop" && o.FirstSeq == r.Seq: // a message that belongs to no call
		o.Status, final = StatusDone, true
	case r.Action == "park" || r.Action == "resume" || r.Action == "approve" || r.Action == "drop":
		// the status stays
	case r.Action == "deny" || r.Action == "reject":
		o.Status, final = StatusRefused, true
	case r.Action == "ask":
		o.Status = StatusRefused // until somebody approves it
	case r.Action == "cancelled": // while a stage evaluated the message
		o.Status, final = StatusCancelled, true
	case r.Kind == "error":
		o.Status, final = StatusError, true
	case r.Failed:
		o.Status, final = StatusToolFailed, true
	case isResponse:
		o.Status, final = StatusAnswered, true
	default:
		o.Status = StatusOpen
		if !o.FromServer && !slices.Contains(o.waitingServers, r.Server) {
			o.waitingServers = append(o.waitingServers, r.Server)
		}
	}
	if isResponse && !o.FromServer && r.Action != "park" {
		o.waitingServers = slices.DeleteFunc(o.waitingServers, func(s string) bool {
			return s == r.Server || r.Server == ""
		})
	}
	// callOf will assign no other record to this call
	isOnlyRecord := o.FirstSeq == r.Seq && (r.Kind != "request" || o.Exchange == "" &&
		!o.FromServer)
	if isOnlyRecord || final && (o.Kind == "event" || o.Kind == "notification" || o.FromServer ||
		isResponse && r.Server == "" || !isBroadcast(o.Method)) {
		j.end(e)
		return
	}
	j.updateSettling(e)
}

// updateSettling updates the field settling of a call.
func (j *callJoiner) updateSettling(e *list.Element) {
	o := callIn(e)
	was := o.settling
	o.settling = len(o.waitingServers) == 0 && o.openServerRequests == 0 && o.Status != StatusOpen
	if o.settling && !was {
		j.settling = append(j.settling, e)
	}
}

// isBroadcast reports whether requests of the method may go to several servers, whose responses are
// merged.
func isBroadcast(method string) bool {
	m, known := mcp.LookupMethod(method)
	return known && m.Route == mcp.RouteBroadcast
}

// endSettled ends the settling calls that have got no record within settleTime before now.
func (j *callJoiner) endSettled(now time.Time) {
	j.endSettling(func(o *openCall) bool { return now.Sub(o.lastTime) > settleTime })
}

// endIdle ends the settling calls that have got no record since the reader last waited for lines.
func (j *callJoiner) endIdle() {
	j.endSettling(func(o *openCall) bool {
		was := o.wasIdle
		o.wasIdle = true
		return was
	})
}

// endSettling ends the settling calls for which isOver returns true.
func (j *callJoiner) endSettling(isOver func(*openCall) bool) {
	j.settling = slices.DeleteFunc(j.settling, func(e *list.Element) bool {
		o := callIn(e)
		if o.ended || !o.settling {
			return true
		}
		if !isOver(o) {
			return false
		}
		j.end(e)
		return true
	})
}

func (j *callJoiner) endAll() {
	for e := j.open.Front(); e != nil; e = j.open.Front() {
		j.end(e)
	}
	j.settling = nil
}

// end ends a call with its current status.
func (j *callJoiner) end(e *list.Element) {
	o := callIn(e)
	j.open.Remove(e)
	o.ended = true
	key := callKey{o.Session, o.Exchange}
	if j.calls[key] == e {
		delete(j.calls, key)
	}
	if o.requestKey != (serverRequestKey{}) {
		left := slices.DeleteFunc(j.serverRequests[o.requestKey], func(q *list.Element) bool {
			return q == e
		})
		if j.serverRequests[o.requestKey] = left; len(left) == 0 {
			delete(j.serverRequests, o.requestKey)
		}
	}
	if o.parent != nil && !callIn(o.parent).ended {
		c := callIn(o.parent)
		c.openServerRequests--
		c.lastTime = o.lastTime
		j.updateSettling(o.parent)
	}
	if o.isSelected {
		j.ended = append(j.ended, &o.Call)
	}
}
