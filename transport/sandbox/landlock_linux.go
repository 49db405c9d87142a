//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// minABI is the version of Landlock since Linux 6.2. Older ones cannot refuse that a file is
	// cut off (truncate).
	minABI = 3
	// maxRules bounds the rules of a process. A folder that is granted entry by entry needs one for
	// each entry.
	maxRules = 20000
)

// Rights of Landlock, by what they need of an access. See landlock(7).
const (
	readRights    = unix.LANDLOCK_ACCESS_FS_READ_FILE
	executeRights = unix.LANDLOCK_ACCESS_FS_EXECUTE
	writeRights   = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	// fileRights are the rights that a rule for a file may have.
	fileRights = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV | unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
)

// rules is a set of rules of Landlock and a filter of seccomp. The rules are added while the
// process that confines itself starts, since both take about as long. It waits for ready.
type rules struct {
	ruleset int // file descriptor of file
	file    *os.File
	filter  []unix.SockFilter // of seccomp

	ready, signal *os.File // ends of a pipe that gets a byte when all rules are added
	start         sync.Once
	added         chan struct{} // closed when no more rules are added; nil before start
	err           error         // why not all rules were added; may be read when added is closed

	grants  grants
	network *network // nil unless the process gets a network of its own
	closed  []string // granted folders in which no file can be created
	handled uint64   // the rights that need a grant
	count   int
}

// support returns the version of Landlock, and what it cannot refuse.
func support(noNetwork bool) (abi int, notHeld []string, err error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0,
		unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, nil, &UnsupportedError{fmt.Sprintf("its kernel has no Landlock (%v)", errno)}
	}
	notHeld, err = notHeldBy(int(version), noNetwork)
	return int(version), notHeld, err
}

// notHeldBy returns what a version of Landlock cannot refuse. noUnix is set if a filter refuses
// sockets of Unix.
func notHeldBy(abi int, noUnix bool) (notHeld []string, err error) {
	if abi < minABI {
		return nil, &UnsupportedError{fmt.Sprintf(
			"it needs Landlock ABI %d (Linux 6.2), and this kernel has %d", minABI, abi)}
	}
	if abi < 6 {
		notHeld = append(notHeld, "signals to other processes (needs Landlock ABI 6)")
	}
	if abi < 9 && !noUnix {
		notHeld = append(notHeld, "connections to Unix sockets (needs Landlock ABI 9)")
	}
	return notHeld, nil
}

