package pipeline

import "context"

type approvedKey struct{}

// WithApproval returns a context for Pass, for a request that a human has approved. With that
// context, the verdict Ask does not deny the request.
func WithApproval(ctx context.Context) context.Context {
	return context.WithValue(ctx, approvedKey{}, true)
}

// IsApproved reports whether a human has approved the request that is inspected with ctx.
func IsApproved(ctx context.Context) bool {
	approved, _ := ctx.Value(approvedKey{}).(bool)
	return approved
}
