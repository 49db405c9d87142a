// Package sandbox confines the process of a stdio server. Without it, the server runs with all
// rights of the user: it could read keys, change Gatekit's audit log, and approve its own requests.
//
// On Linux, the package uses Landlock for files and seccomp for system calls. Both hold for the
// process and for everything that it starts, and cannot be undone. On macOS, it starts the process
// by sandbox-exec with a profile of Seatbelt. **The profile was never run**: there was no machine
// with macOS. On other systems, New returns an error for each level but Off.
//
// # Levels
//
// With Guard, the process reads all files but the secrets of the user (see newGrants) and the files
// of Gatekit. It writes to its working folder, to a private temporary folder, to the files and
// folders that its arguments and the operator's variables name, to the folders of these files, and
// to the caches of package managers, and to the data folders of its name, such as ~/.config/NAME.
// It uses the network. A working folder that contains the user's
// home folder is not granted. A secret that the command names can be read.
//
// With Strict, the process reads only the system's programs and libraries, its own program, and
// what Read, Write and Run name. It writes only to a private home folder and what Write names.
// What it can write can only be executed in Run.
//
// With Settings.Ports, the process has a network namespace of its own. Package egress serves it.
//
// With either level, the process cannot trace or signal processes outside of its sandbox, mount
// file systems, load kernel modules, use the kernel's keys, or put characters into a terminal.
//
// # Known limits
//
//   - Names, sizes and times of all files can be seen (stat). With Guard, folders can also be
//     listed, and with Strict the folders that are hidden within a granted one.
//   - Folders that contain a hidden or fixed file are granted entry by entry. What is created there
//     later can be neither read nor written, and the process can create no files there.
//   - A hard link to a hidden file, in a folder that is granted, can be read.
//   - Before Landlock ABI 9 (see NotHeld), Guard cannot refuse connections to Unix sockets such as
//     the user's D-Bus, which can start programs outside of the sandbox.
//   - With Strict, the dynamic linker and interpreters execute programs that they can read: "sh
//     ./x" runs a script of a folder that is writable.
//   - The modes, owners, times and extended attributes of files of the same user can be changed
//     everywhere.
//   - The command lines of other processes can be read, and with Guard also other terminals and the
//     shared memory of the user (/dev/pts, /dev/shm).
//   - With Guard, the process can read the private folders of other servers. It can change the
//     caches of package managers, which hold programs that other servers run, and what other
//     programs run from its working folder, such as .git/hooks.
//   - The secrets of the user are a list of known places. With Strict, a file that the arguments
//     name grants reading of the package that it belongs to, and the first script that of its
//     folder.
//   - With Guard, the process can create user namespaces. Unless it runs as root, it can write to
//     files in /proc, which for other processes of the user are such as oom_score_adj. Landlock
//     cannot grant only the folders of the process and of what it starts: these folders do not
//     exist yet when the rules are made.
//   - The numbers of the open files of other processes can be listed, but not opened.
//   - The number of processes, and the memory of all of them together, are not limited. That needs
//     cgroups.
//   - Memory does not count shared memory, such as files of /dev/shm.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// Level says how much a process may do.
type Level string

// The levels. The zero value is no level and is refused by New.
const (
	Off    Level = "off"    // everything that the user may do
	Guard  Level = "guard"  // everything but secrets and changes outside of its own folders
	Strict Level = "strict" // only what is named
)

// Settings holds the grants of the operator. All paths are absolute.
type Settings struct {
	Level Level
	Read  []string // files and folders that the process may read and execute
	Write []string // files and folders that it may read and write, but with Strict not execute
	Run   []string // files and folders that it may read, write and execute
	// ByDefault is set if nobody asked for the level. Then it is not held on macOS, where the
	// sandbox was never tested.
	ByDefault bool
	// NoNetwork refuses all sockets but pairs of connected Unix sockets.
	NoNetwork bool
	// Listen allows stream sockets of Unix in spite of NoNetwork, but not to connect them. So the
	// process can only wait for others to connect.
	Listen bool
	// Ports gives the process a network of its own, unless it is empty. All addresses of this
	// network lead to the sockets of Network: for these ports of TCP, and for DNS. The process can
	// open no sockets but those of TCP and UDP, and pairs of connected Unix sockets.
	Ports []uint16
	// Memory limits the private memory of each process, in bytes, and Files its open files. 0 is no
	// limit of its own.
	Memory, Files int
}

