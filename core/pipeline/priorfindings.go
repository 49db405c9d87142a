package pipeline

import "context"

// PriorFindings are the findings of the stages that inspected the message before the current stage.
// With them, policies can use the findings of plugins.
type PriorFindings struct {
	Findings []Finding
	Labels   []string
}

type priorFindingsKey struct{}

// PriorFindingsFrom returns the prior findings for a stage. ctx is the context that Inspect was
// called with.
func PriorFindingsFrom(ctx context.Context) PriorFindings {
	f, _ := ctx.Value(priorFindingsKey{}).(*PriorFindings)
	if f == nil {
		return PriorFindings{}
	}
	return *f
}

// addTo returns a context that contains f. If f is empty, it returns ctx itself.
func (f *PriorFindings) addTo(ctx context.Context) context.Context {
	if len(f.Findings)+len(f.Labels) == 0 {
		return ctx
	}
	snapshot := *f // a copy, since the stage must not see later findings
	return context.WithValue(ctx, priorFindingsKey{}, &snapshot)
}

func (f *PriorFindings) add(result stageResult) {
	if result.err == nil {
		f.Findings = append(f.Findings, result.verdict.Findings...)
		f.Labels = append(f.Labels, result.verdict.Labels...)
	}
}
