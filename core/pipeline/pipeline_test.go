package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/workers"
)

// stage is a function that is a pipeline.Stage.
type stage func(ctx context.Context, m *mcp.Message) (pipeline.Verdict, error)

func (s stage) Inspect(ctx context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	return s(ctx, m)
}

// always returns a stage that returns the verdict v for every message.
func always(v pipeline.Verdict) stage {
	return func(context.Context, *mcp.Message) (pipeline.Verdict, error) { return v, nil }
}

func modify(edits ...mcp.Edit) stage {
	return always(pipeline.Verdict{Action: pipeline.Modify, Edits: edits})
}

func hide(names ...string) stage {
	return always(pipeline.Verdict{Action: pipeline.Allow, Hide: names})
}

var allow = always(pipeline.Verdict{Action: pipeline.Allow})

// record is a Recorder that keeps all outcomes. It fails if the function fail returns an error.
type record struct {
	mu       sync.Mutex
	outcomes []pipeline.Outcome
	fail     func() error
}

func (r *record) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(); err != nil {
			return 0, err
		}
	}
	r.outcomes = append(r.outcomes, o)
	return uint64(len(r.outcomes)), nil
}

func (r *record) last(t *testing.T) pipeline.Outcome {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.outcomes) == 0 {
		t.Fatal("nothing was recorded")
	}
	return r.outcomes[len(r.outcomes)-1]
}

func parse(t *testing.T, to mcp.Direction, text string) *mcp.Message {
	t.Helper()
	m, err := mcp.Parse([]byte(text))
	if err != nil {
		t.Fatalf("parse %s: %v", text, err)
	}
	m.Direction, m.Session, m.Exchange, m.Server = to, "s1", "e1", "files"
	return m
}

