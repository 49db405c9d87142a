package sink

import "context"

// blockingCall runs calls that cannot be interrupted, such as a write to a disk that hangs, without
// blocking the caller beyond its context. An abandoned call may still take effect, and its batch is
// sent again, so no other call may start before it has returned.
type blockingCall struct {
	abandoned chan struct{} // closed when the abandoned call returns; nil when there is none
}

// isIdle reports whether no abandoned call is running.
func (u *blockingCall) isIdle() bool {
	if u.abandoned == nil {
		return true
	}
	select {
	case <-u.abandoned:
		u.abandoned = nil
		return true
	default:
		return false
	}
}

// wait waits until no abandoned call is running.
func (u *blockingCall) wait(ctx context.Context) error {
	if u.isIdle() {
		return nil
	}
	select {
	case <-u.abandoned:
		u.abandoned = nil
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run runs f, or abandons it when ctx ends. No abandoned call may be running. f owns what it uses
// until it returns.
func (u *blockingCall) run(ctx context.Context, f func() error) error {
	var err error
	over := make(chan struct{})
	go func() {
		defer close(over)
		err = f()
	}()
	select {
	case <-over:
		return err
	case <-ctx.Done():
		u.abandoned = over
		return ctx.Err()
	}
}
