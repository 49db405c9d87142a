package process

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// The watcher is a second process of this program. It kills the process groups of all children when
// Gatekit ends without having done so: by kill -9, by a crash, or by a second SIGTERM. It learns of
// the end because the system then closes its stdin, which is a pipe from Gatekit. A parent-death
// signal is not enough: it reaches the children, and not what the children have started.
//
// # Why it runs in init
//
// The watcher of a process that starts a server must not delay the server. It needs none of the
// other packages, whose initialization takes most of the time in which Gatekit starts. Package
// process is initialized before most of them, since the order is that of the import paths.

// watcherName is the argv[0] of the watcher.
const watcherName = "gatekit-watcher"

func init() {
	if len(os.Args) == 1 && os.Args[0] == watcherName {
		watchGroups()
		os.Exit(0)
	}
}

// watchGroups reads the groups that begin and end from stdin. At its end, watchGroups kills those
// that have not ended.
func watchGroups() {
	// Gatekit's end is the only signal: systemd and terminals send the others to all processes.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	groups := map[int]bool{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		line := lines.Text()
		group, err := strconv.Atoi(strings.TrimLeft(line, "+-"))
		switch {
		case err != nil || group <= 1:
		case strings.HasPrefix(line, "+"):
			groups[group] = true
		case strings.HasPrefix(line, "-"):
			delete(groups, group)
		}
	}
	for group := range groups {
		syscall.Kill(-group, syscall.SIGKILL)
	}
}

// groupWatcher starts the watcher with the first group and ends it with the last one. Its methods
// may be called from many goroutines.
type groupWatcher struct {
	mu     sync.Mutex
	groups map[int]bool
	users  int       // callers of acquire that have not called release
	stdin  *os.File  // of the watcher; nil when none runs
	cmd    *exec.Cmd // the watcher
}

// watcher is one for all children of the program, which has one watcher process.
var watcher = groupWatcher{groups: map[int]bool{}}

// acquire makes sure that a watcher runs, until release is called.
func (w *groupWatcher) acquire() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stdin == nil {
		if err := w.start(); err != nil {
			return fmt.Errorf("start the process that ends the children when Gatekit is killed: %w",
				err)
		}
	}
	w.users++
	return nil
}

// release ends the watcher when nobody else needs it.
func (w *groupWatcher) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users--; w.users == 0 {
		w.stop()
	}
}

// add has the watcher kill a group if Gatekit ends.
func (w *groupWatcher) add(group int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.groups[group] = true
	w.tell("+", group)
}

// remove ends what add began. It must be called before another process can have the group's id.
func (w *groupWatcher) remove(group int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.groups, group)
	w.tell("-", group)
}

// tell writes a line to the watcher. If the watcher was killed, tell starts another one, which is
// told of all groups. If that fails, too, the parent-death signal of the children remains.
func (w *groupWatcher) tell(sign string, group int) {
	if w.stdin != nil {
		if _, err := fmt.Fprintf(w.stdin, "%s%d\n", sign, group); err == nil {
			return
		}
		w.stop()
	}
	if w.start() != nil {
		return
	}
	for g := range w.groups {
		fmt.Fprintf(w.stdin, "+%d\n", g)
	}
}

// start starts the watcher. mu is held.
func (w *groupWatcher) start() error {
	self := "/proc/self/exe" // this program, even when the file at its path was replaced
	if runtime.GOOS != "linux" {
		var err error
		if self, err = os.Executable(); err != nil {
			return err
		}
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	// A session of its own: a signal to Gatekit's group or from its terminal does not end it.
	// Without GORACE, a program with the race detector would sleep for a second when it ends.
	cmd := &exec.Cmd{Path: self, Args: []string{watcherName}, Dir: "/",
		Env: []string{"GORACE=atexit_sleep_ms=0"}, Stdin: read,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := cmd.Start(); err != nil {
		write.Close()
		return err
	}
	w.stdin, w.cmd = write, cmd
	return nil
}

// stop ends the watcher and reaps it. mu is held.
func (w *groupWatcher) stop() {
	if w.stdin == nil {
		return
	}
	w.stdin.Close()
	w.cmd.Wait()
	w.stdin, w.cmd = nil, nil
}
