package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// group is a pipeline.StageGroup that asks its stages in this process. The field calls has the
// number of stages in each call. The function change may replace the results of a call.
type group struct {
	calls  []int
	change func(verdicts []pipeline.Verdict, errs []error) ([]pipeline.Verdict, []error, error)
}

func (g *group) InspectAll(ctx context.Context, m *mcp.Message,
	stages []pipeline.Stage) ([]pipeline.Verdict, []error, error) {
	g.calls = append(g.calls, len(stages))
	verdicts, errs := pipeline.InspectInOrder(m, len(stages),
		func(i int, m *mcp.Message) (pipeline.Verdict, error) { return stages[i].Inspect(ctx, m) })
	if g.change != nil {
		return g.change(verdicts, errs)
	}
	return verdicts, errs, nil
}

func TestNeighboursOfAGroupAreAskedInOneCall(t *testing.T) {
	g, other := &group{}, &group{}
	calls := pipeline.Wants{Methods: []string{"tools/call"}}
	lists := pipeline.Wants{Methods: []string{"tools/list"}}
	type stages = []pipeline.StageConfig
	for _, tt := range []struct {
		name         string
		stages       stages
		calls, other []int // the number of stages in each call of g, and of other
		asked        []string
	}{
		{"one stage is asked without the group", stages{{Name: "a", Group: g}}, nil, nil,
			[]string{"a"}},
		{"one stage that does not want the message is not asked",
			stages{{Name: "a", Group: g, Wants: lists}, {Name: "b"}}, nil, nil, []string{"b"}},
		{"two stages at the end", stages{{Name: "a"}, {Name: "b", Group: g},
			{Name: "c", Group: g}}, []int{2}, nil, []string{"a", "b", "c"}},
		{"two stages before a stage without a group", stages{{Name: "a", Group: g},
			{Name: "b", Group: g}, {Name: "c"}}, []int{2}, nil, []string{"a", "b", "c"}},
		{"stages that are no neighbours", stages{{Name: "a", Group: g}, {Name: "b"},
			{Name: "c", Group: g}}, nil, nil, []string{"a", "b", "c"}},
		{"neighbours of two groups", stages{{Name: "a", Group: g}, {Name: "b", Group: g},
			{Name: "c", Group: other}, {Name: "d", Group: other}}, []int{2}, []int{2},
			[]string{"a", "b", "c", "d"}},
		{"a stage that does not want the message is left out of the call",
			stages{{Name: "a", Group: g, Wants: calls}, {Name: "b", Group: g, Wants: lists},
				{Name: "c", Group: g}}, []int{2}, nil, []string{"a", "c"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g.calls, other.calls = nil, nil
			var asked []string
			for i := range tt.stages {
				name := tt.stages[i].Name
				tt.stages[i].Stage = stage(func(context.Context,
					*mcp.Message) (pipeline.Verdict, error) {
					asked = append(asked, name)
					return pipeline.Verdict{Action: pipeline.Allow}, nil
				})
			}
			rec := &record{}
			if _, err := pipeline.New(rec, pipeline.Options{}, tt.stages...).Pass(t.Context(),
				call(t)); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(g.calls, tt.calls) || !slices.Equal(other.calls, tt.other) {
				t.Errorf("calls with %v and %v stages, want %v and %v", g.calls, other.calls,
					tt.calls, tt.other)
			}
			var recorded []string
			for _, s := range rec.last(t).Steps {
				recorded = append(recorded, s.Stage)
			}
			if !slices.Equal(asked, tt.asked) || !slices.Equal(recorded, tt.asked) {
				t.Errorf("asked %v and recorded %v, want %v", asked, recorded, tt.asked)
			}
		})
	}
}

func TestResultsOfAGroup(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name   string
		change func(verdicts []pipeline.Verdict, errs []error) ([]pipeline.Verdict, []error, error)
		skip   bool     // SkipOnError of all stages
		want   []string // the actions of the steps
		fault  string   // of the denial; "" is no denial
	}{
		{"verdicts without errors", func(v []pipeline.Verdict,
			_ []error) ([]pipeline.Verdict, []error, error) {
			return v, nil, nil
		}, false, []string{"pass", "pass"}, ""},
		{"the error of the call counts for every stage", func(v []pipeline.Verdict,
			errs []error) ([]pipeline.Verdict, []error, error) {
			return v, errs, broken
		}, true, []string{"skip", "skip"}, ""},
		{"the error of the call denies", func(v []pipeline.Verdict,
			errs []error) ([]pipeline.Verdict, []error, error) {
			return v, errs, broken
		}, false, []string{"deny"}, `stage "a": broken`},
		{"the error of the second stage", func(v []pipeline.Verdict,
			_ []error) ([]pipeline.Verdict, []error, error) {
			return v, []error{nil, broken}, nil
		}, false, []string{"pass", "deny"}, `stage "b": broken`},
		{"an error without a verdict", func([]pipeline.Verdict,
			[]error) ([]pipeline.Verdict, []error, error) {
			return nil, []error{broken, broken}, nil
		}, true, []string{"skip", "skip"}, ""},
		{"a missing verdict denies", func(v []pipeline.Verdict,
			errs []error) ([]pipeline.Verdict, []error, error) {
			return v[:1], errs[:1], nil
		}, false, []string{"pass", "deny"}, `stage "b": gave no verdict`},
		{"no verdicts deny", func([]pipeline.Verdict,
			[]error) ([]pipeline.Verdict, []error, error) {
			return nil, nil, nil
		}, false, []string{"deny"}, `stage "a": gave no verdict`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, rec := &group{change: tt.change}, &record{}
			p := pipeline.New(rec, pipeline.Options{},
				pipeline.StageConfig{Name: "a", Stage: allow, Group: g, SkipOnError: tt.skip},
				pipeline.StageConfig{Name: "b", Stage: allow, Group: g, SkipOnError: tt.skip})
			passed, err := p.Pass(t.Context(), call(t))
			if tt.fault == "" && err != nil {
				t.Fatal(err)
			}
			if tt.fault != "" {
				if d := denied(t, passed, err); d.Err == nil || d.Err.Error() != tt.fault {
					t.Errorf("denied by %v, want %s", d.Err, tt.fault)
				}
			}
			var got []string
			for _, s := range rec.last(t).Steps {
				got = append(got, s.Action)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("the steps have the actions %v, want %v", got, tt.want)
			}
		})
	}
}

