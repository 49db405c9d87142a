package pipeline

import (
	"context"
	"time"

	"gatekit/core/mcp"
)

// Stage inspects messages. Many goroutines may call Inspect at once; it must keep neither m nor its
// bytes. An error denies. Inspect must return when ctx ends; its verdict is then ignored.
type Stage interface {
	Inspect(ctx context.Context, m *mcp.Message) (Verdict, error)
}

// StageConfig is a stage with its settings in a pipeline.
type StageConfig struct {
	Name    string
	Stage   Stage
	Wants   Wants
	Timeout time.Duration // of one Inspect; 0 is 2 s
	// asks the stage together with its neighbours of the same Group; nil asks it alone
	Group StageGroup
	// on_error = "skip": an error, panic or time-out skips the stage, on record, instead of denying
	SkipOnError bool
	// client names of items, at the servers that Wants selects; must pass Renames.Validate
	Renames Renames
}

// StageGroup inspects with several stages in one call, where that is cheaper than one call for
// each: when they run in one process. It asks them as [InspectInOrder] does. InspectAll returns one
// verdict or one error for each stage that was asked; stages after a denial are not asked. The
// third result is an error of the call: it counts as an error of every stage.
type StageGroup interface {
	InspectAll(ctx context.Context, m *mcp.Message, stages []Stage) ([]Verdict, []error, error)
}

// InspectInOrder asks n stages about m, one after another. Each sees the message with the changes
// of the stages before it. inspect asks the stage at an index. The results are a verdict or an
// error for each stage that was asked. Stages after a denial, or after an invalid verdict, are not
// asked.
func InspectInOrder(m *mcp.Message, n int, inspect func(i int, m *mcp.Message) (Verdict,
	error)) (verdicts []Verdict, errs []error) {
	for i := range n {
		v, err := inspect(i, m)
		verdicts, errs = append(verdicts, v), append(errs, err)
		if err != nil {
			continue // the pipeline knows whether the stage may be skipped
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
