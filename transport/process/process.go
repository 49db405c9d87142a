// Package process is a child process and all that belongs to it: how its program is found, what it
// gets of our environment, its process group, its stderr, and that nothing of it is left when it
// ends or we do.
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

// AfterExit is how long the pipes of a process that is gone may be held open by one that left its
// group.
const AfterExit = time.Second

// Command says how a process is started.
type Command struct {
	What string // it is, for errors: `server "files"`
	// of the program: looked up in the PATH of Env when it holds no slash, relative to Dir
	// otherwise. There is no shell.
	Path string
	Args []string // without the program's name
	Name string   // that the program is told it has; "" is Path
	Dir  string   // working folder; "" is ours
	Env  []string // all of its environment

	Stdin  *os.File     // nil is empty
	Stdout *os.File     // must not be nil
	Log    *slog.Logger // gets what the process writes to stderr, line by line
	// called when the process is reaped and its group dead, before its stderr is read to the end;
	// may be nil
	Exited func()
}

// Process is a running process.
type Process struct {
	log    *slog.Logger
	done   chan struct{} // closed when the process is reaped, its group dead and its stderr drained
	how    string        // it ended; valid once done is closed
	last   tail          // of stderr
	exited func()

	mu   sync.Mutex // held to signal the group, or to give its number back
	pid  int        // and number of its process group
	gone bool       // the group's number is not ours any more
}

// Start starts the process. It leads a process group of its own; when it exits, for whatever
// reason, what is left of the group is killed, and on Linux it is killed when we die.
func Start(c Command) (*Process, error) {
	path, err := lookup(c.Path, c.Dir, c.Env)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.What, err)
	}
	ours, its, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.What, err)
	}
	cmd := &exec.Cmd{
		Path:        path,
		Args:        append([]string{cmp.Or(c.Name, c.Path)}, c.Args...),
		Env:         c.Env,
		Dir:         c.Dir,
		Stdout:      c.Stdout,
		Stderr:      its,
		SysProcAttr: attributes(),
	}
	if c.Stdin != nil {
		cmd.Stdin = c.Stdin
	}
	p := &Process{log: c.Log, done: make(chan struct{}), exited: c.Exited}
	started := make(chan error, 1)
	go p.supervise(cmd, ours, started)
	err = <-started
	its.Close()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start %s: %w\nhint: is %s a program for this machine, and may "+
			"you run it?", c.What, err, path)
	}
	return p, nil
}

// supervise starts the process, waits for its end and leaves nothing of it.
//
// It keeps its thread for as long as the process lives: Linux sends the parent-death signal when
// the thread that forked ends, not the process (golang.org/issue/27505). It costs nothing, since
// the wait holds a thread anyway.
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
	err = wait(cmd, p.endGroup)
	reapOrphans(p.pid)
	p.how = howItEnded(cmd.ProcessState, err)
	// The group is dead, so its pipes are at their end, unless a process that left the group holds
	// them.
	if p.exited != nil {
		p.exited()
	}
	stderr.SetReadDeadline(time.Now().Add(AfterExit))
	<-drained
	stderr.Close()
	close(p.done)
}

// endGroup kills what is left of the group and gives its number back.
func (p *Process) endGroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	syscall.Kill(-p.pid, syscall.SIGKILL)
	p.gone = true
}

// Signal signals the process group, if it is still there.
func (p *Process) Signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		syscall.Kill(-p.pid, s)
	}
}

// Pid is the number of the process and of its group.
func (p *Process) Pid() int { return p.pid }

// Done is closed when the process is reaped, its group dead and its stderr drained.
func (p *Process) Done() <-chan struct{} { return p.done }

// How says how the process ended ("exited with status 1", "was ended by signal: killed"), once it
// is Done.
func (p *Process) How() string { return p.how }

// LastWords are the last n lines that it wrote to stderr, indented, control characters escaped.
func (p *Process) LastWords(n int) string { return p.last.lines(n) }

func howItEnded(state *os.ProcessState, err error) string {
	if state == nil {
		return fmt.Sprintf("is lost: %v", err)
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return "was ended by signal: " + status.Signal().String()
	}
	return fmt.Sprintf("exited with status %d", state.ExitCode())
}
