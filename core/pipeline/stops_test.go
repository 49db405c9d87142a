package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/stop"
)

// stoppingRecorder sets the stops while it records, so that a message is stopped between its record
// and its write.
type stoppingRecorder struct {
	gate     *stop.Gate
	when     string // action
	outcomes []pipeline.Outcome
}

func (r *stoppingRecorder) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	r.outcomes = append(r.outcomes, o)
	if o.Action == r.when {
		r.gate.Set([]stop.Stop{{At: time.Unix(1, 0), By: "user id 7", Reason: "harm"}})
	}
	return uint64(len(r.outcomes)), nil
}

func (r *stoppingRecorder) last() pipeline.Outcome { return r.outcomes[len(r.outcomes)-1] }

func stoppable(t *testing.T, when string, o pipeline.Options, stages ...pipeline.StageConfig) (
	*pipeline.Pipeline, *stoppingRecorder) {
	t.Helper()
	r := &stoppingRecorder{gate: new(stop.Gate), when: when}
	r.gate.Set(nil)
	o.Stops = r.gate
	return pipeline.New(r, o, stages...), r
}

func parsed(t *testing.T, text string, to mcp.Direction) *mcp.Message {
	t.Helper()
	m, err := mcp.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	m.Direction, m.Server, m.Session = to, "files", "s1"
	return m
}

const (
	stoppedCall  = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x"}}`
	answer       = `{"jsonrpc":"2.0","id":5,"result":{"content":["secret"]}}`
	failure      = `{"jsonrpc":"2.0","id":5,"error":{"code":-1,"message":"secret"}}`
	notification = `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"secret"}}`
	cancellation = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":` +
		`{"requestId":9,"reason":"secret"}}`
)

// A message that was recorded before a stop, and would be written after it, is not written.
func TestStoppedBetweenRecordAndWrite(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		to   mcp.Direction
		want string // what is written in its place; "" is nothing
	}{
		"a request":                  {stoppedCall, mcp.ToServer, ""},
		"a request of a server":      {stoppedCall, mcp.ToClient, ""},
		"a notification":             {notification, mcp.ToClient, ""},
		"a notification to a server": {notification, mcp.ToServer, ""},
		"an answer": {answer, mcp.ToClient,
			`"message":"stopped by an operator (user id 7): do not try again; ask the operator`},
		"an error": {failure, mcp.ToClient,
			`"message":"stopped by an operator (user id 7): do not try again; ask the operator`},
		"an answer to a server": {answer, mcp.ToServer, `"code":-31000,"message":"refused by policy"`},
		"a cancellation": {cancellation, mcp.ToServer,
			`"params":{"requestId":9,"reason":"stopped by an operator"}`},
		"a cancellation by a server": {cancellation, mcp.ToClient,
			`"params":{"requestId":9,"reason":"stopped by an operator"}`},
	} {
		t.Run(name, func(t *testing.T) {
			p, r := stoppable(t, "pass", pipeline.Options{IncludeReasons: true})
			m := parsed(t, test.text, test.to)
			m.Request = parsed(t, stoppedCall, mcp.ToServer)
			passed, err := p.Pass(t.Context(), m)
			if err != nil {
				t.Fatalf("the message was stopped too early: %v", err)
			}
			passed, write := passed.Begin(t.Context())
			defer write.End()
			got := ""
			if passed.Message() != nil {
				got = string(passed.Message().Append(nil))
			}
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) ||
				strings.Contains(got, "secret") {
				t.Errorf("written is %q, want %q", got, test.want)
			}
			if m.Kind != mcp.Notification && test.want != "" &&
				(!strings.Contains(got, `"id":5`) || passed.Denial() == nil) {
				t.Errorf("%s has another id, or is no denial", got)
			}
			if m.Method == "notifications/cancelled" {
				return
			}
			if o := r.last(); o.Action != "deny" || o.After != nil || o.Reason != "harm" ||
				!o.OmitBody || len(o.Steps) != 1 || o.Steps[0].Stage != "stop" {
				t.Errorf("the record is %+v", o)
			}
			_, write = passed.Begin(t.Context())
			write.End()
			if n := len(r.outcomes); n != 2 {
				t.Errorf("there are %d records; the error of the stop was stopped again", n)
			}
		})
	}
}