func call(t *testing.T) *mcp.Message {
	m := parse(t, mcp.ToServer,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","arguments":{"path":"/etc/passwd","n":1.0}}}`)
	m.Name = "read"
	return m
}

func answerTo(t *testing.T, request *mcp.Message, text string) *mcp.Message {
	m := parse(t, mcp.ToClient, text)
	m.Method, m.Name, m.Request = request.Method, request.Name, request
	return m
}

func text(m *mcp.Message) string {
	if m == nil {
		return "nothing"
	}
	return string(m.Append(nil))
}

func denied(t *testing.T, passed pipeline.Passed, err error) *pipeline.DeniedError {
	t.Helper()
	var d *pipeline.DeniedError
	if !errors.As(err, &d) {
		t.Fatalf("error is %T %v, want a *DeniedError", err, err)
	}
	if passed.Message() != nil {
		t.Fatalf("Pass denied a message and also returned %s, want no message",
			text(passed.Message()))
	}
	return d
}

func TestFaultsDeny(t *testing.T) {
	broken := errors.New("disk full")
	tests := []struct {
		name  string
		stage pipeline.StageConfig // Name is set by the test
		fails func() error         // called by the recorder; nil if the recorder works
		in    func(t *testing.T) *mcp.Message
		fault string // text in DeniedError.Err; "" if the stage decided to deny
	}{
		{name: "the zero verdict denies",
			stage: pipeline.StageConfig{Stage: always(pipeline.Verdict{})}},
		{name: "an unknown action denies",
			stage: pipeline.StageConfig{Stage: always(pipeline.Verdict{Action: pipeline.Ask + 1})},
			fault: "unknown action 5"},
		{name: "an unknown action denies even if errors are skipped",
			stage: pipeline.StageConfig{SkipOnError: true,
				Stage: always(pipeline.Verdict{Action: 255})},
			fault: "unknown action 255"},
		{name: "an error denies, whatever the verdict",
			stage: pipeline.StageConfig{Stage: stage(func(context.Context,
				*mcp.Message) (pipeline.Verdict, error) {
				return pipeline.Verdict{Action: pipeline.Allow}, broken
			})}, fault: "disk full"},
		{name: "a panic denies", stage: pipeline.StageConfig{Stage: stage(func(context.Context,
			*mcp.Message) (pipeline.Verdict, error) {
			panic("oh")
		})}, fault: "panicked: oh"},
		{name: "a stage that ends its goroutine denies",
			stage: pipeline.StageConfig{Stage: stage(func(context.Context,
				*mcp.Message) (pipeline.Verdict, error) {
				runtime.Goexit()
				return pipeline.Verdict{Action: pipeline.Allow}, nil
			})}, fault: "ended its goroutine"},
		{name: "a stage that returns an error when its time is over denies",
			stage: pipeline.StageConfig{Stage: stage(func(ctx context.Context,
				_ *mcp.Message) (pipeline.Verdict, error) {
				<-ctx.Done()
				return pipeline.Verdict{Action: pipeline.Allow}, ctx.Err()
			})}, fault: "no verdict within 2s"},
		{name: "a stage that ignores its context denies",
			stage: pipeline.StageConfig{Timeout: time.Second,
				Stage: stage(func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
					time.Sleep(time.Hour)
					return pipeline.Verdict{Action: pipeline.Allow}, nil
				})}, fault: "no verdict within 1s"},
		{name: "a recorder that fails denies", stage: pipeline.StageConfig{Stage: allow},
			fails: func() error { return broken }, fault: "disk full"},
		{name: "a recorder that panics denies", stage: pipeline.StageConfig{Stage: allow},
			fails: func() error { panic("torn") }, fault: "torn"},
		{name: "an edit that is not JSON denies",
			stage: pipeline.StageConfig{Stage: modify(mcp.Set("/arguments/path", []byte(`/tmp`)))},
			fault: "edit"},
		{name: "an edit whose value contains a second member denies",
			stage: pipeline.StageConfig{Stage: modify(mcp.Set("/arguments/path",
				[]byte(`"/tmp","name":"write"`)))}, fault: "edit"},
		{name: "an edit of a place that cannot exist denies",
			stage: pipeline.StageConfig{Stage: modify(mcp.Set("/name/x", []byte(`1`)))},
			fault: "edit"},
		{name: "an edit that cannot be made denies even if errors are skipped",
			stage: pipeline.StageConfig{SkipOnError: true,
				Stage: modify(mcp.Set("/name/x", []byte(`1`)))},
			fault: "edit"},
		{name: "an edit of the tool's name denies",
			stage: pipeline.StageConfig{Stage: modify(mcp.Set("/name", []byte(`"write"`)))},
			fault: "/name must stay"},
		{name: "an edit that removes the tool's name denies",
			stage: pipeline.StageConfig{Stage: modify(mcp.Remove("/name"))},
			fault: "/name must stay"},
		{name: "an edit of the whole body that changes the name denies",
			stage: pipeline.StageConfig{Stage: modify(mcp.Set("", []byte(`{"name":"write"}`)))},
			fault: "/name must stay"},
		{name: "an edit of a resource's URI denies",
			stage: pipeline.StageConfig{Stage: modify(mcp.Set("/uri", []byte(`"file:///b"`)))},
			fault: "/uri must stay",
			in: func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToServer,
					`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///a"}}`)
			}},
		{name: "an edit of an updated resource's URI denies",
			stage: pipeline.StageConfig{Stage: modify(mcp.Set("/uri", []byte(`"file:///b"`)))},
			fault: "/uri must stay",
			in: func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToClient,
					`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}`)
			}},
		{name: "an edit of a completion's ref denies",
			stage: pipeline.StageConfig{Stage: modify(mcp.Set("/ref/name", []byte(`"other"`)))},
			fault: "/ref/name must stay",
			in: func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToServer,
					`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"ask"},"argument":{"name":"a","value":"b"}}}`)
			}},
		{name: "an edit of the type of a completion's ref denies",
			stage: pipeline.StageConfig{Stage: modify(mcp.Set("/ref",
				[]byte(`{"type":"ref/resource","name":"ask","uri":"file:///a"}`)))},
			fault: "must stay",
			in: func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToServer,
					`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"ask"},"argument":{"name":"a","value":"b"}}}`)
			}},
		{name: "an edit of the request id in a cancellation denies",
			stage: pipeline.StageConfig{Stage: modify(mcp.Set("/requestId", []byte(`2`)))},
			fault: "/requestId must stay",
			in: func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToServer,
					`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
			}},
		{name: "a verdict with edits and the action allow denies",
			stage: pipeline.StageConfig{Stage: always(pipeline.Verdict{Action: pipeline.Allow,
				Edits: []mcp.Edit{mcp.Remove("/arguments")}})}, fault: "without the action modify"},
		{name: "a verdict with the action modify and no edit denies",
			stage: pipeline.StageConfig{Stage: always(pipeline.Verdict{Action: pipeline.Modify})},
			fault: "without an edit"},
		{name: "a verdict with an answer and the action allow denies",
			stage: pipeline.StageConfig{Stage: always(pipeline.Verdict{Action: pipeline.Allow,
				Answer: []byte(`{}`)})}, fault: "without the action answer"},
		{name: "a verdict with the action answer and no answer denies",
			stage: pipeline.StageConfig{Stage: always(pipeline.Verdict{Action: pipeline.Answer})},
			fault: "answer"},
		{name: "an answer that is no JSON denies",
			stage: pipeline.StageConfig{Stage: always(pipeline.Verdict{Action: pipeline.Answer,
				Answer: []byte(`{`)})}, fault: "answer"},
		{name: "an answer that is no object denies",
			stage: pipeline.StageConfig{Stage: always(pipeline.Verdict{Action: pipeline.Answer,
				Answer: []byte(`[]`)})}, fault: "no JSON object"},
		{name: "an answer that contains another member of the message denies",
			stage: pipeline.StageConfig{Stage: always(pipeline.Verdict{Action: pipeline.Answer,
				Answer: []byte(`{},"id":8`)})}, fault: "answer"},
		{name: "an answer to a notification denies",
			stage: pipeline.StageConfig{Stage: always(pipeline.Verdict{Action: pipeline.Answer,
				Answer: []byte(`{}`)})}, fault: "answer to a notification",
			in: func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToServer,
					`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			}},
		{name: "an answer to a response denies",
			stage: pipeline.StageConfig{Stage: always(pipeline.Verdict{Action: pipeline.Answer,
				Answer: []byte(`{}`)})}, fault: "answer to a response",
			in: func(t *testing.T) *mcp.Message {
				return answerTo(t, call(t), `{"jsonrpc":"2.0","id":7,"result":{}}`)
			}},
		{name: "a message without a direction is denied, even if no stage wants it",
			stage: pipeline.StageConfig{Stage: allow,
				Wants: pipeline.Wants{Methods: []string{"ping"}}}, fault: "direction",
			in: func(t *testing.T) *mcp.Message {
				return parse(t, 0, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
			}},
		{name: "a nil message is denied", stage: pipeline.StageConfig{Stage: allow},
			fault: "no message",
			in:    func(*testing.T) *mcp.Message { return nil }},
		{name: "a message without a kind is denied", stage: pipeline.StageConfig{Stage: allow},
			fault: "kind",
			in:    func(*testing.T) *mcp.Message { return &mcp.Message{Direction: mcp.ToServer} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := call
				if tt.in != nil {
					in = tt.in
				}
				rec := &record{fail: tt.fails}
				tt.stage.Name = "guard"
				later := false
				after := stage(func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
					later = true
					return pipeline.Verdict{Action: pipeline.Allow}, nil
				})
				kept := workers.New()
				defer kept.Close()
				p := pipeline.New(rec, pipeline.Options{Workers: kept}, tt.stage,
					pipeline.StageConfig{Name: "later", Stage: after})
				passed, err := p.Pass(t.Context(), in(t))
				d := denied(t, passed, err)
				switch {
				case tt.fault == "" && d.Err != nil:
					t.Errorf("denied by the fault %v, want a denial without a fault", d.Err)
				case tt.fault != "" && (d.Err == nil || !strings.Contains(d.Err.Error(), tt.fault)):
					t.Errorf("denied by %v, want a fault with %q", d.Err, tt.fault)
				}
				if tt.fails != nil {
					if d.Stage != "audit" || d.RecordNumber != 0 {
						t.Errorf("denied by stage %q with record number %d, want audit and 0",
							d.Stage, d.RecordNumber)
					}
				} else {
					o := rec.last(t)
					if o.Action != "deny" || o.After != nil {
						t.Errorf("recorded %s, forwarded %v; want deny, and nothing forwarded",
							o.Action, o.After)
					}
					if d.RecordNumber != 1 {
						t.Errorf("the record number of the denial is %d, want 1", d.RecordNumber)
					}
					if later {
						t.Error("a stage was asked after the denial, want none")
					}
				}
				if d.Action != "deny" {
					t.Errorf("the action of the denial is %q, want deny", d.Action)
				}
				time.Sleep(2 * time.Hour) // until all abandoned calls have returned
			})
		})
	}
}

