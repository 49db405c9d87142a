package query

import (
	"bytes"
	"slices"
	"time"

	"gatekit/audit"
)

// Call is a request and what came of it, an event, or a notification.
type Call struct {
	Start time.Time
	// until its end was judged; of what is open, until what was recorded last
	Duration time.Duration
	FirstSeq uint64 // the number of its first record

	Session, Exchange, Principal string

	// request, notification, event; of a call whose beginning is not there, that of its first
	// record
	Kind       string
	FromServer bool // a server asked
	Method     string
	Name       string
	Servers    []string // that had to do with it, sorted, at most eight

	Action string // the weightiest of its records: deny before modify before pass
	Reason string // of that record
	Error  string
	Status Status
	Code   int64 // of the error that it ended with
	Parked bool  // it waited for what the client answered, whose connection was free meanwhile

	Decision       *audit.Record  // the record with Action; nil when all was let pass
	Records        []audit.Record // all of them, or the first 200; with Options.Records alone
	OmittedRecords int            // how many there were beyond those

	weight int // of Decision
}

// Status is how a call ended.
type Status string

// Ends of calls.
const (
	StatusOpen       Status = ""          // not, as far as the log goes
	StatusAnswered   Status = "answered"  // with a result
	StatusError      Status = "error"     // with an error: the server's, or Gatekit's own
	StatusToolFailed Status = "failed"    // with the result of a tool that says that it has failed
	StatusRefused    Status = "refused"   // the request, or its answer
	StatusCancelled  Status = "cancelled" // by the client, or for it
	StatusDone       Status = "done"      // of events and notifications
)

const (
	maxServers = 8
	maxRecords = 200
)

// Caller is the principal, or the session of one who is not known.
func (c *Call) Caller() string {
	if c.Principal != "" {
		return c.Principal
	}
	return c.Session
}

// answered says whether the call was answered, well or not.
func (c *Call) answered() bool {
	return c.Status == StatusAnswered || c.Status == StatusError || c.Status == StatusToolFailed
}

// DecidingStage is the stage that made the decision; "" when none did.
func (c *Call) DecidingStage() string {
	if s := c.decided(); s != nil {
		return s.Stage
	}
	return ""
}

// ChangedPointers are the places of the message that the deciding record's stages changed, as JSON
// pointers.
func (c *Call) ChangedPointers() (all []string) {
	if c.Decision == nil {
		return nil
	}
	for _, s := range c.Decision.Steps {
		all = append(all, s.Changed...)
	}
	return all
}

func (c *Call) decided() *audit.Step {
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

// weight of an action: the heaviest of a call's records is the call's. What Gatekit does for its
// own part weighs nothing: its answers, and that it parks and resumes a call.
func weight(r *audit.Record) int {
	switch r.Action {
	case "pass", "park", "resume":
		return 0
	case "hide":
		return 2
	case "modify":
		return 3
	case "answer":
		if r.Kind != "request" || r.Direction != "to_server" {
			return 0
		}
		return 4 // a stage's, in the server's place
	case "ask":
		return 5
	case "approve":
		return 6
	case "reject":
		return 7
	case "deny":
		return 8
	}
	return 1 // skip, drop, and what a newer Gatekit does
}

// take takes what a record says of the call.
func (c *Call) take(r *audit.Record, keep bool) error {
	var whole *audit.Record
	w := weight(r)
	kept := keep && len(c.Records) < maxRecords
	if kept || w > c.weight {
		parsed, err := audit.ParseRecord(bytes.Clone(r.Line))
		if err != nil {
			return err
		}
		whole = &parsed
	}
	switch {
	case w > c.weight:
		c.weight, c.Action, c.Reason, c.Decision = w, r.Action, r.Reason, whole
	case c.Action == "":
		c.Action = r.Action
	}
	if c.Reason == "" && c.weight == 0 && r.Kind == "error" {
		c.Reason = r.Reason // of Gatekit's own
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
