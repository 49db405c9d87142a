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

// errLate is the cause of a context that ended because the stage's time was over, and not because the message's sender left.
var errLate = errors.New("time is over")

// stage is a Named in use.
type stage struct {
	name    string
	stage   Stage
	wants   Wants
	timeout time.Duration
	skip    bool
	left    atomic.Int32 // calls that run on though nobody waits for them
}

func newStage(n Named) *stage {
	if n.Stage == nil {
		panic(fmt.Sprintf("pipeline: stage %q has nothing to ask", n.Name))
	}
	if n.Timeout <= 0 {
		n.Timeout = 2 * time.Second
	}
	return &stage{name: n.Name, stage: n.Stage, wants: n.Wants, timeout: n.Timeout, skip: n.Skip}
}

// judge asks the stage about m and answers what goes on, or why nothing does. The step says the same for the record. When its action
// is "answer", next is the answer, and m goes on as it is.
func (s *stage) judge(ctx context.Context, m *mcp.Message) (next *mcp.Message, step Step, denied *Denied) {
	began := time.Now()
	v, err := s.ask(ctx, m)
	step = Step{Stage: s.name, Reason: v.Reason, Findings: v.Findings}
	switch {
	case err == nil:
		next, step.Action, err = v.apply(m)
	case s.skip && ctx.Err() == nil: // a sender that left is no fault of the stage
		next, step.Action, step.Reason, err = m, "skip", err.Error(), nil
	}
	if err != nil {
		step.Action = "deny"
		denied = &Denied{Stage: s.name, Action: "deny"}
		if refused := (*refusal)(nil); errors.As(err, &refused) {
			step.Reason, denied.Reason = refused.reason, refused.reason
		} else {
			denied.Err = fmt.Errorf("stage %q: %w", s.name, err)
		}
	}
	step.Took = time.Since(began)
	return next, step, denied
}

// call is one question to a stage.
type call struct {
	verdict Verdict
	err     error
	settled atomic.Bool   // by whoever comes first: the call that ends, or the one who no longer waits for it
	ended   chan struct{} // closed when verdict and err are there
}

// ask answers the stage's verdict, or an error when it failed, panicked, or ctx or its time ended first. It never waits longer than that.
func (s *stage) ask(ctx context.Context, m *mcp.Message) (Verdict, error) {
	if ctx.Err() != nil {
		return Verdict{}, fmt.Errorf("not asked: %w", context.Cause(ctx))
	}
	if n := s.left.Load(); n >= maxLeft {
		return Verdict{}, fmt.Errorf("not asked: %d of its calls still run although their time is over", n)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errLate)
	defer cancel()
	c := &call{ended: make(chan struct{})}
	go s.run(ctx, c, m)
	select {
	case <-c.ended:
	case <-ctx.Done():
		s.left.Add(1) // before run can see that it was left, so that the count never lacks one
		if c.settled.CompareAndSwap(false, true) {
			return Verdict{}, s.ended(ctx)
		}
		s.left.Add(-1)
		<-c.ended
	}
	if c.err != nil && ctx.Err() != nil {
		return Verdict{}, s.ended(ctx) // what a stage says when its context ended is no news
	}
	return c.verdict, c.err
}

// run is the call itself. It belongs to ask until that leaves it.
func (s *stage) run(ctx context.Context, c *call, m *mcp.Message) {
	returned := false
	defer func() {
		if r := recover(); r != nil {
			c.verdict, c.err = Verdict{}, fmt.Errorf("panicked: %v", r)
		} else if !returned {
			c.verdict, c.err = Verdict{}, errors.New("ended its goroutine")
		}
		if !c.settled.CompareAndSwap(false, true) {
			s.left.Add(-1)
		}
		close(c.ended)
	}()
	c.verdict, c.err = s.stage.Inspect(ctx, m)
	returned = true
}

// ended says why a stage was not waited for.
func (s *stage) ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errLate) {
		return fmt.Errorf("no verdict within %v", s.timeout)
	}
	return fmt.Errorf("no verdict before the message was given up: %w", cause)
}
