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

// Stage judges messages. Inspect may be called from many goroutines at once and must keep neither m
// nor its bytes. An error denies. When ctx ends, Inspect must return: its verdict is no longer
// waited for.
type Stage interface {
	Inspect(ctx context.Context, m *mcp.Message) (Verdict, error)
}

// StageConfig is a stage in its place in the pipeline.
type StageConfig struct {
	Name    string
	Stage   Stage
	Wants   Wants
	Timeout time.Duration // of one Inspect; 0 is 2 s
	// what asks it together with its neighbours of the same Group; nil asks it alone
	Group StageGroup
	// on_error = "skip": an error, panic or time-out skips the stage instead of denying; recorded
	SkipOnError bool
	// the names that it may give, at the servers that it wants; they must hold Check
	Renames Renames
}

// StageGroup asks several stages about one message at once, where that is cheaper than one after
// another: in one question to the process that they all run in. It asks them as [InspectInOrder]
// does. InspectAll is Inspect for all of them: with one verdict, or one error, for each that was
// asked; those after a denial are not. An error of its own is that of all.
type StageGroup interface {
	InspectAll(ctx context.Context, m *mcp.Message, stages []Stage) ([]Verdict, []error, error)
}

// Step is what one stage did to one message.
type Step struct {
	Stage    string
	Action   string // allow is "pass"; deny, modify, answer, hide, skip
	Reason   string // of a skip: what went wrong
	Duration time.Duration
	Findings []Finding
	// with modify: where it changed the body, as far as that is still there in what went on
	Changed []string
}

// Outcome is one decision, for the record.
type Outcome struct {
	Time time.Time
	// as it came; its fields say session, exchange, direction, kind, method, server, name
	Before *mcp.Message
	// as it goes; nil when it does not (a stage's answer is an outcome of its own); Before itself
	// when nothing changed
	After *mcp.Message
	// pass, deny, modify, answer, hide, ask, skip, park (design.md 11), or an event's
	Action   string
	Reason   string
	Steps    []Step
	Duration time.Duration
	Err      error
	// Withheld are words of a peer that are left out of Before's Name and Method, and of Reason: no
	// stage has judged them, or one found something there. A recorder may keep keyed hashes of
	// them, no text and no body.
	Withheld []string

	// all stages that want Before were asked, as far as a denial did not make the last of them
	// needless, and none failed
	judged bool
}

// Recorder keeps outcomes. When it returns nil the record is as durable as configured, and the
// message may move; seq is the number of the record, from 1. When it returns an error the message
// does not move. It records although ctx has ended: that a message was denied because its sender
// left is a decision too. It may be called from many goroutines at once and keeps nothing of o.
type Recorder interface {
	Record(ctx context.Context, o Outcome) (seq uint64, err error)
}

// Options of a pipeline.
type Options struct {
	IncludeReasons        bool             // tell the client why
	DenyToolCallsAsResult bool             // a refused tools/call is an isError result
	RecordableNames       *RecordableNames // that may be told; nil begins with none
	// where stages are asked; nil is a new goroutine each time
	Workers *workers.Pool
}

// Pipeline is immutable and safe for many goroutines, but for its [RecordableNames]. A reload makes
// a new one.
type Pipeline struct {
	rec     Recorder
	options Options
	// asked holds, in their order, the stages that want anything of a kind and direction, so that a
	// message that nobody wants costs an index.
	asked  [mcp.Error + 1][mcp.ToClient + 1][]*stage
	layers []*layer // of the stages that rename, in their order
	judges bool     // there are stages
}

// New makes a pipeline of the stages in their order. rec must not be nil.
func New(rec Recorder, o Options, stages ...StageConfig) *Pipeline {
	if rec == nil {
		panic("pipeline: a pipeline without a recorder")
	}
	if o.RecordableNames == nil {
		o.RecordableNames = new(RecordableNames)
	}
	p := &Pipeline{rec: rec, options: o, judges: len(stages) > 0}
	for _, n := range stages {
		s := newStage(n)
		if len(n.Renames.Tools)+len(n.Renames.Prompts) > 0 {
			p.layers = append(p.layers, newLayer(n))
		}
		for kind := mcp.Request; kind <= mcp.Error; kind++ {
			for to := mcp.ToServer; to <= mcp.ToClient; to++ {
				if n.Wants.sort(kind, to) {
					p.asked[kind][to] = append(p.asked[kind][to], s)
				}
			}
		}
	}
	return p
}

