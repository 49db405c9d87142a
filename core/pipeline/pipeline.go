package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/stop"
	"gatekit/core/workers"
)

// Options are the settings of a pipeline.
type Options struct {
	IncludeReasons bool // give the client the reason of a denial
	// answer a denied tools/call with a result that has isError, not with an error
	DenyToolCallsAsResult bool
	RecordableNames       *RecordableNames // names that may be recorded; nil is an empty set
	HiddenItems           *HiddenItems     // items that stages hid; nil is an empty set
	RedactedValues        *RedactedValues  // values that stages redacted; nil is an empty set
	Allowances            Allowances       // interventions without effect; nil is none
	Workers               *workers.Pool    // runs the inspections; nil uses new goroutines
	Stops                 *stop.Gate       // messages that an operator has stopped; nil is none
	Receipts              ReceiptSigner    // signs receipts for results of tools; nil is none
	PolicyRevision        string           // of the policies, for receipts; "" without policies
}

// Pipeline inspects and records messages. Only its [RecordableNames], [HiddenItems] and
// [RedactedValues] change. Many goroutines may use a Pipeline. A reload of the configuration makes
// a new Pipeline.
type Pipeline struct {
	recorder Recorder
	options  Options
	// for each kind and direction, the stages that want messages of that kind and direction, in
	// order; a single look-up shows whether any stage wants a message
	stages    [mcp.Error + 1][mcp.ToClient + 1][]*stage
	hiders    []*stage            // stages with KeepHidden, in order
	layers    []*renameLayer      // rename layers of the stages that rename, in order
	restores  map[string]*Restore // of the stages that restore values, by name
	hasStages bool                // New was given at least one stage
}

// New makes a pipeline of the stages, in order. recorder must not be nil.
func New(recorder Recorder, o Options, stages ...StageConfig) *Pipeline {
	if recorder == nil {
		panic("pipeline: New needs a recorder")
	}
	if o.RecordableNames == nil {
		o.RecordableNames = new(RecordableNames)
	}
	if o.HiddenItems == nil {
		o.HiddenItems = new(HiddenItems)
	}
	if o.RedactedValues == nil {
		o.RedactedValues = new(RedactedValues)
	}
	p := &Pipeline{recorder: recorder, options: o, hasStages: len(stages) > 0}
	for _, config := range stages {
		s := newStage(config)
		if s.keepHidden {
			p.hiders = append(p.hiders, s)
		}
		if config.Restore != nil {
			if p.restores == nil {
				p.restores = make(map[string]*Restore)
			}
			p.restores[config.Name] = config.Restore
		}
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
	return p.pass(ctx, m, "pass")
}

// pass is Pass. If no stage acts, the record has the given action.
func (p *Pipeline) pass(ctx context.Context, m *mcp.Message, action string) (Passed, error) {
	o := Outcome{Time: time.Now(), Before: m, After: m, Action: "pass", fullyInspected: true}
	if err := checkRoutable(m); err != nil {
		if m == nil {
			m = &mcp.Message{}
		}
		o.Before, o.After, o.Action, o.Err, o.fullyInspected = m, nil, "deny", err, false
		return p.finish(ctx, o, nil, &DeniedError{Stage: ownStage, Action: "deny", Err: err})
	}
	answer, d := p.removeAndInspect(ctx, &o)
	var r Restoration
	if d == nil {
		r, d = p.restore(ctx, &o)
	}
	if d == nil {
		d = p.refuseStopped(&o) // a stop may have begun during the inspection
	}
	if d == nil {
		p.keepRedacted(ctx, &o)
	}
	if d == nil && o.Action == "pass" {
		o.Action = action
	}
	passed, err := p.finish(ctx, o, answer, d)
	if err == nil {
		passed.restoration = r
	}
	return passed, err
}

// Consume inspects and records a peer's message that Gatekit does not forward: Gatekit drops or
// answers the message itself. The stages inspect the message like any other message. If no stage
// denies or answers the message, the record has the given action and reason. If a stage would have
// denied it ([Verdict].Would), the record says so instead. If the error is not nil, it is a
// *DeniedError. The caller then answers a request with the Response of the error.
func (p *Pipeline) Consume(ctx context.Context, m *mcp.Message, action, reason string) error {
	o := Outcome{Time: time.Now(), Before: m, After: m, Action: "pass", fullyInspected: true}
	answer, d := p.removeAndInspect(context.WithoutCancel(ctx), &o)
	o.After = nil
	o.removeChanged()
	if d == nil && o.Action != "would_deny" && o.Action != "would_ask" {
		o.Action, o.Reason = action, reason
	}
	_, err := p.finish(ctx, o, answer, d)
	return err
}

// removeAndInspect removes the keys of _meta that no peer may set, and asks the stages. It fills in
// the other fields of o. Its results are the results of inspect.
func (p *Pipeline) removeAndInspect(ctx context.Context, o *Outcome) (answer *mcp.Message,
	d *DeniedError) {
	if d = p.refuseStopped(o); d != nil {
		return nil, d
	}
	if d = removeTrustMeta(o); d != nil {
		return nil, d
	}
	if d = p.redactReturned(o); d != nil {
		return nil, d
	}
	stages, layers := p.stages[o.Before.Kind][o.Before.Direction], p.layersFor(o.Before)
	if len(stages) > 0 && mcp.HasDefinitions(o.After) {
		// Plugins keep their verdicts by the digest. The record has it, too.
		isChanged := o.After != o.Before
		if o.After = o.After.WithDigest(); !isChanged {
			o.Before = o.After
		}
	}
	if len(stages)+len(layers) > 0 || p.mayUseHidden(o.Before) {
		answer, d = p.inspect(ctx, o, stages, layers)
		o.Duration = time.Since(o.Time)
		return answer, d
	}
	o.Action, o.Reason = summarize(o.Steps)
	if p.hasStages {
		p.options.RecordableNames.addList(o.After, nil)
	}
	return nil, nil
}

// finish records o, and then returns o.After or the denial d. answer is the answer of a stage, or
// nil.
func (p *Pipeline) finish(ctx context.Context, o Outcome, answer *mcp.Message,
	d *DeniedError) (Passed, error) {
	recorded := p.withhold(o)
	seq, err := p.record(ctx, recorded)
	if err != nil {
		return Passed{}, &DeniedError{Message: o.Before, Stage: "audit", Action: "deny",
			Err: fmt.Errorf("record the outcome: %w", err), options: p.options, by: p}
	}
	if d == nil {
		return Passed{m: o.After, by: p, record: seq, decision: o.Action,
			recordedName: recorded.Before.Name}, nil
	}
	d.by, d.recordedName = p, recorded.Before.Name
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

// record calls the recorder. If the recorder panics, record returns an error.
func (p *Pipeline) record(ctx context.Context, o Outcome) (seq uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			seq, err = 0, fmt.Errorf("the recorder panicked: %v", r)
		}
	}()
	return p.recorder.Record(ctx, o)
}

