package sdktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

// recorder is a testing.TB that keeps what a check reports.
type recorder struct {
	testing.TB
	mu      sync.Mutex
	faults  []string
	cleanup []func()
}

func (r *recorder) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, a...))
}

func (r *recorder) Fatalf(format string, a ...any) {
	r.Errorf(format, a...)
	runtime.Goexit()
}

// faults are those that the check of this name reports.
func faults(t *testing.T, s suite, check string) []string {
	r := &recorder{TB: t}
	for _, c := range checks {
		if c.name != check {
			continue
		}
		done := make(chan struct{})
		go func() { // which Fatalf may end
			defer close(done)
			c.check(s, r)
		}()
		<-done
		for _, f := range r.cleanup {
			f()
		}
		return r.faults
	}
	t.Fatalf("there is no check %q", check)
	return nil
}

const secret = "hunter2-hunter2-hunter2"

// good is a plugin without fault: it takes a word out of a tool's arguments.
func good() sdk.Plugin {
	return sdk.Plugin{
		Name: "word", Version: "1.0.0", Doc: "takes a word out of a tool's arguments",
		Wants:  pipeline.Wants{Methods: []string{"tools/call"}},
		Needs:  sdk.Needs{Body: true},
		Schema: []byte(`{"type":"object","additionalProperties":false,"properties":{"word":{"type":"string","description":"which"}}}`),
		New: func(config []byte) (sdk.Stage, error) {
			var c struct {
				Word string `json:"word"`
			}
			if err := json.Unmarshal(config, &c, json.RejectUnknownMembers(true)); err != nil {
				return nil, err
			}
			return inspecting(func(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
				var edits []mcp.Edit
				var findings []pipeline.Finding
				m.Leaves(func(l mcp.Leaf) bool {
					if l.Kind == mcp.StringLeaf && strings.Contains(l.Text(), c.Word) {
						edits = append(edits, mcp.Set(l.Pointer(),
							mcp.Quote(strings.ReplaceAll(l.Text(), c.Word, "***"))))
						findings = append(findings, pipeline.Finding{Type: "word",
							Pointer: l.Pointer()})
					}
					return ctx.Err() == nil
				})
				return sdk.Modify("a word was taken out", edits, findings...), nil
			}), nil
		},
		SelfTest: func([]byte) *sdk.SelfTest {
			return &sdk.SelfTest{Description: "the word",
				Message: messagesOf(`"` + secret + `"`)[0],
				Action:  pipeline.Modify}
		},
	}
}

type inspecting = sdk.StageFunc

const goodConfig = `{"word":"` + secret + `"}`

func sample() *mcp.Message { return messagesOf(`"a ` + secret + ` b"`)[0] }

func TestAGoodPluginPasses(t *testing.T) { Run(t, good(), goodConfig, sample()) }

// replaced is the good plugin with another Inspect. inner is the good one's.
func replaced(inspect func(ctx context.Context, m *mcp.Message, inner sdk.Stage) (sdk.Verdict,
	error)) sdk.Plugin {
	p := good()
	inner := p.New
	p.New = func(config []byte) (sdk.Stage, error) {
		stage, err := inner(config)
		return inspecting(func(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
			return inspect(ctx, m, stage)
		}), err
	}
	return p
}

func changed(change func(*sdk.Plugin)) sdk.Plugin {
	p := good()
	change(&p)
	return p
}

