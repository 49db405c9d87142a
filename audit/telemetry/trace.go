package telemetry

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// Bounds of what waits to be sent, and of one call. What is beyond them is dropped; nobody waits.
const (
	maxSpans = 8192
	maxBatch = 512
	// that are told of a call, with their stages: a server may report its progress a million times
	maxRecords = 64
)

// told is what the records of a call have told so far. It is in the call's context.
type told struct {
	records atomic.Int32
	// what it is about stands in a record, so that no stage found anything there
	name atomic.Bool
}

type toldKey struct{}

// remembering is ctx with a told, for a call of which names may be told.
func remembering(ctx context.Context) (context.Context, *told) {
	n := new(told)
	return context.WithValue(ctx, toldKey{}, n), n
}

func toldIn(ctx context.Context) *told {
	n, _ := ctx.Value(toldKey{}).(*told)
	return n
}

// named says whether names in the call may be told.
func (n *told) named() bool { return n != nil && n.name.Load() }

// Where a request's trace is said in it (SEP-414).
const (
	atParent = "/_meta/traceparent"
	atState  = "/_meta/tracestate"
)

// maxState bounds the bytes of a client's tracestate that is taken over.
const maxState = 512

const (
	keySession   = "mcp.session.id"
	keyPrompt    = "gen_ai.prompt.name"
	keyOperation = "gen_ai.operation.name"
	keyRequest   = "jsonrpc.request.id"
	keyExchange  = "gatekit.exchange"
	keyRecord    = "gatekit.record"
)

func newTracer(e sdk.SpanExporter, us *resource.Resource, share float64) *sdk.TracerProvider {
	return sdk.NewTracerProvider(
		sdk.WithResource(us),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(share))),
		sdk.WithRawSpanLimits(sdk.SpanLimits{AttributeValueLengthLimit: 4 * maxText,
			AttributeCountLimit: 32, EventCountLimit: maxRecords, LinkCountLimit: 1,
			AttributePerEventCountLimit: 8, AttributePerLinkCountLimit: 1}),
		sdk.WithBatcher(e, sdk.WithMaxQueueSize(maxSpans), sdk.WithMaxExportBatchSize(maxBatch),
			sdk.WithBatchTimeout(2*time.Second), sdk.WithExportTimeout(retryFor)),
	)
}

// ContextFromHeader is ctx with the trace that an HTTP request says it is part of. A call whose own
// _meta says another one is linked to it.
func (t *Telemetry) ContextFromHeader(ctx context.Context, h http.Header) context.Context {
	if t.tracer == nil {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(h))
}

// meta reads a trace from a request's _meta.
type meta struct{ m *mcp.Message }

// Get implements propagation.TextMapCarrier.
func (c meta) Get(key string) string {
	s, _ := c.m.Text("/_meta/" + mcp.EscapePointer(key))
	if len(s) > maxState {
		return ""
	}
	return s
}

// Set implements propagation.TextMapCarrier; nothing is set by it.
func (meta) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (meta) Keys() []string { return nil }

// received begins the span of a client's request, and answers the context in which it is handled.
// The trace that its _meta names is the one that it is part of; else that of ctx; else a new one.
func (t *Telemetry) received(ctx context.Context, m *mcp.Message,
	o proxy.OpenOptions) (context.Context, func(fault, code string)) {
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	around := trace.SpanContextFromContext(ctx)
	if said := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(),
		meta{m})); said.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, said)
		if around.IsValid() && !around.Equal(said) {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: around}))
		}
	}
	name, about := subject(m, false)
	ctx, span := t.tracer.Start(ctx, name, options...)
	if !span.IsRecording() {
		return ctx, func(string, string) {}
	}
	span.SetAttributes(about...)
	span.SetAttributes(given(keySession, m.Session, keyExchange, m.Exchange, keyVersion,
		revision(o.Revision))...)
	// The requests of one principal go by ids that are not their clients'. An id that is a text is
	// a client's, and nobody judges it.
	if id := string(m.ID()); id != "" && id[0] != '"' && !o.Shared {
		span.SetAttributes(attribute.String(keyRequest, text(id)))
	}
	return ctx, func(fault, code string) {
		if toldIn(ctx).named() { // not before it was judged
			name, about := subject(m, true)
			span.SetName(name)
			span.SetAttributes(about...)
		}
		end(span, fault, code)
	}
}

