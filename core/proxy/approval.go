package proxy

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"gatekit/core/display"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Approvals keeps requests that wait for a human's approval outside of the client.
type Approvals interface {
	// Consume reports whether the request was approved. An approval is valid once.
	Consume(m *mcp.Message) bool
	// Submit stores the request until a human decides. The human sees the reason and the values.
	// values shows the request's params: bounded, escaped and without secrets. hint tells the
	// client how a human can approve the request. After an error, nobody can, and the client is
	// told to try again later.
	Submit(m *mcp.Message, reason, values string) (hint string, err error)
}

// passWithApproval inspects a request. When a stage asks for a human's approval, passWithApproval
// asks the client's user, in every protocol era. If the user rejects the request, it is denied. If
// the client cannot ask, or the user does not answer, the request is denied, too. Then the denial
// has a hint that says how to approve the request outside of the client.
func (call *Call) passWithApproval(ctx context.Context, srv *sessionServer, m *mcp.Message,
	d *deadline) (pipeline.Passed, error) {
	call.noteInspected()
	passed, err := call.settings.Pipeline.Pass(ctx, m)
	var denied *pipeline.DeniedError
	if !errors.As(err, &denied) || denied.Action != "ask" {
		return passed, err
	}
	approvals := call.settings.Approvals
	if approvals != nil && approvals.Consume(m) {
		call.recordApproval(ctx, denied, "approve", "by gatekit approve")
		return call.settings.Pipeline.Pass(pipeline.WithApproval(ctx), m)
	}
	switch asked, approved := call.askUser(ctx, srv, m, denied.Reason, d); {
	case approved:
		call.recordApproval(ctx, denied, "approve", "by the client's user")
		return call.settings.Pipeline.Pass(pipeline.WithApproval(ctx), m)
	case asked:
		call.recordApproval(ctx, denied, "reject", "by the client's user")
		return passed, denied
	}
	if approvals != nil {
		hint, err := approvals.Submit(m, denied.Reason, approvalValues(m))
		if err != nil {
			call.settings.Log.Error("request not stored for approval", "server", m.Server,
				"method", m.Method, "error", err)
			hint = "needs approval, and could not be stored for it: try again later"
		}
		denied.ApprovalHint = hint
	}
	return passed, denied
}

// recordApproval records a human's decision. If the decision cannot be recorded, recordApproval
// only logs the error. This is safe: an approved request needs a second record before it is
// forwarded.
func (call *Call) recordApproval(ctx context.Context, denied *pipeline.DeniedError,
	action, by string) {
	if err := call.settings.Pipeline.RecordDecision(ctx, denied, action, by); err != nil {
		call.settings.Log.Error("approval not recorded", "error", err)
	}
}

// maxApprovalReason bounds the reason that the client's user sees. The reason can contain
// arguments.
const maxApprovalReason = 500 // bytes

// approvalSchema is the form that the client shows its user.
const approvalSchema = `{"type":"object","properties":{"approve":{"type":"boolean",` +
	`"title":"Approve","default":false}},"required":["approve"]}`

// askUser sends the client an elicitation that asks the user to approve m. asked is false when the
// client did not declare elicitation, or did not answer.
func (call *Call) askUser(ctx context.Context, srv *sessionServer, m *mcp.Message, reason string,
	d *deadline) (asked, approved bool) {
	h := &serverHandler{session: call.session, server: srv, client: call.client,
		request: call.request}
	declares, known := h.clientCapabilities()
	if !known || !declares("elicitation") || declares("elicitation/url") &&
		!declares("elicitation/form") {
		return false, false
	}
	question := "Gatekit: may " + display.EscapeLine(m.Method, 100) + " of " + quoteName(m.Name) +
		" go to the server " + quoteName(m.Server) + "? " +
		display.EscapeLine(strings.TrimPrefix(reason, "needs approval: "), maxApprovalReason) +
		". It sends: " + cmp.Or(approvalValues(m), "no values")
	params := object(textField("message", question),
		field("requestedSchema", []byte(approvalSchema)))
	elicitation := call.session.stamp(mcp.NewRequest(`"gatekit-approval"`, "elicitation/create",
		params), mcp.ToClient, m)
	elicitation.Server = m.Server
	// No server has got m yet, so the record of the elicitation must not contain the values of m.
	passed := call.settings.Pipeline.PassOwnQuoting(ctx, elicitation)
	if passed.Message() == nil {
		return false, false
	}
	d.pause()
	defer d.resume()
	answers, err := call.client.SendRequests(ctx, []pipeline.Passed{passed})
	if err != nil || len(answers) != 1 || answers[0] == nil ||
		answers[0].Kind != mcp.Response {
		return false, false
	}
	approve, _ := answers[0].Get("/content/approve")
	return true, answers[0].TextEquals("/action", "accept") && string(approve) == "true"
}
