package trace_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/builtin/trace"
	"gatekit/plugins/sdk"
)

// discardRecorder records nothing.
type discardRecorder struct{}

func (discardRecorder) Record(context.Context, pipeline.Outcome) (uint64, error) { return 1, nil }

func newStage(t testing.TB, config string) sdk.Stage {
	t.Helper()
	s, err := trace.Plugin().New([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parse(t testing.TB, text string) *mcp.Message {
	t.Helper()
	m, err := mcp.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	m.Session, m.Exchange, m.Server, m.Name, m.Method = "s1", "12", "github", "create_issue",
		"tools/call"
	return m
}

func call(t testing.TB, arguments string) *mcp.Message {
	m := parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"create_issue","arguments":`+arguments+`}}`)
	m.Direction = mcp.ToServer
	return m
}

func result(t testing.TB, request *mcp.Message, body string) *mcp.Message {
	m := parse(t, `{"jsonrpc":"2.0","id":1,"result":`+body+`}`)
	m.Direction, m.Request = mcp.ToClient, request
	return m
}

// pass sends m through a pipeline with the stage s, and returns the body of the forwarded message.
func pass(t testing.TB, s sdk.Stage, m *mcp.Message) string {
	t.Helper()
	p := pipeline.New(discardRecorder{}, pipeline.Options{}, pipeline.StageConfig{Name: "trace",
		Stage: s,
		Wants: s.(sdk.StageWithWants).Wants()})
	passed, err := p.Pass(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return string(passed.Message().Body())
}

// block returns the content block of a trace.
func block(lines ...string) string {
	return `{"type":"text","text":` +
		string(mcp.Quote(strings.Join(append([]string{"[gatekit trace]"}, lines...), "\n"))) +
		`,"annotations":{"audience":["user"]}}`
}

func TestTraceFields(t *testing.T) {
	const secret = `{"title":"T","token":"hunter2"}`
	tests := []struct {
		name, config, arguments string
		body                    string
		want                    []string
	}{
		{"defaults, without arguments", `{}`, secret, `{"content":[]}`,
			[]string{"server: github", "tool: create_issue", "size: 14 B", "duration: 1.5s",
				"record: session s1, exchange 12", "time: 2000-01-01T00:00:01Z"}},
		{"configured fields in their order", `{"fields":["time","server"]}`, secret,
			`{"content":[]}`,
			[]string{"time: 2000-01-01T00:00:01Z", "server: github"}},
		{"arguments", `{"fields":["arguments"]}`, secret, `{"content":[]}`,
			[]string{`arguments: ` + secret}},
		{"arguments, cut between characters", `{"fields":["arguments"],"max_param_length":9}`,
			`{"a":"üßéñ"}`, `{"content":[]}`, []string{`arguments: {"a":"üßé…`}},
		{"arguments at the limit", `{"fields":["arguments"],"max_param_length":12}`,
			`{"a":"üßéñ"}`, `{"content":[]}`, []string{`arguments: {"a":"üßéñ"}`}},
		{"arguments beyond the default limit", `{"fields":["arguments"]}`,
			`{"a":"` + strings.Repeat("x", 300) + `"}`,
			`{"content":[]}`, []string{`arguments: {"a":"` + strings.Repeat("x", 194) + `…`}},
		{"size in KiB", `{"fields":["size"]}`, `{}`,
			`{"content":[],"x":"` + strings.Repeat("x", 2000) + `"}`, []string{"size: 2.0 KiB"}},
		{"size in MiB", `{"fields":["size"]}`, `{}`,
			`{"content":[],"x":"` + strings.Repeat("x", 3<<19) + `"}`, []string{"size: 1.5 MiB"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, tt.config)
				request := call(t, tt.arguments)
				if got := pass(t, s, request); got != string(request.Body()) {
					t.Errorf("the call became %s, want it unchanged", got)
				}
				time.Sleep(1500 * time.Millisecond)
				want := strings.Replace(tt.body, "[]", "["+block(tt.want...)+"]", 1)
				if got := pass(t, s, result(t, request, tt.body)); got != want {
					t.Errorf("got  %.500s\nwant %.500s", got, want)
				}
			})
		})
	}
}

