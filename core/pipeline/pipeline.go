// Package pipeline is the one way across: a message that is to reach a client or a server is judged by every stage, recorded,
// and only then becomes a Passed, which is all that the code that writes will take.
package pipeline

import (
	"context"
	"time"

	"gatekit/core/mcp"
)

// Stage judges messages. Inspect may be called from many goroutines at once and must not keep m. An error denies.
type Stage interface {
	Inspect(ctx context.Context, m *mcp.Message) (Verdict, error)
}

// Action is what a stage decided. The zero Action denies, and so does every value not listed here.
type Action uint8

const (
	Deny   Action = iota // refuse the message
	Allow                // let it pass as it is
	Modify               // let it pass with Verdict.Edits applied
	Answer               // (requests only) answer with Verdict.Answer, a JSON result, instead of asking the other side
)

// Verdict is a stage's decision. The zero Verdict denies.
type Verdict struct {
	Action   Action
	Reason   string     // for the audit; to the client only when [deny] reasons = true
	Edits    []mcp.Edit // with Modify
	Answer   []byte     // with Answer
	Hide     []string   // clean names (or URIs) this client may not know: taken out of lists, and a denial of any message whose Name is one
	Findings []Finding
	Labels   []string
}

// Finding is something that a stage found in a message; it holds no content.
type Finding struct {
	Type    string // what was found: "aws-access-key"
	Pointer string // where in the body
}

// Wants says which messages a stage is asked about; an empty list is all.
type Wants struct {
	Methods    []string
	Kinds      []mcp.Kind
	Directions []mcp.Direction
	Servers    []string
}

// Named is a stage in its place in the pipeline.
type Named struct {
	Name    string
	Stage   Stage
	Wants   Wants
	Timeout time.Duration // of one Inspect; 0 is 2 s
	Skip    bool          // on_error = "skip": an error, panic or time-out skips the stage instead of denying; recorded
}

// Step is what one stage did to one message.
type Step struct {
	Stage    string
	Action   string // allow is "pass"; deny, modify, answer, hide, skip
	Reason   string
	Took     time.Duration
	Findings []Finding
}

// Outcome is one decision, for the record.
type Outcome struct {
	Time   time.Time
	Before *mcp.Message // as it came; its fields say session, exchange, direction, kind, method, server, name
	After  *mcp.Message // as it goes; nil when denied; Before itself when nothing changed
	Action string       // pass, deny, modify, answer, hide, skip (design.md 11)
	Reason string
	Steps  []Step
	Took   time.Duration
	Err    error
}

// Recorder keeps outcomes. When it returns nil the record is as durable as configured, and the message may move; seq is the
// number of the record. When it returns an error the message does not move.
type Recorder interface {
	Record(ctx context.Context, o Outcome) (seq uint64, err error)
}

// Passed is a message that may be written to its other side. Only this package makes one. The zero Passed holds nothing.
type Passed struct{ m *mcp.Message }

// Message is what passed. It is nil for the zero Passed.
func (p Passed) Message() *mcp.Message { return p.m }

// WithID is p under another id of the hop it is written to.
func (p Passed) WithID(id mcp.ID) Passed { panic("seam") }

// Edit is p with places of the rewrite catalogue (names, tokens, ids, attribution) changed for the hop it is written to. It is for the boundary alone:
// what a stage decided on is not touched.
func (p Passed) Edit(edits ...mcp.Edit) (Passed, error) { panic("seam") }

// Rewrite is p with f applied to the names that the catalogue lists in it; see mcp.Rewrite.
func (p Passed) Rewrite(f func(mcp.Place, string) (string, error)) (Passed, error) { panic("seam") }

// Options of a pipeline.
type Options struct {
	Reasons         bool // tell the client why
	ToolCallsResult bool // a refused tools/call is an isError result
}

// Pipeline is immutable and safe for many goroutines. A reload makes a new one.
type Pipeline struct{}

// New makes a pipeline of the stages in their order. rec must not be nil.
func New(rec Recorder, o Options, stages ...Named) *Pipeline { panic("seam") }

// Pass judges m, records the outcome and answers what may move. The error is always a *Denied.
func (p *Pipeline) Pass(ctx context.Context, m *mcp.Message) (Passed, error) { panic("seam") }

// Answer records m, a message of Gatekit's own (a ping's answer, a merged list, an error, a cancellation), and lets it move. No stage is asked: it
// holds nothing that was not judged already. When it cannot be recorded, what moves is a bare error (requests' answers) or nothing (the zero Passed).
func (p *Pipeline) Answer(ctx context.Context, m *mcp.Message) Passed { panic("seam") }

// Event records something that is no message: start, stop, reload, a parse failure, a server lost. m carries the fields that apply and may have no body.
func (p *Pipeline) Event(ctx context.Context, m *mcp.Message, action, reason string, err error) error {
	panic("seam")
}

// Denied says that a message may not pass.
type Denied struct {
	Message *mcp.Message // the one that was refused
	Stage   string
	Action  string // deny, or answer when a stage answered in the server's place
	Reason  string
	Record  uint64 // seq of its record; 0 when it could not be recorded
	Err     error  // a fault behind it, if any: time-out, panic, recorder
}

func (d *Denied) Error() string { panic("seam") }
func (d *Denied) Unwrap() error { return d.Err }

// Response is what the sender of a refused request, or the one that waits for a refused answer, gets in its place under
// that id: error -31000, an isError result, or the stage's own answer (design.md 5). A notification has none: the zero Passed.
func (d *Denied) Response(id mcp.ID) Passed { panic("seam") }

// Decline is what a server gets when its reverse request, or the client's answer to it, was refused, under the reverse request's
// id: error -1 for sampling, {"action":"decline"} for elicitation, no roots for roots, error -31000 for others.
func (d *Denied) Decline(id mcp.ID) Passed { panic("seam") }
