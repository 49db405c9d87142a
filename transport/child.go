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
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"gatekit/core/upstream"
)

const (
	defaultGrace = 2 * time.Second
	maxNoise     = 64 << 10 // bytes on stdout that are no messages, in a child's whole life

	// afterExit is how long the pipes of a child that is gone may be held open by a process that left its group.
	afterExit = time.Second
)

// Command says how a server's process is started.
type Command struct {
	Name string   // of the server, as it is configured: for logs and errors
	Path string   // of the program: looked up in PATH when it holds no slash, relative to Dir otherwise. There is no shell.
	Args []string // without the program's name
	Dir  string   // working folder; "" is ours

	// Env is what the process gets beside our own PATH, HOME, LANG and TMPDIR, which it may override. It gets nothing else.
	Env map[string]string

	MaxMessage int           // bytes; 0 is 16 MiB
	Grace      time.Duration // between closing stdin, TERM and KILL; 0 is 2 s
	Log        *slog.Logger  // gets what the process writes to stderr, line by line; nil: nothing is logged
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
	last          tail  // of stderr

	once    sync.Once
	closing chan struct{} // closed when Close was called
	exited  chan struct{} // closed when the process is reaped and its stderr drained
	how     string        // it exited; valid once exited is closed

	mu   sync.Mutex // held to signal the group, or to give its number back
	pid  int        // and number of its process group
	gone bool       // the group's number is not ours any more
}

var _ upstream.Pipe = (*Child)(nil)

// Exited is the error of Read and Write when a child has ended without being asked to.
type Exited struct {
	Server string
	How    string // "exited with status 1", "was ended by signal killed"
	Stderr string // the last lines that it wrote to stderr, control characters escaped
}

func (e *Exited) Error() string {
	s := fmt.Sprintf("server %q %s", e.Server, e.How)
	if e.Stderr != "" {
		s += "; the end of its stderr:\n" + e.Stderr
	}
	return s
}

// Unwrap is io.EOF: there is nothing more to read.
func (e *Exited) Unwrap() error { return io.EOF }

// Spawn starts the process. ctx bounds the start, not the process, which lives until it exits or Close. It leads a process group of its own; when it exits, for whatever
// reason, what is left of the group is killed, and on Linux it is killed when we die.
func Spawn(ctx context.Context, c Command) (*Child, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	env := environment(c.Env)
	path, err := lookup(c.Path, c.Dir, env)
	if err != nil {
		return nil, fmt.Errorf("start server %q: %w", c.Name, err)
	}
	child := &Child{
		name:    c.Name,
		grace:   c.Grace,
		log:     c.Log,
		closing: make(chan struct{}),
		exited:  make(chan struct{}),
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

	var pipes [3][2]*os.File
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

	cmd := &exec.Cmd{
		Path:        path,
		Args:        append([]string{c.Path}, c.Args...),
		Env:         env,
		Dir:         c.Dir,
		Stdin:       pipes[0][0],
		Stdout:      pipes[1][1],
		Stderr:      pipes[2][1],
		SysProcAttr: attributes(),
	}
	child.stdin, child.stdout = pipes[0][1], pipes[1][0]
	child.lines = newLines(childOutput{polled{child.stdout}}, c.MaxMessage)
	child.writer = newLineWriter(child.stdin, 2*c.MaxMessage)

	started := make(chan error, 1)
	go child.supervise(cmd, pipes[2][0], started)
	if err := <-started; err != nil {
		closeAll()
		return nil, fmt.Errorf("start server %q: %w\nhint: is %s a program for this machine, and may you run it?", c.Name, err, path)
	}
	for _, f := range []*os.File{pipes[0][0], pipes[1][1], pipes[2][1]} {
		f.Close()
	}
	return child, nil
}

// supervise starts the process, waits for its end and leaves nothing of it.
//
// It keeps its thread for as long as the process lives: Linux sends the parent-death signal when the thread that forked ends, not the process (golang.org/issue/27505). It costs nothing,
// since the wait holds a thread anyway.
func (c *Child) supervise(cmd *exec.Cmd, stderr *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	c.pid = cmd.Process.Pid
	started <- nil

	drained := make(chan struct{})
	go func() {
		defer close(drained)
		c.drain(stderr)
	}()
	err := wait(cmd, c.endGroup)
	reapOrphans(c.pid)
	c.how = howItEnded(cmd.ProcessState, err)
	// The group is dead, so both pipes are at their end, unless a process that left the group holds them.
	c.stdout.SetReadDeadline(time.Now().Add(afterExit))
	stderr.SetReadDeadline(time.Now().Add(afterExit))
	<-drained
	stderr.Close()
	close(c.exited)
}

// endGroup kills what is left of the group and gives its number back.
func (c *Child) endGroup() {
	c.mu.Lock()
	defer c.mu.Unlock()
	syscall.Kill(-c.pid, syscall.SIGKILL)
	c.gone = true
}

func (c *Child) signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		syscall.Kill(-c.pid, s)
	}
}

