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

// StdioPipe is the connection to a client on our own stdin and stdout.
type StdioPipe struct {
	lines    *lineReader
	writer   *lineWriter
	cleanups []func() // undo the changes to in and out, and close files that were opened
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

// Write implements conn.Pipe: it writes one message as one line, and returns when the line is in
// the pipe. After an error other than context.Cause(ctx), no line can be written.
func (p *StdioPipe) Write(ctx context.Context, parts ...[]byte) error {
	return p.writer.Write(ctx, parts...)
}

// Close ends calls of Read and Write that wait, if in and out are pipes or sockets. It makes these
// blocking again if they were.
func (p *StdioPipe) Close() error {
	p.writer.fail(errClosed)
	for _, f := range p.cleanups {
		f()
	}
	return nil
}

// makePollable returns a file for the same pipe or socket as f, whose reads and writes wait in the
// runtime's poller. For any other file it returns f.
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
		// Blocking or not is a property of the open pipe, not of the descriptor: a log that shares
		// the pipe would lose lines.
		return f
	}
	// The file gets a descriptor of its own. Closing that ends the reads and writes that wait, and
	// does not close f.
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

// withDescriptor calls do with f's descriptor.
func withDescriptor(f *os.File, do func(fd uintptr)) {
	if c, err := f.SyscallConn(); err == nil {
		c.Control(do)
	}
}