// asked begins the span of a request to a server, for a call that is traced, and answers what its
// _meta is to say. Any other request is left as it is: it may not even have a client's call that it
// is for.
func (t *Telemetry) asked(ctx context.Context, m *mcp.Message,
	server string) (edits []mcp.Edit, ended func(fault, code string)) {
	if t.tracer == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return nil, func(string, string) {}
	}
	name, about := subject(m, toldIn(ctx).named())
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
	span.SetAttributes(about...)
	span.SetAttributes(attribute.String(keyServer, server))
	said := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, said)
	edits = []mcp.Edit{mcp.Set(atParent, mcp.Quote(said["traceparent"]))}
	if state := said["tracestate"]; state != "" {
		edits = append(edits, mcp.Set(atState, mcp.Quote(state)))
	} else if _, stale := m.Get(atState); stale { // of a trace that this is no part of
		edits = append(edits, mcp.Remove(atState))
	}
	return edits, func(fault, code string) { end(span, fault, code) }
}

// subject is a span's name, and what is asked of whom, with the name of that where it may be told.
// A resource's URI is not told: it is an argument, and may hold what a stage clears.
func subject(m *mcp.Message, named bool) (name string, attributes []attribute.KeyValue) {
	called := method(m.Method)
	attributes = given(keyMethod, called)
	of := ""
	switch m.Method {
	case "tools/call":
		of = keyTool
		attributes = append(attributes, attribute.String(keyOperation, "execute_tool"))
	case "prompts/get":
		of = keyPrompt
	}
	what, ok := m.Text("/name")
	if of == "" || !ok || what == "" || !named {
		return called, attributes
	}
	what = text(what)
	return called + " " + what, append(attributes, attribute.String(of, what))
}

// end ends a span. The words of an error are not told: they are a server's, or say what was
// refused.
func end(span trace.Span, fault, code string) {
	if fault != "" {
		span.SetAttributes(given(keyError, fault, keyStatus, code)...)
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// decided tells of a record, and of the stages that were asked for it, in the span of the call that
// it is part of.
func (t *Telemetry) decided(ctx context.Context, o pipeline.Outcome, seq uint64) {
	n := toldIn(ctx)
	if m := o.Before; n != nil && m != nil && m.Kind == mcp.Request &&
		m.Direction == mcp.ToServer &&
		m.Name != "" {
		n.name.Store(true)
	}
	span := trace.SpanFromContext(ctx)
	if t.tracer == nil || !span.IsRecording() || n == nil || n.records.Add(1) > maxRecords {
		return
	}
	began := o.Time
	for _, s := range o.Steps {
		_, step := t.tracer.Start(ctx, "stage "+s.Stage, trace.WithTimestamp(began),
			trace.WithAttributes(given(keyStage, s.Stage, keyAction, s.Action)...))
		began = began.Add(s.Duration)
		step.End(trace.WithTimestamp(began))
	}
	attributes := given(keyAction, o.Action)
	if m := o.Before; m != nil {
		attributes = append(attributes, given(keyMethod, method(m.Method), keyServer, m.Server)...)
		if m.Direction != 0 && m.Kind != 0 {
			attributes = append(attributes, given(keyDirection, m.Direction.String(), keyKind,
				m.Kind.String())...)
		}
	}
	span.AddEvent(keyRecord, trace.WithAttributes(append(attributes, attribute.Int64(keyRecord,
		int64(seq)))...))
}
