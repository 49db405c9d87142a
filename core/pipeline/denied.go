package pipeline

import (
	"fmt"
	"strconv"

	"gatekit/core/mcp"
	"gatekit/core/stop"
)

// refusedByPolicy is the message of the error that the sender gets. It does not contain the reason:
// a model that knows the rule could work around the rule.
const refusedByPolicy = "refused by policy"

// DeniedError reports that a message may not be forwarded.
type DeniedError struct {
	Message *mcp.Message // the denied message
	// the stage that denied the message; "audit" if the outcome could not be recorded, "pipeline"
	// if the message could not be inspected
	Stage string
	// "deny"; "answer" if a stage answered in place of the server; "ask" if a human may approve the
	// request; "cancelled" if the sender gave up before a stage returned its verdict
	Action       string
	ApprovalHint string // with ask: text for the client on how a human approves; may be ""
	Reason       string // the reason that the stage gave; "" for a fault
	// the scopes that the request needs, if the principal's access token lacks some; else nil
	Scopes       []string
	ID           string // the id with which an operator can allow the denial, or "" (Allowances)
	RecordNumber uint64 // number of the audit record; 0 when the denial could not be recorded
	Err          error  // the fault, if any: time-out, panic, recorder

	answer         Passed // answer of the stage, if Action is "answer"
	recordedName   string // Name of Message in the record; "" if the record withholds the name
	options        Options
	fullyInspected bool       // fullyInspected of the Outcome
	stop           *stop.Stop // the stop that denied the message, or nil
	temporary      bool       // Temporary of the verdict
	by             *Pipeline
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

// IsTemporary reports whether an equal message may pass later, with the same configuration: an
// operator has stopped this one, a stage failed, was too late or said so ([Verdict.Temporary]), or
// it could not be recorded.
func (d *DeniedError) IsTemporary() bool { return d.stop != nil || d.Err != nil || d.temporary }

// Response returns the answer for the client, with the given id, if the client's request or the
// server's answer was denied. The answer is error -31000, a result with isError, or the answer of
// the stage. For a notification, Response returns the zero Passed.
func (d *DeniedError) Response(id mcp.ID) Passed {
	if d.Action == "answer" {
		return d.answer.WithID(id)
	}
	if d.Message == nil || d.Message.Kind == mcp.Notification {
		return Passed{}
	}
	if request := d.request(); d.options.DenyToolCallsAsResult && request != nil &&
		request.Method == "tools/call" {
		// A call that asks for a task (2025-11-25) gets an error, because the result of such a call
		// must be a task and cannot be the result of a tool.
		if _, task := request.Get("/task"); !task {
			return d.replacement(mcp.NewResponse(id, d.toolResult(request)))
		}
	}
	return d.replacement(mcp.NewError(id, mcp.CodeDenied, d.clientMessage(), d.data()))
}

// clientMessage returns the message of the error for the client.
func (d *DeniedError) clientMessage() string {
	if d.stop != nil {
		return stoppedMessage(d.stop)
	}
	if d.Action == "ask" && d.ApprovalHint != "" {
		return refusedByPolicy + ": " + d.ApprovalHint
	}
	return refusedByPolicy
}

// DeclineResponse returns the answer for a server, with the given id, if the server's request to
// the client or the client's answer was denied. The answer is error -1 for sampling,
// {"action":"decline"} for elicitation, an empty list for roots, error -31000 for other methods, or
// the answer of the stage. The answer tells the server no more than a declining client would.
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

// request returns the request whose sender waits for an answer, or nil if the request is not known.
func (d *DeniedError) request() *mcp.Message {
	if d.Message.Kind == mcp.Request {
		return d.Message
	}
	return d.Message.Request
}

func (d *DeniedError) replacement(answer *mcp.Message) Passed {
	return Passed{m: stampAnswer(d.Message, answer), denial: d, by: d.by,
		record: d.RecordNumber, decision: d.Action, recordedName: d.recordedName}
}

// data returns {"gatekit":{…}}, the data of the error. It has the details that the client may know.
// With these details, an operator can find the record.
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
	// The id says nothing about the message. But a model that knows it could ask for the allowance,
	// so the id needs the same setting as the reason. The number of the record leads to the id.
	if d.options.IncludeReasons && d.ID != "" {
		b = append(b, `,"id":`...)
		b = append(b, mcp.Quote(d.ID)...)
	}
	return append(b, '}')
}

// toolResult returns the denial as the result of a tool. Models understand a result better than an
// error.
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
