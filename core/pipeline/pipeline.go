package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/workers"
)

// Options are the settings of a pipeline.
type Options struct {
	IncludeReasons bool // give the client the reason of a denial
	// deny a tools/call with an isError result instead of an error
	DenyToolCallsAsResult bool
	RecordableNames       *RecordableNames // names that may be recorded; nil begins with none
	Workers               *workers.Pool    // runs the inspections; nil starts a goroutine for each
}

// Pipeline inspects and records messages. It is immutable but for its [RecordableNames], and safe
// for many goroutines. A reload makes a new one.
type Pipeline struct {
	recorder Recorder
	options  Options
	// the stages that want messages of a kind and direction, in order; so a message that no stage
	// wants costs one look-up
	stages    [mcp.Error + 1][mcp.ToClient + 1][]*stage
	layers    []*renameLayer // of the stages that rename, in order
	hasStages bool           // New was given at least one stage
}

// New makes a pipeline of the stages, in order. recorder must not be nil.
func New(recorder Recorder, o Options, stages ...StageConfig) *Pipeline {
	if recorder == nil {
		panic("pipeline: New needs a recorder")
	}
	if o.RecordableNames == nil {
		o.RecordableNames = new(RecordableNames)
	}
	p := &Pipeline{recorder: recorder, options: o, hasStages: len(stages) > 0}
	for _, config := range stages {
		s := newStage(config)
		if len(config.Renames.Tools)+len(config.Renames.Prompts) > 0 {
			p.layers = append(p.layers, newRenameLayer(config))
		}
		for kind := mcp.Request; kind <= mcp.Error; kind++ {
			for direction := mcp.ToServer; direction <= mcp.ToClient; direction++ {
				if config.Wants.includesKind(kind, direction) {
					p.stages[kind][direction] = append(p.stages[kind][direction], s)
				}
			}
		}
	}
	return p
}

// Pass inspects m, records the outcome and returns the message that may be forwarded. The error is
// always a *DeniedError.
func (p *Pipeline) Pass(ctx context.Context, m *mcp.Message) (Passed, error) {
	o := Outcome{Time: time.Now(), Before: m, After: m, Action: "pass", fullyInspected: true}
	if err := checkRoutable(m); err != nil {
		if m == nil {
			m = &mcp.Message{}
		}
		o.Before, o.After, o.Action, o.Err, o.fullyInspected = m, nil, "deny", err, false
		return p.finish(ctx, o, nil, &DeniedError{Stage: "pipeline", Action: "deny", Err: err})
	}
	var answer *mcp.Message
	var d *DeniedError
	stages, layers := p.stages[m.Kind][m.Direction], p.layersFor(m)
	if len(stages)+len(layers) > 0 {
		answer, d = p.inspect(ctx, &o, stages, layers)
		o.Duration = time.Since(o.Time)
	} else if p.hasStages {
		p.options.RecordableNames.addList(m, nil)
	}
	return p.finish(ctx, o, answer, d)
}

// Consume inspects and records a message of a peer that Gatekit does not forward: it drops the
// message or answers it itself. The stages see the message as any other. action and reason are
// those of the record if no stage acts. The error is always a *DeniedError: then the sender of a
// request gets the denial, or a stage's answer.
func (p *Pipeline) Consume(ctx context.Context, m *mcp.Message, action, reason string) error {
	o := Outcome{Time: time.Now(), Before: m, After: m, Action: "pass", fullyInspected: true}
	var answer *mcp.Message
	var d *DeniedError
	stages, layers := p.stages[m.Kind][m.Direction], p.layersFor(m)
	if len(stages)+len(layers) > 0 {
		answer, d = p.inspect(context.WithoutCancel(ctx), &o, stages, layers)
		o.Duration = time.Since(o.Time)
	}
	o.After = nil
	for i := range o.Steps {
		o.Steps[i].Changed = nil // nothing is forwarded
	}
	if d == nil {
		o.Action, o.Reason = action, reason
	}
	_, err := p.finish(ctx, o, answer, d)
	return err
}

