package sink

import "context"

// blockingCall runs calls that cannot be interrupted, such as a write to a disk that hangs. The
// caller waits only until its context ends, and then abandons the call. An abandoned call may still
// take effect, and its batch is sent again. So no other call may start before the abandoned one has
// returned.
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

// run runs f. When ctx ends first, run returns and abandons f. No abandoned call may be running.
// Until f returns, the caller must not touch the data that f uses.
func (u *blockingCall) run(ctx context.Context, f func() error) error {
	var err error
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		err = f()
	}()
	select {
	case <-returned:
		return err
	case <-ctx.Done():
		u.abandoned = returned
		return ctx.Err()
	}
}