// checkRoutable returns an error if no stages can be chosen for m. Such a message is a fault of the
// adapter, not of the peer.
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

// inspect replaces clients' names in o.Before by the server's names, asks the stages, and fills in
// the other fields of o. If inspect returns no denial, o.After may be forwarded. If a stage
// answered, inspect returns its answer, which is not inspected yet.
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
	var used []usedAllowance
	for len(remaining) > 0 {
		var current []*stage
		if current, remaining = nextStages(remaining, o.Before); len(current) == 0 {
			continue
		}
		started := time.Now()
		results := p.inspectWith(found.addTo(ctx), o.After, current)
		for i, s := range current {
			next, step, x, denied := p.applyResult(ctx, s, o.After, results[i], o.Steps)
			if denied == nil && results[i].err == nil && p.remembersHidden(s) &&
				!p.options.HiddenItems.judge(s.name, o.After, results[i].verdict.Hide,
					x.verdict.itemIDs) && s.keepHidden {
				step.Action, step.Reason = "deny", "the stage hides more items than Gatekit can "+
					"remember"
				denied = &DeniedError{Stage: s.name, Action: "deny", Reason: step.Reason}
			}
			// the first stage of a group gets the time of the whole group
			step.Duration, started = time.Since(started), time.Now()
			o.Steps = append(o.Steps, step)
			o.fullyInspected = o.fullyInspected && step.Action != "skip"
			o.OmitBody = o.OmitBody || results[i].verdict.OmitBody
			found.add(results[i])
			switch {
			case denied != nil:
				o.removeChanged()
				o.fullyInspected = o.fullyInspected && denied.Err == nil && i == len(current)-1 &&
					!slices.ContainsFunc(remaining, func(s *stage) bool {
						return s.wants.includes(o.Before)
					})
				o.After, o.Action, o.Reason, o.Err = nil, denied.Action, denied.Reason, denied.Err
				return nil, denied
			case step.Action != "answer":
				if hidden := results[i].verdict.Hide; len(hidden) > 0 && results[i].err == nil {
					// so that a later request for a hidden name is recorded with the name
					p.options.RecordableNames.addList(o.After, o.Steps, hidden...)
				}
				o.After = next
				if v := results[i].verdict; len(v.Redacted) > 0 && results[i].err == nil &&
					p.restores[s.name] != nil {
					o.redacted = append(o.redacted, redactedBy{s.name, v.Redacted})
				}
			case answer == nil:
				// the later stages are still asked, since a denial overrides an answer
				answer, answeredBy = next, s.name
			}
			for _, id := range x.used {
				used = append(used, usedAllowance{id, s.name})
			}
			if len(x.allowed) > 0 && i+1 < len(current) {
				// The next stages of the group were asked about another message, or not at all.
				remaining = slices.Concat(current[i+1:], remaining)
				break
			}
		}
	}
	if d = p.denyHiddenUse(o, &used); d != nil {
		return nil, d
	}
	if d = p.useAll(o, used); d != nil {
		return nil, d
	}
	trimChanged(o.Steps)
	switch o.Before.Kind {
	case mcp.Request:
		if name, method := p.mustWithhold(o); name || method {
			// This only marks the message. The server gets the name, but the records of the answers
			// will not have it.
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
	for _, word := range []string{"answer", "modify", "hide", "restore", "skip", "allowed",
		"would_deny", "would_ask", "would_answer", "would_modify", "would_hide"} {
		for _, s := range steps {
			if s.Action == word {
				return word, s.Reason
			}
		}
	}
	return "pass", ""
}

// PassOwn records m and lets it pass without asking the stages. m is a message that Gatekit made:
// the answer to a ping, a merged list, an error, a cancellation, or a result with input requests
// for a call that waits. The stages have inspected all content of m before. If m cannot be
// recorded, PassOwn returns an error message in place of an answer, and the zero Passed in place of
// other messages.
func (p *Pipeline) PassOwn(ctx context.Context, m *mcp.Message) Passed {
	return p.passOwn(ctx, m, false)
}

// PassOwnInspected records m, an answer that Gatekit made in the name of a server, and lets it pass
// if the stages do. The error is always a *DeniedError.
func (p *Pipeline) PassOwnInspected(ctx context.Context, m *mcp.Message) (Passed, error) {
	return p.pass(ctx, m, "answer")
}

// PassOwnQuoting is PassOwn for a message that quotes text of another message, which was not
// forwarded. The record does not have the body of m.
func (p *Pipeline) PassOwnQuoting(ctx context.Context, m *mcp.Message) Passed {
	return p.passOwn(ctx, m, true)
}

func (p *Pipeline) passOwn(ctx context.Context, m *mcp.Message, quotes bool) Passed {
	// The input requests in a result have records of their own. They may also quote text of
	// messages that were not forwarded.
	o := Outcome{Time: time.Now(), Before: p.withServerName(m), After: m, Action: "answer",
		OmitBody: quotes || m.CarriesInput}
	o = p.withhold(o)
	// The record gets Gatekit's own texts as its reason, such as why a call failed or was
	// cancelled.
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
	seq, err := p.record(ctx, o)
	switch {
	case err == nil:
		return Passed{m: m, by: p, record: seq, decision: o.Action, recordedName: o.Before.Name}
	case m.Kind == mcp.Response || m.Kind == mcp.Error:
		return Passed{by: p,
			m: stampAnswer(m, mcp.NewError(m.ID(), mcp.CodeDenied, refusedByPolicy, nil))}
	}
	return Passed{}
}

// RecordDecision records a human's decision on the request that d denied. action is the decision,
// and human is the name of the human who decided.
func (p *Pipeline) RecordDecision(ctx context.Context, d *DeniedError, action, human string) error {
	_, err := p.record(ctx, p.withhold(Outcome{Time: time.Now(), Before: d.Message, Action: action,
		Reason: human, fullyInspected: d.fullyInspected}))
	return err
}

// RecordEvent records an event other than a message: a start, a stop, a reload, a parse failure or
// a lost server. m has the fields of the event, such as its server; m may have no body, and may be
// nil. RecordEvent returns the error of the recorder.
func (p *Pipeline) RecordEvent(ctx context.Context, m *mcp.Message, action, reason string,
	err error) error {
	if m == nil {
		m = &mcp.Message{}
	}
	_, err = p.record(ctx, p.withhold(Outcome{Time: time.Now(), Before: m, Action: action,
		Reason: reason, Err: err}))
	return err
}