// finish records o, and then returns o.After or the denial. answer is a stage's answer, if there is
// one.
func (p *Pipeline) finish(ctx context.Context, o Outcome, answer *mcp.Message,
	d *DeniedError) (Passed, error) {
	seq, err := p.record(ctx, p.withhold(o))
	if err != nil {
		return Passed{}, &DeniedError{Message: o.Before, Stage: "audit", Action: "deny",
			Err: fmt.Errorf("record the outcome: %w", err), options: p.options}
	}
	if d == nil {
		return Passed{m: o.After}, nil
	}
	d.Message, d.RecordNumber, d.options, d.fullyInspected = o.Before, seq, p.options,
		o.fullyInspected
	if hasFindingInName(o.Before, o.Steps) || hasFindingInMethod(o.Before, o.Steps) {
		d.Message = withNameWithheld(o.Before)
	}
	if answer != nil {
		if d.answer, err = p.Pass(ctx, answer); err != nil {
			return Passed{}, err
		}
	}
	return Passed{}, d
}

// record calls the recorder. A panic counts as its error.
func (p *Pipeline) record(ctx context.Context, o Outcome) (seq uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			seq, err = 0, fmt.Errorf("the recorder panicked: %v", r)
		}
	}()
	return p.recorder.Record(ctx, o)
}

// checkRoutable refuses a message for which no stage can be chosen: a fault of the adapter, not of
// the peer.
func checkRoutable(m *mcp.Message) error {
	switch {
	case m == nil:
		return errors.New("no message to inspect")
	case m.Kind < mcp.Request || m.Kind > mcp.Error:
		return fmt.Errorf("unknown message kind %d", m.Kind)
	case m.Direction < mcp.ToServer || m.Direction > mcp.ToClient:
		return fmt.Errorf("unknown message direction %d", m.Direction)
	}
	return nil
}

// inspect asks the stages about o.Before, with the server's names in it, and fills in the rest of
// o. If it returns no denial, o.After may be forwarded. It also returns a stage's answer, which is
// not inspected yet.
func (p *Pipeline) inspect(ctx context.Context, o *Outcome, remaining []*stage,
	layers []*renameLayer) (answer *mcp.Message, d *DeniedError) {
	if o.Before.Kind == mcp.Request {
		if d = toServerNames(o, layers); d != nil {
			o.fullyInspected = false
			return nil, d
		}
	}
	var answeredBy string
	var found PriorFindings
	for len(remaining) > 0 {
		var current []*stage
		if current, remaining = nextStages(remaining, o.Before); len(current) == 0 {
			continue
		}
		started := time.Now()
		results := p.inspectWith(found.addTo(ctx), o.After, current)
		for i, s := range current {
			next, step, denied := s.applyResult(ctx, o.After, results[i])
			// the time of a group counts for its first stage
			step.Duration, started = time.Since(started), time.Now()
			o.Steps = append(o.Steps, step)
			o.fullyInspected = o.fullyInspected && step.Action != "skip"
			found.add(results[i])
			switch {
			case denied != nil:
				for i := range o.Steps {
					o.Steps[i].Changed = nil // nothing was forwarded
				}
				o.fullyInspected = o.fullyInspected && denied.Err == nil && i == len(current)-1 &&
					!slices.ContainsFunc(remaining, func(s *stage) bool {
						return s.wants.includes(o.Before)
					})
				o.After, o.Action, o.Reason, o.Err = nil, denied.Action, denied.Reason, denied.Err
				return nil, denied
			case step.Action != "answer":
				if hidden := results[i].verdict.Hide; len(hidden) > 0 && results[i].err == nil {
					// so that a later request for a hidden name is recorded with it
					p.options.RecordableNames.addList(o.After, o.Steps, hidden...)
				}
				o.After = next
			case answer == nil:
				// the stages after this one are still asked: a denial overrides an answer
				answer, answeredBy = next, s.name
			}
		}
	}
	trimChanged(o.Steps)
	switch o.Before.Kind {
	case mcp.Request:
		if name, method := p.mustWithhold(o); name || method {
			// This only marks the message: the server still gets the name, but the records of its
			// answers lack it.
			o.After = withNameWithheld(o.After)
			if answer != nil {
				answer.Request = o.After
			}
		} else if o.fullyInspected {
			p.options.RecordableNames.add(o.Before.Server, o.Before.Name, maxCalledNames)
		}
	case mcp.Response:
		p.options.RecordableNames.addList(o.After, o.Steps)
		if d = toClientNames(o, layers); d != nil {
			return nil, d
		}
	}
	o.Action, o.Reason = summarize(o.Steps)
	if answer == nil {
		return nil, nil
	}
	o.After = nil
	return answer, &DeniedError{Stage: answeredBy, Action: "answer", Reason: o.Reason}
}

