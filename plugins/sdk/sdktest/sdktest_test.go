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

// recorder is a testing.TB that keeps the errors of a check.
type recorder struct {
	testing.TB
	mu      sync.Mutex
	errors  []string
	cleanup []func()
}

func (r *recorder) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, a...))
}

func (r *recorder) Fatalf(format string, a ...any) {
	r.Errorf(format, a...)
	runtime.Goexit()
}

// runCheck runs the check with the given name, and returns its errors.
func runCheck(t *testing.T, s suite, check string) []string {
	r := &recorder{TB: t}
	for _, c := range checks {
		if c.name != check {
			continue
		}
		done := make(chan struct{})
		go func() { // a goroutine of its own, because Fatalf ends it
			defer close(done)
			c.check(s, r)
		}()
		<-done
		for _, cleanup := range r.cleanup {
			cleanup()
		}
		return r.errors
	}
	t.Fatalf("no check %q", check)
	return nil
}

const secret = "hunter2-hunter2-hunter2"

// validPlugin returns a plugin that passes all checks. It redacts a word in tool calls.
func validPlugin() sdk.Plugin {
	return sdk.Plugin{
		Name: "word", Version: "1.0.0", Doc: "redacts a word in tool calls",
		Wants:  pipeline.Wants{Methods: []string{"tools/call"}},
		Needs:  sdk.Needs{Body: true},
		Schema: []byte(`{"type":"object","additionalProperties":false,"properties":{"word":{"type":"string","description":"the word"}}}`),
		New: func(config []byte) (sdk.Stage, error) {
			var c struct {
				Word string `json:"word"`
			}
			if err := json.Unmarshal(config, &c, json.RejectUnknownMembers(true)); err != nil {
				return nil, err
			}
			return sdk.StageFunc(func(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
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
				Message: messagesWith(`"` + secret + `"`)[0],
				Action:  pipeline.Modify}
		},
	}
}

const validConfig = `{"word":"` + secret + `"}`

// sample returns a message that the valid plugin acts on.
func sample() *mcp.Message { return messagesWith(`"a ` + secret + ` b"`)[0] }

func TestValidPluginPasses(t *testing.T) { Run(t, validPlugin(), validConfig, sample()) }

// withInspect returns the valid plugin with another Inspect. This Inspect gets the valid plugin's
// stage in the parameter inner.
func withInspect(inspect func(ctx context.Context, m *mcp.Message, inner sdk.Stage) (sdk.Verdict,
	error)) sdk.Plugin {
	p := validPlugin()
	inner := p.New
	p.New = func(config []byte) (sdk.Stage, error) {
		stage, err := inner(config)
		return sdk.StageFunc(func(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
			return inspect(ctx, m, stage)
		}), err
	}
	return p
}

// changed calls the function change on the valid plugin, and returns the result.
func changed(change func(*sdk.Plugin)) sdk.Plugin {
	p := validPlugin()
	change(&p)
	return p
}

func TestFaultyPluginFails(t *testing.T) {
	var calls atomic.Int64
	testEnded := make(chan struct{})
	defer close(testEnded)
	for _, c := range []struct {
		name   string
		plugin sdk.Plugin
		check  string // name of the check that must fail
		want   string // part of the check's error
	}{
		{"a name with spaces", changed(func(p *sdk.Plugin) { p.Name = "My Plugin" }),
			"description", "Name is"},
		{"no version", changed(func(p *sdk.Plugin) { p.Version = "" }),
			"description", "Version is missing"},
		{"no doc", changed(func(p *sdk.Plugin) { p.Doc = "" }), "description", "Doc is"},
		{"no New", changed(func(p *sdk.Plugin) { p.New = nil }), "description", "has no New"},
		{"New returns nil", changed(func(p *sdk.Plugin) {
			p.New = func([]byte) (sdk.Stage,
				error) {
				return nil, nil
			}
		}), "description", "neither a stage"},
		{"an invalid schema", changed(func(p *sdk.Plugin) { p.Schema = []byte(`{"type":7}`) }),
			"description", "rejects the configuration"},
		{"a schema that rejects the configuration", changed(func(p *sdk.Plugin) {
			p.Schema = []byte(
				`{"type":"object","additionalProperties":false,"properties":{"word":{"type":"integer","description":"x"}}}`)
		}), "description", "must be an integer"},
		{"a schema that accepts any option",
			changed(func(p *sdk.Plugin) { p.Schema = []byte(`{"type":"object"}`) }),
			"description", "an unknown option"},
		{"an option without a description", changed(func(p *sdk.Plugin) {
			p.Schema = []byte(
				`{"type":"object","additionalProperties":false,"properties":{"word":{"type":"string"},"more":{"type":"array","description":"x","items":{"type":"object","properties":{"a":{}}}}}}`)
		}), "description", "more[].a"},
		{"New rejects the configuration",
			changed(func(p *sdk.Plugin) {
				p.New = func([]byte) (sdk.Stage, error) {
					return nil, errors.New("no")
				}
			}), "description", "rejects the configuration: no"},
		{"denies errors", withInspect(func(_ context.Context, m *mcp.Message,
			_ sdk.Stage) (sdk.Verdict, error) {
			if m.Kind == mcp.Error {
				return sdk.Deny("no errors"), nil
			}
			return sdk.Allow(), nil
		}), "ordinary messages", "tools/call error to_client: got the action deny (no errors)"},
		{"returns an error for an ordinary message",
			withInspect(func(_ context.Context, m *mcp.Message,
				_ sdk.Stage) (sdk.Verdict, error) {
				return sdk.Allow(), fmt.Errorf("unknown method %s", m.Method)
			}), "ordinary messages", "unknown method"},
		{"answers every request", withInspect(func(_ context.Context, m *mcp.Message,
			_ sdk.Stage) (sdk.Verdict, error) {
			if m.Kind != mcp.Request || m.Direction == mcp.ToClient {
				return sdk.Allow(), nil
			}
			return sdk.Verdict{Action: pipeline.Answer, Answer: []byte(`{}`)}, nil
		}), "ordinary messages", "got the action answer"},
		{"a verdict that contradicts itself", withInspect(func(context.Context, *mcp.Message,
			sdk.Stage) (sdk.Verdict, error) {
			return sdk.Verdict{Action: pipeline.Allow, Edits: []mcp.Edit{mcp.Remove("/_meta")}}, nil
		}), "ordinary messages", "edits without the action modify"},
		{"the zero verdict", withInspect(func(context.Context, *mcp.Message,
			sdk.Stage) (sdk.Verdict,
			error) {
			return sdk.Verdict{}, nil
		}), "ordinary messages", "got the action deny"},
		{"does not act on the samples", withInspect(func(context.Context, *mcp.Message,
			sdk.Stage) (sdk.Verdict, error) {
			return sdk.Allow(), nil
		}), "samples", "does not act on it"},
		{"does not want the samples",
			changed(func(p *sdk.Plugin) { p.Wants.Methods = []string{"tools/list"} }),
			"samples", "does not want it"},
		{"a reason with content", withInspect(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			v, err := inner.Inspect(ctx, m)
			if m.Kind == mcp.Request {
				s, _ := m.Text("/arguments/message")
				v.Reason = "found in " + s
			}
			return v, err
		}), "no content in reasons and findings", "holds content"},
		{"a finding with content", withInspect(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			v, err := inner.Inspect(ctx, m)
			if len(v.Findings) > 0 {
				v.Findings[0].Type = secret
			}
			return v, err
		}), "no content in reasons and findings", "holds content"},
		{"an error with the tool's name", withInspect(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			if m.Kind == mcp.Request && m.Name != "echo" {
				return sdk.Verdict{}, errors.New("no such tool: " + m.Name)
			}
			return inner.Inspect(ctx, m)
		}), "no content in reasons and findings", "holds content"},
		{"a finding with an invalid pointer", withInspect(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			v, err := inner.Inspect(ctx, m)
			if len(v.Findings) > 0 {
				v.Findings[0].Pointer = "/params/arguments/message"
			}
			return v, err
		}), "no content in reasons and findings", "names no place"},
		{"decodes and encodes the body", withInspect(func(ctx context.Context, m *mcp.Message,
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
		}), "untouched bytes", "the untouched part of _meta became"},
		{"drops unknown members", withInspect(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			v, err := inner.Inspect(ctx, m)
			if len(v.Edits) > 0 {
				return sdk.Modify(v.Reason,
					[]mcp.Edit{mcp.Set("", []byte(`{"name":"echo","arguments":{}}`))}), err
			}
			return v, err
		}), "untouched bytes", `the member "_meta" is lost`},
		{"changes the bytes", withInspect(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			if s, ok := m.Get("/arguments/message"); ok {
				copy(s, bytes.ToUpper(s))
			}
			return sdk.Allow(), nil
		}), "no mutation", "changed the bytes"},
		{"changes the fields", withInspect(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			m.Name = "other"
			return sdk.Allow(), nil
		}), "no mutation", "changed the fields"},
		{"returns another reason each time", withInspect(func(context.Context, *mcp.Message,
			sdk.Stage) (sdk.Verdict,
			error) {
			return sdk.Verdict{Action: pipeline.Allow, Reason: fmt.Sprint("call ", calls.Add(1))},
				nil
		}), "deterministic", "got another reason"},
		{"decides differently in each stage", changed(func(p *sdk.Plugin) {
			inner := p.New
			p.New = func(config []byte) (sdk.Stage, error) {
				if calls.Add(1)%2 == 0 {
					return inner([]byte(`{"word":"another"}`))
				}
				return inner(config)
			}
		}), "deterministic", "another stage with the same configuration decides differently"},
		{"returns an error for a lone surrogate", withInspect(func(ctx context.Context,
			m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			if raw, ok := m.Get("/arguments/message"); ok && raw[0] == '"' {
				if _, ok := m.Text("/arguments/message"); !ok {
					return sdk.Verdict{}, errors.New("not a text")
				}
			}
			return inner.Inspect(ctx, m)
		}), "unusual messages", "a lone surrogate, tools/call request to_server: stage \"word\": " +
			"not a text"},
		{"panics without a body", withInspect(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			_ = m.Body()[0]
			return inner.Inspect(ctx, m)
		}), "unusual messages", "panicked: runtime error: index out of range"},
		{"hangs on a large message until its context ends", withInspect(func(ctx context.Context,
			m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			if len(m.Body()) > 5<<20 {
				<-ctx.Done()
				return sdk.Verdict{}, ctx.Err()
			}
			return inner.Inspect(ctx, m)
		}), "unusual messages", "no verdict within"},
		{"ignores its context", withInspect(func(ctx context.Context, m *mcp.Message,
			inner sdk.Stage) (sdk.Verdict, error) {
			if len(m.Body()) > 5<<20 {
				<-testEnded
			}
			return sdk.Allow(), nil
		}), "cancellation", "Inspect has not returned"},
		{"fails if called concurrently", withInspect(failIfConcurrent()),
			"concurrency", "from several goroutines"},
		{"a self-test that gets another action", changed(func(p *sdk.Plugin) {
			p.SelfTest = func([]byte) *sdk.SelfTest {
				return &sdk.SelfTest{Description: "nothing", Message: messagesWith(`"a"`)[0],
					Action: pipeline.Deny}
			}
		}), "self-test", "got the action 1"},
		{"a self-test without a message",
			changed(func(p *sdk.Plugin) {
				p.SelfTest = func([]byte) *sdk.SelfTest {
					return &sdk.SelfTest{}
				}
			}), "self-test", "has no message"},
		{"reads a part that Needs does not list",
			changed(func(p *sdk.Plugin) { p.Needs = sdk.Needs{} }),
			"samples", "does not act on it"},
		{"a stage that cannot be closed", changed(func(p *sdk.Plugin) {
			inner := p.New
			p.New = func(config []byte) (sdk.Stage, error) {
				stage, err := inner(config)
				return unclosable{stage}, err
			}
		}), "description", "Close: it is stuck"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := runCheck(t, suite{plugin: c.plugin, config: []byte(validConfig),
				samples: []*mcp.Message{sample()}, inspectTimeout: time.Second,
				cancelTimeout: 200 * time.Millisecond}, c.check)
			if !strings.Contains(strings.Join(got, "\n"), c.want) {
				t.Errorf("%s: got the errors %.300q, want %q", c.check, got, c.want)
			}
		})
	}
}

