package transport

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"gatekit/core/conn"
)

// StdioPipe is a client on the other side of our own stdin and stdout.
type StdioPipe struct {
	lines   *lines
	writer  *lineWriter
	restore []func() // undo what was changed and close what was opened
}

var _ conn.Pipe = (*StdioPipe)(nil)

// NewStdioPipe speaks newline-delimited messages on in and out, of at most maxMessage bytes each (0
// is 16 MiB). Neither file is closed by the pipe, and neither may be used by others until Close.
func NewStdioPipe(in, out *os.File, maxMessage int) *StdioPipe {
	if maxMessage <= 0 {
		maxMessage = defaultMessage
	}
	p := &StdioPipe{}
	p.lines = newLines(sourceOf(p.unblocked(in)), maxMessage)
	p.writer = newLineWriter(p.unblocked(out), 2*maxMessage)
	return p
}

// Read returns the next message. It skips blank lines. io.EOF is the end of the input; a
// *conn.TooLargeError is a message that was skipped, and reading goes on after it. When ctx ends,
// nothing is lost. It is for one goroutine at a time.
func (p *StdioPipe) Read(ctx context.Context) ([]byte, error) {
	b, err := p.lines.next(ctx)
	if errors.Is(err, fs.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = errClosed
	}
	return b, err
}

// Write writes one message as one line. It is safe for many goroutines; lines leave in the order in
// which Write was called. It answers when the line is in the pipe. An error that is not ctx's is
// for good.
func (p *StdioPipe) Write(ctx context.Context, parts ...[]byte) error {
	return p.writer.Write(ctx, parts...)
}

// Close ends what waits in Read and Write, if in and out are pipes or sockets, and makes them
// blocking again if they were.
func (p *StdioPipe) Close() error {
	p.writer.fail(errClosed)
	for _, f := range p.restore {
		f()
	}
	return nil
}

// unblocked answers a file like f whose reads and writes wait in the runtime's poller, if f is a
// pipe or a socket; else f itself.
func (p *StdioPipe) unblocked(f *os.File) *os.File {
	info, err := f.Stat()
	if err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) == 0 {
		return f
	}
	enlarge(f, pipeBuffer)
	if f.SetDeadline(time.Time{}) == nil {
		// It is polled already. Only its deadlines are ours to use.
		p.restore = append(p.restore, func() { f.SetDeadline(longAgo) })
		return f
	}
	if log, err := os.Stderr.Stat(); err == nil && os.SameFile(info, log) {
		// What blocks or not is a property of the open pipe, not of the descriptor: a log that
		// shares it would lose lines.
		return f
	}
	// A descriptor of our own, so that closing it (which ends what waits in it) does not close f.
	var own *os.File
	control(f, func(fd uintptr) {
		dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return
		}
		unix.SetNonblock(dup, true)
		own = os.NewFile(uintptr(dup), f.Name())
	})
	if own == nil {
		return f
	}
	p.restore = append(p.restore, func() {
		control(f, func(fd uintptr) { unix.SetNonblock(int(fd), false) })
		own.Close()
	})
	return own
}

// control runs do with f's descriptor.
func control(f *os.File, do func(fd uintptr)) {
	if c, err := f.SyscallConn(); err == nil {
		c.Control(do)
	}
}