// Self is the path of the program that runs, on Linux. It leads to this program even if the file at
// the path that was started has been replaced.
const Self = "/proc/self/exe"

// Launch says what is confined.
type Launch struct {
	Program string   // absolute path, or Self
	Name    string   // the program's argv[0]; "" is its path
	Args    []string // without the program's name
	// Files are the open files that the process gets with the numbers 3, 4, …
	Files []*os.File
	Dir   string   // working folder; absolute
	Env   []string // the whole environment
	// Given holds the names of the variables of Env that the operator set. New changes none of
	// them.
	Given []string
	// Hidden holds files and folders that the process may neither read nor write, whatever Settings
	// says. Fixed holds files and folders that it may not write.
	Hidden, Fixed []string
	// Readable holds folders that the process may read and execute although they lie in Hidden. It
	// may not write to them.
	Readable []string
}

// Sandbox confines one process. Close it after the process has ended.
type Sandbox struct {
	// Env is the environment for the process, with TMPDIR and with Strict also HOME changed to a
	// private folder.
	Env []string
	// ABI is the version of Landlock that holds the sandbox; 0 with Off and on macOS.
	ABI int
	// NotHeld says in a few words each what this kernel cannot refuse.
	NotHeld []string
	// Closed holds the folders that the process may write to, but in which it can create no files,
	// because they hold hidden or fixed files.
	Closed []string

	start   Launch
	rules   *rules // nil with Off
	grants  grants
	private string   // folder to remove; "" is none
	made    []string // folders to remove if they are empty
}

// UnsupportedError reports that this system cannot confine processes as the settings demand.
type UnsupportedError struct{ Reason string }

func (e *UnsupportedError) Error() string {
	return "this system cannot confine the server: " + e.Reason
}

// Support describes what this system can hold for a process that may use the network, as "Landlock
// ABI 7; cannot refuse connections to Unix sockets (needs Landlock ABI 9)". The error is an
// *UnsupportedError if it can confine no process.
func Support() (string, error) {
	abi, notHeld, err := support(false)
	if err != nil {
		return "", err
	}
	text := holder(abi)
	if len(notHeld) > 0 {
		text += "; cannot refuse " + strings.Join(notHeld, ", ")
	}
	return text, nil
}

// HeldBy says what holds the sandbox, as "Landlock ABI 7".
func (b *Sandbox) HeldBy() string { return holder(b.ABI) }

func holder(abi int) string {
	if runtime.GOOS == "darwin" {
		return "Seatbelt (never tested)"
	}
	return fmt.Sprintf("Landlock ABI %d", abi)
}

