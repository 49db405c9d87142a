package pipeline

import "context"

// Found is what the stages before one said of a message: policies decide on what plugins found.
type Found struct {
	Findings []Finding
	Labels   []string
}

type foundKey struct{}

// FoundIn is what was found so far in the message that a stage is asked about with ctx.
func FoundIn(ctx context.Context) Found {
	f, _ := ctx.Value(foundKey{}).(*Found)
	if f == nil {
		return Found{}
	}
	return *f
}

// in is ctx with f, where there is anything in it.
func (f *Found) in(ctx context.Context) context.Context {
	if len(f.Findings)+len(f.Labels) == 0 {
		return ctx
	}
	now := *f // what is added later is not for the stage that is asked now
	return context.WithValue(ctx, foundKey{}, &now)
}

func (f *Found) add(o opinion) {
	if o.err == nil {
		f.Findings = append(f.Findings, o.verdict.Findings...)
		f.Labels = append(f.Labels, o.verdict.Labels...)
	}
}
