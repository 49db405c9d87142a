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

// The watcher is a second process of this program. Gatekit may end by kill -9, by a crash or by a
// second SIGTERM, without killing the process groups of its children. Then the watcher kills them.
// The stdin of the watcher is a pipe from Gatekit, which the system closes when Gatekit ends. A
// parent-death signal is not enough, since it reaches only the children and not the processes that
// they have started.
//
// # Why the watcher runs in init
//
// The watcher must start quickly, since a server starts only after it. Most of the start of Gatekit
// is the initialization of packages that the watcher does not need. A package is initialized after
// the packages that it imports, and apart from that in the order of the import paths. Package
// process imports only the standard library and golang.org/x/sys, so its init function runs before
// most others.

// watcherName is the argv[0] of the watcher.
const watcherName = "gatekit-watcher"

func init() {
	if len(os.Args) == 1 && os.Args[0] == watcherName {
		watchGroups()
		os.Exit(0)
	}
}

// watchGroups reads from stdin which groups have begun and which have ended. At the end of stdin,
// it kills the groups that have not ended.
func watchGroups() {
	// The watcher must live until stdin ends, but systemd, for example, stops a service by a signal
	// to all of its processes.
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

// groupWatcher starts the watcher for the first group and ends it after the last group. Many
// goroutines may call its methods.
type groupWatcher struct {
	mu     sync.Mutex
	groups map[int]bool
	users  int       // callers of acquire that have not called release
	stdin  *os.File  // stdin of the watcher; nil if no watcher runs
	cmd    *exec.Cmd // the watcher
}

// watcher is shared by all children, so Gatekit has only one watcher process.
var watcher = groupWatcher{groups: map[int]bool{}}

// acquire starts the watcher if it does not run. The watcher runs at least until the caller calls
// release.
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

// release ends the watcher if no other caller of acquire needs it.
func (w *groupWatcher) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users--; w.users == 0 {
		w.stop()
	}
}

// add tells the watcher to kill a group when Gatekit ends.
func (w *groupWatcher) add(group int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.groups[group] = true
	w.tell("+", group)
}

// remove tells the watcher that a group has ended. It must be called before another process can
// have the group's id.
func (w *groupWatcher) remove(group int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.groups, group)
	w.tell("-", group)
}

// tell writes a line to the watcher. If the watcher was killed, tell starts another watcher and
// writes all groups to it. If that also fails, only the parent-death signal ends the children.
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

// start starts the watcher. The caller holds mu.
func (w *groupWatcher) start() error {
	self := "/proc/self/exe" // this program, even if the file at its path was replaced
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
	// The watcher has a session of its own, so a signal to Gatekit's group or from its terminal
	// does not reach it. GORACE affects only a program with the race detector, which would
	// otherwise sleep for a second when it ends.
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

// stop ends the watcher and reaps it. The caller holds mu.
func (w *groupWatcher) stop() {
	if w.stdin == nil {
		return
	}
	w.stdin.Close()
	w.cmd.Wait()
	w.stdin, w.cmd = nil, nil
}
