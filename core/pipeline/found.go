package pipeline

import "context"

// PriorFindings is what the stages before one said of a message: policies decide on what plugins
// found.
type PriorFindings struct {
	Findings []Finding
	Labels   []string
}

type foundKey struct{}

// PriorFindingsFrom is what was found so far in the message that a stage is asked about with ctx.
func PriorFindingsFrom(ctx context.Context) PriorFindings {
	f, _ := ctx.Value(foundKey{}).(*PriorFindings)
	if f == nil {
		return PriorFindings{}
	}
	return *f
}

// in is ctx with f, where there is anything in it.
func (f *PriorFindings) in(ctx context.Context) context.Context {
	if len(f.Findings)+len(f.Labels) == 0 {
		return ctx
	}
	now := *f // what is added later is not for the stage that is asked now
	return context.WithValue(ctx, foundKey{}, &now)
}

func (f *PriorFindings) add(o opinion) {
	if o.err == nil {
		f.Findings = append(f.Findings, o.verdict.Findings...)
		f.Labels = append(f.Labels, o.verdict.Labels...)
	}
}