func howItEnded(state *os.ProcessState, err error) string {
	if state == nil {
		return fmt.Sprintf("is lost: %v", err)
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return "was ended by signal: " + status.Signal().String()
	}
	return fmt.Sprintf("exited with status %d", state.ExitCode())
}

// Read answers the next message. Lines that are no JSON object or array are logged and skipped; a child that writes more than 64 KiB of them is ended. The
// error is io.EOF after Close, an *Exited when the child ended by itself, an *upstream.TooLarge for a message that was skipped. It is for one goroutine at a time.
func (c *Child) Read(ctx context.Context) ([]byte, error) {
	if c.broken != nil {
		return nil, c.broken
	}
	for {
		b, err := c.lines.next(ctx)
		if large, ok := errors.AsType[*tooLarge](err); ok {
			return nil, &upstream.TooLarge{Size: large.size}
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, err
		case err != nil:
			return nil, c.ended(ctx)
		case isMessage(b):
			return b, nil
		}
		c.log.Warn("skipped a line on stdout that is no message", "line", printable(b))
		c.noise += len(b) + 1
		if c.noise > maxNoise {
			c.signal(syscall.SIGKILL)
			c.broken = fmt.Errorf("server %q was ended: it wrote more than %d KiB to stdout that are no messages\nhint: a stdio server must write its log to stderr; is this one started in its stdio mode?", c.name, maxNoise>>10)
			return nil, c.broken
		}
	}
}

// isMessage says whether a line can be a JSON-RPC message or batch. It looks at the first two tokens only, enough to tell it from a log line like
// "[info] ready" or "{'a': 1}"; whoever reads the message looks at all of it.
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

// Write writes one message as one line. It is safe for many goroutines. The error is an *Exited when the child is gone.
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
	case <-c.exited:
		how = c.how
	case <-time.After(afterExit):
	case <-ctx.Done():
	}
	return &Exited{Server: c.name, How: how, Stderr: c.last.lines(10)}
}

// Close ends the server: it closes stdin and waits, sends TERM to the process group and waits, sends KILL. It returns when the process is
// reaped, its group dead and its stderr drained. Further calls wait for the same.
func (c *Child) Close() error {
	c.once.Do(func() {
		close(c.closing)
		c.stdin.Close()
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			select {
			case <-c.exited:
			case <-time.After(c.grace):
				c.log.Debug("the server is slow to end", "signal", s.String())
				c.signal(s)
			}
		}
		<-c.exited
		c.stdout.Close()
	})
	<-c.exited
	return nil
}

// childOutput reads a child's stdout. Once the child is gone its deadline is set: what is in the pipe then is still read, but a process that
// left the group and holds the pipe open is not waited for.
type childOutput struct{ polled }

func (s childOutput) Read(ctx context.Context, p []byte) (int, error) {
	n, err := s.polled.Read(ctx, p)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		s.f.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		n, err = s.f.Read(p)
	}
	return n, err
}

// environment is what a child gets: a few words of ours, and what was given.
func environment(given map[string]string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR"} {
		if _, ok := given[name]; ok {
			continue
		}
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range given {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// lookup finds the program that the child's own PATH means, not ours.
func lookup(path, dir string, env []string) (string, error) {
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return "", fmt.Errorf("its working folder %s is no folder\nhint: correct its cwd", dir)
		}
	}
	if path == "" {
		return "", errors.New("no command is given")
	}
	if strings.Contains(path, "/") {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		if err := executable(abs); err != nil {
			return "", fmt.Errorf("cannot run %s: %w\nhint: correct its command; a relative path is taken from its cwd", path, err)
		}
		return abs, nil
	}
	var where string
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			where = v
		}
	}
	for _, folder := range filepath.SplitList(where) {
		if !filepath.IsAbs(folder) {
			continue // "" or "." in PATH would run whatever lies in the working folder
		}
		if file := filepath.Join(folder, path); executable(file) == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("command %q is not in PATH\nhint: install it, or give its full path; PATH is %s", path, where)
}

func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return errors.Unwrap(err)
	case info.IsDir():
		return errors.New("it is a folder")
	case info.Mode()&0o111 == 0:
		return fs.ErrPermission
	}
	return nil
}
