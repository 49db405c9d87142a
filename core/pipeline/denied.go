package pipeline

import (
	"fmt"
	"strconv"

	"gatekit/core/mcp"
)

// refusedByPolicy is all that the other side is told in words. What a rule looks at is for the
// record, not for a model that would work round it.
const refusedByPolicy = "refused by policy"

// DeniedError says that a message may not pass.
type DeniedError struct {
	Message *mcp.Message // the one that was refused
	// that refused it; "audit" when it could not be recorded, "pipeline" when it could not be
	// judged
	Stage string
	// deny; answer when a stage answered in the server's place; ask when it may pass once a human
	// has approved
	Action       string
	ApprovalHint string // with ask: how a human can, for the client; "" says nothing
	Reason       string // the stage's words; "" when it was a fault
	RecordNumber uint64 // seq of its record; 0 when it could not be recorded
	Err          error  // a fault behind it, if any: time-out, panic, recorder

	answer  Passed // with the action "answer"
	options Options
	judged  bool // as its Outcome was
}

func (d *DeniedError) Error() string {
	switch {
	case d.Err != nil:
		return fmt.Sprintf("refused: %v", d.Err)
	case d.Action == "answer":
		return fmt.Sprintf("answered by stage %q", d.Stage)
	case d.Reason != "":
		return fmt.Sprintf("refused by stage %q: %s", d.Stage, d.Reason)
	}
	return fmt.Sprintf("refused by stage %q", d.Stage)
}

func (d *DeniedError) Unwrap() error { return d.Err }

// Response is what the sender of a refused request, or the one that waits for a refused answer,
// gets in its place under that id: error -31000, an isError result, or the stage's own answer
// (design.md 5). A notification has none: the zero Passed.
func (d *DeniedError) Response(id mcp.ID) Passed {
	if d.Action == "answer" {
		return d.answer.WithID(id)
	}
	if d.Message == nil || d.Message.Kind == mcp.Notification {
		return Passed{}
	}
	if request := d.request(); d.options.DenyToolCallsAsResult && request != nil &&
		request.Method == "tools/call" {
		// A call that asked to be run as a task (2025-11-25) waits for a task, not for a tool's
		// result.
		if _, task := request.Get("/task"); !task {
			return d.inPlace(mcp.NewResponse(id, d.toolResult(request)))
		}
	}
	return d.inPlace(mcp.NewError(id, mcp.CodeDenied, d.words(), d.data()))
}

// words are what the other side is told.
func (d *DeniedError) words() string {
	if d.Action == "ask" && d.ApprovalHint != "" {
		return refusedByPolicy + ": " + d.ApprovalHint
	}
	return refusedByPolicy
}

// DeclineResponse is what a server gets when its reverse request, or the client's answer to it, was
// refused, under the reverse request's id: error -1 for sampling, {"action":"decline"} for
// elicitation, no roots for roots, error -31000 for others; or the stage's own answer. A refusal
// tells a server no more than a client that declines.
func (d *DeniedError) DeclineResponse(id mcp.ID) Passed {
	if d.Action == "answer" {
		return d.answer.WithID(id)
	}
	if d.Message == nil || d.Message.Kind == mcp.Notification {
		return Passed{}
	}
	switch d.Message.Method {
	case "sampling/createMessage":
		return d.inPlace(mcp.NewError(id, mcp.CodeSamplingRejected, "rejected", nil))
	case "elicitation/create":
		return d.inPlace(mcp.NewResponse(id, []byte(`{"action":"decline"}`)))
	case "roots/list":
		return d.inPlace(mcp.NewResponse(id, []byte(`{"roots":[]}`)))
	}
	return d.inPlace(mcp.NewError(id, mcp.CodeDenied, refusedByPolicy, nil))
}

// request is the one whose sender waits; nil when that is not known.
func (d *DeniedError) request() *mcp.Message {
	if d.Message.Kind == mcp.Request {
		return d.Message
	}
	return d.Message.Request
}

func (d *DeniedError) inPlace(answer *mcp.Message) Passed {
	return Passed{inPlaceOf(d.Message, answer), d}
}

// data is {"gatekit":{…}}: what a client may know of a refusal, enough to find its record.
func (d *DeniedError) data() []byte {
	b := append([]byte(`{"gatekit":`), d.about()...)
	return append(b, '}')
}

func (d *DeniedError) about() []byte {
	b := append([]byte(`{"action":`), mcp.Quote(d.Action)...)
	b = append(b, `,"stage":`...)
	b = append(b, mcp.Quote(d.Stage)...)
	if d.RecordNumber != 0 {
		b = append(b, `,"record":`...)
		b = strconv.AppendUint(b, d.RecordNumber, 10)
	}
	if d.options.IncludeReasons && d.Reason != "" {
		b = append(b, `,"reason":`...)
		b = append(b, mcp.Quote(d.Reason)...)
	}
	return append(b, '}')
}

// toolResult is the refusal as a tool's result, which models understand better than an error.
func (d *DeniedError) toolResult(request *mcp.Message) []byte {
	text := d.words()
	if d.options.IncludeReasons && d.Reason != "" {
		text += ": " + d.Reason
	}
	b := []byte(`{`)
	if wantsType(request) {
		b = append(b, `"resultType":"complete",`...)
	}
	b = append(b, `"content":[{"type":"text","text":`...)
	b = append(b, mcp.Quote(text)...)
	b = append(b, `}],"isError":true,"_meta":{"gatekit/denied":`...)
	b = append(b, d.about()...)
	return append(b, `}}`...)
}
