package plugins

import (
	"context"
	"errors"
	"slices"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// inspectUnlessKept is inspect, but it does not ask a stage about a definition on which a verdict
// of the stage is kept. Errors are never kept, and no verdict is used when the process has ended.
//
// A stage that counts in the state that replicas share may be the last one that answers a request.
// The stages after it are then asked with another one.
func (p *supervisor) inspectUnlessKept(ctx context.Context, m *mcp.Message,
	stages []*Stage) ([]pipeline.Verdict, []error, error) {
	process := p.runningProcess()
	if process != nil && (!mcp.HasDefinitions(m) ||
		!slices.ContainsFunc(stages, func(s *Stage) bool { return s.reuses })) {
		process = nil
	}
	counts := func(s *Stage) bool { return s.counts }
	if process == nil && !slices.ContainsFunc(stages[:len(stages)-1], counts) {
		return p.inspect(ctx, m, stages)
	}
	i := inspection{process: process, supervisor: p, stages: stages}
	var last, digested *mcp.Message
	verdicts, errs := pipeline.InspectInOrder(m, len(stages),
		func(n int, m *mcp.Message) (pipeline.Verdict, error) {
			if process == nil {
				return i.inspect(ctx, n, m)
			}
			if m != last {
				last, digested = m, m.WithDigest()
			}
			return i.inspect(ctx, n, digested)
		})
	return verdicts, errs, nil
}

// inspection is the inspection of a message by neighbouring stages that takes more than one call.
// It asks several stages with one call if none of their verdicts is kept.
type inspection struct {
	supervisor *supervisor
	process    *pluginProcess // the process whose verdicts are kept; nil if none is
	stages     []*Stage

	// the last call
	from, to int // the stages that were asked: stages[from:to]
	verdicts []pipeline.Verdict
	errs     []error
	err      error
}

// inspect returns the verdict of the stage with the index n on m. It is called for all stages in
// order.
func (i *inspection) inspect(ctx context.Context, n int, m *mcp.Message) (v pipeline.Verdict,
	err error) {
	s := i.stages[n]
	if n >= i.to {
		if v, ok := i.find(s, m); ok {
			return v, nil
		}
	}
	var q question
	reuses := i.process != nil && s.reuses
	if n >= i.to || reuses && !s.comparesLists() {
		if reuses {
			q = i.process.kept.begin(s, m)
		}
		if n >= i.to {
			i.ask(ctx, n, m)
		}
	}
	switch asked := n - i.from; {
	case i.err != nil:
		err = i.err
	case asked < len(i.errs) && i.errs[asked] != nil:
		err = i.errs[asked]
	case asked < len(i.verdicts):
		v = i.verdicts[asked]
	default:
		err = errors.New("gave no verdict")
	}
	if q.stage != nil {
		isSure := i.supervisor.runningProcess() == i.process &&
			!i.supervisor.isolated.offenses.has(m)
		i.process.kept.end(q, v, err, isSure)
	}
	return v, err
}

// find returns the verdict of a stage that is kept for m.
func (i *inspection) find(s *Stage, m *mcp.Message) (v pipeline.Verdict, ok bool) {
	if i.process == nil || !s.reuses {
		return v, false
	}
	return i.process.kept.find(newDefinition(s, m))
}

// ask asks the stage with the index n about m, and the stages after it that can be asked together
// with it. A stage that compares lists is asked first of all or alone, because its memory must be
// known when it is asked.
func (i *inspection) ask(ctx context.Context, n int, m *mcp.Message) {
	i.from, i.to = n, n+1
	for i.to < len(i.stages) {
		next := i.stages[i.to]
		if i.process != nil && next.comparesLists() {
			break
		}
		if _, ok := i.find(next, m); ok {
			break
		}
		i.to++
	}
	i.verdicts, i.errs, i.err = i.supervisor.inspect(ctx, m, i.stages[i.from:i.to])
	if n := len(i.verdicts); i.err == nil && i.stages[i.from+n-1].counts {
		i.to = i.from + n // the others were not asked
	}
}