// Pass judges m, records the outcome and answers what may move. The error is always a *DeniedError.
func (p *Pipeline) Pass(ctx context.Context, m *mcp.Message) (Passed, error) {
	o := Outcome{Time: time.Now(), Before: m, After: m, Action: "pass", judged: true}
	if err := judgeable(m); err != nil {
		if m == nil {
			m = &mcp.Message{}
		}
		o.Before, o.After, o.Action, o.Err, o.judged = m, nil, "deny", err, false
		return p.settle(ctx, o, nil, &DeniedError{Stage: "pipeline", Action: "deny", Err: err})
	}
	var answer *mcp.Message
	var d *DeniedError
	if asked, layers := p.asked[m.Kind][m.Direction], p.renaming(m); len(asked)+len(layers) > 0 {
		answer, d = p.judge(ctx, &o, asked, layers)
		o.Duration = time.Since(o.Time)
	} else if p.judges {
		p.options.RecordableNames.list(m, nil)
	}
	return p.settle(ctx, o, answer, d)
}

// settle records o, and only then lets o.After move, or tells of the denial. answer is that of a
// stage.
func (p *Pipeline) settle(ctx context.Context, o Outcome, answer *mcp.Message,
	d *DeniedError) (Passed, error) {
	seq, err := p.record(ctx, p.veil(o))
	if err != nil {
		return Passed{}, &DeniedError{Message: o.Before, Stage: "audit", Action: "deny",
			Err: fmt.Errorf("record the outcome: %w", err), options: p.options}
	}
	if d == nil {
		return Passed{m: o.After}, nil
	}
	d.Message, d.RecordNumber, d.options, d.judged = o.Before, seq, p.options, o.judged
	if foundInName(o.Before, o.Steps) || foundInMethod(o.Before, o.Steps) {
		d.Message = unnamed(o.Before)
	}
	if answer != nil {
		if d.answer, err = p.Pass(ctx, answer); err != nil {
			return Passed{}, err
		}
	}
	return Passed{}, d
}

// record takes a recorder that panics for one that failed.
func (p *Pipeline) record(ctx context.Context, o Outcome) (seq uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			seq, err = 0, fmt.Errorf("the recorder panicked: %v", r)
		}
	}()
	return p.rec.Record(ctx, o)
}

// judgeable refuses what no stage could be chosen for: a fault of the boundary, not of the peer.
func judgeable(m *mcp.Message) error {
	switch {
	case m == nil:
		return errors.New("no message to judge")
	case m.Kind < mcp.Request || m.Kind > mcp.Error:
		return fmt.Errorf("a message of no known kind (%d) cannot be judged", m.Kind)
	case m.Direction < mcp.ToServer || m.Direction > mcp.ToClient:
		return fmt.Errorf("a message of no known direction (%d) cannot be judged", m.Direction)
	}
	return nil
}

