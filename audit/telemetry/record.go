package telemetry

import (
	"context"
	"strings"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Recorder is rec, whose records are counted when they are written.
func (t *Telemetry) Recorder(rec pipeline.Recorder) pipeline.Recorder { return &recorder{t, rec} }

type recorder struct {
	t   *Telemetry
	rec pipeline.Recorder
}

// Record implements pipeline.Recorder.
func (r *recorder) Record(ctx context.Context, o pipeline.Outcome) (uint64, error) {
	began := time.Now()
	seq, err := r.rec.Record(ctx, o)
	i := r.t.metrics
	i.recorded.Record(ctx, time.Since(began).Seconds())
	for _, s := range o.Steps {
		i.stages.Record(ctx, s.Duration.Seconds(), i.stageLabels.of(judgement{s.Stage, s.Action}))
	}
	if err != nil {
		r.t.fault.Store(&err)
		i.failures.Add(ctx, 1)
		return seq, err
	}
	if r.t.fault.Load() != nil { // what is not written is not fought for by those who record
		r.t.fault.Store(nil)
	}
	r.t.decided(ctx, o, seq)
	r.t.listed(o)
	m := o.Before
	if m == nil {
		m = &mcp.Message{}
	}
	d := decision{method: method(m.Method), server: m.Server, tool: r.t.tool(m.Method, m.Name),
		action: o.Action}
	if m.Direction != 0 {
		d.direction = m.Direction.String()
	}
	if m.Kind != 0 {
		d.kind = m.Kind.String()
	}
	i.decisions.Add(ctx, 1, i.decisionLabels.of(d))
	if o.Action == "deny" || o.Action == "ask" {
		i.denials.Add(ctx, 1, i.denialLabels.of(r.t.refused(o)))
	}
	return seq, nil
}

// LastRecordError is why the last record could not be written; nil when it could.
func (t *Telemetry) LastRecordError() error {
	if err := t.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// refused is who refused a message: Gatekit itself where no stage did.
func (t *Telemetry) refused(o pipeline.Outcome) denial {
	for _, s := range o.Steps {
		if s.Action != o.Action {
			continue
		}
		d := denial{stage: s.Stage}
		if s.Stage == t.o.PolicyStage {
			d.rule = t.metrics.rule(s.Reason)
		}
		return d
	}
	return denial{stage: "gatekit"}
}

// listed learns the tools of a list that goes on to a client. The names that clients make up are
// not learned: a few hundred of them would be all that is told. What a call that went well was
// about is learned as well: not all clients ask for a list.
func (t *Telemetry) listed(o pipeline.Outcome) {
	m := o.After
	if !t.o.ToolLabels || m == nil || m.Kind != mcp.Response || m.Method != "tools/list" ||
		m.Server == "" {
		return
	}
	for _, s := range o.Steps {
		for _, f := range s.Findings {
			if strings.HasSuffix(f.Pointer, "/name") { // what was found there may have been let go
				return
			}
		}
	}
	m.Items("/tools", func(_ int, raw []byte) bool {
		name, _ := mcp.NewNotification("", raw).Text("/name")
		t.metrics.tools.learn(name)
		return true
	})
}

// tool is the name of a tool that is called, as a label.
func (t *Telemetry) tool(method, name string) string {
	if !t.o.ToolLabels || method != "tools/call" {
		return ""
	}
	return t.metrics.tools.known(name)
}