func TestStoppedBeforeTheFirstStage(t *testing.T) {
	asked := false
	p, r := stoppable(t, "", pipeline.Options{DenyToolCallsAsResult: true}, pipeline.StageConfig{
		Name: "s", Stage: stage(func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
			asked = true
			return pipeline.Verdict{Action: pipeline.Allow}, nil
		})})
	r.gate.Set([]stop.Stop{{Scope: stop.Scope{Server: "files"}, By: "user id 7", Reason: "harm"}})
	m := parsed(t, stoppedCall, mcp.ToServer)
	_, err := p.Pass(t.Context(), m)
	var denied *pipeline.DeniedError
	if !errors.As(err, &denied) || denied.Stage != "stop" || asked {
		t.Fatalf("got %v, asked the stage %v", err, asked)
	}
	got := string(denied.Response("5").Message().Append(nil))
	if !strings.Contains(got, `"isError":true`) || !strings.Contains(got, "user id 7") ||
		strings.Contains(got, "harm") {
		t.Errorf("the answer is %s", got)
	}
	if o := r.last(); o.Action != "deny" || o.Reason != "harm" || o.After != nil {
		t.Errorf("the record is %+v", o)
	}
	if err := p.Consume(t.Context(), m, "drop", "x"); !errors.As(err, &denied) ||
		denied.Stage != "stop" {
		t.Errorf("a message that Gatekit answers itself got %v", err)
	}
	m.Server = "other"
	if _, err := p.Pass(t.Context(), m); err != nil || !asked {
		t.Errorf("a message of another server got %v", err)
	}
}

// A stop that begins while a stage inspects the message.
func TestStoppedDuringTheInspection(t *testing.T) {
	var gate *stop.Gate
	p, r := stoppable(t, "", pipeline.Options{}, pipeline.StageConfig{Name: "s",
		Stage: stage(func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
			gate.Set([]stop.Stop{{By: "user id 7", Reason: "harm"}})
			return pipeline.Verdict{Action: pipeline.Allow}, nil
		})})
	gate = r.gate
	_, err := p.Pass(t.Context(), parsed(t, stoppedCall, mcp.ToServer))
	var denied *pipeline.DeniedError
	if !errors.As(err, &denied) || denied.Stage != "stop" {
		t.Errorf("got %v, want the stop", err)
	}
	if o := r.last(); len(r.outcomes) != 1 || o.Action != "deny" || len(o.Steps) != 2 {
		t.Errorf("the records are %+v", r.outcomes)
	}
}

func TestDenyStopped(t *testing.T) {
	p, r := stoppable(t, "", pipeline.Options{})
	err := p.DenyStopped(t.Context(), parsed(t, stoppedCall, mcp.ToServer),
		&stop.Stop{By: "user id 7", Reason: "harm"})
	var denied *pipeline.DeniedError
	if !errors.As(err, &denied) || denied.Stage != "stop" || denied.RecordNumber != 1 {
		t.Fatalf("got %v, want a recorded stop", err)
	}
	if o := r.last(); o.Action != "deny" || o.Reason != "harm" || o.Before.Server != "files" {
		t.Errorf("the record is %+v", o)
	}
	got := string(denied.Response("5").Message().Append(nil))
	if !strings.Contains(got, `"record":1`) || !strings.Contains(got, `"stage":"stop"`) {
		t.Errorf("the answer is %s", got)
	}
}

func TestWriteWithoutStops(t *testing.T) {
	p := pipeline.New(&stoppingRecorder{}, pipeline.Options{})
	passed, err := p.Pass(t.Context(), parsed(t, stoppedCall, mcp.ToServer))
	if err != nil {
		t.Fatal(err)
	}
	got, write := passed.Begin(t.Context())
	write.End()
	if got.Message() != passed.Message() {
		t.Error("a message changes although nothing can be stopped")
	}
	if got, write := (pipeline.Passed{}).Begin(t.Context()); got.Message() != nil {
		t.Error("the zero Passed has a message")
	} else {
		write.End()
	}
}

// A write that has begun holds up the record of the stop.
func TestStopWaitsForAWrite(t *testing.T) {
	p, r := stoppable(t, "", pipeline.Options{})
	passed, err := p.Pass(t.Context(), parsed(t, stoppedCall, mcp.ToServer))
	if err != nil {
		t.Fatal(err)
	}
	_, write := passed.Begin(t.Context())
	drained := r.gate.Set([]stop.Stop{{By: "user id 7", Reason: "harm"}})
	select {
	case <-drained:
		t.Error("the stop does not wait for the write")
	default:
	}
	write.End()
	<-drained
}
