package pipeline

import (
	"context"
	"time"

	"gatekit/core/mcp"
)

// Step is the result of one stage for one message.
type Step struct {
	Stage string
	// pass, deny, ask, modify, answer, hide, skip, cancelled; would_deny and the like when the
	// message passed, because the stage does not enforce it
	Action   string
	Reason   string // the reason that the stage gave; for a skip, the error
	Duration time.Duration
	Findings []Finding
	// with modify: the changed places of the body, as far as they still exist in the forwarded
	// message
	Changed []string
}

// Outcome is one decision, for the record.
type Outcome struct {
	Time time.Time
	// as received; has session, exchange, direction, kind, method, server and name
	Before *mcp.Message
	// as forwarded: Before itself when nothing changed, nil when nothing was forwarded; the answer
	// of a stage is an outcome of its own
	After *mcp.Message
	// pass, deny, modify, answer, hide, ask, skip, park, cancelled, one of a step that was not
	// enforced (would_deny), or the action of an event
	// (docs/operations.md)
	Action   string
	Reason   string
	Steps    []Step
	Duration time.Duration
	Err      error
	// Withheld are texts of a peer that are left out of Before's Name and Method and of Reason: no
	// stage has inspected them, or a stage found something in them. A recorder may keep keyed
	// hashes of them, but no text and no body.
	Withheld []string
	// OmitBody asks the recorder to keep no body, only its size and a keyed hash.
	OmitBody bool

	// every stage that wants Before has inspected it, and none failed. A denial ends the
	// inspection, so only the last of these stages may have denied.
	fullyInspected bool
}

// Recorder stores outcomes. When Record returns nil, the record is as durable as configured, and
// the message may be forwarded; seq is the number of the record, from 1. When it returns an error,
// the message is not forwarded. Record records even when ctx has ended: the denial of a message
// whose sender gave up is a decision, too. Many goroutines may call Record at once. Record must not
// keep o, or anything in it.
type Recorder interface {
	Record(ctx context.Context, o Outcome) (seq uint64, err error)
}
