package telemetry

import (
	"context"
	"strings"
	"time"

	"gatekit/core/canary"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Recorder returns a recorder that passes records to rec, and counts and traces the records.
func (t *Telemetry) Recorder(rec pipeline.Recorder) pipeline.Recorder { return &recorder{t, rec} }

type recorder struct {
	t    *Telemetry
	next pipeline.Recorder
}

// Record implements pipeline.Recorder.
func (r *recorder) Record(ctx context.Context, o pipeline.Outcome) (uint64, error) {
	start, earlierErr := time.Now(), r.t.recordErr.Load()
	seq, err := r.next.Record(ctx, o)
	i := r.t.metrics
	i.auditDuration.Record(ctx, time.Since(start).Seconds())
	for _, s := range o.Steps {
		i.stageDuration.Record(ctx, s.Duration.Seconds(), i.stageLabels.option(stageResult{s.Stage,
			s.Action}))
	}
	if err != nil {
		r.t.recordErr.Store(&err)
		i.auditFailures.Add(ctx, 1)
		return seq, err
	}
	if earlierErr != nil { // an error since the start stays, as this record may be the older one
		r.t.recordErr.CompareAndSwap(earlierErr, nil)
	}
	r.t.traceRecord(ctx, o, seq)
	r.t.learnTools(o)
	m := o.Before
	if m == nil {
		m = &mcp.Message{}
	}
	d := decision{method: methodLabel(m.Method), server: m.Server, tool: r.t.toolLabel(m.Method,
		m.Name),
		action: o.Action}
	if m.Direction != 0 {
		d.direction = m.Direction.String()
	}
	if m.Kind != 0 {
		d.kind = m.Kind.String()
	}
	i.decisions.Add(ctx, 1, i.decisionLabels.option(d))
	for _, s := range o.Steps {
		if len(s.Hidden) > 0 && o.After != nil {
			i.hidden.Add(ctx, int64(len(s.Hidden)), i.hiddenLabels.option(hidden{d.method, m.Server,
				s.Stage}))
		}
	}
	r.t.countCanaries(ctx, o, d.direction)
	if o.Action == "deny" || o.Action == "ask" {
		i.denials.Add(ctx, 1, i.denialLabels.option(r.t.denialOf(o)))
	}
	return seq, nil
}

// countCanaries counts the canaries that a message had.
func (t *Telemetry) countCanaries(ctx context.Context, o pipeline.Outcome, direction string) {
	for _, s := range o.Steps {
		if s.Stage != canary.StageName {
			continue
		}
		for _, f := range s.Findings {
			if name, ok := strings.CutPrefix(f.Type, canary.FindingType); ok {
				t.metrics.canaries.Add(ctx, 1, t.metrics.canaryLabels.option(canaryFound{name,
					direction}))
			}
		}
	}
}

// LastRecordError returns the error of the last record that could not be written. It returns nil if
// a later record was written, or if there was no error. A record is later if its Record was called
// after the error.
func (t *Telemetry) LastRecordError() error {
	if err := t.recordErr.Load(); err != nil {
		return *err
	}
	return nil
}

// denialOf returns the stage and rule that denied a message. If Gatekit itself denied the message,
// the stage is "gatekit".
func (t *Telemetry) denialOf(o pipeline.Outcome) denial {
	for _, s := range o.Steps {
		if s.Action != o.Action {
			continue
		}
		d := denial{stage: s.Stage}
		if s.Stage == t.options.PolicyStage {
			d.rule = t.metrics.ruleLabel(s.Reason)
		}
		return d
	}
	return denial{stage: "gatekit"}
}

// learnTools adds tools to the labels, if the outcome is a list of tools that is forwarded to a
// client. Names from clients are not added, because a few hundred invented names would fill the
// labels. StartCall and Send add the tools of successful calls, because not every client asks for a
// list.
func (t *Telemetry) learnTools(o pipeline.Outcome) {
	m := o.After
	if !t.options.ToolLabels || m == nil || m.Kind != mcp.Response || m.Method != "tools/list" ||
		m.Server == "" {
		return
	}
	for _, s := range o.Steps {
		for _, f := range s.Findings {
			// a stage has found something in a name; add no name, even if the message has passed
			if strings.HasSuffix(f.Pointer, "/name") {
				return
			}
		}
	}
	m.Items("/tools", func(_ int, raw []byte) bool {
		name, _ := mcp.NewNotification("", raw).Text("/name")
		t.metrics.tools.add(name)
		return true
	})
}

// toolLabel returns the label of a called tool.
func (t *Telemetry) toolLabel(method, name string) string {
	if !t.options.ToolLabels || method != "tools/call" {
		return ""
	}
	return t.metrics.tools.label(name)
}