// A stage that returns when its context ends is called in the goroutine of Pass. Its panics and its
// time-outs are failures, as those of other stages are.
func TestStageThatReturnsOnCancel(t *testing.T) {
	for name, c := range map[string]struct {
		inspect stage
		want    string // part of the error; "" for a message that passes
	}{
		"allows": {func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
			stack := make([]byte, 1<<16)
			if stack = stack[:runtime.Stack(stack, false)]; !bytes.Contains(stack,
				[]byte("pipeline.(*Pipeline).Pass(")) {
				t.Errorf("the stage was not called by Pass:\n%s", stack)
			}
			return pipeline.Verdict{Action: pipeline.Allow}, nil
		}, ""},
		"panics": {func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
			panic("as told")
		}, "panicked: as told"},
		"takes too long": {func(ctx context.Context, _ *mcp.Message) (pipeline.Verdict, error) {
			<-ctx.Done()
			return pipeline.Verdict{Action: pipeline.Allow}, ctx.Err()
		}, "no verdict within 1h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipeline.New(&record{}, pipeline.Options{}, pipeline.StageConfig{Name: "own",
					Timeout: time.Hour, Stage: c.inspect, ReturnsOnCancel: true})
				passed, err := p.Pass(t.Context(), call(t))
				if c.want == "" {
					if err != nil {
						t.Error(err)
					}
				} else if d := denied(t, passed, err); !strings.Contains(d.Err.Error(), c.want) {
					t.Errorf("the error is %v, want %q", d.Err, c.want)
				}
			})
		})
	}
}

func TestRequestIsDeniedWhenItsSenderGivesUp(t *testing.T) {
	for _, skip := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rec := &record{}
			p := pipeline.New(rec, pipeline.Options{}, pipeline.StageConfig{Name: "slow",
				SkipOnError: skip, Timeout: time.Hour, Stage: stage(func(ctx context.Context,
					_ *mcp.Message) (pipeline.Verdict, error) {
					<-ctx.Done()
					return pipeline.Verdict{}, ctx.Err()
				})})
			gone := errors.New("client gone")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(gone) })
			passed, err := p.Pass(ctx, call(t))
			if d := denied(t, passed, err); !errors.Is(d, gone) {
				t.Errorf("error %v, want the cause of the context", d)
			}
			passed, err = p.Pass(ctx, call(t))
			if d := denied(t, passed, err); !errors.Is(d, gone) {
				t.Errorf("error of a message after the end of its context: %v, want the cause of "+
					"the context", d)
			}
			if len(rec.outcomes) != 2 {
				t.Errorf("%d records, want 2: each denial is recorded", len(rec.outcomes))
			}
			for i, o := range rec.outcomes {
				if o.Action != "cancelled" || o.Steps[0].Action != "cancelled" || o.After != nil {
					t.Errorf("record %d has the actions %s and %s, want cancelled: no stage "+
						"returned a verdict", i+1, o.Action, o.Steps[0].Action)
				}
			}
		})
	}
}

func TestAbandonedCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		stuck := stage(func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(24 * time.Hour)
			mu.Lock()
			running--
			mu.Unlock()
			return pipeline.Verdict{Action: pipeline.Allow}, nil
		})
		p := pipeline.New(&record{}, pipeline.Options{}, pipeline.StageConfig{Name: "stuck",
			Stage: stuck, Timeout: time.Second})
		began := time.Now()
		for range 100 {
			passed, err := p.Pass(t.Context(), call(t))
			denied(t, passed, err)
		}
		mu.Lock()
		if most != 64 {
			t.Errorf("%d calls were running at once, want 64", most)
		}
		mu.Unlock()
		if took := time.Since(began); took != 64*time.Second {
			t.Errorf("100 denials took %v, want 64s: after 64 abandoned calls, Pass denies at "+
				"once", took)
		}
		passed, err := p.Pass(t.Context(), call(t))
		if d := denied(t, passed, err); !strings.Contains(d.Err.Error(),
			"64 of its calls still run") {
			t.Errorf("denied by %v, want an error with the number of running calls", d.Err)
		}
		time.Sleep(25 * time.Hour) // all abandoned calls have returned
		began = time.Now()
		passed, err = p.Pass(t.Context(), call(t))
		denied(t, passed, err)
		if took := time.Since(began); took != time.Second {
			t.Errorf("after the calls have returned, Pass took %v, want 1s", took)
		}
		time.Sleep(25 * time.Hour) // until all abandoned calls have returned
	})
}

