package sdktest

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

// Run tests a plugin with a configuration. samples are messages that a stage with this
// configuration must act on.
func Run(t *testing.T, p sdk.Plugin, config string, samples ...*mcp.Message) {
	t.Helper()
	s := suite{plugin: p, config: []byte(config), samples: samples,
		inspectTimeout: 30 * time.Second, cancelTimeout: 10 * time.Second}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.check(s, t) })
	}
}

// checks are in the order in which an author should fix their failures.
var checks = []struct {
	name  string
	check func(suite, testing.TB)
}{
	{"description", suite.checkDescription},
	{"ordinary messages", suite.checkOrdinaryMessages},
	{"samples", suite.checkSamples},
	{"no content in reasons and findings", suite.checkNoContent},
	{"untouched bytes", suite.checkUntouchedBytes},
	{"no mutation", suite.checkNoMutation},
	{"deterministic", suite.checkDeterministic},
	{"reuse", suite.checkReuse},
	{"unusual messages", suite.checkUnusualMessages},
	{"cancellation", suite.checkCancellation},
	{"concurrency", suite.checkConcurrency},
	{"self-test", suite.checkSelfTest},
}

// suite is the plugin under test with its configuration.
type suite struct {
	plugin  sdk.Plugin
	config  []byte
	samples []*mcp.Message

	// Both times are long, so that a slow machine does not fail a good stage.
	inspectTimeout time.Duration // time for a verdict
	cancelTimeout  time.Duration // time to return after the context has ended
}

// newStage returns a stage, and closes it when the test ends.
func (s suite) newStage(t testing.TB) sdk.Stage {
	t.Helper()
	if s.plugin.New == nil {
		t.Fatalf("the plugin has no New")
	}
	stage, err := s.plugin.New(s.config)
	if err != nil {
		t.Fatalf("New rejects the configuration: %v", err)
	}
	if stage == nil {
		t.Fatalf("New returns neither a stage nor an error")
	}
	if c, ok := stage.(io.Closer); ok {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	return stage
}

// allSamples returns the samples and the message of the self-test.
func (s suite) allSamples() []*mcp.Message {
	all := s.samples
	if c := s.selfTest(); c != nil && c.Message != nil {
		all = append(all[:len(all):len(all)], c.Message)
	}
	return all
}

// selfTest returns the plugin's self-test, or nil.
func (s suite) selfTest() *sdk.SelfTest {
	if s.plugin.SelfTest == nil {
		return nil
	}
	return s.plugin.SelfTest(s.config)
}

// wants returns the stage's own wants. If the stage has none, it returns the wants of the plugin.
func (s suite) wants(stage sdk.Stage) pipeline.Wants {
	if w, ok := stage.(sdk.StageWithWants); ok {
		return w.Wants()
	}
	return s.plugin.Wants
}

// asSent returns m as the host would send it: with only the parts that the plugin needs.
func (s suite) asSent(m *mcp.Message) *mcp.Message {
	c := *m
	if !s.plugin.Needs.Body {
		switch m.Kind {
		case mcp.Request:
			c = withFields(mcp.NewRequest(m.ID(), m.Method, nil), m)
		case mcp.Notification:
			c = withFields(mcp.NewNotification(m.Method, nil), m)
		case mcp.Response:
			c = withFields(mcp.NewResponse(m.ID(), nil), m)
		case mcp.Error:
			c = withFields(mcp.NewError(m.ID(), 0, "", nil), m)
		}
	}
	if !s.plugin.Needs.Request {
		c.Request = nil
	}
	return &c
}

// withFields returns a copy of m with the fields of source that are not part of the JSON.
func withFields(m, source *mcp.Message) mcp.Message {
	c := *m
	c.Direction, c.Session, c.Principal = source.Direction, source.Session, source.Principal
	c.Exchange, c.Method = source.Exchange, source.Method
	c.Server, c.Name = source.Server, source.Name
	c.Request, c.CarriesInput = source.Request, source.CarriesInput
	return c
}

// result is the result of inspecting a message.
type result struct {
	inspected bool // the stage wanted the message
	verdict   sdk.Verdict
	after     *mcp.Message // the message that is forwarded; nil if none is
	action    string       // pass, deny, modify, answer or hide
	// err is an error or panic of the stage, a time-out, or a verdict that contradicts itself.
	err error
}

// inspect passes m, as the host would send it, through a pipeline that has only this stage.
func (s suite) inspect(ctx context.Context, stage sdk.Stage, m *mcp.Message) result {
	var r result
	observed := sdk.StageFunc(func(ctx context.Context, m *mcp.Message) (v sdk.Verdict, err error) {
		v, err = stage.Inspect(ctx, m)
		if !r.inspected { // a second call is about the stage's own answer
			r.inspected, r.verdict = true, v
		}
		return v, err
	})
	first := &firstOutcome{}
	p := pipeline.New(first, pipeline.Options{}, pipeline.StageConfig{Name: s.plugin.Name,
		Stage: observed, Wants: s.wants(stage), Timeout: s.inspectTimeout})
	_, err := p.Pass(ctx, s.asSent(m))
	var denied *pipeline.DeniedError
	if errors.As(err, &denied) && denied.Err != nil {
		// The stage may still run and write to r, so r must not be read.
		return result{inspected: true, action: "deny", err: denied.Err}
	}
	r.action, r.after = first.outcome.Action, first.outcome.After
	return r
}

// firstOutcome is a pipeline.Recorder that keeps the first outcome. Later outcomes are about the
// stage's own answer.
type firstOutcome struct {
	outcome pipeline.Outcome
	n       uint64
}

func (f *firstOutcome) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	if f.n++; f.n == 1 {
		f.outcome = o
	}
	return f.n, nil
}
