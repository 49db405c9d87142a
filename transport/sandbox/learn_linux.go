//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// learner is the argv[0] of a process of this program that lets its parent observe it, and then
// becomes the observed program.
const learner = "gatekit-learner"

// socketFile is the number of the socket's file in the observed process.
const socketFile = 3

func init() {
	if len(os.Args) > 2 && os.Args[0] == learner {
		err := becomeObserved(os.Args[1], os.Args[2:])
		fmt.Fprintf(os.Stderr, "gatekit: %v\n", err)
		os.Exit(126)
	}
}

// Observer observes a process and everything that it starts, and learns what they need with the
// level Strict. It refuses nothing.
type Observer struct {
	// Env is the environment for the process: that of a process with the level Strict.
	Env []string

	box           *Sandbox
	socket, child *os.File // the ends of a pair of sockets
	needs         Needs
	read, write   map[string]bool // paths that Strict does not grant
}

const pollTime = 200 // milliseconds

// maxLearnt limits the different paths that an Observer remembers.
const maxLearnt = 20000

// Observe prepares the observation of one process.
func Observe(l Launch) (*Observer, error) {
	box, err := New(Settings{Level: Strict}, l)
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		box.Close()
		return nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	return &Observer{Env: box.Env, box: box, socket: os.NewFile(uintptr(pair[0]), "socket"),
		child: os.NewFile(uintptr(pair[1]), "socket"), read: map[string]bool{},
		write: map[string]bool{}}, nil
}

// Launch returns how to start a program so that it is observed; see Sandbox.Launch.
func (o *Observer) Launch(program string, args []string) (path, name string, launchArgs []string,
	files []*os.File) {
	return "/proc/self/exe", learner, append([]string{program, program}, args...),
		[]*os.File{o.child}
}

// Close ends the observation and removes the private folder of the process.
func (o *Observer) Close() error {
	o.child.Close()
	o.socket.Close()
	return o.box.Close()
}

// Run observes the process, which must have been started. It returns when the process and all that
// it started have ended. If some of them go on after done is closed, it returns too.
func (o *Observer) Run(done <-chan struct{}) (Needs, error) {
	o.child.Close()
	listener, err := receiveFile(o.socket)
	if err != nil {
		return Needs{}, fmt.Errorf("observe the server: %w", err)
	}
	defer unix.Close(listener)
	poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, pollTime)
		isDone := false
		select {
		case <-done:
			isDone = true
		default:
		}
		switch {
		case errors.Is(err, unix.EINTR), err == nil && n == 0 && !isDone:
			continue
		case err != nil:
			return Needs{}, fmt.Errorf("observe the server: %w", err)
		case poll[0].Revents&unix.POLLIN == 0: // no process is left, or none that is waited for
			o.needs.Read, o.needs.Write = summary(o.read), summary(o.write)
			return o.needs, nil
		}
		var call notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener),
			unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&call))); errno != 0 {
			continue // the process was killed
		}
		o.observe(&call)
		answer := response{id: call.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND,
			uintptr(unsafe.Pointer(&answer)))
	}
}

// notification is struct seccomp_notif, and response is struct seccomp_notif_resp.
type notification struct {
	id                 uint64
	pid, flags         uint32
	number             int32
	arch               uint32
	instructionPointer uint64
	args               [6]uint64
}

type response struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

// pathCalls are the observed system calls with paths. Each path is an argument, after the number of
// its folder; -1 is the working folder.
var pathCalls = append([]pathCall{
	{unix.SYS_OPENAT, [][2]int{{0, 1}}, 2}, {unix.SYS_OPENAT2, [][2]int{{0, 1}}, pointer},
	{unix.SYS_MKDIRAT, [][2]int{{0, 1}}, changes}, {unix.SYS_UNLINKAT, [][2]int{{0, 1}}, changes},
	{unix.SYS_RENAMEAT2, [][2]int{{0, 1}, {2, 3}}, changes},
	{unix.SYS_SYMLINKAT, [][2]int{{1, 2}}, changes},
	{unix.SYS_LINKAT, [][2]int{{0, 1}, {2, 3}}, changes},
	{unix.SYS_TRUNCATE, [][2]int{{-1, 0}}, changes},
	{unix.SYS_EXECVE, [][2]int{{-1, 0}}, readOnly},
	{unix.SYS_EXECVEAT, [][2]int{{0, 1}}, readOnly},
}, pathCallsByArch...)

type pathCall struct {
	number int
	paths  [][2]int
	flags  int // the argument with the flags of open, or one of these:
}

const (
	changes  = -1 // the call changes the file
	pointer  = -2 // the third argument is a pointer to the flags
	readOnly = -3
)

