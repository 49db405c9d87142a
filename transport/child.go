package transport

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"gatekit/core/conn"
	"gatekit/transport/process"
	"gatekit/transport/sandbox"
)

const (
	defaultGrace = 2 * time.Second
	// maxInvalidBytes is how many bytes of invalid lines a child may write to its stdout in total.
	// An invalid line is a line that is not a message.
	maxInvalidBytes = 64 << 10
)

// Command describes the process of a server.
type Command struct {
	Name string // configured name of the server, for logs and errors
	// Path is the path of the program. If it has no slash, it is looked up in PATH. A relative path
	// with a slash starts at Dir. No shell is used.
	Path string
	Args []string // without the program's name
	Dir  string   // working folder; "" is the working folder of Gatekit

	// Env has variables for the process. The process gets them and the variables that
	// process.Environment takes from Gatekit, but no others. A variable in Env takes precedence.
	Env map[string]string
	// Secrets are texts that are replaced in the logged lines of the process, like the values of
	// Env. A value of Env may contain one.
	Secrets []string

	MaxMessage int           // bytes; 0 is 16 MiB
	Grace      time.Duration // wait after closing stdin, and again after SIGTERM; 0 is 2 s
	// Log gets the lines that the process writes to stderr. If Log is nil, nothing is logged.
	Log *slog.Logger
	// Overflow is a folder for the lines of stderr that exceed the log's limit per second. If it is
	// "", these lines are dropped.
	Overflow string
	// Sandbox confines the process. Nil means that it may do everything that the user may do.
	Sandbox *Sandbox
	// Redact replaces secrets in ExitError.Stderr. It may be nil. The values of Env, except very
	// short ones, are replaced in any case.
	Redact func(string) string
}

// Sandbox says what the process of a server may do.
type Sandbox struct {
	sandbox.Settings
	// Egress lets the process connect to a list of hosts, and to nothing else, whatever Settings
	// say about its network. See Child.RecordEgress. Nil means that Settings decide.
	Egress                  *Egress
	Hidden, Fixed, Readable []string // see sandbox.Launch
	// BestEffort starts the process without a sandbox if the system cannot hold the level.
	BestEffort bool
	// Grant says how the operator grants what the process was refused. If it is nil, Gatekit gives
	// no hints.
	Grant func(sandbox.Refusal) string
}

// maxHints limits the hints about one process, which the process can cause at will.
const maxHints = 8

// hints collects what a confined process was refused. Its methods may be called by many goroutines.
type hints struct {
	mu   sync.Mutex
	text []string // in the order of their first appearance
}

// add returns whether the hint is new and is kept.
func (h *hints) add(hint string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.text) >= maxHints || slices.Contains(h.text, hint) {
		return false
	}
	h.text = append(h.text, hint)
	return true
}

func (h *hints) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.text)
}

// hint returns what the operator can do about a refusal.
func (s *Sandbox) hint(r sandbox.Refusal) string {
	text := s.Grant(r)
	if r.Missing {
		text = "make " + r.Value + ", then " + text
	}
	if r.Secret {
		text += " (this is a known place of keys and passwords: do so only if the server " +
			"must have them)"
	}
	return text
}

func (s *Sandbox) describe(box *sandbox.Sandbox) string {
	network := "all"
	switch {
	case s.Egress != nil:
		network = s.Egress.Hosts.String()
	case s.NoNetwork:
		network = "none"
	}
	text := fmt.Sprintf("level %s, network %s, %s", s.Level, network, box.HeldBy())
	if s.Memory > 0 {
		text += fmt.Sprintf(", at most %d bytes of memory in each process", s.Memory)
	}
	if s.Files > 0 {
		text += fmt.Sprintf(", at most %d open files in each process", s.Files)
	}
	if len(box.Closed) > 0 {
		text += fmt.Sprintf("; the server can create no files in %s, which holds files of Gatekit",
			strings.Join(box.Closed, ", "))
	}
	if len(box.NotHeld) > 0 {
		text += "; this kernel cannot refuse: " + strings.Join(box.NotHeld, ", ")
	}
	return text
}

