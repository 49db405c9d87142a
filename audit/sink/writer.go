package sink

import (
	"context"
	"io"

	"gatekit/audit/format"
)

// NewWriter answers a receiver that writes to somebody else's writer, such as stderr, each batch in one write. It takes no checkpoints.
func NewWriter(out io.Writer, form format.Form) Receiver { return &writer{out: out, form: form} }

type writer struct {
	out   io.Writer
	form  format.Form
	head  bool          // was written
	stuck chan struct{} // closed when a write that nobody waits for any more is over; nil when there is none
}

func (w *writer) Send(ctx context.Context, b Batch) error {
	if b.Checkpoint != nil {
		return errNoCheckpoints
	}
	if w.stuck != nil { // nothing can take it back, and what it was of is sent again
		select {
		case <-w.stuck:
			w.stuck = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var buf []byte
	if !w.head {
		buf = append(buf, w.form.Header()...)
	}
	for i := range b.Records {
		buf = formOf(w.form, b.Short).Append(buf, &b.Records[i])
	}
	var err error
	done := make(chan struct{})
	go func() { // who is to read a pipe may not
		defer close(done)
		_, err = w.out.Write(buf)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		w.stuck = done
		return ctx.Err()
	}
	w.head = w.head || err == nil
	return err
}

func (w *writer) Close() error { return nil }
