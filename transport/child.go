package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"gatekit/core/conn"
	"gatekit/transport/process"
)

const (
	defaultGrace = 2 * time.Second
	// limit of the bytes on a child's stdout that are not messages, from its start to its end
	maxInvalidBytes = 64 << 10
)

// Command describes the process of a server.
type Command struct {
	Name string // of the server, as it is configured: for logs and errors
	// Path of the program. Without a slash it is looked up in PATH, otherwise it is relative to
	// Dir. No shell is used.
	Path string
	Args []string // without the program's name
	Dir  string   // working folder; "" is that of Gatekit

	// Env is added to the variables of Gatekit that process.Environment passes on, and may override
	// them. The process gets no other variable.
	Env map[string]string

	MaxMessage int           // bytes; 0 is 16 MiB
	Grace      time.Duration // wait after closing stdin, and again after SIGTERM; 0 is 2 s
	// Log gets the lines that the process writes to stderr. With nil nothing is logged.
	Log *slog.Logger
	// Overflow is a folder for lines of stderr that are too many for the log; "" drops them.
	Overflow string
	// Redact replaces secrets in the end of stderr that an ExitError has. The values of Env are
	// always replaced, unless they are very short. It may be nil.
	Redact func(string) string
}

// Child is a running server process. Its stdin and stdout carry newline-delimited messages.
type Child struct {
	name  string
	grace time.Duration
	log   *slog.Logger

	stdin, stdout *os.File
	lines         *lineReader
	writer        *lineWriter
	invalidBytes  int   // on stdout so far; only the goroutine that reads uses this and readError
	readError     error // returned by every further Read; nil while the child can be read

	process   *process.Process
	closeOnce sync.Once
	closing   chan struct{} // closed by the first call of Close
}

var _ conn.PipeCloser = (*Child)(nil)

// ExitError is the error of Read and Write when a child has ended without Close.
type ExitError struct {
	Server string
	Reason string // "exited with status 1", "was ended by signal killed"
	Stderr string // the last lines of stderr, control characters escaped
}

func (e *ExitError) Error() string {
	s := fmt.Sprintf("server %q %s", e.Server, e.Reason)
	if e.Stderr != "" {
		s += "; the end of its stderr:\n" + e.Stderr
	}
	return s
}

// Unwrap returns io.EOF: nothing more can be read.
func (e *ExitError) Unwrap() error { return io.EOF }

// Spawn starts the process. ctx bounds the start, but not the process, which lives until it exits
// or until Close. The process leads a process group of its own. When it exits, for whatever reason,
// the rest of the group is killed, and so it is when Gatekit ends, also by SIGKILL.
func Spawn(ctx context.Context, c Command) (*Child, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	child := &Child{
		name:    c.Name,
		grace:   c.Grace,
		log:     c.Log,
		closing: make(chan struct{}),
	}
	if child.grace <= 0 {
		child.grace = defaultGrace
	}
	if child.log == nil {
		child.log = slog.New(slog.DiscardHandler)
	}
	child.log = child.log.With("server", c.Name)
	if c.MaxMessage <= 0 {
		c.MaxMessage = defaultMaxMessage
	}

	var pipes [2][2]*os.File
	var err error
	closeAll := func() {
		for _, p := range pipes {
			for _, f := range p {
				if f != nil {
					f.Close()
				}
			}
		}
	}
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			closeAll()
			return nil, fmt.Errorf("start server %q: %w", c.Name, err)
		}
	}
	enlargePipe(pipes[0][0], childPipeBuffer)
	enlargePipe(pipes[1][0], childPipeBuffer)

	child.stdin, child.stdout = pipes[0][1], pipes[1][0]
	child.lines = newLineReader(childStdout{pollableFile{child.stdout}}, c.MaxMessage)
	child.writer = newLineWriter(child.stdin, 2*c.MaxMessage)

	child.process, err = process.Start(process.Command{
		Description: fmt.Sprintf("server %q", c.Name),
		Path:        c.Path,
		Args:        c.Args,
		Dir:         c.Dir,
		Env:         process.Environment(c.Env),
		Stdin:       pipes[0][0],
		Stdout:      pipes[1][1],
		Log:         child.log,
		Overflow:    process.Overflow{Folder: c.Overflow, Name: c.Name},
		Secrets:     slices.Collect(maps.Values(c.Env)),
		Redact:      c.Redact,
		OnExit:      func() { child.stdout.SetReadDeadline(time.Now().Add(process.DrainTimeout)) },
	})
	if err != nil {
		closeAll()
		return nil, err
	}
	pipes[0][0].Close()
	pipes[1][1].Close()
	return child, nil
}

