package pipeline

import (
	"context"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/stop"
)

// stopStage names the stops of an operator in records and denials.
const stopStage = "stop"

// stoppedMessage is the message of the error that a client gets. It does not name the command that
// ends a stop: a model could run the command.
func stoppedMessage(s *stop.Stop) string {
	return "stopped by an operator (" + s.By + "): do not try again; ask the operator, who can " +
		"end the stop"
}

func deniedByStop(s *stop.Stop) *DeniedError {
	return &DeniedError{Stage: stopStage, Action: "deny", Reason: s.Reason, stop: s}
}

// refuseStopped denies o.Before if a stop is in force. After an inspection, the message may be
// stopped although it was not stopped before.
func (p *Pipeline) refuseStopped(o *Outcome) *DeniedError {
	if p.options.Stops == nil {
		return nil
	}
	s := p.options.Stops.Refuses(o.Before)
	if s == nil {
		return nil
	}
	o.removeChanged()
	o.Steps = append(o.Steps, Step{Stage: stopStage, Action: "deny", Reason: s.Reason})
	o.After, o.Action, o.Reason, o.fullyInspected = nil, "deny", s.Reason, false
	return deniedByStop(s)
}

// DenyStopped records that a request in flight was ended by a stop, and returns the denial.
func (p *Pipeline) DenyStopped(ctx context.Context, request *mcp.Message, s *stop.Stop) error {
	o := Outcome{Time: time.Now(), Before: request, Action: "deny", Reason: s.Reason,
		Steps: []Step{{Stage: stopStage, Action: "deny", Reason: s.Reason}}, OmitBody: true}
	_, err := p.finish(ctx, o, nil, deniedByStop(s))
	return err
}

// BeginWrite begins the write of m to its receiver. The caller must write the returned message, and
// call End of the returned Write when the write has ended.
//
// While a stop covers m, the returned message has nothing of m but its id. In place of an answer,
// it is an error; a cancellation has no reason of the peer. Any other message may not be written:
// then BeginWrite returns nil and the denial. All of this is recorded.
func (p *Pipeline) BeginWrite(ctx context.Context, m *mcp.Message) (*mcp.Message, stop.Write,
	*DeniedError) {
	if m == nil || p == nil || p.options.Stops == nil {
		return m, stop.Write{}, nil
	}
	write, s := p.options.Stops.Begin(m)
	if s == nil {
		return m, write, nil
	}
	if m.Method == "notifications/cancelled" {
		return bareCancellation(m), stop.Write{}, nil
	}
	ctx = context.WithoutCancel(ctx)
	o := Outcome{Time: time.Now(), Before: m, Action: "deny", Reason: s.Reason, OmitBody: true,
		Steps: []Step{{Stage: stopStage, Action: "deny", Reason: s.Reason}}}
	d := deniedByStop(s)
	_, _ = p.finish(ctx, o, nil, d) // if it was not recorded, it is not written either
	if m.Kind == mcp.Request || m.Kind == mcp.Notification {
		return nil, stop.Write{}, d
	}
	if m.Direction == mcp.ToServer {
		return d.DeclineResponse(m.ID()).m, stop.Write{}, d
	}
	return d.Response(m.ID()).m, stop.Write{}, d
}

// bareCancellation returns a cancellation that has only the id of the request.
func bareCancellation(m *mcp.Message) *mcp.Message {
	params := []byte(`{"reason":"stopped by an operator"}`)
	if id, ok := m.Get("/requestId"); ok {
		params = append(append([]byte(`{"requestId":`), id...),
			`,"reason":"stopped by an operator"}`...)
	}
	bare := mcp.NewNotification(m.Method, params)
	bare.Direction, bare.Session, bare.Principal = m.Direction, m.Session, m.Principal
	bare.Exchange, bare.Server = m.Exchange, m.Server
	return bare
}

// Begin is BeginWrite for p. It returns the Passed that the caller must write; the zero Passed if
// nothing may be written.
func (p Passed) Begin(ctx context.Context) (Passed, stop.Write) {
	if p.m == nil || p.denial != nil && p.denial.stop != nil {
		return p, stop.Write{} // the error of a stop is Gatekit's own text
	}
	m, write, denied := p.by.BeginWrite(ctx, p.m)
	if denied == nil {
		p.m = m
		return p, write
	}
	if m == nil {
		return Passed{}, write
	}
	return Passed{m: m, denial: denied, by: p.by}, write
}
