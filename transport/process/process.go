// Package process runs child processes. It finds the program, makes the environment, and logs
// stderr. When the child or Gatekit ends, the package kills the child's process group.
package process

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// DrainTimeout is the time for which the pipes of a process are read after the process has ended.
// Without this limit, reading might never end, since a process that left the group may hold a pipe
// open.
const DrainTimeout = time.Second

// FirstFile is the number of the first of Command.Files in the process.
const FirstFile = 3

// Command describes a process.
type Command struct {
	Description string // for errors: `server "files"`
	// Path is the path of the program. If it has no slash, it is looked up in the PATH of Env. A
	// relative path with a slash starts at Dir. No shell is used.
	Path string
	Args []string // without the program's name
	Name string   // argv[0] of the program; "" means Path
	// Attributes changes the attributes with which the process is started. It may be nil.
	Attributes func(*syscall.SysProcAttr)
	Dir        string   // working folder; "" is the working folder of Gatekit
	Env        []string // the whole environment of the process

	Stdin  *os.File     // nil is an empty input
	Stdout *os.File     // must not be nil
	Files  []*os.File   // the process gets them with the numbers FirstFile, FirstFile+1, …
	Log    *slog.Logger // gets the lines that the process writes to stderr
	// Overflow gets the lines of stderr that exceed the log's limit per second.
	Overflow Overflow
	// Secrets are values that are replaced in the logged lines and in StderrTail, except very short
	// ones.
	Secrets []string
	// Redact replaces other secrets in the result of StderrTail. It may be nil.
	Redact func(string) string
	// OnStderr is called with each line that the process writes to stderr, as it is logged. It may
	// be nil.
	OnStderr func(line string)
	// OnExit is called when the process has been reaped and its group is dead, before the rest of
	// its stderr is read. It may be nil.
	OnExit func()
}

// Process is a running process.
type Process struct {
	log *slog.Logger
	// closed when the process is reaped, its group is dead and its stderr has been read
	done       chan struct{}
	exitReason string // how the process ended; may be read when done is closed
	stderrTail tail   // the end of stderr
	overflow   overflowFile
	masker     masker
	redact     func(string) string // may be nil
	onStderr   func(line string)
	onExit     func()

	pid int // also the id of the process group

	mu            sync.Mutex // guards groupReleased; held while a signal is sent to the group
	groupReleased bool       // if true, the id may belong to another group, so no signal is sent
}

// Start starts the process. The process leads a process group of its own. When the process or
// Gatekit ends, for any reason, the rest of the group is killed. A process that left the group is
// not killed.
func Start(c Command) (*Process, error) {
	path, err := FindProgram(c.Path, c.Dir, c.Env)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Description, err)
	}
	stderr, childStderr, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Description, err)
	}
	cmd := &exec.Cmd{
		Path:        path,
		Args:        append([]string{cmp.Or(c.Name, c.Path)}, c.Args...),
		Env:         c.Env,
		Dir:         c.Dir,
		Stdout:      c.Stdout,
		Stderr:      childStderr,
		ExtraFiles:  c.Files,
		SysProcAttr: sysProcAttr(),
	}
	if c.Attributes != nil {
		c.Attributes(cmd.SysProcAttr)
	}
	if c.Stdin != nil {
		cmd.Stdin = c.Stdin
	}
	p := &Process{log: c.Log, done: make(chan struct{}), onStderr: c.OnStderr, onExit: c.OnExit,
		overflow: overflowFile{Overflow: c.Overflow}, masker: newMasker(c.Secrets),
		redact: c.Redact}
	started := make(chan error, 1)
	go p.supervise(cmd, stderr, started)
	err = <-started
	childStderr.Close()
	if err != nil {
		stderr.Close()
		return nil, fmt.Errorf("start %s: %w\nhint: is %s a program for this machine, and may "+
			"you run it?", c.Description, err, path)
	}
	return p, nil
}

// supervise starts the process, waits for its end, and kills the rest of its group.
//
// supervise keeps its thread until the process ends. Linux sends the parent-death signal when the
// thread that started the process ends, not when Gatekit ends (golang.org/issue/27505). Keeping the
// thread costs nothing, since waiting for the process needs a thread anyway.
func (p *Process) supervise(cmd *exec.Cmd, stderr *os.File, started chan<- error) {
	if err := watcher.acquire(); err != nil {
		started <- err
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	for range 20 {
		// ETXTBSY means that the program file is still open for writing. A process that was forked
		// while the file was written holds it open until that process executes its own program,
		// which is a matter of milliseconds.
		if !errors.Is(err, syscall.ETXTBSY) {
			break
		}
		time.Sleep(5 * time.Millisecond)
		cmd = &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir,
			Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, ExtraFiles: cmd.ExtraFiles,
			SysProcAttr: cmd.SysProcAttr}
		err = cmd.Start()
	}
	if err != nil {
		watcher.release()
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	p.overflow.pid = p.pid
	watcher.add(p.pid)
	started <- nil

	drained := make(chan struct{})
	go func() {
		defer close(drained)
		p.Drain(stderr)
	}()
	err = wait(cmd, p.killGroup)
	reapOrphans(p.pid)
	p.exitReason = describeExit(cmd.ProcessState, err)
	// The group is dead, so its pipes end, unless a process that left the group holds them open.
	if p.onExit != nil {
		p.onExit()
	}
	stderr.SetReadDeadline(time.Now().Add(DrainTimeout))
	<-drained
	stderr.Close()
	p.overflow.close()
	watcher.release()
	close(p.done)
}

// killGroup kills the processes that are left in the group. After that, new processes may get the
// id of the group.
func (p *Process) killGroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	syscall.Kill(-p.pid, syscall.SIGKILL)
	watcher.remove(p.pid)
	p.groupReleased = true
}

// Signal sends a signal to the process group, unless the process has ended.
func (p *Process) Signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.groupReleased {
		syscall.Kill(-p.pid, s)
	}
}

// Pid returns the id of the process, which is also the id of its group.
func (p *Process) Pid() int { return p.pid }

// Done returns a channel that is closed when the process has been reaped, its group is dead and its
// stderr has been read.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitReason returns how the process ended ("exited with status 1", "was ended by signal: killed").
// It is valid after Done.
func (p *Process) ExitReason() string { return p.exitReason }

// StderrTail returns the last n lines of stderr, indented. Secrets are replaced, and control
// characters are escaped.
func (p *Process) StderrTail(n int) string {
	text := p.masker.mask(p.stderrTail.text(), false)
	if p.redact != nil {
		text = p.redact(text)
	}
	return lastLines(text, n)
}

func describeExit(state *os.ProcessState, err error) string {
	if state == nil {
		return fmt.Sprintf("is lost: %v", err)
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return "was ended by signal: " + status.Signal().String()
	}
	return fmt.Sprintf("exited with status %d", state.ExitCode())
}
