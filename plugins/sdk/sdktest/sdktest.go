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

// Run holds p, with a configuration, against the contract. samples are messages that a stage of
// this configuration does something about.
func Run(t *testing.T, p sdk.Plugin, config string, samples ...*mcp.Message) {
	t.Helper()
	s := suite{p: p, config: []byte(config), samples: samples, patience: 30 * time.Second,
		grace: 3 * time.Second}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.check(s, t) })
	}
}

// checks are in the order in which their faults are best mended.
var checks = []struct {
	name  string
	check func(suite, testing.TB)
}{
	{"description", suite.description},
	{"ordinary messages", suite.ordinary},
	{"samples", suite.acted},
	{"no content", suite.noContent},
	{"other bytes", suite.otherBytes},
	{"no mutation", suite.noMutation},
	{"pure", suite.pure},
	{"odd messages", suite.odd},
	{"time", suite.time},
	{"at once", suite.atOnce},
	{"canary", suite.canary},
}

// suite is what is tested.
type suite struct {
	p       sdk.Plugin
	config  []byte
	samples []*mcp.Message

	// patience is how long a stage may take for a message, and grace how long to see that its
	// context has ended. They are long, so that no slow machine fails a good stage.
	patience, grace time.Duration
}

// stage makes one, which is closed when the test ends.
func (s suite) stage(t testing.TB) sdk.Stage {
	t.Helper()
	if s.p.New == nil {
		t.Fatalf("the plugin has no New")
	}
	stage, err := s.p.New(s.config)
	if err != nil {
		t.Fatalf("New refuses the configuration: %v", err)
	}
	if stage == nil {
		t.Fatalf("New makes no stage and no error")
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

// acts are the samples and the canary's message.
func (s suite) acts() []*mcp.Message {
	acts := s.samples
	if c := s.sings(); c != nil && c.Message != nil {
		acts = append(acts[:len(acts):len(acts)], c.Message)
	}
	return acts
}

func (s suite) sings() *sdk.SelfTest {
	if s.p.SelfTest == nil {
		return nil
	}
	return s.p.SelfTest(s.config)
}

// wants are those of the plugin, or of the stage when that says them itself.
func (s suite) wants(stage sdk.Stage) pipeline.Wants {
	if w, ok := stage.(sdk.StageWithWants); ok {
		return w.Wants()
	}
	return s.p.Wants
}

// sent is m as the host would send it.
func (s suite) sent(m *mcp.Message) *mcp.Message {
	c := *m
	if !s.p.Needs.Body {
		switch bare := (*mcp.Message)(nil); m.Kind {
		case mcp.Request:
			bare = mcp.NewRequest(m.ID(), m.Method, nil)
			c = with(bare, m)
		case mcp.Notification:
			bare = mcp.NewNotification(m.Method, nil)
			c = with(bare, m)
		case mcp.Response:
			c = with(mcp.NewResponse(m.ID(), nil), m)
		case mcp.Error:
			c = with(mcp.NewError(m.ID(), 0, "", nil), m)
		}
	}
	if !s.p.Needs.Request {
		c.Request = nil
	}
	return &c
}

// with is body with what is known of m.
func with(body, m *mcp.Message) mcp.Message {
	c := *body
	c.Direction, c.Session, c.Principal, c.Exchange = m.Direction, m.Session, m.Principal,
		m.Exchange
	c.Method, c.Server, c.Name, c.Request, c.CarriesInput = m.Method, m.Server, m.Name, m.Request,
		m.CarriesInput
	return c
}

// judged is what became of a message.
type judged struct {
	asked   bool // the stage wanted it
	verdict sdk.Verdict
	after   *mcp.Message // nil when it may not move
	action  string       // pass, deny, modify, answer, hide
	fault   error        // an error, a panic, no verdict in time, a verdict that contradicts itself
}

// judge puts m, as the host would send it, through a pipeline of the stage alone.
func (s suite) judge(ctx context.Context, stage sdk.Stage, m *mcp.Message) judged {
	var j judged
	seen := sdk.StageFunc(func(ctx context.Context, m *mcp.Message) (v sdk.Verdict, err error) {
		v, err = stage.Inspect(ctx, m)
		if !j.asked { // the second time it is about the stage's own answer
			j.asked, j.verdict = true, v
		}
		return v, err
	})
	m = s.sent(m)
	first := &firstOutcome{}
	p := pipeline.New(first, pipeline.Options{}, pipeline.StageConfig{Name: s.p.Name, Stage: seen,
		Wants: s.wants(stage), Timeout: s.patience})
	_, err := p.Pass(ctx, m)
	var denied *pipeline.DeniedError
	if errors.As(err, &denied) && denied.Err != nil {
		// the stage may still run: what it writes is not looked at
		return judged{asked: true, action: "deny", fault: denied.Err}
	}
	j.action, j.after = first.outcome.Action, first.outcome.After
	return j
}

// firstOutcome records nothing but the first outcome: others are of a stage's answer.
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