// New prepares the sandbox of one process. With Off, the Sandbox does nothing. If the system cannot
// hold the level, the error is an *UnsupportedError.
func New(s Settings, l Launch) (*Sandbox, error) {
	if s.Level == Off {
		return &Sandbox{Env: l.Env, start: l}, nil
	}
	if s.Level != Guard && s.Level != Strict {
		return nil, fmt.Errorf("sandbox level %q is unknown: the levels are off, guard and strict",
			s.Level)
	}
	for _, p := range slices.Concat(s.Read, s.Write, s.Run) {
		if _, err := os.Stat(p); err != nil {
			return nil, fmt.Errorf("the sandbox grants %s: %w\nhint: create it, or correct the "+
				"path", p, errors.Unwrap(err))
		}
	}
	private, err := os.MkdirTemp("", "gatekit-sandbox-")
	if err != nil {
		return nil, fmt.Errorf("make a private folder for the server: %w", err)
	}
	b := &Sandbox{Env: l.Env, start: l, private: private}
	b.setEnv(l.Given, "TMPDIR", private)
	homes := homeFolders(l.Env)
	if s.Level == Strict {
		b.setEnv(l.Given, "HOME", private)
	}
	if s.Level == Guard {
		// Programs of .NET that are one file extract themselves, into ~/.net by default.
		b.setEnv(l.Given, "DOTNET_BUNDLE_EXTRACT_BASE_DIR", filepath.Join(private, "net"))
		b.made = makeFolders(l, homes[0])
	}
	b.grants = newGrants(s, l, homes, private)
	if b.rules, b.ABI, b.NotHeld, err = newRules(b.grants); err == nil {
		b.rules.network, err = newNetwork(s.Ports)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	b.Closed = b.rules.closedFolders()
	return b, nil
}

// Launch returns how to start a program in the sandbox: the path, the name (argv[0]; "" is the
// path), the arguments, and the files from number 3 on of a process. With a sandbox, this is a
// process of package launcher, which becomes the program.
func (b *Sandbox) Launch(program string, args []string) (path, name string, launchArgs []string,
	files []*os.File) {
	if b.rules == nil {
		return program, b.start.Name, args, b.start.Files
	}
	return b.rules.launch(b.start, program, args)
}

// Release closes the files of Launch, which the process has by now. If it returns an error, the
// process cannot be confined, and ends without executing the program.
func (b *Sandbox) Release() error { return b.rules.release() }

// SetAttributes adds what a process with a network of its own needs to the attributes with which it
// is started.
func (b *Sandbox) SetAttributes(attr *syscall.SysProcAttr) {
	if b.rules != nil {
		b.rules.network.setAttributes(attr)
	}
}

// StartError returns the error of starting the process, as an *UnsupportedError if the system does
// not let Gatekit make a network for it.
func (b *Sandbox) StartError(err error) error {
	if b.rules == nil {
		return err
	}
	return b.rules.network.startError(err)
}

// Network returns the sockets of the network of the process, after Release. Those that are no
// listeners get the queries of DNS. They have the option IP_PKTINFO or IPV6_RECVPKTINFO, by which
// the answer to a packet can come from the address that the packet was sent to. Without
// Settings.Ports, there are no sockets. If the network could not be made, the error is an
// *UnsupportedError and the process ends. The caller closes the sockets.
func (b *Sandbox) Network() ([]*os.File, error) {
	if b.rules == nil || b.rules.network == nil {
		return nil, nil
	}
	return b.rules.network.receive()
}

// Close removes the private folder of the process, and folders that it could have used and did not.
func (b *Sandbox) Close() error {
	b.rules.close()
	for _, folder := range b.made {
		os.Remove(folder) // fails if it is not empty
	}
	if b.private == "" {
		return nil
	}
	return os.RemoveAll(b.private)
}

// setEnv sets a variable, unless the operator has set it.
func (b *Sandbox) setEnv(given []string, name, value string) {
	if slices.Contains(given, name) {
		return
	}
	env := slices.DeleteFunc(slices.Clone(b.Env), func(e string) bool {
		return strings.HasPrefix(e, name+"=")
	})
	b.Env = append(env, name+"="+value)
}

// homeFolders returns the home folders of the process, of Gatekit and of the user, each one once.
func homeFolders(env []string) []string {
	all := []string{variable(env, "HOME"), os.Getenv("HOME")}
	if u, err := user.Current(); err == nil {
		all = append(all, u.HomeDir)
	}
	var homes []string
	for _, h := range all {
		if filepath.IsAbs(h) && !slices.Contains(homes, filepath.Clean(h)) {
			homes = append(homes, filepath.Clean(h))
		}
	}
	if len(homes) == 0 {
		homes = []string{"/"}
	}
	return homes
}

func variable(env []string, name string) string {
	for _, e := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}
