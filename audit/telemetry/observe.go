package telemetry

import (
	"context"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// StartCall implements proxy.Observer: it counts a client's request and how long it takes, and
// traces it.
func (t *Telemetry) StartCall(ctx context.Context, m *mcp.Message,
	o proxy.OpenOptions) (context.Context, func(pipeline.Passed)) {
	began := time.Now()
	i := t.metrics
	i.active.Add(ctx, 1)
	traced := func(string, string) {}
	var told *told
	if t.tracer != nil || t.o.ToolLabels {
		ctx, told = remembering(ctx)
	}
	if t.tracer != nil {
		ctx, traced = t.received(ctx, m, o)
	}
	return ctx, func(answer pipeline.Passed) {
		i.active.Add(ctx, -1)
		op := operation{method: method(m.Method), version: revision(o.Revision)}
		if op.fault, op.code = i.failed(m.Method, answer.Message()); answer.Message() == nil {
			op.fault = "cancelled"
		}
		traced(op.fault, op.code)
		if m.Method == "subscriptions/listen" {
			return // it is open for as long as its client likes
		}
		if t.o.ToolLabels && m.Method == "tools/call" {
			name, _ := m.Text("/name")
			if answered := answer.Message(); told.named() && op.fault == "" && answered != nil &&
				answer.Denial() == nil {
				i.tools.learn(name)
			}
			op.tool = t.tool(m.Method, name)
		}
		i.received.Record(ctx, time.Since(began).Seconds(), i.operationLabels.of(op))
	}
}

// ServerObserver is what watches the requests to the server of a name.
func (t *Telemetry) ServerObserver(name string) *ServerObserver { return &ServerObserver{t, name} }

// ServerObserver watches the requests to one server. It is an upstream.Observer.
type ServerObserver struct {
	t    *Telemetry
	name string
}

// Send implements upstream.Observer.
func (s *ServerObserver) Send(ctx context.Context,
	m *mcp.Message) ([]mcp.Edit, func(*mcp.Message, error)) {
	began := time.Now()
	edits, traced := s.t.asked(ctx, m, s.name)
	return edits, func(answer *mcp.Message, err error) {
		i := s.t.metrics
		op := operation{method: method(m.Method), server: s.name}
		switch op.fault, op.code = i.failed(m.Method, answer); {
		case ctx.Err() != nil && answer == nil:
			op.fault = "cancelled"
		case err != nil:
			op.fault = "unavailable"
		}
		traced(op.fault, op.code)
		if m.Method == "subscriptions/listen" {
			return
		}
		if s.t.o.ToolLabels && m.Method == "tools/call" {
			name, _ := m.Text("/name")
			if toldIn(ctx).named() && op.fault == "" && answer != nil {
				i.tools.learn(name)
			}
			op.tool = s.t.tool(m.Method, name)
		}
		i.sent.Record(ctx, time.Since(began).Seconds(), i.operationLabels.of(op))
	}
}