// Child is a running server process. Its stdin and stdout carry newline-delimited messages.
type Child struct {
	name  string
	grace time.Duration
	log   *slog.Logger

	stdin, stdout *os.File
	lines         *lineReader
	writer        *lineWriter
	invalidBytes  int   // bytes of stdout that were not messages; used only by Read
	readError     error // every further Read returns it; nil while the child can be read

	process     *process.Process
	confinement string // see Confinement
	confined    bool
	hints       hints
	network     *childNetwork // nil without a list of hosts
	closeOnce   sync.Once
	closing     chan struct{} // closed by the first call of Close
}

var _ conn.PipeCloser = (*Child)(nil)

// ExitError is the error of Read and Write if the child has ended, or has closed its stdin or
// stdout, before Close was called.
type ExitError struct {
	Server string
	// Reason is for example "exited with status 1" or "was ended by signal: killed". If the child
	// still runs, it is "closed its stdin or stdout".
	Reason string
	Stderr string // the last lines of stderr, with control characters escaped
	Hint   string // what the operator can do; may be empty
}

func (e *ExitError) Error() string {
	s := fmt.Sprintf("server %q %s", e.Server, e.Reason)
	if e.Stderr != "" {
		s += "; the end of its stderr:\n" + e.Stderr
	}
	if e.Hint != "" {
		s += "\nhint: " + e.Hint
	}
	return s
}

// Unwrap returns io.EOF, since nothing more can be read.
func (e *ExitError) Unwrap() error { return io.EOF }

// Spawn starts the process, unless ctx has ended. A later end of ctx has no effect. The process
// lives until it exits or until Close. It leads a process group of its own. When the process exits
// or Gatekit ends, even by SIGKILL, the rest of the group is killed.
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

	env := process.Environment(c.Env)
	box, program, err := c.confine(env)
	unsupported, ok := errors.AsType[*sandbox.UnsupportedError](err)
	if ok && c.Sandbox.BestEffort {
		box, err = sandbox.New(sandbox.Settings{Level: sandbox.Off}, sandbox.Launch{Env: env})
	}
	if ok && err != nil {
		err = fmt.Errorf("%w\nhint: with the level off, the server starts and may do everything "+
			"that you may do", err)
	}
	if err != nil {
		return nil, fmt.Errorf("start server %q: %w", c.Name, err)
	}
	switch {
	case unsupported != nil:
		child.confinement = unsupported.Error()
		child.log.Warn("server not confined: it may do everything that you may do", "reason",
			unsupported.Reason)
	case c.Sandbox != nil && c.Sandbox.Level != sandbox.Off:
		child.confinement, child.confined = c.Sandbox.describe(box), true
		child.log.Info("server confined", "sandbox", child.confinement)
		if c.Sandbox.Egress != nil {
			child.network = newChildNetwork(child, c.Sandbox)
		}
	}

	var pipes [2][2]*os.File
	closeAll := func() {
		box.Close()
		for _, p := range pipes {
			for _, f := range p {
				if f != nil {
					f.Close()
				}
			}
		}
	}
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err == nil {
			err = cmp.Or(forServers.checkFile(pipes[i][0]), forServers.checkFile(pipes[i][1]))
		}
		if err != nil {
			closeAll()
			return nil, fmt.Errorf("start server %q: %w", c.Name, err)
		}
	}
	enlargePipe(pipes[0][0], childPipeBuffer)
	enlargePipe(pipes[1][0], childPipeBuffer)

	child.stdin, child.stdout = pipes[0][1], pipes[1][0]
	child.lines = newLineReader(childStdout{pollableFile{child.stdout}}, c.MaxMessage)
	child.writer = newLineWriter(child.stdin, 2*c.MaxMessage)

	path, name, args, files := box.Launch(program, c.Args)
	child.process, err = process.Start(process.Command{
		Description: fmt.Sprintf("server %q", c.Name),
		Path:        path,
		Name:        name,
		Args:        args,
		Files:       files,
		Dir:         c.Dir,
		Attributes:  box.SetAttributes,
		Env:         box.Env,
		Stdin:       pipes[0][0],
		Stdout:      pipes[1][1],
		Log:         child.log,
		Overflow:    process.Overflow{Folder: c.Overflow, Name: c.Name},
		Secrets:     slices.AppendSeq(slices.Clone(c.Secrets), maps.Values(c.Env)),
		Redact:      c.Redact,
		OnStderr: func(line string) {
			if !child.confined || c.Sandbox.Grant == nil {
				return
			}
			if r, ok := box.Refusal(line); ok {
				if hint := c.Sandbox.hint(r); child.hints.add(hint) {
					child.log.Warn("the sandbox may have refused something that the server needs",
						"hint", hint)
				}
			}
		},
		OnExit: func() {
			child.stdout.SetReadDeadline(time.Now().Add(process.DrainTimeout))
			child.network.close()
			if err := box.Close(); err != nil {
				child.log.Warn("private folder not removed", "error", err)
			}
		},
	})
	if err != nil {
		closeAll()
		if err = box.StartError(err); errors.As(err, new(*sandbox.UnsupportedError)) {
			err = fmt.Errorf("start server %q: %w", c.Name, err)
		}
		return nil, err
	}
	pipes[0][0].Close()
	pipes[1][1].Close()
	err = box.Release()
	if err == nil {
		err = child.network.open(box)
	}
	if err != nil {
		child.process.Signal(syscall.SIGKILL)
		<-child.process.Done()
		closeAll()
		return nil, fmt.Errorf("start server %q: %w", c.Name, err)
	}
	return child, nil
}

