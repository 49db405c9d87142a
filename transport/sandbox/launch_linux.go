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
	if len(os.Args) > 6 && os.Args[0] == Launcher {
		err := becomeConfined(os.Args[1:6], os.Args[6:])
		fmt.Fprintf(os.Stderr, "gatekit: %v\n", err)
		os.Exit(126)
	}
}

// launch returns the command that becomeConfined serves.
func (r *rules) launch(program string, args []string) (string, string, []string, []*os.File) {
	own := []string{strconv.FormatBool(r.grants.noNetwork), strconv.FormatBool(r.grants.strict),
		strconv.Itoa(r.grants.memory), strconv.Itoa(r.grants.files), program, program}
	// /proc/self/exe is this program, even if the file at its path was replaced.
	return "/proc/self/exe", Launcher, append(own, args...), []*os.File{r.file}
}

// becomeConfined confines the process, by the first arguments of launch, and executes a program. It
// returns only if it fails.
func becomeConfined(own, argv []string) error {
	noNetwork, strict, memory, files, program := own[0], own[1], own[2], own[3], own[4]
	runtime.LockOSThread()
	// The program gets no files but its standard ones, also if Gatekit inherited others.
	if err := unix.CloseRange(rulesetFile, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("confine the server: close other files: %w", err)
	}
	if err := enter(rulesetFile, noNetwork == "true", strict == "true"); err != nil {
		return err
	}
	// V8 reserves far more address space than it uses, so RLIMIT_AS would keep Node from starting.
	// RLIMIT_DATA counts only private memory that can be written.
	if err := limit(unix.RLIMIT_DATA, memory); err != nil {
		return fmt.Errorf("limit the memory of the server to %s bytes: %w", memory, err)
	}
	if err := limit(unix.RLIMIT_NOFILE, files); err != nil {
		return fmt.Errorf("limit the open files of the server to %s: %w", files, err)
	}
	err := unix.Exec(program, argv, os.Environ())
	return fmt.Errorf("start %s in the sandbox: %w", program, err)
}

// limit lowers a limit of the process, unless it is "0" or lower already.
func limit(resource int, text string) error {
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil || value == 0 {
		return err
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(resource, &old); err != nil {
		return err
	}
	value = min(value, old.Max)
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value})
}
