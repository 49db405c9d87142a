package console

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"gatekit/audit/query"
)

// FleetTraffic has the calls of the audit logs of several replicas. It is Traffic for several logs.
// A position in all logs is a text, which only the implementation can read.
type FleetTraffic interface {
	// Calls returns the calls that q selects, newest first. The Replica of each call is set. If
	// before is not "", the list continues that whose FleetCallList.Before it is.
	Calls(ctx context.Context, q FleetQuery, before string) (*FleetCallList, error)
	// Follow calls send, never twice at a time, with the calls that end after the position after,
	// until ctx ends or send fails.
	Follow(ctx context.Context, q FleetQuery, after string,
		send func(FleetNewCalls) error) error
}

// FleetQuery selects calls.
type FleetQuery struct {
	Filter  string // as for Traffic.Calls
	Replica string // ""  for all replicas
}

// FleetCallList is a part of the calls of several logs.
type FleetCallList struct {
	Calls    []*query.Call // newest first, with their records
	Before   string        // continues the list; "" if there are no older records
	Through  string        // the ends of the logs, where Follow goes on
	Words    []string      // as in CallList
	Replicas []string      // the names of all replicas
	Failures []string      // logs that cannot be read, with the reasons
}

// FleetNewCalls are calls of one log that have ended, or the reason why it cannot be read.
type FleetNewCalls struct {
	Calls   []*LiveCall // in the order of their ends
	Skipped uint64      // as in NewCalls
	Through string      // the positions in all logs
	Replica string
	Failure string // "" unless the log of the replica cannot be read
}

// FleetTrafficPage returns the page that shows the calls of several logs, merged by time.
func FleetTrafficPage(t FleetTraffic) Page {
	queryOf := func(r Request) FleetQuery {
		return FleetQuery{Filter: r.Query.Get("filter"), Replica: r.Query.Get("replica")}
	}
	return Page{Name: "traffic", Title: "Traffic",
		Data: func(ctx context.Context, r Request) (any, error) {
			before, q := r.Query.Get("before"), queryOf(r)
			list, err := t.Calls(ctx, q, before)
			if wrong, ok := errors.AsType[*FilterError](err); ok {
				return trafficView{Filter: q.Filter, IsOlder: true,
					FilterError: wrong.Error()}, nil
			}
			if err != nil {
				return nil, err
			}
			v := trafficView{Filter: q.Filter, Words: list.Words, Rows: trafficRows(list.Calls),
				Older: list.Before, IsOlder: before != "", After: list.Through,
				Replicas: list.Replicas, Replica: q.Replica, Failures: list.Failures}
			if q.Replica != "" {
				v.Words = append([]string{"replica " + q.Replica}, v.Words...)
			}
			return v, nil
		},
		Live: func(ctx context.Context, r Request, send func(Update) error) error {
			return t.Follow(ctx, queryOf(r), r.After, func(n FleetNewCalls) error {
				u := Update{Omitted: int(n.Skipped), After: n.Through}
				for _, c := range slices.Backward(n.Calls) {
					u.Rows = append(u.Rows, c.row)
				}
				if n.Failure != "" {
					u.Rows = append(u.Rows, NewRow(func() any {
						return []trafficRow{{Replica: n.Replica, Failure: n.Failure}}
					}))
				}
				return send(u)
			})
		},
	}
}

// FleetRecords has the records of several replicas.
type FleetRecords interface {
	// Records returns the records of one replica. It returns an error if there is no such replica.
	Records(replica string) (Records, error)
}

// FleetRecordPage returns the page that shows one call of a replica: #record?seq=gatekit-1:12.
func FleetRecordPage(f FleetRecords) Page {
	return recordPage(func(ref string) (Records, string, uint64, error) {
		at := strings.LastIndexByte(ref, ':')
		seq, err := strconv.ParseUint(ref[at+1:], 10, 63)
		if at <= 0 || err != nil || seq == 0 {
			return nil, "", 0, errors.New("the address of this page needs a replica and the " +
				"number of a record: #record?seq=gatekit-1:12")
		}
		records, err := f.Records(ref[:at])
		return records, ref[:at], seq, err
	})
}

// FleetAudit has the states of several audit logs.
type FleetAudit interface {
	// States returns the state of each log. It verifies further parts of them, in at most a second.
	States(ctx context.Context) ([]ReplicaState, error)
}

// ReplicaState is the state of the log of a replica. The members about the process that writes the
// log, its anchor and its sinks are not set.
type ReplicaState struct {
	Replica string
	// Unreadable tells why the log cannot be read; "" if it can
	Unreadable string
	AuditState
}

// FleetAuditPage returns the page with the states of several audit logs.
func FleetAuditPage(a FleetAudit) Page {
	return Page{Name: "logs", Title: "Audit", Refresh: 5 * time.Second,
		Data: func(ctx context.Context, _ Request) (any, error) { return a.States(ctx) }}
}

// refOf names a record: "12", or "gatekit-1:12" if several logs are shown.
func refOf(replica string, seq uint64) string {
	if replica == "" {
		return strconv.FormatUint(seq, 10)
	}
	return replica + ":" + strconv.FormatUint(seq, 10)
}

// positionText returns a position in one log, or "" for 0.
func positionText(seq uint64) string {
	if seq == 0 {
		return ""
	}
	return strconv.FormatUint(seq, 10)
}
