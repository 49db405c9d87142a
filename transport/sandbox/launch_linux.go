//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// rulesetFile is the number of the ruleset's file in the process that confines itself.
const rulesetFile = 3

// The process must confine itself before other packages are initialized: it must start quickly, and
// nothing else may run with the arguments of a server. Package sandbox imports little, so its init
// function runs before most others (see transport/process, "Why the watcher runs in init").
func init() {
	if len(os.Args) > 4 && os.Args[0] == Launcher {
		err := becomeConfined(os.Args[1], os.Args[2], os.Args[3], os.Args[4:])
		fmt.Fprintf(os.Stderr, "gatekit: %v\n", err)
		os.Exit(126)
	}
}

// launch returns the command that becomeConfined serves.
func (r *rules) launch(program string, args []string) (string, string, []string, []*os.File) {
	own := []string{strconv.FormatBool(r.grants.noNetwork), strconv.FormatBool(r.grants.strict),
		program, program}
	// /proc/self/exe is this program, even if the file at its path was replaced.
	return "/proc/self/exe", Launcher, append(own, args...), []*os.File{r.file}
}

// becomeConfined confines the process and executes a program. It returns only if it fails.
func becomeConfined(noNetwork, strict, program string, argv []string) error {
	runtime.LockOSThread()
	// The program gets no files but its standard ones, also if Gatekit inherited others.
	if err := unix.CloseRange(rulesetFile, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("confine the server: close other files: %w", err)
	}
	if err := enter(rulesetFile, noNetwork == "true", strict == "true"); err != nil {
		return err
	}
	err := unix.Exec(program, argv, os.Environ())
	return fmt.Errorf("start %s in the sandbox: %w", program, err)
}
