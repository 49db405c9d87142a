package sink

import "context"

// uninterrupted does what cannot be interrupted, and holds nobody up when it hangs. It cannot be
// taken back either, and what it was of is sent again: so nothing else is begun before it is over.
type uninterrupted struct {
	left chan struct{} // closed when what nobody waits for any more is over; nil when there is none
}

// idle says whether nothing is under way.
func (u *uninterrupted) idle() bool {
	if u.left == nil {
		return true
	}
	select {
	case <-u.left:
		u.left = nil
		return true
	default:
		return false
	}
}

// wait waits until nothing is under way.
func (u *uninterrupted) wait(ctx context.Context) error {
	if u.idle() {
		return nil
	}
	select {
	case <-u.left:
		u.left = nil
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// do does it, or leaves it alone when ctx ends. Nothing must be under way; what f uses is its own
// until it is over.
func (u *uninterrupted) do(ctx context.Context, f func() error) error {
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
		u.left = over
		return ctx.Err()
	}
}
