package sink

import (
	"context"
	"io"

	"gatekit/audit/format"
)

// NewWriter returns a receiver that writes to the caller's writer, such as stderr, with one write
// per batch. The receiver refuses checkpoints.
func NewWriter(out io.Writer, form format.Encoder) Receiver {
	return &writer{out: out, encoder: form}
}

type writer struct {
	out           io.Writer
	encoder       format.Encoder
	headerWritten bool
	blocking      blockingCall
}

func (w *writer) Send(ctx context.Context, b Batch) error {
	if b.Checkpoint != nil {
		return errNoCheckpoints
	}
	if err := w.blocking.wait(ctx); err != nil {
		return err
	}
	var buf []byte
	if !w.headerWritten {
		buf = append(buf, w.encoder.Header()...)
	}
	for i := range b.Records {
		buf = encoderOf(w.encoder, b.Short).Append(buf, &b.Records[i])
	}
	err := w.blocking.run(ctx, func() error { // the reader of a pipe may hang
		_, err := w.out.Write(buf)
		return err
	})
	w.headerWritten = w.headerWritten || err == nil
	return err
}

func (w *writer) Close() error { return nil }