// Read implements conn.Pipe. Lines that are not a JSON object or array are logged and skipped. A
// child that writes more than 64 KiB of such lines is killed. The error is io.EOF after Close, and
// an *ExitError when the child ended by itself. Read is for one goroutine at a time.
func (c *Child) Read(ctx context.Context) ([]byte, error) {
	if c.readError != nil {
		return nil, c.readError
	}
	for {
		b, err := c.lines.next(ctx)
		switch {
		case errors.As(err, new(*conn.TooLargeError)):
			return nil, err
		case err != nil && ctx.Err() != nil:
			return nil, err
		case err != nil:
			return nil, c.exitError(ctx)
		case isMessage(b):
			return b, nil
		}
		c.log.Warn("invalid line on stdout skipped", "line", process.Printable(b))
		c.invalidBytes += len(b) + 1
		if c.invalidBytes > maxInvalidBytes {
			c.process.Signal(syscall.SIGKILL)
			c.readError = fmt.Errorf("server %q was killed: more than %d KiB on its "+
				"stdout were not messages\nhint: a stdio server must write its log to stderr; "+
				"check that the server is started in its stdio mode", c.name, maxInvalidBytes>>10)
			return nil, c.readError
		}
	}
}

// isMessage reports whether a line can be a JSON-RPC message or batch. The first two tokens are
// enough to distinguish a message from a log line like "[info] ready" or "{'a': 1}". The parser of
// the message checks the rest.
func isMessage(line []byte) bool {
	line = bytes.TrimLeft(line, " \t\r")
	if len(line) < 2 {
		return false
	}
	second := bytes.TrimLeft(line[1:], " \t\r")
	if len(second) == 0 {
		return false
	}
	switch line[0] {
	case '{':
		return second[0] == '"' || second[0] == '}'
	case '[':
		return second[0] == '{' || second[0] == ']'
	}
	return false
}

// Write implements conn.Pipe: it writes one message as one line. The error is an *ExitError when
// the child has ended.
func (c *Child) Write(ctx context.Context, parts ...[]byte) error {
	err := c.writer.Write(ctx, parts...)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, fs.ErrClosed) {
		return c.exitError(ctx)
	}
	return err
}

// exitError returns io.EOF after Close, and otherwise an *ExitError that describes the child's end.
func (c *Child) exitError(ctx context.Context) error {
	select {
	case <-c.closing:
		return io.EOF
	default:
	}
	reason := "closed its stdin or stdout"
	select {
	case <-c.process.Done():
		reason = c.process.ExitReason()
	case <-time.After(process.DrainTimeout):
	case <-ctx.Done():
	}
	return &ExitError{Server: c.name, Reason: reason, Stderr: c.process.StderrTail(10)}
}

// Close ends the server. It closes stdin and waits, sends SIGTERM to the process group and waits,
// and sends SIGKILL. Every call returns when the process has been reaped, its group is dead and its
// stderr has been read.
func (c *Child) Close() error {
	c.closeOnce.Do(func() {
		close(c.closing)
		c.stdin.Close()
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			select {
			case <-c.process.Done():
			case <-time.After(c.grace):
				c.log.Debug("signal sent to a server that does not exit", "signal", s.String())
				c.process.Signal(s)
			}
		}
		<-c.process.Done()
		c.stdout.Close()
	})
	<-c.process.Done()
	return nil
}

// childStdout reads a child's stdout. A read deadline is set when the child has exited. After the
// deadline, Read returns only the bytes that the pipe still contains. Without it, Read could wait
// for a process that has left the child's group and keeps the pipe open.
type childStdout struct{ pollableFile }

func (s childStdout) Read(ctx context.Context, p []byte) (int, error) {
	n, err := s.pollableFile.Read(ctx, p)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		s.f.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		n, err = s.f.Read(p)
	}
	return n, err
}