func TestABadPluginFails(t *testing.T) {
	var calls atomic.Int64
	over := make(chan struct{})
	defer close(over)
	for _, c := range []struct {
		name   string
		plugin sdk.Plugin
		check  string // that must find it
		want   string // what it says
	}{
		{"a name with blanks", changed(func(p *sdk.Plugin) { p.Name = "My Plugin" }),
			"description", "Name is"},
		{"no version", changed(func(p *sdk.Plugin) { p.Version = "" }),
			"description", "Version is missing"},
		{"no doc", changed(func(p *sdk.Plugin) { p.Doc = "" }), "description", "Doc is"},
		{"no New", changed(func(p *sdk.Plugin) { p.New = nil }), "description", "has no New"},
		{"a stage that is none", changed(func(p *sdk.Plugin) {
			p.New = func([]byte) (sdk.Stage,
				error) {
				return nil, nil
			}
		}), "description", "no stage"},
		{"a schema that is none", changed(func(p *sdk.Plugin) { p.Schema = []byte(`{"type":7}`) }),
			"description", "refuses the configuration"},
		{"a schema that refuses its configuration", changed(func(p *sdk.Plugin) {
			p.Schema = []byte(
				`{"type":"object","additionalProperties":false,"properties":{"word":{"type":"integer","description":"x"}}}`)
		}), "description", "must be an integer"},
		{"a schema that takes anything",
			changed(func(p *sdk.Plugin) { p.Schema = []byte(`{"type":"object"}`) }),
			"description", "an option that nobody knows"},
		{"an option that is not described", changed(func(p *sdk.Plugin) {
			p.Schema = []byte(
				`{"type":"object","additionalProperties":false,"properties":{"word":{"type":"string"},"more":{"type":"array","description":"x","items":{"type":"object","properties":{"a":{}}}}}}`)
		}), "description", "more[].a"},
		{"a configuration that is refused",
			changed(func(p *sdk.Plugin) {
				p.New = func([]byte) (sdk.Stage, error) {
					return nil, errors.New("no")
				}
			}), "description", "refuses the configuration: no"},
		{"denies by accident", replaced(func(_ context.Context, m *mcp.Message,
			_ sdk.Stage) (sdk.Verdict, error) {
			if m.Kind == mcp.Error {
				return sdk.Deny("no errors"), nil
			}
			return sdk.Allow(), nil
		}), "ordinary messages", "tools/call error to_client: got deny (no errors)"},
		{"fails at an ordinary message", replaced(func(_ context.Context, m *mcp.Message,
			_ sdk.Stage) (sdk.Verdict, error) {
			return sdk.Allow(), fmt.Errorf("%s is new to me", m.Method)
		}), "ordinary messages", "is new to me"},
		{"an answer to everything", replaced(func(_ context.Context, m *mcp.Message,
			_ sdk.Stage) (sdk.Verdict, error) {
			if m.Kind != mcp.Request || m.Direction == mcp.ToClient {
				return sdk.Allow(), nil
			}
			return sdk.Verdict{Action: pipeline.Answer, Answer: []byte(`{}`)}, nil
		}), "ordinary messages", "got answer"},
		{"a verdict that contradicts itself", replaced(func(context.Context, *mcp.Message,
			sdk.Stage) (sdk.Verdict, error) {
			return sdk.Verdict{Action: pipeline.Allow, Edits: []mcp.Edit{mcp.Remove("/_meta")}}, nil
		}), "ordinary messages", "edits without the action modify"},
		{"the zero verdict", replaced(func(context.Context, *mcp.Message, sdk.Stage) (sdk.Verdict,
			error) {
			return sdk.Verdict{}, nil
		}), "ordinary messages", "got deny"},
		{"does nothing about what it is for", replaced(func(context.Context, *mcp.Message,
			sdk.Stage) (sdk.Verdict, error) {
			return sdk.Allow(), nil
		}), "samples", "does nothing about it"},
		{"does not want what it is for",
			changed(func(p *sdk.Plugin) { p.Wants.Methods = []string{"tools/list"} }),
			"samples", "does not want it"},
		{"a reason with content", replaced(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			v, err := inner.Inspect(ctx, m)
			if m.Kind == mcp.Request {
				s, _ := m.Text("/arguments/message")
				v.Reason = "found in " + s
			}
			return v, err
		}), "no content", "holds content"},
		{"a finding with content", replaced(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			v, err := inner.Inspect(ctx, m)
			if len(v.Findings) > 0 {
				v.Findings[0].Type = secret
			}
			return v, err
		}), "no content", "holds content"},
		{"an error with the name of a tool", replaced(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			if m.Kind == mcp.Request && m.Name != "echo" {
				return sdk.Verdict{}, errors.New("no such tool: " + m.Name)
			}
			return inner.Inspect(ctx, m)
		}), "no content", "holds content"},
		{"a finding that points nowhere", replaced(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			v, err := inner.Inspect(ctx, m)
			if len(v.Findings) > 0 {
				v.Findings[0].Pointer = "/params/arguments/message"
			}
			return v, err
		}), "no content", "leads nowhere"},
		{"decodes and encodes again", replaced(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			v, err := inner.Inspect(ctx, m)
			if len(v.Edits) > 0 {
				var body any
				if err := json.Unmarshal(bytes.ReplaceAll(m.Body(), []byte(secret), nil),
					&body); err != nil {
					return v, err
				}
				whole, err := json.Marshal(body, json.Deterministic(true))
				return sdk.Modify(v.Reason, []mcp.Edit{mcp.Set("", whole)}), err
			}
			return v, err
		}), "other bytes", "which nobody asked to change"},
		{"knows its own members only", replaced(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			v, err := inner.Inspect(ctx, m)
			if len(v.Edits) > 0 {
				return sdk.Modify(v.Reason,
					[]mcp.Edit{mcp.Set("", []byte(`{"name":"echo","arguments":{}}`))}), err
			}
			return v, err
		}), "other bytes", `the member "_meta" is lost`},
		{"changes the bytes", replaced(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			if s, ok := m.Get("/arguments/message"); ok {
				copy(s, bytes.ToUpper(s))
			}
			return sdk.Allow(), nil
		}), "no mutation", "changed the bytes"},
		{"changes the fields", replaced(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			m.Name = "other"
			return sdk.Allow(), nil
		}), "no mutation", "changed the fields"},
		{"changes its mind", replaced(func(context.Context, *mcp.Message, sdk.Stage) (sdk.Verdict,
			error) {
			return sdk.Verdict{Action: pipeline.Allow, Reason: fmt.Sprint("call ", calls.Add(1))},
				nil
		}), "pure", "has another reason"},
		{"decides by the stage", changed(func(p *sdk.Plugin) {
			inner := p.New
			p.New = func(config []byte) (sdk.Stage, error) {
				if calls.Add(1)%2 == 0 {
					return inner([]byte(`{"word":"another"}`))
				}
				return inner(config)
			}
		}), "pure", "another stage of the same configuration decides otherwise"},
		{"fails at a lone surrogate", replaced(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			if raw, ok := m.Get("/arguments/message"); ok && raw[0] == '"' {
				if _, ok := m.Text("/arguments/message"); !ok {
					return sdk.Verdict{}, errors.New("not a text")
				}
			}
			return inner.Inspect(ctx, m)
		}), "odd messages", "a lone surrogate, tools/call request to_server: stage \"word\": " +
			"not a text"},
		{"panics without a body", replaced(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			_ = m.Body()[0]
			return inner.Inspect(ctx, m)
		}), "odd messages", "panicked: runtime error: index out of range"},
		{"never answers when it is large", replaced(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			if len(m.Body()) > 5<<20 {
				<-ctx.Done()
				return sdk.Verdict{}, ctx.Err()
			}
			return inner.Inspect(ctx, m)
		}), "odd messages", "no verdict within"},
		{"does not look at its context", replaced(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			if len(m.Body()) > 5<<20 {
				<-over
			}
			return sdk.Allow(), nil
		}), "time", "the stage still runs"},
		{"cannot be asked twice at a time", replaced(busy()), "at once", "from many goroutines"},
		{"a canary that does not sing", changed(func(p *sdk.Plugin) {
			p.SelfTest = func([]byte) *sdk.SelfTest {
				return &sdk.SelfTest{Description: "nothing", Message: messagesOf(`"a"`)[0],
					Action: pipeline.Deny}
			}
		}), "canary", "got the action 1"},
		{"a canary without a message",
			changed(func(p *sdk.Plugin) {
				p.SelfTest = func([]byte) *sdk.SelfTest {
					return &sdk.SelfTest{}
				}
			}), "canary", "has no message"},
		{"reads what it says it does not need",
			changed(func(p *sdk.Plugin) { p.Needs = sdk.Needs{} }),
			"samples", "does nothing about it"},
		{"a stage that cannot be closed", changed(func(p *sdk.Plugin) {
			inner := p.New
			p.New = func(config []byte) (sdk.Stage, error) {
				stage, err := inner(config)
				return unclosable{stage}, err
			}
		}), "description", "Close: it is stuck"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := faults(t, suite{p: c.plugin, config: []byte(goodConfig),
				samples: []*mcp.Message{sample()}, patience: time.Second,
				grace: 200 * time.Millisecond}, c.check)
			if !strings.Contains(strings.Join(found, "\n"), c.want) {
				t.Errorf("%s: found %.300q, want %q", c.check, found, c.want)
			}
		})
	}
}

