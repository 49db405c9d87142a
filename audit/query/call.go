package query

import (
	"bytes"
	"slices"
	"time"

	"gatekit/audit"
)

// Call is a request with its response, an event, or a notification.
type Call struct {
	Start time.Time
	// time until the response was evaluated; for an open call, until the last record
	Duration time.Duration
	FirstSeq uint64 // seq of the call's first record

	// the replica whose log has the call; set by the callers of Calls that read several logs
	Replica string

	Session, Exchange, Principal string

	// "request", "notification" or "event"; the kind of the first record if the beginning of the
	// call is missing
	Kind       string
	FromServer bool // a server sent the request
	Method     string
	Name       string
	Servers    []string // servers that took part, sorted, at most eight

	Action string // the most severe action of the call's records: deny before modify before pass
	Reason string // reason of the record with that action
	Error  string
	Status Status
	Code   int64 // JSON-RPC error code of the response
	Parked bool  // the call waited for the client's answers, without holding the connection

	Decision       *audit.Record  // the record with Action; nil if every message passed
	Records        []audit.Record // the first 200 records, only with Options.KeepRecords
	OmittedRecords int            // number of further records

	severity int // of Decision
}

// Status is how a call ended.
type Status string

// Statuses of calls.
const (
	StatusOpen       Status = ""          // the log does not have the end of the call
	StatusAnswered   Status = "answered"  // with a result
	StatusError      Status = "error"     // with an error of the server or of Gatekit
	StatusToolFailed Status = "failed"    // with the result of a tool that has isError: true
	StatusRefused    Status = "refused"   // its request or response was denied
	StatusCancelled  Status = "cancelled" // by the client or on its behalf
	StatusDone       Status = "done"      // events, notifications, messages that belong to no call
)

const (
	maxServers = 8
	maxRecords = 200
)

// Caller returns the principal, or the session if the principal is unknown.
func (c *Call) Caller() string {
	if c.Principal != "" {
		return c.Principal
	}
	return c.Session
}

// isAnswered reports whether the call has a result or an error.
func (c *Call) isAnswered() bool {
	return c.Status == StatusAnswered || c.Status == StatusError || c.Status == StatusToolFailed
}

// DecidingStage returns the stage that caused the action, or "" if none did.
func (c *Call) DecidingStage() string {
	if s := c.decidingStep(); s != nil {
		return s.Stage
	}
	return ""
}

// ChangedPointers returns the JSON pointers to the places that the stages changed, according to the
// deciding record.
func (c *Call) ChangedPointers() (all []string) {
	if c.Decision == nil {
		return nil
	}
	for _, s := range c.Decision.Steps {
		all = append(all, s.Changed...)
	}
	return all
}

func (c *Call) decidingStep() *audit.Step {
	if c.Decision == nil {
		return nil
	}
	for i, s := range c.Decision.Steps {
		if s.Action == c.Action {
			return &c.Decision.Steps[i]
		}
	}
	return nil
}

// severity returns the severity of a record's action. The action of a call is the most severe
// action of its records. The severity of Gatekit's own answers, and of parking and resuming a call,
// is 0.
func severity(r *audit.Record) int {
	switch r.Action {
	case "pass", "park", "resume", "cancelled":
		return 0
	case "hide":
		return 2
	case "modify":
		return 3
	case "answer":
		if r.Kind != "request" || r.Direction != "to_server" {
			return 0
		}
		return 4 // a stage answered in the server's place
	case "ask":
		return 5
	case "approve":
		return 6
	case "reject":
		return 7
	case "deny":
		return 8
	}
	return 1 // skip, allowed, drop, and actions of a newer Gatekit
}

// addRecord adds the information of a record to the call. r was parsed by audit.ParseSummary.
func (c *Call) addRecord(r *audit.Record, keep bool) error {
	var whole *audit.Record
	recordSeverity := severity(r)
	kept := keep && len(c.Records) < maxRecords
	if kept || recordSeverity > c.severity {
		parsed, err := audit.ParseRecord(bytes.Clone(r.Line))
		if err != nil {
			return err
		}
		whole = &parsed
	}
	switch {
	case recordSeverity > c.severity:
		c.severity, c.Action, c.Reason = recordSeverity, r.Action, r.Reason
		c.Decision = whole
	case c.Action == "":
		c.Action = r.Action
	}
	if c.Reason == "" && c.severity == 0 && r.Kind == "error" {
		c.Reason = r.Reason // reason of Gatekit's own error
	}
	if c.Error == "" {
		c.Error = r.Error
	}
	if r.Code != 0 {
		c.Code = r.Code
	}
	c.Parked = c.Parked || r.Action == "park"
	switch {
	case kept:
		c.Records = append(c.Records, *whole)
	case keep:
		c.OmittedRecords++
	}
	if at, known := slices.BinarySearch(c.Servers, r.Server); r.Server != "" && !known &&
		len(c.Servers) < maxServers {
		c.Servers = slices.Insert(c.Servers, at, r.Server)
	}
	if c.Name == "" {
		c.Name = r.Name
	}
	if c.Principal == "" {
		c.Principal = r.Principal
	}
	c.Duration = max(c.Duration, r.Time.Add(time.Duration(r.Micros)*time.Microsecond).Sub(c.Start))
	return nil
}
