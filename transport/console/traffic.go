package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gatekit/audit"
	"gatekit/audit/query"
)

// Traffic has the calls of the audit log.
type Traffic interface {
	// Calls returns the calls that a filter selects, newest first. Filter is an expression such as
	// "--server github --action deny", as "gatekit audit show" takes it; if it is wrong, the error
	// is a FilterError. If before is not 0, the calls begin with records before the record before.
	Calls(ctx context.Context, filter string, before uint64) (*CallList, error)
	// Follow calls send with the calls that end after the record after was written, until ctx ends
	// or send fails. It may send calls again that ended shortly before. When records are written
	// faster than it reads, or send takes too long, it skips the older ones and counts them.
	Follow(ctx context.Context, filter string, after uint64, send func(NewCalls) error) error
}

// FilterError is the error of a filter that cannot be parsed. The page shows it beside the filter.
type FilterError struct{ Err error }

func (e *FilterError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the parser.
func (e *FilterError) Unwrap() error { return e.Err }

// NewCalls are calls that have ended since the last NewCalls.
type NewCalls struct {
	Calls   []*LiveCall // in the order of their ends
	Skipped uint64      // records that were not read because there were too many
	Through uint64      // seq of the last record that was read
}

// LiveCall is a call that has ended. Viewers share it: its row is rendered once for all of them.
type LiveCall struct {
	call *query.Call
	row  *Row
}

// NewLiveCall returns a LiveCall. It removes the lines and the bodies of the records, so that the
// caller can keep many calls. Nobody else may use the call.
func NewLiveCall(c *query.Call) *LiveCall {
	if c.Decision != nil {
		clearTexts(c.Decision)
	}
	for i := range c.Records {
		clearTexts(&c.Records[i])
	}
	return &LiveCall{call: c, row: NewRow(func() any { return trafficRows([]*query.Call{c}) })}
}

func clearTexts(r *audit.Record) {
	r.Line = nil
	for _, b := range []*audit.Body{r.Before, r.After} {
		if b != nil {
			b.Body = nil
		}
	}
}

// LastSeq returns the seq of the last record of the call that is known.
func (c *LiveCall) LastSeq() uint64 {
	if n := len(c.call.Records); n > 0 {
		return c.call.Records[n-1].Seq
	}
	return c.call.FirstSeq
}

// IsSelected reports whether a filter selects one of the records of the call.
func (c *LiveCall) IsSelected(f *query.Filter) bool {
	for i := range c.call.Records {
		if f.Match(&c.call.Records[i]) {
			return true
		}
	}
	return false
}

// CallList is a part of the calls of a log.
type CallList struct {
	Calls []*query.Call // newest first, with their records
	// Before is the argument of Traffic.Calls that continues the list; 0 if there are no older
	// records.
	Before uint64
	// Through is the seq of the last record that was read.
	Through uint64
	Words   []string // the words of the filter, for people: "server github"
}

// TrafficPage returns the page that shows the calls of a log.
func TrafficPage(t Traffic) Page {
	return Page{Name: "traffic", Title: "Traffic",
		Data: func(ctx context.Context, r Request) (any, error) {
			before, _ := strconv.ParseUint(r.Query.Get("before"), 10, 64)
			filter := r.Query.Get("filter")
			list, err := t.Calls(ctx, filter, before)
			if wrong, ok := errors.AsType[*FilterError](err); ok {
				return trafficView{Filter: filter, IsOlder: true, FilterError: wrong.Error()}, nil
			}
			if err != nil {
				return nil, err
			}
			return trafficView{Filter: filter, Words: list.Words, Rows: trafficRows(list.Calls),
				Older: positionText(list.Before), IsOlder: before != 0,
				After: strconv.FormatUint(list.Through, 10)}, nil
		},
		Live: func(ctx context.Context, r Request, send func(Update) error) error {
			after, _ := strconv.ParseUint(r.After, 10, 64)
			return t.Follow(ctx, r.Query.Get("filter"), after, func(n NewCalls) error {
				u := Update{Omitted: int(n.Skipped), After: strconv.FormatUint(n.Through, 10)}
				for _, c := range slices.Backward(n.Calls) {
					u.Rows = append(u.Rows, c.row)
				}
				return send(u)
			})
		},
	}
}

// trafficView is the data of the template of the traffic.
type trafficView struct {
	Filter  string
	Words   []string
	Rows    []trafficRow
	Older   string // continues the list; "" if it is complete
	IsOlder bool   // the list does not begin with the newest call
	After   string
	// FilterError tells why there is no list; "" if there is one
	FilterError string

	// of several logs; nil if there is only one
	Replicas []string
	Replica  string   // whose calls are shown; "" for all
	Failures []string // logs that cannot be read
}

// trafficRow is the line of one call.
type trafficRow struct {
	Replica  string // "" if there is one log
	Seq      uint64
	Start    time.Time
	Mark     string // ✕ refused or failed, ✎ changed, · passed
	Outcome  string // the mark in words
	Client   string
	Caller   string
	Server   string
	Subject  string
	Duration time.Duration
	Size     int64 // bytes of the messages to the client; 0 if there are none
	Reason   string
	Failed   bool
	IsOpen   bool // the call has not ended
	// why the log of the replica cannot be read; then, only Replica is set, too
	Failure string
}

// Ref returns the name of the first record.
func (r trafficRow) Ref() string { return refOf(r.Replica, r.Seq) }

func trafficRows(calls []*query.Call) []trafficRow {
	rows := make([]trafficRow, len(calls))
	for i, c := range calls {
		rows[i] = rowOf(c)
	}
	return rows
}

func rowOf(c *query.Call) trafficRow {
	row := trafficRow{Replica: c.Replica, Seq: c.FirstSeq, Start: c.Start, Caller: c.Caller(),
		Server: strings.Join(c.Servers, ", "), Subject: subjectOf(c), Duration: c.Duration,
		IsOpen: c.Status == query.StatusOpen && c.Kind == "request",
		Reason: join(": ", c.Reason, c.Error),
		Failed: c.Status == query.StatusRefused || c.Status == query.StatusError ||
			c.Status == query.StatusToolFailed || c.Error != ""}
	row.Mark, row.Outcome = markOf(c, row.Failed)
	if row.Reason == "" && row.Failed {
		row.Reason = failureOf(c)
	}
	row.showAlarm(c)
	for i := range c.Records {
		r := &c.Records[i]
		if row.Client == "" {
			row.Client = r.Client
		}
		if r.Direction == "to_client" && r.Kind != "request" {
			row.Size += sentSize(r)
		}
	}
	return row
}

// failureOf describes a failure for which the log has no text: it does not keep the messages of
// servers.
func failureOf(c *query.Call) string {
	switch {
	case c.Status == query.StatusToolFailed:
		return "the tool reports a failure"
	case c.Code != 0:
		return fmt.Sprintf("error %d", c.Code)
	}
	return ""
}

// subjectOf returns the name of a tool, prompt or resource, or the method of another call.
func subjectOf(c *query.Call) string {
	switch {
	case c.Kind == "event":
		return c.Action
	case c.FromServer:
		return strings.TrimSpace("← " + c.Method + " " + c.Name)
	case c.Method == "tools/call" && c.Name != "":
		return c.Name
	}
	return strings.TrimSpace(c.Method + " " + c.Name)
}

func markOf(c *query.Call, failed bool) (mark, outcome string) {
	switch {
	case c.Status == query.StatusRefused:
		return "✕", "refused"
	case failed:
		return "✕", "failed"
	case c.Kind == "event":
		return "·", "event"
	case c.Decision != nil:
		return "✎", c.Action
	case c.Status == query.StatusCancelled:
		return "·", "cancelled"
	case c.Status == query.StatusOpen && c.Kind == "request":
		return "·", "open"
	}
	return "·", "passed"
}

// sentSize returns the size of a message as it was sent, or 0 if it was not sent.
func sentSize(r *audit.Record) int64 {
	if r.After == nil {
		return 0
	}
	return r.After.Size
}

func join(between string, texts ...string) string {
	return strings.Join(cleanList(texts), between)
}
