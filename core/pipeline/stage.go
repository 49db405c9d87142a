package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"gatekit/core/mcp"
)

// maxLeft is how many calls of one stage may run on beyond their time before it is no longer asked.
const maxLeft = 64

// errLate is the cause of a context that ended because the stage's time was over, and not because
// the message's sender left.
var errLate = errors.New("time is over")

// stage is a Named in use.
type stage struct {
	name    string
	stage   Stage
	wants   Wants
	timeout time.Duration
	skip    bool
	group   StageGroup
	left    atomic.Int32 // calls that run on though nobody waits for them
}

func newStage(n StageConfig) *stage {
	if n.Stage == nil {
		panic(fmt.Sprintf("pipeline: stage %q has nothing to ask", n.Name))
	}
	if n.Timeout <= 0 {
		n.Timeout = 2 * time.Second
	}
	return &stage{name: n.Name, stage: n.Stage, wants: n.Wants, timeout: n.Timeout,
		skip:  n.SkipOnError,
		group: n.Group}
}

// opinion is what asking a stage came to.
type opinion struct {
	verdict Verdict
	err     error
}

// weigh is what a stage's opinion makes of m: the message that goes on, or why nothing does. The
// step says the same for the record. When its action is "answer", next is the answer, and m goes on
// as it is.
func (s *stage) weigh(ctx context.Context, m *mcp.Message,
	o opinion) (next *mcp.Message, step Step, denied *DeniedError) {
	v, err := o.verdict, o.err
	step = Step{Stage: s.name, Reason: v.Reason, Findings: v.Findings}
	switch {
	case err == nil:
		next, step.Action, err = v.apply(m, IsApproved(ctx))
		if step.Action == "modify" {
			step.Changed = pointers(v.Edits)
		}
	case s.skip && ctx.Err() == nil: // a sender that left is no fault of the stage
		next, step.Action, step.Reason, err = m, "skip", err.Error(), nil
	}
	if err != nil {
		step.Action = "deny"
		denied = &DeniedError{Stage: s.name, Action: "deny"}
		if refused := (*refusal)(nil); errors.As(err, &refused) {
			step.Reason, denied.Reason = refused.reason, refused.reason
			if refused.ask {
				step.Action, denied.Action = "ask", "ask"
			}
		} else {
			denied.Err = fmt.Errorf("stage %q: %w", s.name, err)
		}
	}
	return next, step, denied
}

// neighbours are the first of the stages that want m and are asked together; rest are those after
// them.
func neighbours(asked []*stage, m *mcp.Message) (now, rest []*stage) {
	first := asked[0]
	n := 1
	for first.group != nil && n < len(asked) && asked[n].group == first.group {
		n++
	}
	if n == 1 {
		if !first.wants.match(m) {
			return nil, asked[1:]
		}
		return asked[:1], asked[1:]
	}
	for _, s := range asked[:n] {
		if s.wants.match(m) {
			now = append(now, s)
		}
	}
	return now, asked[n:]
}

// call is one question to stages.
type call struct {
	opinions []opinion
	// by whoever comes first: the call that ends, or the one who no longer waits for it
	settled atomic.Bool
	ended   chan struct{} // closed when opinions are there
}

// ask answers the opinions of stages that are neighbours: an error where one failed, panicked, or
// ctx or its time ended first. It never waits longer than that, and therefore asks in a goroutine
// of its own.
func (p *Pipeline) ask(ctx context.Context, m *mcp.Message, stages []*stage) []opinion {
	first, timeout := stages[0], stages[0].timeout
	for _, s := range stages[1:] {
		timeout = max(timeout, s.timeout)
	}
	all := func(err error) []opinion {
		failed := make([]opinion, len(stages))
		for i := range failed {
			failed[i].err = err
		}
		return failed
	}
	if ctx.Err() != nil {
		return all(fmt.Errorf("not asked: %w", context.Cause(ctx)))
	}
	if n := first.left.Load(); n >= maxLeft {
		return all(fmt.Errorf("not asked: %d of its calls still run although their time is over",
			n))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errLate)
	defer cancel()
	c := &call{ended: make(chan struct{})}
	p.options.Workers.Run(func() { c.run(ctx, m, stages) })
	select {
	case <-c.ended:
	case <-ctx.Done():
		first.left.Add(1) // before run can see that it was left, so that the count never lacks one
		if c.settled.CompareAndSwap(false, true) {
			return all(ended(ctx, timeout))
		}
		first.left.Add(-1)
		<-c.ended
	}
	for i := range c.opinions {
		if c.opinions[i].err != nil && ctx.Err() != nil {
			// what a stage says when its context ended is no news
			c.opinions[i].err = ended(ctx, timeout)
		}
	}
	return c.opinions
}

// run is the call itself. It belongs to ask until that leaves it.
func (c *call) run(ctx context.Context, m *mcp.Message, stages []*stage) {
	returned := false
	opinions := make([]opinion, len(stages))
	fail := func(err error) {
		for i := range opinions {
			opinions[i] = opinion{err: err}
		}
	}
	defer func() {
		if r := recover(); r != nil {
			fail(fmt.Errorf("panicked: %v", r))
		} else if !returned {
			fail(errors.New("ended its goroutine"))
		}
		c.opinions = opinions
		if !c.settled.CompareAndSwap(false, true) {
			stages[0].left.Add(-1)
		}
		close(c.ended)
	}()
	if len(stages) == 1 {
		opinions[0].verdict, opinions[0].err = stages[0].stage.Inspect(ctx, m)
	} else if err := together(ctx, m, stages, opinions); err != nil {
		fail(err)
	}
	returned = true
}

// together asks a group.
func together(ctx context.Context, m *mcp.Message, stages []*stage, opinions []opinion) error {
	its := make([]Stage, len(stages))
	for i, s := range stages {
		its[i] = s.stage
	}
	verdicts, errs, err := stages[0].group.InspectAll(ctx, m, its)
	if err != nil {
		return err
	}
	for i := range opinions {
		switch {
		case i < len(errs) && errs[i] != nil:
			opinions[i].err = errs[i]
		case i < len(verdicts):
			opinions[i].verdict = verdicts[i]
		default:
			opinions[i].err = errors.New("gave no verdict")
		}
	}
	return nil
}

// InspectInOrder asks n stages about m, one after another, each about what those before it made of
// it: inspect asks the stage at an index. It answers a verdict or an error for each that was asked:
// those after a denial, or after a verdict that is not understood, are not.
func InspectInOrder(m *mcp.Message, n int, inspect func(i int, m *mcp.Message) (Verdict,
	error)) (verdicts []Verdict, errs []error) {
	for i := range n {
		v, err := inspect(i, m)
		verdicts, errs = append(verdicts, v), append(errs, err)
		if err != nil {
			continue // whoever asks knows whether it may be left out
		}
		next, action, err := v.apply(m, false)
		if err != nil {
			break
		}
		if action != "answer" {
			m = next
		}
	}
	return verdicts, errs
}

// ended says why a stage was not waited for.
func ended(ctx context.Context, timeout time.Duration) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errLate) {
		return fmt.Errorf("no verdict within %v", timeout)
	}
	return fmt.Errorf("no verdict before the message was given up: %w", cause)
}