func TestSkippingAStageKeepsTheEditsOfOtherStages(t *testing.T) {
	redact := mcp.Set("/arguments/path", []byte(`"[redacted]"`))
	faults := map[string]stage{
		"error": func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
			return pipeline.Verdict{}, errors.New("broken")
		},
		"panic": func(context.Context, *mcp.Message) (pipeline.Verdict,
			error) {
			panic("broken")
		},
		"time-out": func(context.Context, *mcp.Message) (pipeline.Verdict,
			error) {
			time.Sleep(time.Minute)
			panic("late")
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec := &record{}
				p := pipeline.New(rec, pipeline.Options{},
					pipeline.StageConfig{Name: "redact", Stage: modify(redact)},
					pipeline.StageConfig{Name: "fragile", Stage: fault, SkipOnError: true},
					pipeline.StageConfig{Name: "last", Stage: stage(func(_ context.Context,
						m *mcp.Message) (pipeline.Verdict, error) {
						if got, _ := m.Text("/arguments/path"); got != "[redacted]" {
							t.Errorf("the stage after the skipped one saw %q, want the redaction",
								got)
						}
						return pipeline.Verdict{Action: pipeline.Allow}, nil
					})})
				passed, err := p.Pass(t.Context(), call(t))
				if err != nil {
					t.Fatal(err)
				}
				want := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","arguments":{"path":"[redacted]","n":1.0}}}`
				if got := text(passed.Message()); got != want {
					t.Errorf("passed %s\nwant %s", got, want)
				}
				o := rec.last(t)
				if o.Action != "modify" || len(o.Steps) != 3 || o.Steps[1].Action != "skip" ||
					o.Steps[1].Reason == "" {
					t.Errorf("recorded %s with steps %+v, want modify with the second step "+
						"skipped, and its reason", o.Action, o.Steps)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestStagesAreAskedInOrder(t *testing.T) {
	redact := modify(mcp.Set("/arguments/path", []byte(`"x"`)))
	seen := func(want string) stage {
		return func(_ context.Context, m *mcp.Message) (pipeline.Verdict, error) {
			if got, _ := m.Text("/arguments/path"); got != want {
				return pipeline.Verdict{Reason: "saw " + got}, nil
			}
			return pipeline.Verdict{Action: pipeline.Allow,
				Findings: []pipeline.Finding{{Type: "path", Pointer: "/arguments/path"}}}, nil
		}
	}
	refuse := always(pipeline.Verdict{Reason: "no"})
	answer := always(pipeline.Verdict{Action: pipeline.Answer, Answer: []byte(`{"content":[]}`),
		Reason: "known"})
	tests := []struct {
		name   string
		stages []stage
		action string   // of the outcome
		reason string   // of the outcome
		steps  []string // actions of the steps
	}{
		{"a message passes without stages", nil, "pass", "", nil},
		{"each stage sees the changes of the stages before it", []stage{seen("/etc/passwd"), redact,
			seen("x")}, "modify", "", []string{"pass", "modify", "pass"}},
		{"the first denial ends the inspection",
			[]stage{allow, refuse, redact}, "deny", "no", []string{"pass",
				"deny"}},
		{"a denial overrides an earlier edit", []stage{redact, refuse},
			"deny", "no", []string{"modify", "deny"}},
		{"a denial overrides an earlier answer", []stage{answer, refuse},
			"deny", "no", []string{"answer", "deny"}},
		{"the first of two answers is used", []stage{answer, redact,
			always(pipeline.Verdict{Action: pipeline.Answer, Answer: []byte(`{}`)})},
			"answer", "known", []string{"answer", "modify", "answer"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec := &record{}
			var stages []pipeline.StageConfig
			for _, s := range tt.stages {
				stages = append(stages, pipeline.StageConfig{Name: "s", Stage: s,
					Wants: pipeline.Wants{Kinds: []mcp.Kind{mcp.Request}}})
			}
			m := call(t)
			passed, err := pipeline.New(rec, pipeline.Options{}, stages...).Pass(t.Context(), m)
			o := rec.outcomes[0]
			var steps []string
			for _, s := range o.Steps {
				steps = append(steps, s.Action)
			}
			if o.Action != tt.action || o.Reason != tt.reason || !slices.Equal(steps, tt.steps) {
				t.Errorf("recorded %s %q %v, want %s %q %v", o.Action, o.Reason, steps, tt.action,
					tt.reason, tt.steps)
			}
			if string(o.Before.Body()) != string(m.Body()) || o.Before.Exchange != m.Exchange {
				t.Error("the record has another message, want the message as received")
			}
			if (err == nil) != (tt.action == "pass" || tt.action == "modify") {
				t.Errorf("got error %v with action %s, want an error unless the message passes",
					err, tt.action)
			}
			if tt.action == "answer" {
				if got := string(denied(t, passed,
					err).Response("1").Message().Body()); got != `{"content":[]}` {
					t.Errorf("answered %s, want the first stage's answer", got)
				}
			}
			if err == nil && passed.Message() != o.After {
				t.Errorf("passed %s, recorded %s; want the same message", text(passed.Message()),
					text(o.After))
			}
			if tt.action == "pass" && passed.Message() != m {
				t.Error("Pass returned a copy of an unchanged message, want the message itself")
			}
		})
	}
}

func TestChangedPlacesAreRecordedWithoutContent(t *testing.T) {
	x := []byte(`"x"`)
	var many []mcp.Edit
	for i := range 40 {
		many = append(many, mcp.Set(fmt.Sprintf("/arguments/k%d", i), x))
	}
	refuse := always(pipeline.Verdict{Reason: "no"})
	for _, tt := range []struct {
		name   string
		stages []stage
		want   [][]string
	}{
		{"a replaced value", []stage{modify(mcp.Set("/arguments/path", x))},
			[][]string{{"/arguments/path"}}},
		{"a removed member is recorded as its parent",
			[]stage{modify(mcp.Remove("/arguments/path"))}, [][]string{{"/arguments"}}},
		{"two removed members of one object", []stage{modify(mcp.Remove("/arguments/path"),
			mcp.Remove("/arguments/n"))}, [][]string{{"/arguments"}}},
		{"a place is recorded as the larger place that a later stage replaced",
			[]stage{modify(mcp.Set("/arguments/path", x)),
				modify(mcp.Set("/arguments", []byte(`{}`)))}, [][]string{{"/arguments"},
				{"/arguments"}}},
		{"a place that a later stage removed is recorded as its parent",
			[]stage{modify(mcp.Set("/arguments/path", x)),
				modify(mcp.Remove("/arguments/path"))}, [][]string{{"/arguments"}, {"/arguments"}}},
		{"places of two stages that do not overlap", []stage{modify(mcp.Set("/arguments/path", x)),
			modify(mcp.Set("/arguments/pa", x))}, [][]string{{"/arguments/path"},
			{"/arguments/pa"}}},
		{"too many places are recorded as their parent", []stage{modify(many...)},
			[][]string{{"/arguments"}}},
		{"as many places as a record may have", []stage{modify(many[:32]...)},
			[][]string{sortedPointers(many[:32])}},
		{"a denied message has no changed places",
			[]stage{modify(mcp.Set("/arguments/path", x)), refuse},
			[][]string{nil, nil}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := &record{}
			var stages []pipeline.StageConfig
			for _, s := range tt.stages {
				stages = append(stages, pipeline.StageConfig{Name: "s", Stage: s})
			}
			pipeline.New(rec, pipeline.Options{}, stages...).Pass(t.Context(), call(t))
			var got [][]string
			for _, s := range rec.last(t).Steps {
				got = append(got, s.Changed)
			}
			if !slices.EqualFunc(got, tt.want, slices.Equal) {
				t.Errorf("recorded %q, want %q", got, tt.want)
			}
		})
	}
}

func sortedPointers(edits []mcp.Edit) (all []string) {
	for _, e := range edits {
		all = append(all, e.Pointer)
	}
	slices.Sort(all)
	return all
}

func TestRecordedActionsOfGatekitsOwnMessages(t *testing.T) {
	rec := &record{}
	p := pipeline.New(rec, pipeline.Options{})
	for _, tt := range []struct {
		m    *mcp.Message
		to   mcp.Direction
		want string
	}{
		{mcp.NewRequest("1", "server/discover", nil), mcp.ToServer, "own"},
		{mcp.NewNotification("notifications/initialized", nil), mcp.ToServer, "own"},
		{mcp.NewResponse("1", []byte(`{}`)), mcp.ToServer, "answer"},
		{mcp.NewError("1", -32601, "no", nil), mcp.ToServer, "answer"},
		{mcp.NewRequest("1", "roots/list", nil), mcp.ToClient, "answer"},
		{mcp.NewNotification("notifications/tools/list_changed", nil), mcp.ToClient, "answer"},
	} {
		tt.m.Direction = tt.to
		p.PassOwn(t.Context(), tt.m)
		if got := rec.last(t).Action; got != tt.want {
			t.Errorf("%s: recorded %s, want %s", text(tt.m), got, tt.want)
		}
	}
}

func TestReasonsOfGatekitsOwnMessagesAreRecorded(t *testing.T) {
	rec := &record{}
	p := pipeline.New(rec, pipeline.Options{})
	parked := mcp.NewResponse("1", []byte(`{"inputRequests":{}}`))
	parked.CarriesInput = true
	for _, tt := range []struct {
		m              *mcp.Message
		action, reason string
	}{
		{mcp.NewError("1", -32603, "no such server", nil), "answer", "no such server"},
		{mcp.NewNotification("notifications/cancelled",
			[]byte(`{"requestId":1,"reason":"timed out"}`)), "answer", "timed out"},
		{parked, "park", "waiting for the client's answers"},
		{mcp.NewResponse("1", []byte(`{}`)), "answer", ""},
	} {
		tt.m.Direction = mcp.ToClient
		p.PassOwn(t.Context(), tt.m)
		if o := rec.last(t); o.Action != tt.action || o.Reason != tt.reason {
			t.Errorf("recorded %s %q, want %s %q", o.Action, o.Reason, tt.action, tt.reason)
		}
	}
}

func TestWants(t *testing.T) {
	request := call(t)
	tests := []struct {
		name  string
		wants pipeline.Wants
		m     func() *mcp.Message
		asked bool
	}{
		{"the zero Wants select all", pipeline.Wants{}, nil, true},
		{"the method of the message", pipeline.Wants{Methods: []string{"ping", "tools/call"}}, nil,
			true},
		{"another method", pipeline.Wants{Methods: []string{"tools/list"}}, nil, false},
		{"a prefix of methods", pipeline.Wants{Methods: []string{"tools/*"}}, nil, true},
		{"another prefix of methods", pipeline.Wants{Methods: []string{"resources/*"}}, nil, false},
		{"the kind of the message", pipeline.Wants{Kinds: []mcp.Kind{mcp.Response, mcp.Request}},
			nil, true},
		{"another kind", pipeline.Wants{Kinds: []mcp.Kind{mcp.Response}}, nil, false},
		{"OnlyKind has the method with its kind",
			pipeline.Wants{OnlyKind: map[string]mcp.Kind{"tools/call": mcp.Request}}, nil, true},
		{"OnlyKind has the method with another kind",
			pipeline.Wants{Methods: []string{"tools/call"},
				OnlyKind: map[string]mcp.Kind{"tools/call": mcp.Response}}, nil, false},
		{"OnlyKind has another method",
			pipeline.Wants{OnlyKind: map[string]mcp.Kind{"tools/list": mcp.Response}}, nil, true},
		{"OnlyKind has the method, but Methods does not",
			pipeline.Wants{Methods: []string{"tools/list"},
				OnlyKind: map[string]mcp.Kind{"tools/call": mcp.Request}}, nil, false},
		{"the direction of the message", pipeline.Wants{Directions: []mcp.Direction{mcp.ToServer}},
			nil, true},
		{"the other direction", pipeline.Wants{Directions: []mcp.Direction{mcp.ToClient}}, nil,
			false},
		{"the server of the message", pipeline.Wants{Servers: []string{"files"}}, nil, true},
		{"all servers", pipeline.Wants{Servers: []string{"*"}}, nil, true},
		{"another server", pipeline.Wants{Servers: []string{"github"}}, nil, false},
		{"a message without a server", pipeline.Wants{Servers: []string{"github"}},
			func() *mcp.Message {
				return &mcp.Message{Kind: mcp.Notification, Direction: mcp.ToServer,
					Method: "notifications/initialized"}
			}, true},
		{"an answer without a method",
			pipeline.Wants{Methods: []string{"tools/call"}}, func() *mcp.Message {
				return &mcp.Message{Kind: mcp.Error, Direction: mcp.ToClient, Server: "files"}
			}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			asked := false
			p := pipeline.New(&record{}, pipeline.Options{}, pipeline.StageConfig{Name: "s",
				Wants: tt.wants, Stage: stage(func(context.Context, *mcp.Message) (pipeline.Verdict,
					error) {
					asked = true
					return pipeline.Verdict{Action: pipeline.Allow}, nil
				})})
			m := request
			if tt.m != nil {
				m = tt.m()
			}
			if _, err := p.Pass(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if asked != tt.asked {
				t.Errorf("the stage was asked = %t, want %t", asked, tt.asked)
			}
		})
	}
}

// TestHiddenItemsAreInTheOutcome checks that a step has the names of the items that its stage
// removed, and only of those.
func TestHiddenItemsAreInTheOutcome(t *testing.T) {
	request := parse(t, mcp.ToServer, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	const result = `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"},{"name":"b"},` +
		`{"name":"c"}]}}`
	for _, tt := range []struct {
		name    string
		earlier string // pointer of a finding of the stage before
		verdict pipeline.Verdict
		want    []string
	}{
		{"nothing is hidden", "", pipeline.Verdict{Action: pipeline.Allow}, nil},
		{"an earlier finding in the name withholds it", "/tools/2/name", pipeline.Verdict{
			Action: pipeline.Allow, Hide: []string{"b", "c"}}, []string{"b", ""}},
		{"a name that the list lacks is no hidden item", "", pipeline.Verdict{
			Action: pipeline.Allow, Hide: []string{"b", "z"}}, []string{"b"}},
		{"items are in the order of the list", "", pipeline.Verdict{Action: pipeline.Allow,
			Hide: []string{"c", "a"}}, []string{"a", "c"}},
		{"hidden beside a change", "", pipeline.Verdict{Action: pipeline.Modify,
			Hide: []string{"b"}, Edits: []mcp.Edit{mcp.Set("/tools/0/x", []byte(`1`))}},
			[]string{"b"}},
		{"a finding in the name withholds it", "", pipeline.Verdict{Action: pipeline.Allow,
			Hide:     []string{"a", "b"},
			Findings: []pipeline.Finding{{Type: "key", Pointer: "/tools/1/name"}}},
			[]string{"a", ""}},
		{"a finding elsewhere in the item does not", "", pipeline.Verdict{Action: pipeline.Allow,
			Hide:     []string{"b"},
			Findings: []pipeline.Finding{{Type: "key", Pointer: "/tools/1/description"}}},
			[]string{"b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &record{}
			earlier := pipeline.Verdict{Action: pipeline.Allow}
			if tt.earlier != "" {
				earlier.Findings = []pipeline.Finding{{Type: "key", Pointer: tt.earlier}}
			}
			p := pipeline.New(r, pipeline.Options{}, pipeline.StageConfig{Name: "earlier",
				Stage: always(earlier)}, pipeline.StageConfig{Name: "judge",
				Stage: always(tt.verdict)})
			if _, err := p.Pass(t.Context(), answerTo(t, request, result)); err != nil {
				t.Fatal(err)
			}
			if got := r.outcomes[0].Steps[1].Hidden; !slices.Equal(got, tt.want) {
				t.Errorf("the step has the hidden items %q, want %q", got, tt.want)
			}
		})
	}
}

func TestHide(t *testing.T) {
	named := func(m *mcp.Message, name string) *mcp.Message { m.Name = name; return m }
	list := func(t *testing.T, method, result string) *mcp.Message {
		request := parse(t, mcp.ToServer, `{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`)
		return answerTo(t, request, `{"jsonrpc":"2.0","id":1,"result":`+result+`}`)
	}
	tests := []struct {
		name   string
		hidden []string
		in     func(t *testing.T) *mcp.Message
		want   string // the body that passes; "" if the message is denied
		action string
	}{
		{"a tool is removed from the list", []string{"b"}, func(t *testing.T) *mcp.Message {
			return list(t, "tools/list",
				`{"tools":[{"name":"a"}, {"name":"b"}, {"name":"c","x":1.50}],"nextCursor":"b"}`)
		}, `{"tools":[{"name":"a"}, {"name":"c","x":1.50}],"nextCursor":"b"}`, "hide"},
		{"the first item, whose name is escaped, and the last item are removed", []string{"a", "c"},
			func(t *testing.T) *mcp.Message {
				return list(t, "tools/list",
					`{"tools":[{"name":"\u0061"},{"name":"b"},{"name":"c"}]}`)
			}, `{"tools":[{"name":"b"}]}`, "hide"},
		{"all items are removed", []string{"a", "b"}, func(t *testing.T) *mcp.Message {
			return list(t, "prompts/list", `{"prompts":[{"name":"a"},{"name":"b"}]}`)
		}, `{"prompts":[]}`, "hide"},
		{"items without a name are kept", []string{"b"},
			func(t *testing.T) *mcp.Message {
				return list(t, "tools/list",
					`{"tools":[{"title":"b"},7,{"name":"b"},{"name":null}]}`)
			}, `{"tools":[{"title":"b"},7,{"name":null}]}`, "hide"},
		{"a resource is removed by its URI",
			[]string{"file:///b"}, func(t *testing.T) *mcp.Message {
				return list(t, "resources/list",
					`{"resources":[{"uri":"file:///a","name":"file:///b"},{"uri":"file:///b","name":"a"}]}`)
			}, `{"resources":[{"uri":"file:///a","name":"file:///b"}]}`, "hide"},
		{"a template is removed by its uriTemplate", []string{"file:///{p}"},
			func(t *testing.T) *mcp.Message {
				return list(t, "resources/templates/list",
					`{"resourceTemplates":[{"uriTemplate":"file:///{p}","name":"a"}]}`)
			}, `{"resourceTemplates":[]}`, "hide"},
		{"the empty name hides no item", []string{"z", ""},
			func(t *testing.T) *mcp.Message {
				return list(t, "tools/list", `{"tools":[{"name":"a"},{"name":""}]}`)
			}, `{"tools":[{"name":"a"},{"name":""}]}`, "pass"},
		{"a list without hidden items passes as it is", []string{"z"},
			func(t *testing.T) *mcp.Message {
				return list(t, "tools/list", `{"tools":[{"name":"a"}]}`)
			}, `{"tools":[{"name":"a"}]}`, "pass"},
		{"the empty name hides no message without a name", []string{""},
			func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToServer,
					`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`)
			}, `{}`, "pass"},
		{"a call of a hidden tool is denied", []string{"read"}, call, "", "deny"},
		{"the answer to a call of a hidden tool is denied", []string{"read"},
			func(t *testing.T) *mcp.Message {
				return answerTo(t, call(t), `{"jsonrpc":"2.0","id":7,"result":{}}`)
			}, "", "deny"},
		{"a call without the field Name is denied by the name in its body", []string{"read"},
			func(t *testing.T) *mcp.Message {
				return named(call(t), "")
			}, "", "deny"},
		{"an update of a hidden resource is denied", []string{"file:///a"},
			func(t *testing.T) *mcp.Message {
				return named(parse(t, mcp.ToClient,
					`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}`), "file:///a")
			}, "", "deny"},
		{"completion for a hidden prompt is denied", []string{"ask"},
			func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToServer,
					`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"ask"}}}`)
			}, "", "deny"},
		{"completion for a hidden template is denied", []string{"file:///{p}"},
			func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToServer,
					`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"file:///{p}"}}}`)
			}, "", "deny"},
		{"an update without the field Name is denied by the URI in its body",
			[]string{"file:///a"},
			func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToClient,
					`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}`)
			}, "", "deny"},
		{"a root is removed from the list of roots", []string{"file:///a"},
			func(t *testing.T) *mcp.Message {
				return list(t, "roots/list",
					`{"roots":[{"uri":"file:///a"},{"uri":"file:///b","name":"file:///a"}]}`)
			}, `{"roots":[{"uri":"file:///b","name":"file:///a"}]}`, "hide"},
		{"the roots in the result of a call are kept", []string{"file:///a"},
			func(t *testing.T) *mcp.Message {
				return answerTo(t, call(t),
					`{"jsonrpc":"2.0","id":7,"result":{"roots":[{"uri":"file:///a"}]}}`)
			}, `{"roots":[{"uri":"file:///a"}]}`, "pass"},
		{"the roots in an unknown parameter of a request are kept", []string{"file:///a"},
			func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToClient,
					`{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{"roots":[{"uri":"file:///a"}]}}`)
			}, `{"roots":[{"uri":"file:///a"}]}`, "pass"},
		{"a hidden resource is removed from the filter of a subscription", []string{"file:///a"},
			func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToServer,
					`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["file:///a","file:///b"]}}}`)
			}, `{"notifications":{"resourceSubscriptions":["file:///b"]}}`, "hide"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec := &record{}
			passed, err := pipeline.New(rec, pipeline.Options{},
				pipeline.StageConfig{Name: "policy", Stage: hide(tt.hidden...)}).Pass(t.Context(),
				tt.in(t))
			if o := rec.last(t); o.Action != tt.action {
				t.Errorf("recorded %s, want %s", o.Action, tt.action)
			}
			if tt.want == "" {
				if d := denied(t, passed, err); d.Err != nil || d.Reason != "hidden" {
					t.Errorf("denied with reason %q and fault %v, want the reason hidden and no "+
						"fault", d.Reason, d.Err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := string(passed.Message().Body()); got != tt.want {
				t.Errorf("passed %s\nwant   %s", got, tt.want)
			}
		})
	}
}

