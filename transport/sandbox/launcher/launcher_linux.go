//go:build amd64 || arm64

package launcher

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"unsafe"
)

// Numbers that package syscall does not have. They are the same on amd64 and arm64. A test compares
// them with golang.org/x/sys/unix, which is initialized too late to be imported.
const (
	sysCloseRange           = 436
	sysLandlockRestrictSelf = 446

	closeRangeCloexec    = 4
	prSetNoNewPrivs      = 38
	prCapbsetDrop        = 24
	prCapAmbient         = 47
	prCapAmbientClearAll = 4
	seccompSetModeFilter = 1
	capLastCap           = 40
)

// FirstFile is the number of the first file that a process can get beside its standard ones.
const FirstFile = 3

// Settings say how the process confines itself.
type Settings struct {
	// Ruleset is the number of the file of Landlock's ruleset. The next number is that of a pipe,
	// from which the process reads a byte when the rules are complete. The program gets the files
	// with smaller numbers, and no others.
	Ruleset int
	// Filter is a program of seccomp: the bytes of an array of struct sock_filter.
	Filter []byte
	// Memory limits the private memory of each process, in bytes, and Files its open files. 0 is no
	// limit of its own.
	Memory, Files int
}

// Arguments returns the arguments of the process, without argv[0]. The process executes the program
// with argv, in its own working folder and environment.
func Arguments(s Settings, program string, argv []string) []string {
	return append([]string{strconv.Itoa(s.Ruleset), string(hexadecimal(s.Filter)),
		strconv.Itoa(s.Memory), strconv.Itoa(s.Files), program}, argv...)
}

func init() {
	if len(os.Args) > 6 && os.Args[0] == Name {
		err := becomeConfined(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5],
			os.Args[6:])
		os.Stderr.WriteString("gatekit: " + err.Error() + "\n")
		os.Exit(126)
	}
}

// becomeConfined confines the process and executes a program. It returns only if it fails.
func becomeConfined(number, filter, memory, files, program string, argv []string) error {
	runtime.LockOSThread()
	ruleset, err := strconv.ParseUint(number, 10, 31)
	if err != nil || ruleset < FirstFile {
		return failure("restrict it by Landlock", errors.New("no file has the number "+number))
	}
	// The program gets no other files, also if Gatekit inherited some.
	if err := call("close other files", sysCloseRange, uintptr(ruleset), 1<<31-1,
		closeRangeCloexec); err != nil {
		return err
	}
	if err := call("refuse new privileges", syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0); err != nil {
		return err
	}
	dropCapabilities()
	if err := waitForByte(int(ruleset) + 1); err != nil {
		return failure("wait for the rules of Landlock", err)
	}
	if err := call("restrict it by Landlock", sysLandlockRestrictSelf,
		uintptr(ruleset), 0, 0); err != nil {
		return err
	}
	if err := installFilter(filter); err != nil {
		return err
	}
	// V8 reserves far more address space than it uses, so RLIMIT_AS would keep Node from starting.
	// RLIMIT_DATA counts only private memory that can be written.
	if err := limit(syscall.RLIMIT_DATA, memory); err != nil {
		return failure("limit its memory to "+memory+" bytes", err)
	}
	if err := limit(syscall.RLIMIT_NOFILE, files); err != nil {
		return failure("limit its open files to "+files, err)
	}
	// A dump of its memory could have secrets in it, and lie in its working folder.
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return failure("refuse dumps of its memory", err)
	}
	err = syscall.Exec(program, argv, os.Environ())
	return errors.New("start " + program + " in the sandbox: " + err.Error())
}

// waitForByte reads a byte from a pipe. At the end of the pipe, it returns an error.
func waitForByte(pipe int) error {
	for {
		switch n, err := syscall.Read(pipe, make([]byte, 1)); {
		case err == syscall.EINTR:
		case err != nil:
			return err
		case n == 0:
			return errors.New("they could not be made")
		default:
			return nil
		}
	}
}

func failure(action string, err error) error {
	return errors.New("confine the server: " + action + ": " + err.Error())
}

// call makes a system call. The action is for the error.
func call(action string, number, a, b, c uintptr) error {
	if _, _, errno := syscall.RawSyscall6(number, a, b, c, 0, 0, 0); errno != 0 {
		return failure(action, errno)
	}
	return nil
}

// keptCapabilities may be needed for files and ports by a server that runs as root, as in a
// container. Others, such as CAP_PERFMON, go past Landlock.
var keptCapabilities = [...]uintptr{
	0,  // CAP_CHOWN
	1,  // CAP_DAC_OVERRIDE
	3,  // CAP_FOWNER
	4,  // CAP_FSETID
	5,  // CAP_KILL
	6,  // CAP_SETGID
	7,  // CAP_SETUID
	10, // CAP_NET_BIND_SERVICE
}

// dropCapabilities takes the other capabilities from what the thread executes. It fails for users
// that have none, and those cannot get any.
func dropCapabilities() {
	syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, prCapAmbientClearAll, 0, 0, 0, 0)
	for c := uintptr(0); c <= capLastCap; c++ {
		if !slices.Contains(keptCapabilities[:], c) {
			syscall.RawSyscall6(syscall.SYS_PRCTL, prCapbsetDrop, c, 0, 0, 0, 0)
		}
	}
}

// installFilter installs a program of seccomp for the calling thread.
func installFilter(text string) error {
	filter, err := fromHexadecimal(text)
	if err != nil || len(filter) == 0 || len(filter)%8 != 0 {
		return failure("filter its system calls", errors.New("the filter is damaged"))
	}
	program := struct {
		count  uint16
		filter *byte
	}{uint16(len(filter) / 8), &filter[0]}
	err = call("filter its system calls", sysSeccomp, seccompSetModeFilter, 0,
		uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	return err
}

// limit lowers a limit of the process, unless it is "0" or lower already.
func limit(resource int, text string) error {
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil || value == 0 {
		return err
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(resource, &old); err != nil {
		return err
	}
	value = min(value, old.Max)
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value})
}

const digits = "0123456789abcdef"

// hexadecimal returns bytes as digits. Package encoding/hex is initialized too late.
func hexadecimal(b []byte) []byte {
	text := make([]byte, 0, 2*len(b))
	for _, c := range b {
		text = append(text, digits[c>>4], digits[c&15])
	}
	return text
}

func fromHexadecimal(text string) ([]byte, error) {
	b := make([]byte, 0, len(text)/2)
	for ; len(text) >= 2; text = text[2:] {
		c, err := strconv.ParseUint(text[:2], 16, 8)
		if err != nil {
			return nil, err
		}
		b = append(b, byte(c))
	}
	return b, nil
}