// failIfConcurrent returns an Inspect that fails while another call runs.
func failIfConcurrent() func(context.Context, *mcp.Message, sdk.Stage) (sdk.Verdict, error) {
	var running atomic.Int32
	return func(ctx context.Context, m *mcp.Message, inner sdk.Stage) (sdk.Verdict, error) {
		defer running.Add(-1)
		if running.Add(1) > 1 {
			return sdk.Verdict{}, errors.New("busy")
		}
		for range 100 {
			runtime.Gosched()
		}
		return inner.Inspect(ctx, m)
	}
}

// unclosable is a stage whose Close fails.
type unclosable struct{ sdk.Stage }

func (unclosable) Close() error { return errors.New("it is stuck") }

func TestStatefulPluginMayReturnAnotherVerdict(t *testing.T) {
	var calls atomic.Int64
	p := withInspect(func(ctx context.Context, m *mcp.Message, inner sdk.Stage) (sdk.Verdict,
		error) {
		v, err := inner.Inspect(ctx, m)
		v.Reason = fmt.Sprint("message ", calls.Add(1))
		return v, err
	})
	p.Stateful = true
	Run(t, p, validConfig, sample())
}

func TestOrdinaryMessagesAreValid(t *testing.T) {
	for _, m := range OrdinaryMessages() {
		method, known := mcp.LookupMethod(m.Method)
		if !known && m.Method != "acme/inventory" {
			t.Errorf("%s is not a method of MCP", m.Method)
		}
		if m.Kind == mcp.Request && known && (method.Kind != mcp.Request || method.Direction != 0 &&
			method.Direction != m.Direction) {
			t.Errorf("%s: MCP does not allow this direction", describe(m))
		}
		if method.NamePointer != "" && m.Kind == mcp.Request && m.Name == "" {
			t.Errorf("%s: the message has no Name", describe(m))
		}
	}
}