// busy fails while another question is being asked.
func busy() func(context.Context, *mcp.Message, sdk.Stage) (sdk.Verdict, error) {
	var inside atomic.Int32
	return func(ctx context.Context, m *mcp.Message, inner sdk.Stage) (sdk.Verdict, error) {
		defer inside.Add(-1)
		if inside.Add(1) > 1 {
			return sdk.Verdict{}, errors.New("busy")
		}
		for range 100 {
			runtime.Gosched()
		}
		return inner.Inspect(ctx, m)
	}
}

type unclosable struct{ sdk.Stage }

func (unclosable) Close() error { return errors.New("it is stuck") }

// What a stage remembers is its own business when the plugin says so.
func TestAStatefulPluginMayChangeItsMind(t *testing.T) {
	var calls atomic.Int64
	p := replaced(func(ctx context.Context, m *mcp.Message, inner sdk.Stage) (sdk.Verdict, error) {
		v, err := inner.Inspect(ctx, m)
		v.Reason = fmt.Sprint("message ", calls.Add(1))
		return v, err
	})
	p.Stateful = true
	Run(t, p, goodConfig, sample())
}

func TestOrdinaryMessagesAreOfEveryMethod(t *testing.T) {
	for _, m := range OrdinaryMessages() {
		method, known := mcp.LookupMethod(m.Method)
		if !known && m.Method != "acme/inventory" {
			t.Errorf("%s is no method", m.Method)
		}
		if m.Kind == mcp.Request && known && (method.Kind != mcp.Request || method.Direction != 0 &&
			method.Direction != m.Direction) {
			t.Errorf("%s: nobody sends this", about(m))
		}
		if method.NamePointer != "" && m.Kind == mcp.Request && m.Name == "" {
			t.Errorf("%s: has no name", about(m))
		}
	}
}
