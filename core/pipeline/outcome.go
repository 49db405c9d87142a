package pipeline

import (
	"context"
	"time"

	"gatekit/core/mcp"
)

// Step is the result of one stage for one message.
type Step struct {
	Stage    string
	Action   string // pass, deny, ask, modify, answer, hide, skip
	Reason   string // the stage's; of a skip: the error
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
	// as forwarded; nil when it is not (a stage's answer is an outcome of its own), and Before
	// itself when nothing changed
	After *mcp.Message
	// pass, deny, modify, answer, hide, ask, skip, park, or the action of an event
	// (docs/operations.md)
	Action   string
	Reason   string
	Steps    []Step
	Duration time.Duration
	Err      error
	// Withheld are texts of a peer that are left out of Before's Name and Method and of Reason: no
	// stage has inspected them, or one found something there. A recorder may keep keyed hashes of
	// them, but no text and no body.
	Withheld []string

	// all stages that want Before were asked, as far as a denial did not make the last of them
	// needless, and none failed
	fullyInspected bool
}

// Recorder stores outcomes. When Record returns nil, the record is as durable as configured, and
// the message may be forwarded; seq is the number of the record, from 1. When it returns an error,
// the message is not forwarded. It records even when ctx has ended: that a message was denied
// because its sender left is a decision, too. Many goroutines may call it at once. It keeps nothing
// of o.
type Recorder interface {
	Record(ctx context.Context, o Outcome) (seq uint64, err error)
}
