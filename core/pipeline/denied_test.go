package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/stop"
)

const modernCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`

func TestResponse(t *testing.T) {
	refuse := always(pipeline.Verdict{Reason: `no "paths"`})
	asResult := pipeline.Options{DenyToolCallsAsResult: true}
	tests := []struct {
		name    string
		options pipeline.Options
		stage   stage
		in      func(t *testing.T) *mcp.Message
		want    string
	}{
		{"a request gets an error", pipeline.Options{}, refuse, call,
			`{"jsonrpc":"2.0","id":"x","error":{"code":-31000,"message":"refused by policy","data":{"gatekit":{"action":"deny","stage":"guard","record":1}}}}`},
		{"a request gets an error with the reason, if configured",
			pipeline.Options{IncludeReasons: true}, refuse,
			call,
			`{"jsonrpc":"2.0","id":"x","error":{"code":-31000,"message":"refused by policy","data":{"gatekit":{"action":"deny","stage":"guard","record":1,"reason":"no \"paths\""}}}}`},
		{"a tools/call gets a result, if configured", asResult, refuse, call,
			`{"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"text","text":"refused by policy"}],"isError":true,"_meta":{"gatekit/denied":{"action":"deny","stage":"guard","record":1}}}}`},
		{"a tools/call gets a result with the reason, if configured",
			pipeline.Options{DenyToolCallsAsResult: true,
				IncludeReasons: true}, refuse, call,
			`{"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"text","text":"refused by policy: no \"paths\""}],"isError":true,"_meta":{"gatekit/denied":{"action":"deny","stage":"guard","record":1,"reason":"no \"paths\""}}}}`},
		{"a modern tools/call gets a result with a resultType", asResult, refuse,
			func(t *testing.T) *mcp.Message { return parse(t, mcp.ToServer, modernCall) },
			`{"jsonrpc":"2.0","id":"x","result":{"resultType":"complete","content":[{"type":"text","text":"refused by policy"}],"isError":true,"_meta":{"gatekit/denied":{"action":"deny","stage":"guard","record":1}}}}`},
		{"a call with a task gets an error", asResult, refuse,
			func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToServer,
					`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","task":{}}}`)
			}, `{"jsonrpc":"2.0","id":"x","error":{"code":-31000,"message":"refused by policy","data":{"gatekit":{"action":"deny","stage":"guard","record":1}}}}`},
		{"a request other than tools/call gets an error", asResult, refuse,
			func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToServer,
					`{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"read"}}`)
			}, `{"jsonrpc":"2.0","id":"x","error":{"code":-31000,"message":"refused by policy","data":{"gatekit":{"action":"deny","stage":"guard","record":1}}}}`},
		{"a denied result is replaced by a result", asResult, refuse,
			func(t *testing.T) *mcp.Message {
				return answerTo(t, parse(t, mcp.ToServer, modernCall),
					`{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`)
			}, `{"jsonrpc":"2.0","id":"x","result":{"resultType":"complete","content":[{"type":"text","text":"refused by policy"}],"isError":true,"_meta":{"gatekit/denied":{"action":"deny","stage":"guard","record":1}}}}`},
		{"a denied error is replaced by an error", pipeline.Options{}, refuse,
			func(t *testing.T) *mcp.Message {
				return answerTo(t, call(t),
					`{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"secret"}}`)
			}, `{"jsonrpc":"2.0","id":"x","error":{"code":-31000,"message":"refused by policy","data":{"gatekit":{"action":"deny","stage":"guard","record":1}}}}`},
		{"the client does not get the text of a fault", pipeline.Options{IncludeReasons: true},
			modify(mcp.Set("/name", []byte(`"secret"`))), call,
			`{"jsonrpc":"2.0","id":"x","error":{"code":-31000,"message":"refused by policy","data":{"gatekit":{"action":"deny","stage":"guard","record":1}}}}`},
		{"a notification gets nothing", pipeline.Options{}, refuse,
			func(t *testing.T) *mcp.Message {
				return parse(t, mcp.ToServer,
					`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			}, "nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := tt.in(t)
			passed, err := pipeline.New(&record{}, tt.options, pipeline.StageConfig{Name: "guard",
				Stage: tt.stage}).Pass(t.Context(), m)
			d := denied(t, passed, err)
			response := d.Response(`"x"`).Message()
			if got := text(response); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if response == nil {
				return
			}
			if response.Direction != mcp.ToClient || response.Method != m.Method ||
				response.Session != "s1" || response.Exchange != "e1" || response.Request == nil {
				t.Errorf("got the message %+v, want the fields of an answer to the "+
					"request", response)
			}
		})
	}
}

func TestDeclineResponse(t *testing.T) {
	tests := []struct {
		name string
		in   string
		want string
	}{
		{"sampling is rejected", `{"jsonrpc":"2.0","id":3,"method":"sampling/createMessage","params":{"messages":[]}}`,
			`{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"rejected"}}`},
		{"elicitation is declined",
			`{"jsonrpc":"2.0","id":3,"method":"elicitation/create","params":{"message":"?"}}`,
			`{"jsonrpc":"2.0","id":3,"result":{"action":"decline"}}`},
		{"roots/list gets an empty list", `{"jsonrpc":"2.0","id":3,"method":"roots/list"}`,
			`{"jsonrpc":"2.0","id":3,"result":{"roots":[]}}`},
		{"other requests get an error without details", `{"jsonrpc":"2.0","id":3,"method":"acme/ask"}`,
			`{"jsonrpc":"2.0","id":3,"error":{"code":-31000,"message":"refused by policy"}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := pipeline.New(&record{}, pipeline.Options{IncludeReasons: true},
				pipeline.StageConfig{Name: "guard", Stage: always(pipeline.Verdict{Reason: "no"})})
			asked := parse(t, mcp.ToClient, tt.in)
			passed, err := p.Pass(t.Context(), asked)
			if got := text(denied(t, passed, err).DeclineResponse("3").Message()); got != tt.want {
				t.Errorf("the answer to a denied request is %s, want %s", got, tt.want)
			}
			answer := parse(t, mcp.ToServer,
				`{"jsonrpc":"2.0","id":9,"result":{"content":{"type":"text","text":"secret"}}}`)
			answer.Method, answer.Request = asked.Method, asked
			passed, err = p.Pass(t.Context(), answer)
			declined := denied(t, passed, err).DeclineResponse("3").Message()
			if got := text(declined); got != tt.want {
				t.Errorf("the replacement of a denied answer is %s, want %s", got, tt.want)
			}
			if declined.Direction != mcp.ToServer || declined.Request != asked {
				t.Errorf("got direction %v and request %v, want to_server and the server's request",
					declined.Direction, declined.Request)
			}
		})
	}
	t.Run("a notification gets no answer", func(t *testing.T) {
		p := pipeline.New(&record{}, pipeline.Options{}, pipeline.StageConfig{Name: "guard",
			Stage: always(pipeline.Verdict{})})
		passed, err := p.Pass(t.Context(), parse(t, mcp.ToClient,
			`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`))
		if got := denied(t, passed, err).DeclineResponse("3").Message(); got != nil {
			t.Errorf("got %s, want nothing", text(got))
		}
	})
}

