package pipeline

import (
	"context"
	"time"

	"gatekit/core/mcp"
)

// Stage inspects messages. Many goroutines may call Inspect at once. Inspect must keep neither m
// nor its bytes. If Inspect returns an error, the message is denied. Inspect must return when ctx
// ends; the pipeline then ignores its verdict.
type Stage interface {
	Inspect(ctx context.Context, m *mcp.Message) (Verdict, error)
}

// QuickStage is a Stage that judges some messages so quickly that another goroutine would take
// longer. The pipeline asks it in the goroutine of the message.
type QuickStage interface {
	Stage
	// InspectQuickly is Inspect for a message that takes little time, in proportion to its size and
	// at most a small part of a second. For every other message it does nothing, and ok is false:
	// the pipeline then calls Inspect.
	InspectQuickly(ctx context.Context, m *mcp.Message) (v Verdict, ok bool, err error)
}

// ListReader is a Stage that may judge the use of an item by what it has seen in a list.
type ListReader interface {
	Stage
	// NeedsList reports whether the verdict about the request m, or about its answer, can depend on
	// the server's list with this method. m has the server's own names.
	NeedsList(m *mcp.Message, list string) bool
}

// StageConfig is a stage with its settings in a pipeline.
type StageConfig struct {
	Name    string
	Stage   Stage
	Wants   Wants
	Timeout time.Duration // of one Inspect; 0 is 2 s
	// if not nil, the stage is asked in one call with its neighbours of the same Group
	Group StageGroup
	// after an error, panic or time-out, the stage is skipped (and the record says so) instead of
	// denying the message
	SkipOnError bool
	// items that the stage hides from a list cannot be used until the stage judges them again, even
	// if the stage itself has forgotten them (see HiddenItems)
	KeepHidden bool
	// Stage and Group promise to return as soon as their context ends. They are then called in the
	// goroutine of the caller of Pass, which saves the change to another goroutine and back.
	ReturnsOnCancel bool
	// how the values that the stage redacts are restored; nil if they are not
	Restore *Restore
	// the clients' names of tools and prompts; they apply to the servers that Wants selects, and
	// Renames.Validate must return nil
	Renames Renames
}

// StageGroup asks several stages in one call. It is for stages that run in the same process, where
// one call is cheaper than a call for each stage. InspectAll asks the stages as [InspectInOrder]
// does. It returns one verdict or one error for each stage that was asked; stages after a denial
// are not asked. The third result is an error of the call, which counts as an error of every stage.
type StageGroup interface {
	InspectAll(ctx context.Context, m *mcp.Message, stages []Stage) ([]Verdict, []error, error)
}

// InspectInOrder asks n stages about m, one after another. Each sees the message with the changes
// of the stages before it. The function inspect asks the stage with the index i. InspectInOrder
// returns a verdict or an error for each stage that was asked. Stages after a denial, or after an
// invalid verdict, are not asked.
func InspectInOrder(m *mcp.Message, n int, inspect func(i int, m *mcp.Message) (Verdict,
	error)) (verdicts []Verdict, errs []error) {
	for i := range n {
		v, err := inspect(i, m)
		verdicts, errs = append(verdicts, v), append(errs, err)
		if err != nil {
			continue // the pipeline decides later whether the stage is skipped
		}
		a, err := v.apply(m, false)
		if err != nil {
			break
		}
		if a.action != "answer" {
			m = a.next
		}
	}
	return verdicts, errs
}