// newRules makes the rules. It returns the version of Landlock, and what it cannot refuse.
func newRules(g grants) (r *rules, abi int, notHeld []string, err error) {
	if abi, notHeld, err = support(g.noNetwork || g.ownNetwork); err != nil {
		return nil, abi, nil, err
	}
	filter, err := newFilter(g)
	if err != nil {
		return nil, abi, nil, err
	}
	r = &rules{grants: g, filter: filter}
	r.handled = readRights | executeRights | writeRights
	attr := unix.LandlockRulesetAttr{}
	size := unsafe.Offsetof(attr.Handled_access_net)
	if !g.list {
		r.handled |= unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	if abi >= 4 {
		size = unsafe.Offsetof(attr.Scoped)
		if g.noNetwork {
			attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP |
				unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}
	if abi >= 5 {
		r.handled |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		size = unsafe.Offsetof(attr.Quiet_access_fs)
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	if abi >= 9 {
		r.handled |= unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	}
	attr.Handled_access_fs = r.handled
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return nil, abi, nil, &UnsupportedError{
			fmt.Sprintf("Landlock refuses the rules: %v", errno)}
	}
	unix.CloseOnExec(int(ruleset))
	r.ruleset, r.file = int(ruleset), os.NewFile(ruleset, "ruleset")
	if r.ready, r.signal, err = os.Pipe(); err != nil {
		r.file.Close()
		return nil, abi, nil, fmt.Errorf("confine the server: %w", err)
	}
	for _, t := range g.trees {
		if t.access&write != 0 && slices.ContainsFunc(slices.Concat(g.hidden, g.fixed),
			func(p string) bool { return p != t.path && isWithin(p, t.path) }) {
			r.closed = append(r.closed, t.path)
		}
	}
	return r, abi, notHeld, nil
}

// addAll adds the rules and tells the process. Without all of them, the process does not go on.
func (r *rules) addAll() {
	defer close(r.added)
	defer r.signal.Close()
	g := r.grants
	for _, t := range g.trees {
		hidden := slices.Concat(g.hidden, slices.DeleteFunc(slices.Clone(g.secrets),
			func(secret string) bool { return t.named && isWithin(t.path, secret) }))
		if r.err = r.grant(t.path, t.access, hidden); r.err != nil {
			return
		}
	}
	for _, p := range g.readable {
		if r.err = r.add(p, read|execute); r.err != nil {
			return
		}
	}
	if g.self {
		if r.err = r.addSelf(); r.err != nil {
			return
		}
	}
	_, r.err = r.signal.Write([]byte{1})
}

// grant grants access to a tree, apart from these hidden files and from the fixed ones. A rule
// cannot take anything out of a tree, so a folder with a hidden or fixed file in it is granted
// entry by entry. Symbolic links need no grant: Landlock judges the file that they lead to.
func (r *rules) grant(path string, a access, hidden []string) error {
	entire := true
	for _, h := range hidden {
		if isWithin(path, h) {
			return nil
		}
		entire = entire && !isWithin(h, path)
	}
	for _, fixed := range r.grants.fixed {
		if isWithin(path, fixed) {
			a &^= write
		}
	}
	for _, fixed := range r.grants.fixed {
		entire = entire && (a&write == 0 || !isWithin(fixed, path))
	}
	if entire {
		return r.add(path, a)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		// What cannot be listed is not granted.
		return nil
	}
	if a&read != 0 {
		// Programs search their folders for modules. The right holds for all folders in it.
		if err := r.add(path, list); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := r.grant(filepath.Join(path, e.Name()), a, hidden); err != nil {
			return err
		}
	}
	return nil
}

// add adds a rule for a file, or for a folder and everything in it.
func (r *rules) add(path string, a access) error {
	if r.count++; r.count > maxRules {
		return fmt.Errorf("confine the server: more than %d files and folders must be granted one "+
			"by one, the last is %s\nhint: keep the server's files apart from Gatekit's files "+
			"and from the user's secrets", maxRules, path)
	}
	file, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // the file is gone, or may not be reached by anybody
	}
	defer unix.Close(file)
	return r.addFile(file, path, a)
}

// addSelf adds a rule for the file of this program, which may have been removed or replaced.
func (r *rules) addSelf() error {
	file, err := unix.Open(Self, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("confine the process: open %s: %w", Self, err)
	}
	defer unix.Close(file)
	return r.addFile(file, Self, read|execute)
}

// addFile adds a rule for an open file. The path is for errors.
func (r *rules) addFile(file int, path string, a access) error {
	var stat unix.Stat_t
	if err := unix.Fstat(file, &stat); err != nil || stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	var rights uint64
	if a&read != 0 {
		rights |= readRights | unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	if a&list != 0 {
		rights |= unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	if a&write != 0 {
		rights |= writeRights | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV |
			unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	}
	if a&execute != 0 {
		rights |= executeRights
	}
	rights &= r.handled
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	if rights == 0 {
		return nil
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(file)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.ruleset),
		unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("confine the server: grant %s: %w", path, errno)
	}
	return nil
}

func (r *rules) closedFolders() []string { return r.closed }

// release waits until no more rules are added, and returns why some are missing. It closes the
// files that the process has by now. It may be called again, also at the same time.
func (r *rules) release() error {
	if r == nil {
		return nil
	}
	r.start.Do(func() { // nothing was started
		r.added = make(chan struct{})
		close(r.added)
		r.signal.Close()
	})
	<-r.added
	r.file.Close()
	r.ready.Close()
	r.network.release()
	return r.err
}

func (r *rules) close() {
	if r != nil {
		r.release() // Release has returned the error
		r.network.close()
	}
}
