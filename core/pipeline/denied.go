package pipeline

import (
	"fmt"
	"strconv"

	"gatekit/core/mcp"
)

// refusedByPolicy is the message of the error that the other side gets. It lacks the reason, which
// is for the record: a model could work round a known rule.
const refusedByPolicy = "refused by policy"

// DeniedError reports that a message may not be forwarded.
type DeniedError struct {
	Message *mcp.Message // the denied message
	// the stage that denied it; "audit" when the outcome could not be recorded, "pipeline" when the
	// message could not be inspected
	Stage string
	// "deny"; "answer" when a stage answered in place of the server; "ask" when a human may approve
	// the request; "cancelled" when the request was cancelled before a stage had its verdict
	Action       string
	ApprovalHint string // with ask: tells the client how a human approves; may be ""
	Reason       string // the reason that the stage gave; "" for a fault
	RecordNumber uint64 // number of the audit record; 0 when the denial could not be recorded
	Err          error  // the fault, if any: time-out, panic, recorder

	answer         Passed // of the stage, when Action is "answer"
	options        Options
	fullyInspected bool // as in its Outcome
}

func (d *DeniedError) Error() string {
	switch {
	case d.Err != nil:
		return fmt.Sprintf("denied: %v", d.Err)
	case d.Action == "answer":
		return fmt.Sprintf("answered by stage %q", d.Stage)
	case d.Reason != "":
		return fmt.Sprintf("denied by stage %q: %s", d.Stage, d.Reason)
	}
	return fmt.Sprintf("denied by stage %q", d.Stage)
}

func (d *DeniedError) Unwrap() error { return d.Err }

// Response returns the answer for the client, under the given id, when its request or the server's
// answer was denied: error -31000, an isError result, or the stage's own answer. For a notification
// it returns the zero Passed.
func (d *DeniedError) Response(id mcp.ID) Passed {
	if d.Action == "answer" {
		return d.answer.WithID(id)
	}
	if d.Message == nil || d.Message.Kind == mcp.Notification {
		return Passed{}
	}
	if request := d.request(); d.options.DenyToolCallsAsResult && request != nil &&
		request.Method == "tools/call" {
		// A call that is to run as a task (2025-11-25) is answered with a task, not with a tool's
		// result.
		if _, task := request.Get("/task"); !task {
			return d.replacement(mcp.NewResponse(id, d.toolResult(request)))
		}
	}
	return d.replacement(mcp.NewError(id, mcp.CodeDenied, d.clientMessage(), d.data()))
}

// clientMessage returns the text for the other side.
func (d *DeniedError) clientMessage() string {
	if d.Action == "ask" && d.ApprovalHint != "" {
		return refusedByPolicy + ": " + d.ApprovalHint
	}
	return refusedByPolicy
}

// DeclineResponse returns the answer for a server, under the given id, when its request to the
// client, or the client's answer, was denied. The answer is error -1 for sampling,
// {"action":"decline"} for elicitation, no roots for roots, error -31000 for others; or the stage's
// own answer. A server learns no more than from a client that declines.
func (d *DeniedError) DeclineResponse(id mcp.ID) Passed {
	if d.Action == "answer" {
		return d.answer.WithID(id)
	}
	if d.Message == nil || d.Message.Kind == mcp.Notification {
		return Passed{}
	}
	switch d.Message.Method {
	case "sampling/createMessage":
		return d.replacement(mcp.NewError(id, mcp.CodeSamplingRejected, "rejected", nil))
	case "elicitation/create":
		return d.replacement(mcp.NewResponse(id, []byte(`{"action":"decline"}`)))
	case "roots/list":
		return d.replacement(mcp.NewResponse(id, []byte(`{"roots":[]}`)))
	}
	return d.replacement(mcp.NewError(id, mcp.CodeDenied, refusedByPolicy, nil))
}

// request returns the request whose sender waits, or nil when it is not known.
func (d *DeniedError) request() *mcp.Message {
	if d.Message.Kind == mcp.Request {
		return d.Message
	}
	return d.Message.Request
}

func (d *DeniedError) replacement(answer *mcp.Message) Passed {
	return Passed{stampAnswer(d.Message, answer), d}
}

// data returns {"gatekit":{…}}, the data of the error. It has what the client may know of a denial,
// which is enough to find its record.
func (d *DeniedError) data() []byte {
	b := append([]byte(`{"gatekit":`), d.details()...)
	return append(b, '}')
}

func (d *DeniedError) details() []byte {
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

// toolResult returns the denial as a tool's result, which models understand better than an error.
func (d *DeniedError) toolResult(request *mcp.Message) []byte {
	text := d.clientMessage()
	if d.options.IncludeReasons && d.Reason != "" {
		text += ": " + d.Reason
	}
	b := []byte(`{`)
	if hasResultType(request) {
		b = append(b, `"resultType":"complete",`...)
	}
	b = append(b, `"content":[{"type":"text","text":`...)
	b = append(b, mcp.Quote(text)...)
	b = append(b, `}],"isError":true,"_meta":{"gatekit/denied":`...)
	b = append(b, d.details()...)
	return append(b, `}}`...)
}
