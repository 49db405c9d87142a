package pipeline

import "context"

type approvedKey struct{}

// WithApproval returns ctx for a request that a human has approved. The verdict Ask of a stage then
// allows the request.
func WithApproval(ctx context.Context) context.Context {
	return context.WithValue(ctx, approvedKey{}, true)
}

// IsApproved reports whether a human has approved the request that is inspected with ctx.
func IsApproved(ctx context.Context) bool {
	approved, _ := ctx.Value(approvedKey{}).(bool)
	return approved
}