// summarize returns the most severe action of the steps of a message that was not denied, and the
// reason of the first step with that action.
func summarize(steps []Step) (action, reason string) {
	for _, word := range []string{"answer", "modify", "hide", "skip", "would_deny",
		"would_ask", "would_answer", "would_modify", "would_hide"} {
		for _, s := range steps {
			if s.Action == word {
				return word, s.Reason
			}
		}
	}
	return "pass", ""
}

// PassOwn records m and lets it pass without asking the stages. m is a message of Gatekit's own: a
// ping's answer, a merged list, an error, a cancellation, a result that asks the client while its
// call waits. All its content was inspected already. When m cannot be recorded, the result is a
// bare error (for answers) or the zero Passed.
func (p *Pipeline) PassOwn(ctx context.Context, m *mcp.Message) Passed {
	return p.passOwn(ctx, m, false)
}

// PassOwnQuoting is PassOwn for a message that quotes a message which was not forwarded. The record
// has no body.
func (p *Pipeline) PassOwnQuoting(ctx context.Context, m *mcp.Message) Passed {
	return p.passOwn(ctx, m, true)
}

func (p *Pipeline) passOwn(ctx context.Context, m *mcp.Message, quotes bool) Passed {
	// The requests in a result that asks the client have records of their own, and may quote.
	o := Outcome{Time: time.Now(), Before: p.withServerName(m), After: m, Action: "answer",
		OmitBody: quotes || m.CarriesInput}
	o = p.withhold(o)
	// Gatekit's own texts, such as why a call failed or was cancelled, belong in the record
	switch {
	case m.Kind == mcp.Error:
		o.Reason, _ = m.Text("/message")
		if p.hasStages {
			o.withholdQuotes(m)
		}
	case m.Method == "notifications/cancelled":
		o.Reason, _ = m.Text("/reason")
	case m.Direction == mcp.ToServer && (m.Kind == mcp.Request || m.Kind == mcp.Notification):
		o.Action = "own"
	case m.CarriesInput:
		o.Action, o.Reason = "park", "waiting for the client's answers"
	}
	_, err := p.record(ctx, o)
	switch {
	case err == nil:
		return Passed{m: m}
	case m.Kind == mcp.Response || m.Kind == mcp.Error:
		return Passed{m: stampAnswer(m, mcp.NewError(m.ID(), mcp.CodeDenied, refusedByPolicy, nil))}
	}
	return Passed{}
}

// RecordDecision records a human's decision on the request that d denied: the action, and by whom
// it was taken.
func (p *Pipeline) RecordDecision(ctx context.Context, d *DeniedError, action, by string) error {
	_, err := p.record(ctx, p.withhold(Outcome{Time: time.Now(), Before: d.Message, Action: action,
		Reason: by, fullyInspected: d.fullyInspected}))
	return err
}

// RecordEvent records an event that is no message: start, stop, reload, a parse failure, a lost
// server. m has the fields that apply, may have no body, and may be nil. The error is the
// recorder's.
func (p *Pipeline) RecordEvent(ctx context.Context, m *mcp.Message, action, reason string,
	err error) error {
	if m == nil {
		m = &mcp.Message{}
	}
	_, err = p.record(ctx, p.withhold(Outcome{Time: time.Now(), Before: m, Action: action,
		Reason: reason, Err: err}))
	return err
}
