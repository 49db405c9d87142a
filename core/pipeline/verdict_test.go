package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

func TestAsk(t *testing.T) {
	edit := []mcp.Edit{mcp.Set("/arguments/path", []byte(`"x"`))}
	for _, tt := range []struct {
		name     string
		in       func(t *testing.T) *mcp.Message
		approved bool
		edits    []mcp.Edit
		action   string // in the record
	}{
		{"a request that nobody has approved", call, false, nil, "ask"},
		{"a request that nobody has approved, with edits", call, false, edit, "ask"},
		{"an approved request", call, true, nil, "pass"},
		{"an approved request, with edits", call, true, edit, "modify"},
		{"a notification cannot be approved", func(t *testing.T) *mcp.Message {
			return parse(t, mcp.ToServer, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		}, true, nil, "deny"},
		{"a response cannot be approved", func(t *testing.T) *mcp.Message {
			return answerTo(t, call(t), `{"jsonrpc":"2.0","id":7,"result":{}}`)
		}, true, nil, "deny"},
		{"a server's request cannot be approved", func(t *testing.T) *mcp.Message {
			return parse(t, mcp.ToClient, `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		}, true, nil, "deny"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := &record{}
			p := pipeline.New(rec, pipeline.Options{}, pipeline.StageConfig{Name: "s",
				Stage: always(pipeline.Verdict{Action: pipeline.Ask, Reason: "careful",
					Edits: tt.edits})})
			ctx := t.Context()
			if tt.approved {
				ctx = pipeline.WithApproval(ctx)
			}
			passed, err := p.Pass(ctx, tt.in(t))
			if got := rec.last(t).Action; got != tt.action {
				t.Errorf("recorded %s, want %s", got, tt.action)
			}
			if tt.action == "ask" || tt.action == "deny" {
				if d := denied(t, passed, err); d.Action != tt.action || d.Reason != "careful" {
					t.Errorf("denied with the action %s for %q, want %s for careful", d.Action,
						d.Reason, tt.action)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"pass": "/etc/passwd", "modify": "x"}[tt.action]
			if got, _ := passed.Message().Text("/arguments/path"); got != want {
				t.Errorf("passed with the path %q, want %q", got, want)
			}
		})
	}
}

func TestActionsThatAStageDoesNotEnforceAreRecorded(t *testing.T) {
	edit := []mcp.Edit{mcp.Set("/arguments/path", []byte(`"x"`))}
	pass := pipeline.Verdict{Action: pipeline.Allow}
	for _, tt := range []struct {
		name           string
		verdict        pipeline.Verdict
		would          *pipeline.Verdict
		action, reason string // in the record
	}{
		{"none", pass, nil, "pass", ""},
		{"allow", pass, &pipeline.Verdict{Action: pipeline.Allow, Reason: "fine"}, "pass", ""},
		{"deny", pass, &pipeline.Verdict{Reason: "no"}, "would_deny", "no"},
		{"ask", pass, &pipeline.Verdict{Action: pipeline.Ask, Reason: "careful"}, "would_ask",
			"careful"},
		{"modify", pass, &pipeline.Verdict{Action: pipeline.Modify, Edits: edit, Reason: "secret"},
			"would_modify", "secret"},
		{"hide", pass, &pipeline.Verdict{Action: pipeline.Allow, Hide: []string{"read"}},
			"would_deny", "hidden"},
		{"answer", pass, &pipeline.Verdict{Action: pipeline.Answer, Answer: []byte(`{}`),
			Reason: "cached"}, "would_answer", "cached"},
		{"an invalid verdict", pass, &pipeline.Verdict{Action: pipeline.Modify}, "would_deny",
			"the action modify without an edit"},
		{"the enforced change is recorded, not the action that is not enforced",
			pipeline.Verdict{Action: pipeline.Modify, Edits: edit, Reason: "secret"},
			&pipeline.Verdict{Reason: "no"}, "modify", "secret"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := &record{}
			tt.verdict.Would = tt.would
			m := call(t)
			passed, err := pipeline.New(rec, pipeline.Options{}, pipeline.StageConfig{Name: "s",
				Stage: always(tt.verdict)}).Pass(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if tt.action != "modify" && passed.Message() != m {
				t.Errorf("passed %s, want the message itself", text(passed.Message()))
			}
			if o := rec.last(t); o.Action != tt.action || o.Reason != tt.reason {
				t.Errorf("recorded %s %q, want %s %q", o.Action, o.Reason, tt.action, tt.reason)
			}
		})
	}
}

// Stages see the findings and labels of the stages before them, but not those of a stage that
// failed.
func TestPriorFindings(t *testing.T) {
	noting := func(t *testing.T, want string, v pipeline.Verdict, err error) stage {
		return func(ctx context.Context, _ *mcp.Message) (pipeline.Verdict, error) {
			f := pipeline.PriorFindingsFrom(ctx)
			var types []string
			for _, found := range f.Findings {
				types = append(types, found.Type)
			}
			if got := fmt.Sprint(types, f.Labels); got != want {
				t.Errorf("a stage saw the findings and labels %s, want %s", got, want)
			}
			v.Action = pipeline.Allow
			return v, err
		}
	}
	found := func(name, label string) pipeline.Verdict {
		return pipeline.Verdict{Findings: []pipeline.Finding{{Type: name}}, Labels: []string{label}}
	}
	p := pipeline.New(&record{}, pipeline.Options{},
		pipeline.StageConfig{Name: "1", Stage: noting(t, "[] []", found("key", "secret"), nil)},
		pipeline.StageConfig{Name: "2", SkipOnError: true,
			Stage: noting(t, "[key] [secret]", found("lost", "lost"), errors.New("down"))},
		pipeline.StageConfig{Name: "3",
			Stage: noting(t, "[key] [secret]", pipeline.Verdict{Labels: []string{"pii"}}, nil)},
		pipeline.StageConfig{Name: "4",
			Stage: noting(t, "[key] [secret pii]", pipeline.Verdict{}, nil)})
	if _, err := p.Pass(t.Context(), call(t)); err != nil {
		t.Fatal(err)
	}
}

// Messages that refer to a request can be edited, except for the members that name the request:
// TestFaultsDeny edits these.
func TestMessagesThatReferToARequestCanBeEdited(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"a cancellation", `{"requestId":1,"reason":"s3cret"}`, `{"requestId":1,"reason":"x"}`},
		{"a cancellation of a request with a text as id", `{"requestId":"a","reason":"s3cret"}`,
			`{"requestId":"a","reason":"x"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := parse(t, mcp.ToServer,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":`+tt.in+`}`)
			passed, err := pipeline.New(&record{}, pipeline.Options{}, pipeline.StageConfig{
				Name: "s", Stage: modify(mcp.Set("/reason", []byte(`"x"`)))}).Pass(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(passed.Message().Body()); got != tt.want {
				t.Errorf("passed %s, want %s", got, tt.want)
			}
		})
	}
}

func TestConsume(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		stage                 stage
		action, reason, steps string // in the record
		isDenied              bool
	}{
		{"a message that the stages allow", allow, "drop", "unknown token", "[pass]", false},
		{"a message that a stage changes", modify(mcp.Set("/arguments/path", []byte(`"x"`))),
			"drop", "unknown token", "[modify]", false},
		{"a message that a stage denies", always(pipeline.Verdict{Reason: "no"}), "deny", "no",
			"[deny]", true},
		{"a message that a stage would deny", always(pipeline.Verdict{Action: pipeline.Allow,
			Would: &pipeline.Verdict{Reason: "no"}}), "would_deny", "no", "[would_deny]", false},
		{"a message about which a stage would ask", always(pipeline.Verdict{Action: pipeline.Allow,
			Would: &pipeline.Verdict{Action: pipeline.Ask, Reason: "sure?"}}), "would_ask", "sure?",
			"[would_ask]", false},
		{"a message that a stage would change", always(pipeline.Verdict{Action: pipeline.Allow,
			Would: &pipeline.Verdict{Action: pipeline.Modify, Reason: "x", Edits: []mcp.Edit{
				mcp.Set("/arguments/path", []byte(`"x"`))}}}), "drop", "unknown token",
			"[would_modify]", false},
		{"a message that a stage answers", always(pipeline.Verdict{Action: pipeline.Answer,
			Answer: []byte(`{"a":1}`), Reason: "cached"}), "answer", "cached", "[answer]", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := &record{}
			p := pipeline.New(rec, pipeline.Options{}, pipeline.StageConfig{Name: "s",
				Stage: tt.stage, Wants: pipeline.Wants{Kinds: []mcp.Kind{mcp.Request}}})
			err := p.Consume(t.Context(), call(t), "drop", "unknown token")
			if tt.isDenied {
				d := denied(t, pipeline.Passed{}, err)
				if got := d.Response("7").Message(); tt.action == "answer" &&
					string(got.Body()) != `{"a":1}` {
					t.Errorf("the client gets %s, want the stage's answer", text(got))
				}
			} else if err != nil {
				t.Fatal(err)
			}
			o := rec.outcomes[0]
			var steps []string
			for _, s := range o.Steps {
				steps = append(steps, s.Action)
				if s.Changed != nil {
					t.Errorf("recorded the changed places %q, want none: nothing was forwarded",
						s.Changed)
				}
			}
			if o.Action != tt.action || o.Reason != tt.reason || fmt.Sprint(steps) != tt.steps ||
				o.After != nil {
				t.Errorf("recorded %s %q with the steps %v and the message %s, want %s %q with %s "+
					"and nothing forwarded", o.Action, o.Reason, steps, text(o.After), tt.action,
					tt.reason, tt.steps)
			}
		})
	}
}

func TestErrorOfADenial(t *testing.T) {
	down := errors.New("down")
	for _, tt := range []struct {
		d    pipeline.DeniedError
		want string
	}{
		{pipeline.DeniedError{Stage: "s", Action: "deny", Reason: "no"}, `denied by stage "s": no`},
		{pipeline.DeniedError{Stage: "s", Action: "deny"}, `denied by stage "s"`},
		{pipeline.DeniedError{Stage: "s", Action: "answer", Reason: "cached"},
			`answered by stage "s"`},
		{pipeline.DeniedError{Stage: "s", Action: "deny", Err: down}, "denied: down"},
	} {
		if got := tt.d.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestApprovalHintIsOnlyForRequestsThatMayBeApproved(t *testing.T) {
	for _, tt := range []struct{ action, hint, want string }{
		{"ask", "run gatekit approve 1", "refused by policy: run gatekit approve 1"},
		{"ask", "", "refused by policy"},
		{"deny", "run gatekit approve 1", "refused by policy"},
	} {
		d := &pipeline.DeniedError{Message: call(t), Stage: "s", Action: tt.action,
			ApprovalHint: tt.hint}
		if got, _ := d.Response("7").Message().Text("/message"); got != tt.want {
			t.Errorf("%s with the hint %q: the client gets %q, want %q", tt.action, tt.hint, got,
				tt.want)
		}
	}
}

// A list that passes makes its names recordable, unless a name has a finding or is too long. A list
// that does not pass makes no name recordable.
func TestNamesThatAListMakesRecordable(t *testing.T) {
	const two = `{"tools":[{"name":"s3cret"},{"name":"other"}]}`
	long := strings.Repeat("n", 1024)
	finding := func(at string) stage {
		return always(pipeline.Verdict{Action: pipeline.Allow,
			Findings: []pipeline.Finding{{Type: "key", Pointer: at}}})
	}
	for _, tt := range []struct {
		name         string
		list         []stage // the stages that inspect the list
		result, call string  // the list and the name of the tool that is called
		wantRecorded bool
	}{
		{"a list that passes", []stage{allow}, two, "s3cret", true},
		{"a list from which a stage hides the name", []stage{hide("s3cret")}, two, "s3cret", true},
		{"a list that a later stage denies", []stage{allow, always(pipeline.Verdict{})}, two,
			"s3cret", false},
		{"a list that a later stage denies, with another hidden name",
			[]stage{hide("other"), always(pipeline.Verdict{})}, two, "s3cret", false},
		{"a list with a finding in the name", []stage{finding("/tools/0/name")}, two, "s3cret",
			false},
		{"a list with a finding in the item", []stage{finding("/tools/0")}, two, "s3cret", false},
		{"a list with a finding in another item", []stage{finding("/tools/1")}, two, "s3cret",
			true},
		{"the longest name", []stage{allow}, `{"tools":[{"name":"` + long + `"}]}`, long, true},
		{"a name that is too long", []stage{allow}, `{"tools":[{"name":"` + long + `n"}]}`,
			long + "n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := &record{}
			toServer := pipeline.Wants{Directions: []mcp.Direction{mcp.ToServer}}
			toClient := pipeline.Wants{Directions: []mcp.Direction{mcp.ToClient}}
			stages := []pipeline.StageConfig{
				{Name: "deny", Stage: always(pipeline.Verdict{}), Wants: toServer},
				{Name: "allow", Stage: allow, Wants: toServer}}
			for _, s := range tt.list {
				stages = append(stages, pipeline.StageConfig{Name: "list", Stage: s,
					Wants: toClient})
			}
			p := pipeline.New(rec, pipeline.Options{}, stages...)
			list := parse(t, mcp.ToClient, `{"jsonrpc":"2.0","id":1,"result":`+tt.result+`}`)
			list.Method = "tools/list"
			p.Pass(t.Context(), list)
			if got := isNameRecorded(t, p, rec, tt.call); got != tt.wantRecorded {
				t.Errorf("the denied call's name is in the record: %v, want %v", got,
					tt.wantRecorded)
			}
		})
	}
}

// isNameRecorded reports whether the record of a call of the tool, which p denies, has its name.
func isNameRecorded(t *testing.T, p *pipeline.Pipeline, rec *record, tool string) bool {
	t.Helper()
	m := parse(t, mcp.ToServer,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`)
	m.Name = tool
	denied(t, pipeline.Passed{}, onlyError(p.Pass(t.Context(), m)))
	return rec.last(t).Before.Name == tool
}

func onlyError(_ pipeline.Passed, err error) error { return err }

func TestRecordableNamesAreBounded(t *testing.T) {
	rec := &record{}
	p := pipeline.New(rec, pipeline.Options{}, pipeline.StageConfig{Name: "deny",
		Stage: always(pipeline.Verdict{}),
		Wants: pipeline.Wants{Directions: []mcp.Direction{mcp.ToServer}}},
		pipeline.StageConfig{Name: "allow", Stage: allow})
	var items []string
	for i := range 10_001 {
		items = append(items, fmt.Sprintf(`{"name":"tool%d"}`, i))
	}
	list := parse(t, mcp.ToClient,
		`{"jsonrpc":"2.0","id":1,"result":{"tools":[`+strings.Join(items, ",")+`]}}`)
	list.Method = "tools/list"
	if _, err := p.Pass(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[string]bool{"tool0": true, "tool9999": true, "tool10000": false} {
		if got := isNameRecorded(t, p, rec, tool); got != want {
			t.Errorf("the name %s, after a list of 10,001 names, is in the record: %v, want %v",
				tool, got, want)
		}
	}
}

func TestFindingsInNames(t *testing.T) {
	finding := func(at string) stage {
		return always(pipeline.Verdict{Action: pipeline.Allow,
			Findings: []pipeline.Finding{{Type: "key", Pointer: at}}})
	}
	updated := func(t *testing.T) *mcp.Message {
		m := parse(t, mcp.ToClient, `{"jsonrpc":"2.0",`+
			`"method":"notifications/resources/updated","params":{"uri":"file:///a"}}`)
		m.Name = "file:///a"
		return m
	}
	for _, tt := range []struct {
		name string
		in   func(t *testing.T) *mcp.Message
		at   string
		want string
	}{
		{"in the name of a request", call, "/name", ""},
		{"in the name of a notification", updated, "/uri", ""},
		{"elsewhere in a notification", updated, "/_meta", "file:///a"},
		{"outside of the body of a known method", call, "", "read"},
		{"at the same place of a response", func(t *testing.T) *mcp.Message {
			return answerTo(t, call(t), `{"jsonrpc":"2.0","id":7,"result":{"name":"x"}}`)
		}, "/name", "read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := &record{}
			if _, err := pipeline.New(rec, pipeline.Options{}, pipeline.StageConfig{Name: "s",
				Stage: finding(tt.at)}).Pass(t.Context(), tt.in(t)); err != nil {
				t.Fatal(err)
			}
			if got := rec.last(t).Before.Name; got != tt.want {
				t.Errorf("recorded the name %q, want %q", got, tt.want)
			}
		})
	}
}

// A call that no stage wants passes, but its name is not recordable: nobody has inspected it.
func TestNameOfACallThatNoStageInspectedIsWithheld(t *testing.T) {
	rec := &record{}
	toClient := pipeline.Wants{Directions: []mcp.Direction{mcp.ToClient}}
	p := pipeline.New(rec, pipeline.Options{},
		pipeline.StageConfig{Name: "deny", Stage: always(pipeline.Verdict{}), Wants: toClient},
		pipeline.StageConfig{Name: "allow", Stage: allow, Wants: toClient})
	passed, err := p.Pass(t.Context(), call(t))
	if err != nil {
		t.Fatal(err)
	}
	answer := answerTo(t, passed.Message(), `{"jsonrpc":"2.0","id":7,"result":{}}`)
	denied(t, pipeline.Passed{}, onlyError(p.Pass(t.Context(), answer)))
	if o := rec.last(t); o.Before.Name != "" || !slices.Equal(o.Withheld, []string{"read"}) {
		t.Errorf("the record of the answer has the name %q and the withheld texts %q, want only "+
			"the withheld text read", o.Before.Name, o.Withheld)
	}
}
