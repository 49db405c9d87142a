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

// StdioPipe is the connection to a client on the stdin and stdout of Gatekit.
type StdioPipe struct {
	lines    *lineReader
	writer   *lineWriter
	cleanups []func() // called by Close; they undo the changes of makePollable
}

var _ conn.Pipe = (*StdioPipe)(nil)

// NewStdioPipe returns a pipe that reads newline-delimited messages from in and writes them to out,
// of at most maxMessage bytes each (0 is 16 MiB). The pipe closes neither file. Nothing else may
// use them until Close.
func NewStdioPipe(in, out *os.File, maxMessage int) *StdioPipe {
	if maxMessage <= 0 {
		maxMessage = defaultMaxMessage
	}
	p := &StdioPipe{}
	p.lines = newLineReader(newSource(p.makePollable(in)), maxMessage)
	p.writer = newLineWriter(p.makePollable(out), 2*maxMessage)
	return p
}

// Read implements conn.Pipe. It skips blank lines. No bytes are lost when ctx ends. Read is for one
// goroutine at a time.
func (p *StdioPipe) Read(ctx context.Context) ([]byte, error) {
	b, err := p.lines.next(ctx)
	if errors.Is(err, fs.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = errClosed
	}
	return b, err
}

// Write implements conn.Pipe. It writes one message as one line, and returns when the line is in
// the pipe. If the error is context.Cause(ctx), Write can be called again. After any other error,
// all further calls fail.
func (p *StdioPipe) Write(ctx context.Context, parts ...[]byte) error {
	return p.writer.Write(ctx, parts...)
}

// Close ends calls of Read and Write that wait, if in and out are pipes or sockets. If
// NewStdioPipe took the files out of blocking mode, Close puts them back.
func (p *StdioPipe) Close() error {
	p.writer.fail(errClosed)
	for _, f := range p.cleanups {
		f()
	}
	return nil
}

// makePollable returns a file with the pipe or socket of f. Reads and writes of the returned file
// wait in the runtime's poller. If f is not a pipe or socket, makePollable returns f itself.
func (p *StdioPipe) makePollable(f *os.File) *os.File {
	info, err := f.Stat()
	if err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) == 0 {
		return f
	}
	enlargePipe(f, pipeBuffer)
	if f.SetDeadline(time.Time{}) == nil {
		// The runtime polls f already. Only its deadlines are used.
		p.cleanups = append(p.cleanups, func() { f.SetDeadline(longAgo) })
		return f
	}
	if stderrInfo, err := os.Stderr.Stat(); err == nil && os.SameFile(info, stderrInfo) {
		// All descriptors of an open pipe share its blocking mode. Gatekit's log is written to
		// stderr: if stderr were non-blocking too, a full pipe would lose log lines.
		return f
	}
	// The returned file gets a descriptor of its own, so that closing the file ends the reads and
	// writes that wait, and leaves f open.
	var duplicate *os.File
	withDescriptor(f, func(fd uintptr) {
		dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return
		}
		unix.SetNonblock(dup, true)
		duplicate = os.NewFile(uintptr(dup), f.Name())
	})
	if duplicate == nil {
		return f
	}
	p.cleanups = append(p.cleanups, func() {
		withDescriptor(f, func(fd uintptr) { unix.SetNonblock(int(fd), false) })
		duplicate.Close()
	})
	return duplicate
}

// withDescriptor calls use with f's descriptor.
func withDescriptor(f *os.File, use func(fd uintptr)) {
	if c, err := f.SyscallConn(); err == nil {
		c.Control(use)
	}
}
