package pipeline

import "context"

// PriorFindings are the findings of the stages that inspected a message before the current one. So
// policies can decide by what plugins found.
type PriorFindings struct {
	Findings []Finding
	Labels   []string
}

type priorFindingsKey struct{}

// PriorFindingsFrom returns the findings so far, for a stage that inspects a message with ctx.
func PriorFindingsFrom(ctx context.Context) PriorFindings {
	f, _ := ctx.Value(priorFindingsKey{}).(*PriorFindings)
	if f == nil {
		return PriorFindings{}
	}
	return *f
}

// addTo returns ctx with f, if f is not empty.
func (f *PriorFindings) addTo(ctx context.Context) context.Context {
	if len(f.Findings)+len(f.Labels) == 0 {
		return ctx
	}
	snapshot := *f // a copy: later findings are not for this stage
	return context.WithValue(ctx, priorFindingsKey{}, &snapshot)
}

func (f *PriorFindings) add(result stageResult) {
	if result.err == nil {
		f.Findings = append(f.Findings, result.verdict.Findings...)
		f.Labels = append(f.Labels, result.verdict.Labels...)
	}
}