func TestVerdictWithEditsAndHiddenNames(t *testing.T) {
	request := parse(t, mcp.ToServer, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	m := answerTo(t, request,
		`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","description":"x"},{"name":"b"}]}}`)
	rec := &record{}
	v := pipeline.Verdict{Action: pipeline.Modify, Edits: []mcp.Edit{mcp.Set("/tools/0/description",
		[]byte(`"y"`))}, Hide: []string{"b"}}
	passed, err := pipeline.New(rec, pipeline.Options{}, pipeline.StageConfig{Name: "s",
		Stage: always(v)}).Pass(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(
		passed.Message().Body()), `{"tools":[{"name":"a","description":"y"}]}`; got != want {
		t.Errorf("passed %s, want %s", got, want)
	}
	if a := rec.last(t).Action; a != "modify" {
		t.Errorf("recorded %s, want modify", a)
	}
}

// If no stage wants a message, Pass allocates no memory. Only the recorder may allocate.
func TestUnwantedMessageIsOnlyRecorded(t *testing.T) {
	m := call(t)
	p := pipeline.New(discardingRecorder{}, pipeline.Options{}, pipeline.StageConfig{Name: "s",
		Stage: allow,
		Wants: pipeline.Wants{Methods: []string{"tools/list"}}})
	if n := testing.AllocsPerRun(100, func() {
		if _, err := p.Pass(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("Pass made %v allocations, want none", n)
	}
}

type discardingRecorder struct{}

func (discardingRecorder) Record(context.Context, pipeline.Outcome) (uint64, error) {
	return 1, nil
}

func BenchmarkPass(b *testing.B) {
	m, err := mcp.Parse([]byte(
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read"}}`))
	if err != nil {
		b.Fatal(err)
	}
	m.Direction = mcp.ToServer
	for _, stages := range []int{0, 1, 3} {
		var named []pipeline.StageConfig
		for range stages {
			named = append(named, pipeline.StageConfig{Name: "s", Stage: allow})
		}
		p := pipeline.New(discardingRecorder{}, pipeline.Options{}, named...)
		b.Run([]string{0: "no stage", 1: "1 stage", 3: "3 stages"}[stages], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Pass(b.Context(), m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
