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

// StdioPipe is a connection to a client over the stdin and stdout of Gatekit.
type StdioPipe struct {
	lines    *lineReader
	writer   *lineWriter
	cleanups []func() // undo the changes of makePollable; called by Close
}

var _ conn.Pipe = (*StdioPipe)(nil)

// NewStdioPipe returns a pipe that reads newline-delimited messages from the file in and writes
// them to the file out. A message may have at most maxMessage bytes (0 means 16 MiB). Until Close,
// nothing else may use the two files. The pipe does not close them.
func NewStdioPipe(in, out *os.File, maxMessage int) *StdioPipe {
	if maxMessage <= 0 {
		maxMessage = defaultMaxMessage
	}
	p := &StdioPipe{}
	p.lines = newLineReader(newSource(p.makePollable(in)), maxMessage)
	p.writer = newLineWriter(p.makePollable(out), 2*maxMessage)
	return p
}

// Read implements conn.Pipe. It skips blank lines. If ctx ends, no bytes are lost. Only one
// goroutine at a time may call Read.
func (p *StdioPipe) Read(ctx context.Context) ([]byte, error) {
	b, err := p.lines.next(ctx)
	if errors.Is(err, fs.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = errClosed
	}
	return b, err
}

// Write implements conn.Pipe. It writes one message as one line, and returns when the line is in
// the pipe. If the error is context.Cause(ctx), the line may still be written later, and the next
// message can be written. After any other error, all further calls fail.
func (p *StdioPipe) Write(ctx context.Context, parts ...[]byte) error {
	return p.writer.Write(ctx, parts...)
}

// Close interrupts calls of Read and Write that wait, if the files are pipes or sockets. If
// NewStdioPipe made the files non-blocking, Close makes them blocking again.
func (p *StdioPipe) Close() error {
	p.writer.fail(errClosed)
	for _, f := range p.cleanups {
		f()
	}
	return nil
}

// makePollable returns a file for the same pipe or socket as f. Reads and writes of the returned
// file wait in the runtime's poller. If f is in the poller already, must stay blocking, or is not a
// pipe or socket, makePollable returns f itself.
func (p *StdioPipe) makePollable(f *os.File) *os.File {
	info, err := f.Stat()
	if err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) == 0 {
		return f
	}
	enlargePipe(f, pipeBuffer)
	if f.SetDeadline(time.Time{}) == nil {
		// f is in the runtime's poller already, so a deadline is enough to interrupt it.
		p.cleanups = append(p.cleanups, func() { f.SetDeadline(longAgo) })
		return f
	}
	if stderrInfo, err := os.Stderr.Stat(); err == nil && os.SameFile(info, stderrInfo) {
		// All descriptors of an open pipe share its blocking mode. Gatekit's log is written to
		// stderr: if stderr were non-blocking too, a full pipe would lose log lines.
		return f
	}
	// The returned file gets a descriptor of its own. Closing that file interrupts the reads and
	// writes that wait, and f stays open.
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