func TestInspectInOrder(t *testing.T) {
	edit := pipeline.Verdict{Action: pipeline.Modify,
		Edits: []mcp.Edit{mcp.Set("/arguments/path", []byte(`"x"`))}}
	allowed := pipeline.Verdict{Action: pipeline.Allow}
	broken := errors.New("broken")
	for _, tt := range []struct {
		name     string
		verdicts []pipeline.Verdict
		errs     []error
		asked    int    // how many stages are asked
		last     string // the path that the last of them sees
	}{
		{"a change is seen by the next stage", []pipeline.Verdict{edit, allowed}, nil, 2, "x"},
		{"a stage after an error is asked", []pipeline.Verdict{{}, edit, allowed},
			[]error{broken, nil, nil}, 3, "x"},
		{"a stage after a denial is not asked", []pipeline.Verdict{edit, {}, allowed}, nil, 2, "x"},
		{"a stage after an invalid verdict is not asked",
			[]pipeline.Verdict{{Action: pipeline.Allow, Edits: edit.Edits}, allowed}, nil, 1,
			"/etc/passwd"},
		{"a stage after an answer sees the request",
			[]pipeline.Verdict{{Action: pipeline.Answer, Answer: []byte(`{"arguments":{}}`)},
				allowed}, nil, 2, "/etc/passwd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var seen []string
			verdicts, errs := pipeline.InspectInOrder(call(t), len(tt.verdicts),
				func(i int, m *mcp.Message) (pipeline.Verdict, error) {
					path, _ := m.Text("/arguments/path")
					seen = append(seen, path)
					if tt.errs != nil {
						return tt.verdicts[i], tt.errs[i]
					}
					return tt.verdicts[i], nil
				})
			if len(seen) != tt.asked || len(verdicts) != tt.asked || len(errs) != tt.asked {
				t.Fatalf("asked %d stages and got %d verdicts and %d errors, want %d of each",
					len(seen), len(verdicts), len(errs), tt.asked)
			}
			if got := seen[len(seen)-1]; got != tt.last {
				t.Errorf("the last stage saw the path %q, want %q", got, tt.last)
			}
		})
	}
}

// The stage ends the context of its message and fails. Pass may notice either first. In both cases
// the message was given up, and no call counts as abandoned afterwards.
func TestStageThatFailsWhileItsMessageIsGivenUp(t *testing.T) {
	gone := errors.New("client gone")
	var giveUp context.CancelCauseFunc
	p := pipeline.New(&record{}, pipeline.Options{}, pipeline.StageConfig{Name: "s",
		Stage: stage(func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
			giveUp(gone)
			return pipeline.Verdict{}, errors.New("my own error")
		})})
	for i := range 2000 {
		var ctx context.Context
		ctx, giveUp = context.WithCancelCause(t.Context())
		passed, err := p.Pass(ctx, call(t))
		giveUp(nil) // for go vet, which does not see that the stage calls it
		want := `stage "s": ` + fmt.Sprintf("no verdict before the message was given up: %v", gone)
		if d := denied(t, passed, err); d.Err == nil || d.Err.Error() != want {
			t.Fatalf("message %d is denied by %v, want %s", i, d.Err, want)
		}
	}
}

// quickStage judges calls quickly, and denies all other messages.
type quickStage struct{ panics bool }

func (quickStage) Inspect(context.Context, *mcp.Message) (pipeline.Verdict, error) {
	return pipeline.Verdict{Action: pipeline.Deny, Reason: "slow"}, nil
}

func (s quickStage) InspectQuickly(_ context.Context, m *mcp.Message) (pipeline.Verdict, bool,
	error) {
	if s.panics {
		panic("a bug")
	}
	return pipeline.Verdict{Action: pipeline.Allow}, m.Kind == mcp.Request, nil
}

// TestQuickStage checks that a quick verdict counts, and that other messages are inspected as
// usual.
func TestQuickStage(t *testing.T) {
	log := &record{}
	p := pipeline.New(log, pipeline.Options{}, pipeline.StageConfig{Name: "q", Stage: quickStage{}})
	if _, err := p.Pass(t.Context(), call(t)); err != nil {
		t.Errorf("the quick verdict has no effect: %v", err)
	}
	passed, err := p.Pass(t.Context(), answerTo(t, call(t),
		`{"jsonrpc":"2.0","id":7,"result":{}}`))
	if d := denied(t, passed, err); d.Reason != "slow" {
		t.Errorf("denied because %q, want the verdict of Inspect", d.Reason)
	}
	p = pipeline.New(log, pipeline.Options{}, pipeline.StageConfig{Name: "q",
		Stage: quickStage{panics: true}})
	passed, err = p.Pass(t.Context(), call(t))
	if d := denied(t, passed, err); d.Err == nil || log.last(t).Action != "deny" {
		t.Errorf("a panic is not a fault: %+v", d)
	}
}
