package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"gatekit/core/conn"
	"gatekit/transport/process"
)

const (
	defaultGrace = 2 * time.Second
	maxNoise     = 64 << 10 // bytes on stdout that are no messages, in a child's whole life

)

// Command says how a server's process is started.
type Command struct {
	Name string // of the server, as it is configured: for logs and errors
	// of the program: looked up in PATH when it holds no slash, relative to Dir otherwise. There is
	// no shell.
	Path string
	Args []string // without the program's name
	Dir  string   // working folder; "" is ours

	// Env is what the process gets beside our own PATH, HOME, LANG and TMPDIR, which it may
	// override. It gets nothing else.
	Env map[string]string

	MaxMessage int           // bytes; 0 is 16 MiB
	Grace      time.Duration // between closing stdin, TERM and KILL; 0 is 2 s
	// gets what the process writes to stderr, line by line; nil: nothing is logged
	Log *slog.Logger
}

// Child is a running server process. Its stdin and stdout carry newline-delimited messages.
type Child struct {
	name  string
	grace time.Duration
	log   *slog.Logger

	stdin, stdout *os.File
	lines         *lines
	writer        *lineWriter
	noise         int   // bytes; of Read's goroutine, as is broken
	broken        error // why Read ended the child

	process *process.Process
	once    sync.Once
	closing chan struct{} // closed when Close was called
}

var _ conn.PipeCloser = (*Child)(nil)

// ExitError is the error of Read and Write when a child has ended without being asked to.
type ExitError struct {
	Server string
	How    string // "exited with status 1", "was ended by signal killed"
	Stderr string // the last lines that it wrote to stderr, control characters escaped
}

func (e *ExitError) Error() string {
	s := fmt.Sprintf("server %q %s", e.Server, e.How)
	if e.Stderr != "" {
		s += "; the end of its stderr:\n" + e.Stderr
	}
	return s
}

// Unwrap is io.EOF: there is nothing more to read.
func (e *ExitError) Unwrap() error { return io.EOF }

// Spawn starts the process. ctx bounds the start, not the process, which lives until it exits or
// Close. It leads a process group of its own; when it exits, for whatever reason, what is left of
// the group is killed, and on Linux it is killed when we die.
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
		c.MaxMessage = defaultMessage
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
	enlarge(pipes[0][0], childBuffer)
	enlarge(pipes[1][0], childBuffer)

	child.stdin, child.stdout = pipes[0][1], pipes[1][0]
	child.lines = newLines(childOutput{polled{child.stdout}}, c.MaxMessage)
	child.writer = newLineWriter(child.stdin, 2*c.MaxMessage)

	child.process, err = process.Start(process.Command{
		What:   fmt.Sprintf("server %q", c.Name),
		Path:   c.Path,
		Args:   c.Args,
		Dir:    c.Dir,
		Env:    process.Environment(c.Env),
		Stdin:  pipes[0][0],
		Stdout: pipes[1][1],
		Log:    child.log,
		Exited: func() { child.stdout.SetReadDeadline(time.Now().Add(process.AfterExit)) },
	})
	if err != nil {
		closeAll()
		return nil, err
	}
	pipes[0][0].Close()
	pipes[1][1].Close()
	return child, nil
}

// Read answers the next message. Lines that are no JSON object or array are logged and skipped; a
// child that writes more than 64 KiB of them is ended. The error is io.EOF after Close, an *Exited
// when the child ended by itself, a *conn.TooLargeError for a message that was skipped. It is for
// one goroutine at a time.
func (c *Child) Read(ctx context.Context) ([]byte, error) {
	if c.broken != nil {
		return nil, c.broken
	}
	for {
		b, err := c.lines.next(ctx)
		switch {
		case errors.As(err, new(*conn.TooLargeError)):
			return nil, err
		case err != nil && ctx.Err() != nil:
			return nil, err
		case err != nil:
			return nil, c.ended(ctx)
		case isMessage(b):
			return b, nil
		}
		c.log.Warn("skipped a line on stdout that is no message", "line", process.Printable(b))
		c.noise += len(b) + 1
		if c.noise > maxNoise {
			c.process.Signal(syscall.SIGKILL)
			c.broken = fmt.Errorf("server %q was ended: it wrote more than %d KiB to stdout "+
				"that are no messages\nhint: a stdio server must write its log to stderr; is "+
				"this one started in its stdio mode?", c.name, maxNoise>>10)
			return nil, c.broken
		}
	}
}

// isMessage says whether a line can be a JSON-RPC message or batch. It looks at the first two
// tokens only, enough to tell it from a log line like "[info] ready" or "{'a': 1}"; whoever reads
// the message looks at all of it.
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

// Write writes one message as one line. It is safe for many goroutines. The error is an *Exited
// when the child is gone.
func (c *Child) Write(ctx context.Context, parts ...[]byte) error {
	err := c.writer.Write(ctx, parts...)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, fs.ErrClosed) {
		return c.ended(ctx)
	}
	return err
}

// ended says why there is nothing more to read or nobody to write to.
func (c *Child) ended(ctx context.Context) error {
	select {
	case <-c.closing:
		return io.EOF
	default:
	}
	how := "closed its stdin or stdout"
	select {
	case <-c.process.Done():
		how = c.process.How()
	case <-time.After(process.AfterExit):
	case <-ctx.Done():
	}
	return &ExitError{Server: c.name, How: how, Stderr: c.process.LastWords(10)}
}

// Close ends the server: it closes stdin and waits, sends TERM to the process group and waits,
// sends KILL. It returns when the process is reaped, its group dead and its stderr drained. Further
// calls wait for the same.
func (c *Child) Close() error {
	c.once.Do(func() {
		close(c.closing)
		c.stdin.Close()
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			select {
			case <-c.process.Done():
			case <-time.After(c.grace):
				c.log.Debug("the server is slow to end", "signal", s.String())
				c.process.Signal(s)
			}
		}
		<-c.process.Done()
		c.stdout.Close()
	})
	<-c.process.Done()
	return nil
}

// childOutput reads a child's stdout. Once the child is gone its deadline is set: what is in the
// pipe then is still read, but a process that left the group and holds the pipe open is not waited
// for.
type childOutput struct{ polled }

func (s childOutput) Read(ctx context.Context, p []byte) (int, error) {
	n, err := s.polled.Read(ctx, p)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		s.f.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		n, err = s.f.Read(p)
	}
	return n, err
}