// observe notes what a system call needs.
func (o *Observer) observe(call *notification) {
	if int(call.number) == unix.SYS_CONNECT || int(call.number) == unix.SYS_BIND {
		o.observeSocket(call)
		return
	}
	if slices.Contains(sendCalls, int(call.number)) {
		o.observeSend(call)
		return
	}
	i := slices.IndexFunc(pathCalls, func(c pathCall) bool { return c.number == int(call.number) })
	if i < 0 {
		return
	}
	c := pathCalls[i]
	flags := uint64(0)
	switch {
	case c.flags >= 0:
		flags = call.args[c.flags]
	case c.flags == pointer:
		if raw := readMemory(call.pid, call.args[2], 8); len(raw) == 8 {
			flags = *(*uint64)(unsafe.Pointer(&raw[0]))
		}
	}
	if flags&unix.O_PATH != 0 {
		return // needs no right
	}
	isWrite := c.flags == changes ||
		flags&(unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC) != 0
	for _, p := range c.paths {
		text := readMemory(call.pid, call.args[p[1]], unix.PathMax)
		path, _, ok := strings.Cut(string(text), "\x00")
		if !ok || path == "" {
			continue
		}
		if !filepath.IsAbs(path) {
			link := fmt.Sprintf("/proc/%d/cwd", call.pid)
			if p[0] >= 0 && int32(call.args[p[0]]) != unix.AT_FDCWD {
				link = fmt.Sprintf("/proc/%d/fd/%d", call.pid, int32(call.args[p[0]]))
			}
			folder, err := os.Readlink(link)
			if err != nil || !filepath.IsAbs(folder) {
				continue
			}
			path = filepath.Join(folder, path)
		}
		o.note(filepath.Clean(path), isWrite)
	}
}

// note notes a path that the level Strict does not grant.
func (o *Observer) note(path string, isWrite bool) {
	info, err := os.Stat(path)
	if err != nil && !isWrite || len(o.read)+len(o.write) >= maxLearnt {
		return
	}
	r, ok := o.box.grants.refusal(path)
	switch {
	case !ok || !isWrite && o.box.grants.granted(path)&read != 0:
	case isWrite && err != nil: // only what exists can be granted
		o.write[filepath.Dir(path)] = true
	case isWrite:
		o.write[path] = true
	default:
		if info.IsDir() && path == "/" {
			return
		}
		o.read[path] = true
		if r.Secret && !slices.Contains(o.needs.Secrets, path) {
			o.needs.Secrets = append(o.needs.Secrets, path)
		}
	}
}

// observeSocket notes the address of a socket. Package netip is not used here: with it, the init
// function of this package would run after slow ones of others.
func (o *Observer) observeSocket(call *notification) {
	raw := readMemory(call.pid, call.args[1], min(call.args[2], 128))
	if len(raw) < 8 {
		return
	}
	address, port := "", uint16(raw[2])<<8|uint16(raw[3])
	switch uint16(raw[0]) | uint16(raw[1])<<8 {
	case unix.AF_INET:
		address = fmt.Sprintf("%d.%d.%d.%d:%d", raw[4], raw[5], raw[6], raw[7], port)
	case unix.AF_INET6:
		if len(raw) < 24 {
			return
		}
		var groups []string
		for i := 8; i < 24; i += 2 {
			groups = append(groups, fmt.Sprintf("%x", uint16(raw[i])<<8|uint16(raw[i+1])))
		}
		address = fmt.Sprintf("[%s]:%d", strings.Join(groups, ":"), port)
	case unix.AF_UNIX:
		path, _, _ := strings.Cut(strings.TrimPrefix(string(raw[2:]), "\x00"), "\x00")
		address = "unix:" + path
	default:
		return
	}
	if len(o.needs.Network) < maxLearnt && !slices.Contains(o.needs.Network, address) {
		o.needs.Network = append(o.needs.Network, address)
	}
}

// readMemory reads up to n bytes of a process. The system call of its thread waits meanwhile.
func readMemory(pid uint32, address, n uint64) []byte {
	memory, err := os.Open("/proc/" + strconv.Itoa(int(pid)) + "/mem")
	if err != nil {
		return nil
	}
	defer memory.Close()
	buffer := make([]byte, n)
	got, _ := memory.ReadAt(buffer, int64(address))
	if got == 0 && n > 512 { // the text may lie at the end of the memory
		got, _ = memory.ReadAt(buffer[:512], int64(address))
	}
	return buffer[:got]
}

// becomeObserved sends the listener of its filter to the parent, and executes a program. It returns
// only if it fails.
func becomeObserved(program string, argv []string) error {
	runtime.LockOSThread()
	code := []bpf.Instruction{bpf.LoadAbsolute{Off: offsetNumber, Size: 4}}
	numbers := append([]int{unix.SYS_CONNECT, unix.SYS_BIND}, sendCalls...)
	for _, c := range pathCalls {
		numbers = append(numbers, c.number)
	}
	for _, n := range numbers {
		code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(n), SkipFalse: 1},
			bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF})
	}
	filter, err := assemble(append(code, allow))
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("observe the server: %w", err)
	}
	fprog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("observe the server by seccomp: %w", errno)
	}
	if err := unix.Sendmsg(socketFile, []byte{0}, unix.UnixRights(int(listener)), nil,
		0); err != nil {
		return fmt.Errorf("observe the server: %w", err)
	}
	if err := unix.CloseRange(socketFile, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("observe the server: close other files: %w", err)
	}
	err = unix.Exec(program, argv, os.Environ())
	return fmt.Errorf("start %s: %w", program, err)
}

// receiveFile receives a file over a socket.
func receiveFile(socket *os.File) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(socket.Fd()), make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return 0, errors.New("the process ended before it could be observed")
	}
	files, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(files) != 1 {
		return 0, errors.New("the process ended before it could be observed")
	}
	return files[0], nil
}
