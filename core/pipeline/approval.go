package pipeline

import "context"

type approvedKey struct{}

// WithApproval is ctx for a request that a human has approved: what a stage asked for in it is
// given.
func WithApproval(ctx context.Context) context.Context {
	return context.WithValue(ctx, approvedKey{}, true)
}

// IsApproved says that a human has approved the request that is judged with ctx.
func IsApproved(ctx context.Context) bool {
	approved, _ := ctx.Value(approvedKey{}).(bool)
	return approved
}