func TestStageAnswerIsInspectedAsAResponse(t *testing.T) {
	requests := pipeline.Wants{Kinds: []mcp.Kind{mcp.Request}}
	responses := pipeline.Wants{Kinds: []mcp.Kind{mcp.Response}}
	answer := pipeline.StageConfig{Name: "cache", Wants: requests,
		Stage: always(pipeline.Verdict{Action: pipeline.Answer,
			Answer: []byte(`{"content":[{"type":"text","text":"secret"}]}`)})}

	t.Run("the answer passes", func(t *testing.T) {
		rec := &record{}
		passed, err := pipeline.New(rec, pipeline.Options{}, answer).Pass(t.Context(), call(t))
		d := denied(t, passed, err)
		if d.Action != "answer" || d.Stage != "cache" || d.RecordNumber != 1 {
			t.Errorf("action %s by stage %s in record %d, want answer by cache in record 1",
				d.Action, d.Stage, d.RecordNumber)
		}
		if got, want := text(d.Response(
			"9").Message()), `{"jsonrpc":"2.0","id":9,"result":{"content":[{"type":"text","text":"secret"}]}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if len(rec.outcomes) != 2 || rec.outcomes[0].Action != "answer" ||
			rec.outcomes[1].Action != "pass" || rec.outcomes[1].Before.Kind != mcp.Response {
			t.Errorf("recorded %+v, want the answered request and the response", rec.outcomes)
		}
	})
	t.Run("the answer to a request of a server passes", func(t *testing.T) {
		roots := pipeline.StageConfig{Name: "roots", Wants: requests,
			Stage: always(pipeline.Verdict{Action: pipeline.Answer,
				Answer: []byte(`{"roots":[{"uri":"file:///srv"}]}`)})}
		passed, err := pipeline.New(&record{}, pipeline.Options{}, roots).Pass(t.Context(),
			parse(t, mcp.ToClient, `{"jsonrpc":"2.0","id":3,"method":"roots/list"}`))
		answer := denied(t, passed, err).DeclineResponse("3").Message()
		if got, want := text(
			answer), `{"jsonrpc":"2.0","id":3,"result":{"roots":[{"uri":"file:///srv"}]}}`; got != want || answer.Direction != mcp.ToServer {
			t.Errorf("got %s %s, want %s to the server", answer.Direction, got, want)
		}
	})
	t.Run("a stage redacts the answer", func(t *testing.T) {
		redact := pipeline.StageConfig{Name: "redact", Wants: responses,
			Stage: modify(mcp.Set("/content/0/text", []byte(`"…"`)))}
		passed, err := pipeline.New(&record{}, pipeline.Options{}, answer, redact).Pass(t.Context(),
			call(t))
		if got, want := text(denied(t, passed,
			err).Response("9").Message()),
			`{"jsonrpc":"2.0","id":9,"result":{"content":[{"type":"text","text":"…"}]}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	t.Run("a stage denies the answer", func(t *testing.T) {
		guard := pipeline.StageConfig{Name: "guard", Wants: responses,
			Stage: always(pipeline.Verdict{})}
		passed, err := pipeline.New(&record{}, pipeline.Options{}, answer, guard).Pass(t.Context(),
			call(t))
		if got := text(denied(t, passed, err).Response("9").Message()); !strings.Contains(got,
			`"code":-31000`) {
			t.Errorf("got %s, want error -31000", got)
		}
	})
	t.Run("the answer cannot be recorded", func(t *testing.T) {
		n := 0
		rec := &record{fail: func() error {
			if n++; n == 2 {
				return errors.New("disk full")
			}
			return nil
		}}
		passed, err := pipeline.New(rec, pipeline.Options{}, answer).Pass(t.Context(), call(t))
		if got, want := text(denied(t, passed,
			err).Response("9").Message()),
			`{"jsonrpc":"2.0","id":9,"error":{"code":-31000,"message":"refused by policy","data":{"gatekit":{"action":"deny","stage":"audit"}}}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	t.Run("the answer to a modern request has a resultType", func(t *testing.T) {
		passed, err := pipeline.New(&record{}, pipeline.Options{}, answer).Pass(t.Context(),
			parse(t, mcp.ToServer, modernCall))
		if got, _ := denied(t, passed,
			err).Response("9").Message().Text("/resultType"); got != "complete" {
			t.Errorf("resultType %q, want complete", got)
		}
	})
}

func TestPassOwn(t *testing.T) {
	tests := []struct {
		name string
		m    *mcp.Message
		want string // the result of PassOwn when the recorder fails
	}{
		{"a response", mcp.NewResponse("7", []byte(`{"tools":[]}`)),
			`{"jsonrpc":"2.0","id":7,"error":{"code":-31000,"message":"refused by policy"}}`},
		{"an error", mcp.NewError("7", -32601, "no", nil),
			`{"jsonrpc":"2.0","id":7,"error":{"code":-31000,"message":"refused by policy"}}`},
		{"a notification", mcp.NewNotification("notifications/cancelled",
			[]byte(`{"requestId":1}`)), "nothing"},
		{"a request", mcp.NewRequest("7", "roots/list", nil), "nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.m.Direction, tt.m.Session = mcp.ToClient, "s1"
			rec := &record{}
			never := pipeline.StageConfig{Name: "guard", Stage: always(pipeline.Verdict{})}
			if got := pipeline.New(rec, pipeline.Options{}, never).PassOwn(t.Context(),
				tt.m).Message(); got != tt.m {
				t.Errorf("got %s, want the message itself", text(got))
			}
			if o := rec.last(t); o.Action != "answer" || o.Before != tt.m || o.After != tt.m ||
				o.Time.IsZero() {
				t.Errorf("recorded %+v, want an answer with the message before and after", o)
			}
			rec.fail = func() error { return errors.New("disk full") }
			got := pipeline.New(rec, pipeline.Options{}, never).PassOwn(t.Context(), tt.m).Message()
			if text(got) != tt.want {
				t.Errorf("when the recorder fails: got %s, want %s", text(got), tt.want)
			}
			if got != nil && got.Session != "s1" {
				t.Errorf("the error's session is %q, want s1", got.Session)
			}
		})
	}
}

// An answer that Gatekit makes in the name of a server is inspected. It is recorded as Gatekit's
// own unless a stage acts.
func TestPassOwnInspected(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config pipeline.StageConfig
		want   string
	}{
		{"a stage allows it", pipeline.StageConfig{Stage: allow},
			`answer {"tools":[{"name":"connect"}]}`},
		{"a stage hides the tool", pipeline.StageConfig{Stage: hide("connect")},
			`hide {"tools":[]}`},
		{"a stage denies it", pipeline.StageConfig{Stage: always(pipeline.Verdict{})},
			`deny nothing`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := &record{}
			tt.config.Name = "guard"
			m := list(t, "tools/list", `{"tools":[{"name":"connect"}]}`)
			passed, err := pipeline.New(rec, pipeline.Options{}, tt.config).PassOwnInspected(
				t.Context(), m)
			got := rec.last(t).Action + " nothing"
			if err == nil {
				got = rec.last(t).Action + " " + string(passed.Message().Body())
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestRecordEvent(t *testing.T) {
	rec := &record{}
	p := pipeline.New(rec, pipeline.Options{})
	lost := errors.New("exit status 1")
	if err := p.RecordEvent(t.Context(), &mcp.Message{Server: "files"}, "server lost", "it ended",
		lost); err != nil {
		t.Fatal(err)
	}
	if o := rec.last(t); o.Action != "server lost" || o.Reason != "it ended" ||
		!errors.Is(o.Err, lost) || o.Before.Server != "files" || o.After != nil {
		t.Errorf("recorded %+v, want the event with its server, reason and error", o)
	}
	if err := p.RecordEvent(t.Context(), nil, "start", "", nil); err != nil ||
		rec.last(t).Before == nil {
		t.Errorf("an event without a message: error %v, recorded %+v; want an empty message", err,
			rec.last(t))
	}
	rec.fail = func() error { return lost }
	if err := p.RecordEvent(t.Context(), nil, "stop", "", nil); !errors.Is(err, lost) {
		t.Errorf("error %v, want the error of the recorder", err)
	}
}

func TestMethodsOfPassed(t *testing.T) {
	p := pipeline.New(&record{}, pipeline.Options{})
	passed, err := p.Pass(t.Context(), call(t))
	if err != nil {
		t.Fatal(err)
	}
	edited, err := passed.WithID("1").Edit(mcp.Set("/name", []byte(`"files__read"`)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := text(
		edited.Message()), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"files__read","arguments":{"path":"/etc/passwd","n":1.0}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	renamed, err := passed.RewriteNames(func(_ mcp.NamePlace, s string) (string, error) {
		return "x" + s, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := renamed.Message().Text("/name"); got != "xread" {
		t.Errorf("rewritten to %q, want xread", got)
	}
	if bad, err := passed.Edit(mcp.Set("/name", []byte(`{`))); err == nil || bad.Message() != nil {
		t.Errorf("an invalid edit: error %v and message %s, want an error and no message",
			err, text(bad.Message()))
	}
	no := errors.New("no")
	if bad, err := passed.RewriteNames(func(mcp.NamePlace, string) (string, error) {
		return "", no
	}); !errors.Is(err, no) || bad.Message() != nil {
		t.Errorf("a rewrite that fails: error %v and message %s, want the error of the "+
			"replacing function and no message", err, text(bad.Message()))
	}

	var zero pipeline.Passed
	if got := zero.WithID("1").Message(); got != nil {
		t.Errorf("WithID of the zero Passed: got %s, want nothing", text(got))
	}
	if got, err := zero.Edit(mcp.Remove("/x")); err != nil || got.Message() != nil {
		t.Errorf("Edit of the zero Passed: got %s, %v, want nothing", text(got.Message()), err)
	}
	if got, err := zero.RewriteNames(nil); err != nil || got.Message() != nil {
		t.Errorf("RewriteNames of the zero Passed: got %s, %v, want nothing", text(got.Message()),
			err)
	}
}

// After a temporary denial, an equal message may pass.
func TestTemporaryDenials(t *testing.T) {
	denies, allows := always(pipeline.Verdict{Reason: "no"}),
		always(pipeline.Verdict{Action: pipeline.Allow})
	fails := stage(func(context.Context, *mcp.Message) (pipeline.Verdict, error) {
		return pipeline.Verdict{}, errors.New("broken")
	})
	stopped := new(stop.Gate)
	stopped.Set([]stop.Stop{{Reason: "harm"}})
	for _, tt := range []struct {
		name     string
		stage    stage
		recorder pipeline.Recorder
		stops    *stop.Gate
		want     bool
	}{
		{"a stage denies", denies, &record{}, nil, false},
		{"a stage denies for now", always(pipeline.Verdict{Reason: "no", Temporary: true}),
			&record{}, nil, true},
		{"a stage fails", fails, &record{}, nil, true},
		{"the recorder fails", allows, failingRecorder(), nil, true},
		{"an operator has stopped it", allows, &record{}, stopped, true},
	} {
		p := pipeline.New(tt.recorder, pipeline.Options{Stops: tt.stops},
			pipeline.StageConfig{Name: "guard", Stage: tt.stage})
		_, err := p.Pass(t.Context(), call(t))
		var denied *pipeline.DeniedError
		if !errors.As(err, &denied) || denied.IsTemporary() != tt.want {
			t.Errorf("%s: got %v, want a denial that is temporary: %v", tt.name, err, tt.want)
		}
	}
}
