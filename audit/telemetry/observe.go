package telemetry

import (
	"context"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// StartCall implements proxy.Observer. It counts, measures and traces a client's request.
func (t *Telemetry) StartCall(ctx context.Context, m *mcp.Message,
	o proxy.OpenOptions) (context.Context, func(pipeline.Passed)) {
	start := time.Now()
	i := t.metrics
	i.activeRequests.Add(ctx, 1)
	endSpan := func(string, string) {}
	var call *callTrace
	if t.tracer != nil || t.options.ToolLabels {
		ctx, call = withCallTrace(ctx)
	}
	if t.tracer != nil {
		ctx, endSpan = t.startServerSpan(ctx, m, o)
	}
	return ctx, func(answer pipeline.Passed) {
		i.activeRequests.Add(ctx, -1)
		op := operation{method: methodLabel(m.Method), version: revisionLabel(o.Revision)}
		op.errorType, op.statusCode = i.errorOf(m.Method, answer.Message())
		if answer.Message() == nil {
			op.errorType = "cancelled"
		}
		endSpan(op.errorType, op.statusCode)
		if m.Method == "subscriptions/listen" {
			return // the duration of a subscription is up to the client
		}
		if t.options.ToolLabels && m.Method == "tools/call" {
			name, _ := m.Text("/name")
			answered := answer.Message() != nil && answer.Denial() == nil
			if call.mayShowName() && answered && op.errorType == "" {
				i.tools.add(name)
			}
			op.tool = t.toolLabel(m.Method, name)
		}
		i.serverDuration.Record(ctx, time.Since(start).Seconds(), i.operationLabels.option(op))
	}
}

// ServerObserver returns the observer of the requests to a server.
func (t *Telemetry) ServerObserver(name string) *ServerObserver { return &ServerObserver{t, name} }

// ServerObserver observes the requests to one server. It implements upstream.Observer.
type ServerObserver struct {
	t    *Telemetry
	name string
}

// Send implements upstream.Observer.
func (s *ServerObserver) Send(ctx context.Context,
	m *mcp.Message) ([]mcp.Edit, func(*mcp.Message, error)) {
	start := time.Now()
	edits, endSpan := s.t.startClientSpan(ctx, m, s.name)
	return edits, func(answer *mcp.Message, err error) {
		i := s.t.metrics
		op := operation{method: methodLabel(m.Method), server: s.name}
		switch op.errorType, op.statusCode = i.errorOf(m.Method, answer); {
		case ctx.Err() != nil && answer == nil:
			op.errorType = "cancelled"
		case err != nil:
			op.errorType = "unavailable"
		}
		endSpan(op.errorType, op.statusCode)
		if m.Method == "subscriptions/listen" {
			return
		}
		if s.t.options.ToolLabels && m.Method == "tools/call" {
			name, _ := m.Text("/name")
			if callTraceFrom(ctx).mayShowName() && op.errorType == "" && answer != nil {
				i.tools.add(name)
			}
			op.tool = s.t.toolLabel(m.Method, name)
		}
		i.clientDuration.Record(ctx, time.Since(start).Seconds(), i.operationLabels.option(op))
	}
}
