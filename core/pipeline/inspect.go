package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"gatekit/core/mcp"
)

// maxAbandoned is the number of abandoned calls of one stage that may be running. While so many are
// running, the stage is not asked.
const maxAbandoned = 64

// errTimeout is the cause of a context that ended because the time of the stage was over. Any other
// cause means that the sender of the message gave up.
var errTimeout = errors.New("time is over")

// stage is a StageConfig in use.
type stage struct {
	name        string
	stage       Stage
	wants       Wants
	timeout     time.Duration
	skipOnError bool
	group       StageGroup
	keepHidden  bool
	returns     bool         // returns as soon as its context ends
	abandoned   atomic.Int32 // number of running calls that were abandoned
}

func newStage(config StageConfig) *stage {
	if config.Stage == nil {
		panic(fmt.Sprintf("pipeline: stage %q has no Stage", config.Name))
	}
	if config.Timeout <= 0 {
		config.Timeout = 2 * time.Second
	}
	return &stage{name: config.Name, stage: config.Stage, wants: config.Wants,
		timeout:     config.Timeout,
		skipOnError: config.SkipOnError, group: config.Group, keepHidden: config.KeepHidden,
		returns: config.ReturnsOnCancel}
}

// stageResult is a stage's verdict or error.
type stageResult struct {
	verdict Verdict
	err     error
}

// applyResult applies a stage's result to m. It returns the step for the record, and either the
// message for the later stages or the denial. If the action of the step is "answer", the result
// next is the stage's answer, and the later stages get m unchanged. The exemption has the part of
// the verdict that was applied. The parameter earlier has the steps of the stages before this one.
func (p *Pipeline) applyResult(ctx context.Context, s *stage, m *mcp.Message, result stageResult,
	earlier []Step) (next *mcp.Message, step Step, x exemption, denied *DeniedError) {
	v, err := result.verdict, result.err
	step = Step{Stage: s.name, Reason: v.Reason, Findings: v.Findings}
	switch {
	case err == nil:
		x = p.exempt(s, m, v)
		v = x.verdict
		var a applied
		a, err = v.apply(m, IsApproved(ctx))
		next, step.Action, step.IDs, step.Allowed = a.next, a.action, x.ids, x.allowed
		if len(a.hidden) > 0 {
			step.Hidden = recordedNames(a.hidden, append(slices.Clip(earlier), step))
			step.HiddenIDs = idsOf(a.hidden)
		}
		if step.Action == "pass" && len(x.allowed) > 0 {
			step.Action = "allowed"
		}
		if step.Action == "modify" {
			step.Changed = changedPlaces(v.Edits)
		}
		if step.Action == "pass" {
			if would, reason := v.Would.wouldAction(m); would != "" {
				step.Action, step.Reason = would, reason
			}
		}
	case s.skipOnError && ctx.Err() == nil:
		// A stage is skipped only because of its own failure. If ctx has ended, the sender gave up,
		// and the stage is not skipped.
		next, step.Action, step.Reason, err = m, "skip", err.Error(), nil
	}
	if err != nil {
		step.Action, step.Allowed = "deny", nil
		denied = &DeniedError{Stage: s.name, Action: "deny"}
		if refused := (*denial)(nil); errors.As(err, &refused) {
			step.Reason, denied.Reason = refused.reason, refused.reason
			denied.Scopes, denied.temporary = refused.scopes, refused.temporary
			if step.IDs, denied.ID = nil, x.denialID; denied.ID != "" {
				step.IDs = []string{denied.ID}
			}
			if refused.ask {
				step.Action, denied.Action = "ask", "ask"
			}
		} else {
			step.IDs = nil // a fault cannot be allowed
			denied.Err = fmt.Errorf("stage %q: %w", s.name, err)
			if errors.Is(ctx.Err(), context.Canceled) {
				// The sender does not wait any more, and the stage has returned no verdict.
				step.Action, denied.Action = "cancelled", "cancelled"
			}
		}
	}
	return next, step, x, denied
}

// recordedNames returns the names of hidden items, and "" for a name in which a step has a finding.
func recordedNames(items []hiddenItem, steps []Step) (names []string) {
	found := findingsOf(steps...)
	for _, item := range items {
		if found.cover(item.pointer) {
			item.name = ""
		}
		names = append(names, item.name)
	}
	return names
}

// idsOf returns the ids of hidden items, or nil if no item has an id.
func idsOf(items []hiddenItem) (ids []string) {
	if !slices.ContainsFunc(items, func(item hiddenItem) bool { return item.id != "" }) {
		return nil
	}
	for _, item := range items {
		ids = append(ids, item.id)
	}
	return ids
}

