package proxy

import (
	"context"
	"errors"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Approvals is where humans approve requests that the client itself cannot ask them about.
type Approvals interface {
	// Consume says whether the request was approved. An approval is good once.
	Consume(m *mcp.Message) bool
	// Submit enters the request among those that wait for a human, with the reason, and answers how
	// one approves it.
	Submit(m *mcp.Message, reason string) (how string, err error)
}

// pass judges a request. When a stage wants a human to approve it, the client is asked to ask one,
// in either era; where that cannot be, or nobody did, it is refused, with a word on how to approve
// it outside.
func (x *Call) pass(ctx context.Context, l *link, m *mcp.Message,
	w *watch) (pipeline.Passed, error) {
	passed, err := x.c.Pipeline.Pass(ctx, m)
	var d *pipeline.DeniedError
	if !errors.As(err, &d) || d.Action != "ask" {
		return passed, err
	}
	approvals := x.c.Approvals
	if approvals != nil && approvals.Consume(m) {
		x.noteApproval(ctx, d, "approve", "by gatekit approve")
		return x.c.Pipeline.Pass(pipeline.WithApproval(ctx), m)
	}
	switch asked, approved := x.askHuman(ctx, l, m, d.Reason, w); {
	case approved:
		x.noteApproval(ctx, d, "approve", "by the client's user")
		return x.c.Pipeline.Pass(pipeline.WithApproval(ctx), m)
	case asked:
		x.noteApproval(ctx, d, "reject", "by the client's user")
		return passed, d
	}
	if approvals != nil {
		how, err := approvals.Submit(m, d.Reason)
		if err != nil {
			x.c.Log.Error("keep a request that waits for approval", "server", m.Server,
				"method", m.Method, "error", err)
		}
		d.ApprovalHint = how
	}
	return passed, d
}

// noteApproval records what a human said. What cannot be recorded is found out when the request
// itself is recorded next.
func (x *Call) noteApproval(ctx context.Context, d *pipeline.DeniedError, action, by string) {
	if err := x.c.Pipeline.RecordDecision(ctx, d, action, by); err != nil {
		x.c.Log.Error("record an approval", "error", err)
	}
}

// askHuman has the client ask its user. asked is false when it cannot: it did not declare
// elicitation, or nobody answers.
func (x *Call) askHuman(ctx context.Context, l *link, m *mcp.Message, reason string,
	w *watch) (asked, approved bool) {
	declares, known := (&caller{s: x.s, l: l, client: x.client, request: x.m}).declared()
	if !known || !declares("elicitation") || declares("elicitation/url") &&
		!declares("elicitation/form") {
		return false, false
	}
	question := "Gatekit: may " + m.Method + " of " + quoteName(m.Name) + " go to the server " +
		quoteName(m.Server) + "? " + strings.TrimPrefix(reason, "needs approval: ")
	params := object(textField("message", question), field("requestedSchema",
		[]byte(`{"type":"object","properties":{"approve":{"type":"boolean","title":"Approve","default":false}},"required":["approve"]}`)))
	q := x.s.stamp(mcp.NewRequest(`"gatekit-approval"`, "elicitation/create", params), mcp.ToClient,
		m.Exchange)
	q.Server = m.Server
	p := x.c.Pipeline.PassOwn(ctx, q)
	if p.Message() == nil {
		return false, false
	}
	w.hold()
	defer w.release()
	got, err := x.client.SendRequests(ctx, []pipeline.Passed{p})
	if err != nil || len(got) != 1 || got[0] == nil || got[0].Kind != mcp.Response {
		return false, false
	}
	approve, _ := got[0].Get("/content/approve")
	return true, got[0].TextEquals("/action", "accept") && string(approve) == "true"
}