// Confinement says how the process is confined, as "level guard, network all, Landlock ABI 7". If
// it is not confined although Command.Sandbox asks for it, the description is the reason. It is
// empty if nothing asks for it.
func (c *Child) Confinement() (description string, confined bool) {
	return c.confinement, c.confined
}

// confine prepares the sandbox of the process, and returns the program's path. Without a sandbox,
// it allows everything.
func (c *Command) confine(env []string) (box *sandbox.Sandbox, program string, err error) {
	if c.Sandbox == nil {
		box, err = sandbox.New(sandbox.Settings{Level: sandbox.Off}, sandbox.Launch{Env: env})
		return box, c.Path, err
	}
	if program, err = process.FindProgram(c.Path, c.Dir, env); err != nil {
		return nil, "", err
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, "", err
	}
	settings := c.Sandbox.Settings
	if c.Sandbox.Egress != nil {
		settings.NoNetwork, settings.Ports = false, c.Sandbox.Egress.Hosts.Ports()
	}
	settings.ByDefault = c.Sandbox.BestEffort
	box, err = sandbox.New(settings, sandbox.Launch{Program: program, Args: c.Args,
		Dir: dir, Env: env, Given: slices.Collect(maps.Keys(c.Env)), Hidden: c.Sandbox.Hidden,
		Fixed: c.Sandbox.Fixed, Readable: c.Sandbox.Readable})
	return box, program, err
}

// Read implements conn.Pipe. Lines that are not a JSON object or array are logged and skipped. A
// child that writes more than 64 KiB of such lines is killed. After Close, the error is io.EOF. If
// the child ended before Close, the error is an *ExitError. Only one goroutine at a time may call
// Read.
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

// Write implements conn.Pipe. It writes one message as one line. After Close, the error is io.EOF.
// If the child ended before Close, the error is an *ExitError.
func (c *Child) Write(ctx context.Context, parts ...[]byte) error {
	err := c.writer.Write(ctx, parts...)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, fs.ErrClosed) {
		return c.exitError(ctx)
	}
	return err
}

// exitError returns io.EOF after Close. Otherwise it returns an *ExitError that describes how the
// child ended.
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
	e := &ExitError{Server: c.name, Reason: reason, Stderr: c.process.StderrTail(10)}
	if hints := c.hints.all(); len(hints) > 0 {
		e.Hint = fmt.Sprintf("the server is confined (%s); if it needs what it was refused: %s",
			c.confinement, strings.Join(hints, "; "))
	}
	return e
}

// Close ends the server. It closes stdin and waits for the grace period. If the process still runs,
// Close sends SIGTERM to the process group and waits again, and then sends SIGKILL. Every call of
// Close returns when the process has been reaped, its group is dead and its stderr has been read.
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

// childStdout reads a child's stdout. Spawn passes a function OnExit, which sets a read deadline
// when the child exits. After the deadline, Read returns the bytes that are left in the pipe and
// then an error. Without the deadline, Read could wait for a process that left the child's group
// and holds the pipe open.
type childStdout struct{ pollableFile }

func (s childStdout) Read(ctx context.Context, p []byte) (int, error) {
	n, err := s.pollableFile.Read(ctx, p)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		s.f.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		n, err = s.f.Read(p)
	}
	return n, err
}