// judge asks the stages about o.Before, in the server's own names, and fills in the rest of o.
// Without a denial o.After may move. The answer, if any, is a stage's; it was not judged yet.
func (p *Pipeline) judge(ctx context.Context, o *Outcome, asked []*stage,
	layers []*layer) (answer *mcp.Message, d *DeniedError) {
	if o.Before.Kind == mcp.Request {
		if d = toOwn(o, layers); d != nil {
			o.judged = false
			return nil, d
		}
	}
	var by string
	var found PriorFindings
	for len(asked) > 0 {
		var now []*stage
		if now, asked = neighbours(asked, o.Before); len(now) == 0 {
			continue
		}
		began := time.Now()
		opinions := p.ask(found.in(ctx), o.After, now)
		for i, s := range now {
			next, step, denied := s.weigh(ctx, o.After, opinions[i])
			// of stages that were asked together, the first has it all
			step.Duration, began = time.Since(began), time.Now()
			o.Steps = append(o.Steps, step)
			o.judged = o.judged && step.Action != "skip"
			found.add(opinions[i])
			switch {
			case denied != nil:
				for i := range o.Steps {
					o.Steps[i].Changed = nil // nothing went on
				}
				o.judged = o.judged && denied.Err == nil && i == len(now)-1 &&
					!slices.ContainsFunc(asked, func(s *stage) bool {
						return s.wants.match(o.Before)
					})
				o.After, o.Action, o.Reason, o.Err = nil, denied.Action, denied.Reason, denied.Err
				return nil, denied
			case step.Action != "answer":
				if hidden := opinions[i].verdict.Hide; len(hidden) > 0 && opinions[i].err == nil {
					// who asks for what was hidden is of interest
					p.options.RecordableNames.list(o.After, o.Steps, hidden...)
				}
				o.After = next
			case answer == nil: // the others are still asked: a denial beats an answer
				answer, by = next, s.name
			}
		}
	}
	trimChanged(o.Steps)
	switch o.Before.Kind {
	case mcp.Request:
		if name, method := p.veils(o); name || method { // the answers to it have its name, too
			o.After = unnamed(o.After)
			if answer != nil {
				answer.Request = o.After
			}
		} else if o.judged {
			p.options.RecordableNames.learn(o.Before.Server, o.Before.Name, maxCalled)
		}
	case mcp.Response:
		p.options.RecordableNames.list(o.After, o.Steps)
		if d = toKnown(o, layers); d != nil {
			return nil, d
		}
	}
	o.Action, o.Reason = summary(o.Steps)
	if answer == nil {
		return nil, nil
	}
	o.After = nil
	return answer, &DeniedError{Stage: by, Action: "answer", Reason: o.Reason}
}

// summary is the weightiest action of the steps that let a message go, and the reason of the first
// stage that took it.
func summary(steps []Step) (action, reason string) {
	for _, word := range []string{"answer", "modify", "hide", "skip"} {
		for _, s := range steps {
			if s.Action == word {
				return word, s.Reason
			}
		}
	}
	return "pass", ""
}

// PassOwn records m, a message of Gatekit's own (a ping's answer, a merged list, an error, a
// cancellation, a result that asks the client while its call waits), and lets it move. No stage is
// asked: it holds nothing that was not judged already. When it cannot be recorded, what moves is a
// bare error (requests' answers) or nothing (the zero Passed).
func (p *Pipeline) PassOwn(ctx context.Context, m *mcp.Message) Passed {
	o := Outcome{Time: time.Now(), Before: p.ownName(m), After: m, Action: "answer"}
	o = p.veil(o)
	switch { // our own words: what failed, or why a call is given up, belongs in the record
	case m.Kind == mcp.Error:
		o.Reason, _ = m.Text("/message")
		if p.judges {
			o.quote(m)
		}
	case m.Method == "notifications/cancelled":
		o.Reason, _ = m.Text("/reason")
	case m.CarriesInput:
		o.Action, o.Reason = "park", "it waits for what the client answers"
	}
	_, err := p.record(ctx, o)
	switch {
	case err == nil:
		return Passed{m: m}
	case m.Kind == mcp.Response || m.Kind == mcp.Error:
		return Passed{m: inPlaceOf(m, mcp.NewError(m.ID(), mcp.CodeDenied, refusedByPolicy, nil))}
	}
	return Passed{}
}

// RecordDecision records what a human said to the request that d refused.
func (p *Pipeline) RecordDecision(ctx context.Context, d *DeniedError, action, by string) error {
	_, err := p.record(ctx, p.veil(Outcome{Time: time.Now(), Before: d.Message, Action: action,
		Reason: by, judged: d.judged}))
	return err
}

// RecordEvent records something that is no message: start, stop, reload, a parse failure, a server
// lost. m carries the fields that apply, may have no body, and may be nil. The error is the
// recorder's.
func (p *Pipeline) RecordEvent(ctx context.Context, m *mcp.Message, action, reason string,
	err error) error {
	if m == nil {
		m = &mcp.Message{}
	}
	_, err = p.record(ctx, p.veil(Outcome{Time: time.Now(), Before: m, Action: action,
		Reason: reason, Err: err}))
	return err
}
