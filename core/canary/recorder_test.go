package canary_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gatekit/core/canary"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// keeper keeps the last outcome.
type keeper struct{ last pipeline.Outcome }

func (k *keeper) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	k.last = o
	return 7, nil
}

// texts returns all texts of an outcome that a log may have in clear.
func texts(o pipeline.Outcome) string {
	return fmt.Sprintln(o.Before.Name, o.Before.Method, o.Reason, o.Err, o.Steps)
}

// quoting is a stage that quotes each message.
type quoting struct{}

func (quoting) Inspect(_ context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	text, _ := m.Text("/arguments/text")
	return pipeline.Verdict{Action: pipeline.Deny, Reason: "no " + text + " please",
		Findings: []pipeline.Finding{{Type: "t " + text, Pointer: "/arguments/" + text},
			{Type: "plain", Pointer: "/a"}}}, nil
}

func TestRecordHasNoValue(t *testing.T) {
	k := &keeper{}
	stage := canary.NewStage([]canary.Canary{{Name: "key", Values: []string{planted},
		Record: true}}, nil)
	p := pipeline.New(stage.Recorder(k), pipeline.Options{},
		pipeline.StageConfig{Name: canary.StageName, Stage: stage},
		pipeline.StageConfig{Name: "quotes", Stage: quoting{}})
	for _, text := range []string{planted, strings.ToUpper(planted),
		base64.StdEncoding.EncodeToString([]byte(planted))} {
		if _, err := p.Pass(t.Context(), message(text)); err == nil {
			t.Fatal("the message passed, want the denial of the second stage")
		}
		if got := texts(k.last); strings.Contains(got, text) {
			t.Errorf("the record has %q: %s", text, got)
		}
		const hidden = "[text with the value of canary key]"
		if len(k.last.Steps) != 2 || k.last.Steps[0].Action != "would_deny" ||
			k.last.Action != "deny" || k.last.Reason != hidden || !k.last.OmitBody {
			t.Fatalf("got the record %+v, want the denial without its text", k.last)
		}
		got := k.last.Steps[1]
		if got.Reason != hidden || got.Findings[0] != (pipeline.Finding{Type: hidden}) ||
			got.Findings[1] != (pipeline.Finding{Type: "plain", Pointer: "/a"}) {
			t.Errorf("got the step %+v, want no value in it", got)
		}
	}
	alone := pipeline.New(stage.Recorder(k), pipeline.Options{},
		pipeline.StageConfig{Name: canary.StageName, Stage: stage})
	if _, err := alone.Pass(t.Context(), message(planted)); err != nil || len(k.last.Steps) != 1 ||
		k.last.Action != "would_deny" {
		t.Errorf("without another stage: got the record %+v, %v, want one step", k.last, err)
	}
	if _, err := p.Pass(t.Context(), message("sugar")); err == nil ||
		!strings.Contains(texts(k.last), "sugar") || k.last.OmitBody {
		t.Errorf("a message without a canary: got the record %s", texts(k.last))
	}
}

// The other texts of an outcome have no value either, and the outcome of the caller stays as it is.
func TestRecorderReplacesTexts(t *testing.T) {
	k := &keeper{}
	stage := canary.NewStage([]canary.Canary{{Name: "key", Values: []string{planted}}}, nil)
	m := message("x")
	m.Name, m.Method = planted, "x/"+planted
	steps := []pipeline.Step{{Stage: canary.StageName, Action: "would_deny"},
		{Stage: "s", Hidden: []string{"a", planted}, Changed: []string{"/" + planted, "/b"}}}
	o := pipeline.Outcome{Before: m, After: m, Steps: steps, Err: errors.New("no " + planted)}
	seq, err := stage.Recorder(k).Record(t.Context(), o)
	if seq != 7 || err != nil {
		t.Fatalf("got %d, %v", seq, err)
	}
	got := texts(k.last)
	want := fmt.Sprintln("", "", "", "[text with the value of canary key]",
		[]pipeline.Step{steps[0], {Stage: "s", Hidden: []string{"a", ""}, Changed: []string{"",
			"/b"}}})
	if got != want {
		t.Errorf("got the record %q, want %q", got, want)
	}
	if k.last.After != k.last.Before || len(k.last.Withheld) != 2 {
		t.Errorf("got the message %+v, withheld %q; want one message, two texts withheld",
			k.last.After, k.last.Withheld)
	}
	if m.Name != planted || m.Method != "x/"+planted || steps[1].Hidden[1] != planted ||
		steps[1].Changed[0] != "/"+planted {
		t.Error("the recorder has changed the outcome of its caller")
	}
	o.After = message("y")
	if _, err := stage.Recorder(k).Record(t.Context(), o); err != nil || k.last.After != o.After {
		t.Errorf("the recorder replaced the forwarded message by %v", k.last.After)
	}
}

// What Gatekit writes itself, and what it drops without inspection, is searched in the record.
func TestRecorderSearchesWhatNoStageSaw(t *testing.T) {
	for _, record := range []bool{false, true} {
		var reported []pipeline.Verdict
		k := &keeper{}
		stage := canary.NewStage([]canary.Canary{{Name: "key", Values: []string{planted},
			Record: record}}, func(_ *mcp.Message, v pipeline.Verdict) {
			reported = append(reported, v)
		})
		p := pipeline.New(stage.Recorder(k), pipeline.Options{},
			pipeline.StageConfig{Name: canary.StageName, Stage: stage})
		own := func(body string) *mcp.Message {
			m := mcp.NewResponse("1", []byte(body))
			m.Direction, m.Method = mcp.ToClient, "tools/list"
			return m
		}
		if p.PassOwn(t.Context(), own(`{"tools":[]}`)); len(k.last.Steps) > 0 || k.last.OmitBody {
			t.Errorf("a list without a canary: got the record %+v", k.last)
		}
		p.PassOwn(t.Context(), own(`{"tools":[{"name":"t","description":"`+planted+`"}]}`))
		want := "[{canary would_deny planted value in the message: canary key 0s " +
			"[{canary:key /tools/0/description}] [] [] [] [] []}]"
		if got := fmt.Sprint(k.last.Steps); got != want || !k.last.OmitBody ||
			k.last.Action != "answer" {
			t.Errorf("got the record %s %s, want %s", k.last.Action, got, want)
		}
		dropped := message(planted)
		if err := p.RecordEvent(t.Context(), dropped, "drop", "too many", nil); err != nil {
			t.Fatal(err)
		}
		if len(k.last.Steps) != 1 || !k.last.OmitBody || k.last.Action != "drop" {
			t.Errorf("got the record %+v, want a drop with an alarm", k.last)
		}
		if len(reported) != 2 || reported[0].Action != pipeline.Allow || reported[0].Would == nil ||
			len(reported[1].Findings) != 1 {
			t.Errorf("got the reports %+v, want 2 about messages that were not denied", reported)
		}
		if err := p.RecordEvent(t.Context(), nil, "start", "", nil); err != nil ||
			len(k.last.Steps) > 0 {
			t.Errorf("an event: got the record %+v, %v", k.last, err)
		}
	}
}
