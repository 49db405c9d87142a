package attacks

import (
	"bytes"
	"context"
	"io"
	"sync"

	"gatekit/core/conn"
)

// pipeEnd is one end of a connection within the process.
type pipeEnd struct {
	in, out chan []byte
	closed  chan struct{}
	close   func()
}

// newPipe returns the two ends of a connection. Closing one end closes both.
func newPipe() (a, b *pipeEnd) {
	up, down, closed := make(chan []byte, 64), make(chan []byte, 64), make(chan struct{})
	end := sync.OnceFunc(func() { close(closed) })
	return &pipeEnd{up, down, closed, end}, &pipeEnd{down, up, closed, end}
}

var _ conn.PipeCloser = (*pipeEnd)(nil)

// Read implements conn.Pipe.
func (p *pipeEnd) Read(ctx context.Context) ([]byte, error) {
	select {
	case b := <-p.in:
		return b, nil
	default:
	}
	select {
	case b := <-p.in:
		return b, nil
	case <-p.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write implements conn.Pipe.
func (p *pipeEnd) Write(ctx context.Context, parts ...[]byte) error {
	select {
	case p.out <- bytes.Join(parts, nil):
		return nil
	case <-p.closed:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close implements conn.PipeCloser.
func (p *pipeEnd) Close() error {
	p.close()
	return nil
}