func TestOnlyTheTraceIsAdded(t *testing.T) {
	s := newStage(t, `{"fields":["server"]}`)
	added := block("server: github")
	for body, want := range map[string]string{
		`{"content":[ {"type":"text","text":"a\u0062"} ], "n":1.0}`:           `{"content":[ {"type":"text","text":"a\u0062"},` + added + ` ], "n":1.0}`,
		`{"structuredContent":{"content":[]},"content":[{}],"isError":false}`: `{"structuredContent":{"content":[]},"content":[{},` + added + `],"isError":false}`,
		`{"resultType":"complete","content":[]}`:                              `{"resultType":"complete","content":[` + added + `]}`,
		`{"content":[{"type":"text","text":"no"}],"isError":true}`:            `{"content":[{"type":"text","text":"no"}],"isError":true}`,
		`{"structuredContent":{"a":1}}`:                                       `{"structuredContent":{"a":1}}`,
		`{"content":"text"}`:                                                  `{"content":"text"}`,
		`{"content":null}`:                                                    `{"content":null}`,
		`{}`:                                                                  `{}`,
		`"text"`:                                                              `"text"`,
		`{"task":{"taskId":"t"}}`:                                             `{"task":{"taskId":"t"}}`,
		`{"resultType":"task","taskId":"t","content":[]}`:                     `{"resultType":"task","taskId":"t","content":[]}`,
		`{"resultType":"input_required","inputRequests":{"k":{}},"content":[]}`: `{"resultType":"input_required","inputRequests":{"k":{}},"content":[]}`,
	} {
		if got := pass(t, s, result(t, call(t, `{}`), body)); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", body, got, want)
		}
	}
	m := parse(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}`)
	m.Direction = mcp.ToClient
	if got, want := pass(t, s, m), `{"code":-32603,"message":"no"}`; got != want {
		t.Errorf("an error became %s, want it unchanged", got)
	}
}

// An argument that was redacted in a call must not reappear in the trace.
func TestTraceShowsTheArgumentsThatTheServerGot(t *testing.T) {
	redacted, err := call(t, `{"token":"hunter2"}`).Edit(mcp.Set("/arguments/token",
		[]byte(`"[redacted]"`)))
	if err != nil {
		t.Fatal(err)
	}
	got := pass(t, newStage(t, `{"fields":["arguments"]}`), result(t, redacted, `{"content":[]}`))
	if !strings.Contains(got, "[redacted]") || strings.Contains(got, "hunter2") {
		t.Errorf("the trace is %s, want the redacted argument", got)
	}
	if got := pass(t, newStage(t, `{"fields":["arguments","tool"]}`),
		result(t, nil, `{"content":[]}`)); got != `{"content":[`+block("tool: create_issue")+`]}` {
		t.Errorf("a trace without a request is %s, want only the tool", got)
	}
}

func TestDurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"fields":["duration"]}`)
		withIDs := func(session, exchange string, m *mcp.Message) *mcp.Message {
			m.Session, m.Exchange = session, exchange
			return m
		}
		traceOf := func(session, exchange string) string {
			return strings.TrimSuffix(strings.TrimPrefix(pass(t, s, withIDs(session, exchange,
				result(t, nil, `{"content":[]}`))), `{"content":[`), `]}`)
		}
		pass(t, s, withIDs("s1", "1", call(t, `{}`)))
		time.Sleep(time.Second)
		pass(t, s, withIDs("s2", "1", call(t, `{}`)))
		// the same call is sent again, with answers to the server's questions
		pass(t, s, withIDs("s1", "1", call(t, `{}`)))
		time.Sleep(time.Second)
		for _, c := range []struct{ session, exchange, want string }{
			{"s1", "1", block("duration: 2s")}, {"s2", "1", block("duration: 1s")},
			{"s3", "1", block()}, {"s1", "1", block()},
		} {
			if got := traceOf(c.session, c.exchange); got != c.want {
				t.Errorf("session %s, exchange %s: got %s, want %s", c.session, c.exchange, got,
					c.want)
			}
		}

		// Calls without a result are forgotten, the oldest first.
		for i := range 10_001 {
			pass(t, s, withIDs("s1", fmt.Sprint("x", i), call(t, `{}`)))
		}
		time.Sleep(time.Second)
		for exchange, want := range map[string]string{"x0": block(), "x1": block("duration: 1s"),
			"x10000": block("duration: 1s")} {
			if got := traceOf("s1", exchange); got != want {
				t.Errorf("exchange %s: got %s, want %s", exchange, got, want)
			}
		}
	})
}

func TestConcurrentCalls(t *testing.T) {
	s := newStage(t, `{}`)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				request := call(t, `{}`)
				request.Exchange = fmt.Sprint(i, "-", j)
				answer := result(t, request, `{"content":[]}`)
				answer.Exchange = request.Exchange
				pass(t, s, request)
				if got := pass(t, s, answer); !strings.Contains(got, "duration: ") ||
					!strings.Contains(got, "exchange "+request.Exchange) {
					t.Errorf("got %s, want the duration and exchange %s", got, request.Exchange)
				}
			}
		})
	}
	wg.Wait()
}

func TestInvalidConfiguration(t *testing.T) {
	for config, want := range map[string]string{
		`{`:                           "EOF",
		`{"field":["server"]}`:        "field",
		`{"trace_fields":{}}`:         "trace_fields",
		`{"fields":[]}`:               "fields: is empty",
		`{"fields":["tool","sever"]}`: `fields[1]: unknown field "sever"; known fields: server, tool`,
		`{"fields":["tool","tool"]}`:  `fields[1]: "tool" is already in the list`,
		`{"max_param_length":0}`:      `max_param_length: must be from 1 to 10000, not 0`,
		`{"max_param_length":-1}`:     `max_param_length`,
		`{"max_param_length":"9"}`:    `max_param_length`,
	} {
		if s, err := trace.Plugin().New([]byte(config)); err == nil || s != nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got the stage %v and the error %v, want an error with %q", config, s,
				err, want)
		}
	}
}

func TestWantsAndSelfTest(t *testing.T) {
	for config, want := range map[string]int{`{}`: 2, `{"fields":["tool"]}`: 1} {
		if got := newStage(t, config).(sdk.StageWithWants).Wants(); len(got.Kinds) != want ||
			len(got.Methods) != 1 {
			t.Errorf("%s: the stage wants %v, want %d kinds of messages of tools/call", config, got,
				want)
		}
	}
	c := trace.Plugin().SelfTest([]byte(`{}`))
	if v, err := newStage(t, `{}`).Inspect(t.Context(), c.Message); err != nil ||
		v.Action != c.Action {
		t.Errorf("self-test: got %v and the error %v, want action %d", v, err, c.Action)
	}
}

func BenchmarkInspect(b *testing.B) {
	const ordinary = "The quick brown fox jumps over the lazy dog, and the report of the third " +
		"quarter says so, too. "
	s := newStage(b, `{}`)
	for _, n := range []int{1 << 10, 64 << 10, 1 << 20} {
		text := string(mcp.Quote(strings.Repeat(ordinary, n/len(ordinary)+1)[:n]))
		m := result(b, nil, `{"content":[{"type":"text","text":`+text+`}]}`)
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			b.SetBytes(int64(m.Size()))
			for b.Loop() {
				if _, err := s.Inspect(b.Context(), m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