// nextStages splits off the stages at the front that are asked in one call: one stage, or all
// neighbours of one group. The result next has the split-off stages that want m. The result rest
// has the remaining stages.
func nextStages(stages []*stage, m *mcp.Message) (next, rest []*stage) {
	first := stages[0]
	n := 1
	for first.group != nil && n < len(stages) && stages[n].group == first.group {
		n++
	}
	if n == 1 {
		if !first.wants.includes(m) {
			return nil, stages[1:]
		}
		return stages[:1], stages[1:]
	}
	for _, s := range stages[:n] {
		if s.wants.includes(m) {
			next = append(next, s)
		}
	}
	return next, stages[n:]
}

// inspection is one call of one stage, or of neighbouring stages of a group.
type inspection struct {
	results []stageResult
	// set by run when the call ends, or by inspectWith when it abandons the call; the first of the
	// two wins
	claimed atomic.Bool
	done    chan struct{} // closed when results is set
}

// inspectWith asks neighbouring stages in one call and returns their results. The result of a stage
// is an error if the stage failed or panicked, or if ctx or the time of the stage ended first. The
// call runs in another goroutine, so that inspectWith can return when the time is over. A stage
// that returns by itself when ctx ends, or judges the message quickly, is called in this goroutine.
func (p *Pipeline) inspectWith(ctx context.Context, m *mcp.Message, stages []*stage) []stageResult {
	first, timeout := stages[0], stages[0].timeout
	for _, s := range stages[1:] {
		timeout = max(timeout, s.timeout)
	}
	failAll := func(err error) []stageResult {
		failed := make([]stageResult, len(stages))
		for i := range failed {
			failed[i].err = err
		}
		return failed
	}
	if ctx.Err() != nil {
		return failAll(fmt.Errorf("not asked: %w", context.Cause(ctx)))
	}
	if n := first.abandoned.Load(); n >= maxAbandoned {
		return failAll(fmt.Errorf("not asked: %d of its calls still run beyond their time",
			n))
	}
	if quick, ok := first.stage.(QuickStage); ok && len(stages) == 1 {
		if r, ok := inspectQuickly(ctx, m, quick); ok {
			return []stageResult{r}
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	c := &inspection{done: make(chan struct{})}
	if first.returns {
		c.run(ctx, m, stages)
	} else {
		p.options.Workers.Run(func() { c.run(ctx, m, stages) })
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		// The call is counted before it is claimed. After the claim, run may reduce the count at
		// any time.
		first.abandoned.Add(1)
		if c.claimed.CompareAndSwap(false, true) {
			return failAll(interruptedError(ctx, timeout))
		}
		first.abandoned.Add(-1)
		<-c.done
	}
	for i := range c.results {
		if c.results[i].err != nil && ctx.Err() != nil {
			// ctx has ended, so report why ctx ended instead of the stage's own error
			c.results[i].err = interruptedError(ctx, timeout)
		}
	}
	return c.results
}

// inspectQuickly asks a stage in this goroutine, if the stage does that for the message.
func inspectQuickly(ctx context.Context, m *mcp.Message, s QuickStage) (r stageResult, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			r, ok = stageResult{err: fmt.Errorf("panicked: %v", p)}, true
		}
	}()
	r.verdict, ok, r.err = s.InspectQuickly(ctx, m)
	return r, ok
}

// run asks the stages. Nobody else may use c.results until c.done is closed.
func (c *inspection) run(ctx context.Context, m *mcp.Message, stages []*stage) {
	returned := false
	results := make([]stageResult, len(stages))
	fail := func(err error) {
		for i := range results {
			results[i] = stageResult{err: err}
		}
	}
	defer func() {
		if r := recover(); r != nil {
			fail(fmt.Errorf("panicked: %v", r))
		} else if !returned {
			fail(errors.New("ended its goroutine"))
		}
		c.results = results
		if !c.claimed.CompareAndSwap(false, true) {
			stages[0].abandoned.Add(-1)
		}
		close(c.done)
	}()
	if len(stages) == 1 {
		results[0].verdict, results[0].err = stages[0].stage.Inspect(ctx, m)
	} else if err := inspectGroup(ctx, m, stages, results); err != nil {
		fail(err)
	}
	returned = true
}

// inspectGroup asks neighbouring stages through their group.
func inspectGroup(ctx context.Context, m *mcp.Message, stages []*stage,
	results []stageResult) error {
	inspectors := make([]Stage, len(stages))
	for i, s := range stages {
		inspectors[i] = s.stage
	}
	verdicts, errs, err := stages[0].group.InspectAll(ctx, m, inspectors)
	if err != nil {
		return err
	}
	for i := range results {
		switch {
		case i < len(errs) && errs[i] != nil:
			results[i].err = errs[i]
		case i < len(verdicts):
			results[i].verdict = verdicts[i]
		default:
			results[i].err = errors.New("gave no verdict")
		}
	}
	return nil
}

// interruptedError returns the reason why the pipeline stopped waiting for a stage.
func interruptedError(ctx context.Context, timeout time.Duration) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errTimeout) {
		return fmt.Errorf("no verdict within %v", timeout)
	}
	return fmt.Errorf("no verdict before the message was given up: %w", cause)
}
