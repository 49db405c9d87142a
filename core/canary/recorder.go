package canary

import (
	"context"
	"errors"
	"slices"
	"strings"

	"gatekit/core/pipeline"
)

// recorder is the recorder that Stage.Recorder returns.
type recorder struct {
	stage *Stage
	next  pipeline.Recorder
}

// Recorder returns a recorder for the pipeline of the stage. It completes the outcomes and gives
// them to next:
//
//   - It searches the messages that the stage has not inspected: those that Gatekit made, dropped
//     at once or asked for itself, and those that were denied before any stage. If one of them has
//     a canary, the outcome gets a step of the stage and loses the body. Such a message is not
//     denied: what peers sent in it was inspected when it came, or reaches nobody.
//   - It replaces texts that have a value: reasons, errors, names and places. They may come from
//     the other stages, which quote a message that is only recorded.
func (s *Stage) Recorder(next pipeline.Recorder) pipeline.Recorder {
	return &recorder{stage: s, next: next}
}

// Record implements pipeline.Recorder.
func (r *recorder) Record(ctx context.Context, o pipeline.Outcome) (uint64, error) {
	if !slices.ContainsFunc(o.Steps, func(s pipeline.Step) bool { return s.Stage == StageName }) {
		r.addStep(&o)
	}
	r.replaceTexts(&o)
	return r.next.Record(ctx, o)
}

// addStep adds a step to the outcome if the message has a canary.
func (r *recorder) addStep(o *pipeline.Outcome) {
	m := o.After
	if m == nil {
		m = o.Before
	}
	if m == nil {
		return
	}
	v, err := r.stage.search(context.Background(), m) // no deadline, so no error
	if err != nil || len(v.Findings) == 0 {
		return
	}
	would := v
	if v.Would != nil {
		would = *v.Would
	}
	o.OmitBody = true
	o.Steps = append(slices.Clip(o.Steps), pipeline.Step{Stage: StageName, Action: "would_deny",
		Reason: would.Reason, Findings: v.Findings})
	if r.stage.report != nil {
		r.stage.report(m, pipeline.Verdict{Action: pipeline.Allow, Findings: v.Findings,
			Would: &would})
	}
}

// replaceTexts replaces the texts of the outcome that have a value.
func (r *recorder) replaceTexts(o *pipeline.Outcome) {
	o.Reason = r.replace(o.Reason)
	if o.Err != nil {
		if text, is := r.withoutValue(o.Err.Error()); is {
			o.Err = errors.New(text)
		}
	}
	if m := o.Before; m != nil {
		_, inName := r.withoutValue(m.Name)
		_, inMethod := r.withoutValue(m.Method)
		if inName || inMethod {
			c := *m
			if inName {
				c.Name, o.Withheld = "", append(slices.Clip(o.Withheld), m.Name)
			}
			if inMethod {
				c.Method, o.Withheld = "", append(slices.Clip(o.Withheld), m.Method)
			}
			if o.After == m {
				o.After = &c
			}
			o.Before = &c
		}
	}
	if len(o.Steps) == 0 {
		return
	}
	o.Steps = slices.Clone(o.Steps)
	for i := range o.Steps {
		s := &o.Steps[i]
		if s.Stage == StageName {
			continue // this package has written it
		}
		s.Reason = r.replace(s.Reason)
		s.Hidden, s.Changed = r.replaceAll(s.Hidden), r.replaceAll(s.Changed)
		if slices.ContainsFunc(s.Findings, func(f pipeline.Finding) bool {
			return r.has(f.Type) || r.has(f.Pointer)
		}) {
			s.Findings = slices.Clone(s.Findings)
			for j, f := range s.Findings {
				s.Findings[j].Type = r.replace(f.Type)
				if r.has(f.Pointer) {
					s.Findings[j].Pointer = ""
				}
			}
		}
	}
}

// replaceAll returns the texts with "" for those that have a value.
func (r *recorder) replaceAll(texts []string) []string {
	if !slices.ContainsFunc(texts, r.has) {
		return texts
	}
	texts = slices.Clone(texts)
	for i, text := range texts {
		if r.has(text) {
			texts[i] = ""
		}
	}
	return texts
}

func (r *recorder) replace(text string) string {
	text, _ = r.withoutValue(text)
	return text
}

func (r *recorder) has(text string) bool {
	_, has := r.withoutValue(text)
	return has
}

// withoutValue returns the text, or the names of the canaries that it has, and whether it has any.
// The text is replaced as a whole, since a value may be in it in another encoding.
func (r *recorder) withoutValue(text string) (without string, has bool) {
	if len(text) < r.stage.scanner.window {
		return text, false
	}
	var names []string
	r.stage.scanner.findDecoded([]byte(text), func(canary int) {
		if name := r.stage.canaries[canary].Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	})
	if names == nil {
		return text, false
	}
	return "[text with the value of canary " + strings.Join(names, ", ") + "]", true
}
