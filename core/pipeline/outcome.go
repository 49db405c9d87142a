package pipeline

import (
	"context"
	"time"

	"gatekit/core/mcp"
)

// Step is the result of one stage for one message.
type Step struct {
	Stage string
	// pass, deny, ask, modify, answer, hide, restore, skip or cancelled; allowed if an operator has
	// allowed all interventions of the stage; would_deny, would_modify and so on if the stage does
	// not enforce that action
	Action   string
	Reason   string // reason of the stage; the stage's error if the stage was skipped
	Duration time.Duration
	Findings []Finding
	// the items that the stage removed from a list or a filter, by the server's names or URIs; ""
	// for an item if this stage or an earlier one has found something in its name
	Hidden []string
	// if the stage modified the message: pointers to the changed places of the body that still
	// exist in the forwarded message
	Changed []string
	// the ids of the interventions of the stage: its denial, or the first of its edits; see
	// Allowances
	IDs []string
	// the ids of the items in Hidden, in the same order; "" for an item that cannot be allowed
	HiddenIDs []string
	// the ids of the interventions of the stage that had no effect, because an operator has allowed
	// them
	Allowed []string
}

// Outcome is the decision on one message, or an event, for the record.
type Outcome struct {
	Time time.Time
	// the message as received, with its session, exchange, direction, kind, method, server and name
	Before *mcp.Message
	// the message as forwarded; it is Before itself if nothing changed, and nil if nothing was
	// forwarded; the answer of a stage has an outcome of its own; with the action restore, it has
	// placeholders where the server gets values
	After *mcp.Message
	// pass, deny, modify, answer, hide, restore, ask, skip, allowed, own, park, cancelled,
	// would_deny and so on, or the action of an event; docs/operations.md lists all actions
	Action   string
	Reason   string
	Steps    []Step
	Duration time.Duration
	Err      error
	// Withheld are texts of a peer that were removed from the Name and Method of Before, or from
	// Reason. Not all stages inspected these texts, or a stage found something in them. A recorder
	// may keep keyed hashes of the texts. It must keep neither the texts nor the body.
	Withheld []string
	// OmitBody tells the recorder to keep only the size and a keyed hash of the body.
	OmitBody bool

	// fullyInspected is true if every stage that wants Before has inspected it and no stage failed.
	// A denial ends the inspection, so the stage that denied Before must be the last of these
	// stages.
	fullyInspected bool
	redacted       []redactedBy // the values that the stages redacted
}

// removeChanged removes the changed places of all steps, because nothing is forwarded.
func (o *Outcome) removeChanged() {
	for i := range o.Steps {
		o.Steps[i].Changed = nil
	}
}

// Recorder stores outcomes. When Record returns no error, the record is as durable as configured,
// and the message may be forwarded; seq is the number of the record, from 1. When Record returns an
// error, the message is not forwarded. Record must also record when ctx has ended, since the sender
// of a denied message may have given up. Many goroutines may call Record at once. Record must not
// keep o, or anything in it.
type Recorder interface {
	Record(ctx context.Context, o Outcome) (seq uint64, err error)
}
