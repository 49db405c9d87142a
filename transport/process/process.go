// Package process runs child processes: it finds the program, makes the environment, logs stderr,
// and leaves no process of the child's process group behind when the child or Gatekit ends.
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

// DrainTimeout is how long the pipes of a process that has ended are still read: a process that
// left its group may hold them open.
const DrainTimeout = time.Second

// Command describes a process.
type Command struct {
	Description string // for errors: `server "files"`
	// Path of the program. Without a slash it is looked up in the PATH of Env, else it is relative
	// to Dir. No shell is used.
	Path string
	Args []string // without the program's name
	Name string   // argv[0] of the program; "" is Path
	Dir  string   // working folder; "" is ours
	Env  []string // all of its environment

	Stdin  *os.File     // nil is empty
	Stdout *os.File     // must not be nil
	Log    *slog.Logger // gets what the process writes to stderr, line by line
	// OnExit is called when the process has been reaped and its group is dead, before the rest of
	// its stderr is read. It may be nil.
	OnExit func()
}

// Process is a running process.
type Process struct {
	log *slog.Logger
	// closed when the process is reaped, its group dead and its stderr drained
	done       chan struct{}
	exitReason string // it ended; valid once done is closed
	stderrTail tail   // of stderr
	onExit     func()

	mu            sync.Mutex // held to signal the group, or to give its number back
	pid           int        // and number of its process group
	groupReleased bool       // the group's number is not ours any more
}

// Start starts the process. The process leads a process group of its own. When it exits, for
// whatever reason, the rest of the group is killed. On Linux it is killed when Gatekit dies.
func Start(c Command) (*Process, error) {
	path, err := findProgram(c.Path, c.Dir, c.Env)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Description, err)
	}
	ours, its, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Description, err)
	}
	cmd := &exec.Cmd{
		Path:        path,
		Args:        append([]string{cmp.Or(c.Name, c.Path)}, c.Args...),
		Env:         c.Env,
		Dir:         c.Dir,
		Stdout:      c.Stdout,
		Stderr:      its,
		SysProcAttr: sysProcAttr(),
	}
	if c.Stdin != nil {
		cmd.Stdin = c.Stdin
	}
	p := &Process{log: c.Log, done: make(chan struct{}), onExit: c.OnExit}
	started := make(chan error, 1)
	go p.supervise(cmd, ours, started)
	err = <-started
	its.Close()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start %s: %w\nhint: is %s a program for this machine, and may "+
			"you run it?", c.Description, err, path)
	}
	return p, nil
}

// supervise starts the process, waits for its end, and removes what is left of it.
//
// It keeps its thread for as long as the process lives: Linux sends the parent-death signal when
// the thread that forked ends, not when the process does (golang.org/issue/27505). The thread costs
// nothing more, since waiting for the process holds one anyway.
func (p *Process) supervise(cmd *exec.Cmd, stderr *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	for range 20 {
		// a copy that was just made, and that a process forked meanwhile holds open until it runs
		// its own program
		if !errors.Is(err, syscall.ETXTBSY) {
			break
		}
		time.Sleep(5 * time.Millisecond)
		cmd = &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir,
			Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, SysProcAttr: cmd.SysProcAttr}
		err = cmd.Start()
	}
	if err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	started <- nil

	drained := make(chan struct{})
	go func() {
		defer close(drained)
		p.Drain(stderr)
	}()
	err = wait(cmd, p.killGroup)
	reapOrphans(p.pid)
	p.exitReason = describeExit(cmd.ProcessState, err)
	// The group is dead, so its pipes are at their end, unless a process that left the group holds
	// them.
	if p.onExit != nil {
		p.onExit()
	}
	stderr.SetReadDeadline(time.Now().Add(DrainTimeout))
	<-drained
	stderr.Close()
	close(p.done)
}

// killGroup kills what is left of the group. The id of the group may be used by others after it.
func (p *Process) killGroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	syscall.Kill(-p.pid, syscall.SIGKILL)
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

// Pid returns the id of the process, which is that of its group, too.
func (p *Process) Pid() int { return p.pid }

// Done returns a channel that is closed when the process has been reaped, its group is dead and its
// stderr has been read.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitReason returns how the process ended ("exited with status 1", "was ended by signal: killed").
// It is valid after Done.
func (p *Process) ExitReason() string { return p.exitReason }

// StderrTail returns the last n lines of its stderr, indented, control characters escaped.
func (p *Process) StderrTail(n int) string { return p.stderrTail.lines(n) }

func describeExit(state *os.ProcessState, err error) string {
	if state == nil {
		return fmt.Sprintf("is lost: %v", err)
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return "was ended by signal: " + status.Signal().String()
	}
	return fmt.Sprintf("exited with status %d", state.ExitCode())
}
