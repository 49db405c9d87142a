//go:build amd64 || arm64

package sandbox_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"gatekit/transport/sandbox"
)

// The test program runs itself as the confined process: with this variable, it makes one attempt.
const attemptVariable = "GATEKIT_SANDBOX_ATTEMPT"

func TestMain(m *testing.M) {
	if name := os.Getenv(attemptVariable); name != "" {
		if os.Getenv("GATEKIT_SHOW_NAME") != "" {
			fmt.Println(os.Args[0])
		}
		if err := attempts[name](os.Args[1:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// attempts holds the actions of a hostile server. Each returns nil if it succeeded.
var attempts = map[string]func(args []string) error{
	"read":    func(args []string) error { _, err := os.ReadFile(args[0]); return err },
	"list":    func(args []string) error { _, err := os.ReadDir(args[0]); return err },
	"create":  func(args []string) error { return os.WriteFile(args[0], []byte("x"), 0o600) },
	"append":  appendTo,
	"cut off": func(args []string) error { return os.Truncate(args[0], 0) },
	"remove":  func(args []string) error { return os.Remove(args[0]) },
	"rename":  func(args []string) error { return os.Rename(args[0], args[1]) },
	"make a link, read it": func(args []string) error {
		if err := os.Symlink(args[0], args[1]); err != nil {
			return err
		}
		_, err := os.ReadFile(args[1])
		return err
	},
	"hard link, read it": func(args []string) error {
		if err := os.Link(args[0], args[1]); err != nil {
			return err
		}
		_, err := os.ReadFile(args[1])
		return err
	},
	"child reads":     func(args []string) error { return exec.Command("cat", args[0]).Run() },
	"open as path":    openAsPath,
	"mount namespace": mountNamespace,
	"mount": func([]string) error {
		return unix.Mount("none", "/proc/sys", "tmpfs", 0, "")
	},
	"run a copy of true": func(args []string) error {
		b, err := os.ReadFile("/bin/true")
		if err == nil {
			err = os.WriteFile(args[0], b, 0o700)
		}
		if err == nil {
			err = exec.Command(args[0]).Run()
		}
		return err
	},
	"run from memory": runFromMemory,
	"run by the linker": func(args []string) error {
		b, err := os.ReadFile("/bin/true")
		if err == nil {
			err = os.WriteFile(args[0], b, 0o600)
		}
		if err == nil {
			err = exec.Command(args[1], args[0]).Run()
		}
		return err
	},
	"signal": func(args []string) error { return syscall.Kill(number(args[0]), 0) },
	"trace":  func(args []string) error { return syscall.PtraceAttach(number(args[0])) },
	"read memory": func(args []string) error {
		buffer := make([]byte, 8)
		_, err := unix.ProcessVMReadv(number(args[0]),
			[]unix.Iovec{{Base: &buffer[0], Len: 8}}, []unix.RemoteIovec{{Base: 0, Len: 8}}, 0)
		if errors.Is(err, unix.EFAULT) {
			return nil // the address is wrong, the process can be read
		}
		return err
	},
	"tcp":     func(args []string) error { return dial("tcp", args[0]) },
	"look up": lookUp,
	"udp":     func([]string) error { return dial("udp", "127.0.0.1:9") },
	"listen": func([]string) error {
		_, err := net.Listen("tcp", "127.0.0.1:0")
		return err
	},
	"unix socket":     func(args []string) error { return dial("unix", args[0]) },
	"abstract socket": func(args []string) error { return dial("unix", "@"+args[0]) },
	"netlink":         socket(unix.AF_NETLINK, unix.SOCK_RAW, 0),
	"vsock":           socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
	"raw socket":      socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
	"packet socket":   socket(unix.AF_PACKET, unix.SOCK_RAW, 0),
	"ipv6":            socket(unix.AF_INET6, unix.SOCK_DGRAM, 0),
	"mptcp":           socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP),
	"sctp":            socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP),
	"unix datagram":   socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0),
	"tcp fast open":   fastOpen,
	"dump memory": func([]string) error {
		return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20})
	},
	"listen on a unix socket": func(args []string) error {
		_, err := net.Listen("unix", args[0])
		return err
	},
	"io_uring": func([]string) error {
		var params [120]byte
		file, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1,
			uintptr(unsafe.Pointer(&params[0])), 0)
		if errno != 0 {
			return errno
		}
		return unix.Close(int(file))
	},
	"pair of sockets": func([]string) error {
		_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		return err
	},
	"open for writing": func(args []string) error {
		f, err := os.OpenFile(args[0], os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return f.Close()
	},
	"take a file of a process": takeFile,
	"put characters into a terminal": func([]string) error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, 1, unix.TIOCSTI, 0)
		if errno == unix.ENOTTY || errno == unix.EFAULT {
			return nil // only the file or the address is wrong
		}
		return errno
	},
	"bind mount": func(args []string) error {
		return inNamespaces("mount and read", args)
	},
	"mount and read": func(args []string) error {
		if err := unix.Mount(filepath.Dir(args[0]), args[1], "", unix.MS_BIND, ""); err != nil {
			return err
		}
		_, err := os.ReadFile(filepath.Join(args[1], filepath.Base(args[0])))
		return err
	},
	"user namespace": func([]string) error {
		return (&exec.Cmd{Path: "/bin/true",
			SysProcAttr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}}).Run()
	},
	"chmod": func(args []string) error { return os.Chmod(args[0], 0o600) },
	"touch": func(args []string) error { return os.Chtimes(args[0], time.Now(), time.Now()) },
	"stat":  func(args []string) error { _, err := os.Stat(args[0]); return err },
	"run a script by its interpreter": func(args []string) error {
		if err := os.WriteFile(args[0], []byte("exit 0"), 0o600); err != nil {
			return err
		}
		return exec.Command("/bin/sh", args[0]).Run()
	},
	"read a parent's thread": func([]string) error {
		return forThreads(func(id string) error {
			_, err := os.ReadFile("/proc/" + id + "/environ")
			return err
		})
	},
	"signal a parent's thread": func([]string) error {
		return forThreads(func(id string) error { return syscall.Kill(number(id), 0) })
	},
	"read a file number": func(args []string) error {
		_, err := unix.Read(number(args[0]), make([]byte, 1))
		return err
	},
	"set-uid program": func([]string) error {
		if v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); v != 0 || err != nil {
			return errors.New("no new privileges")
		}
		return nil
	},
	"confine a process of its own": func([]string) error {
		return (&exec.Cmd{Path: "/bin/true", SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			Chroot:      "/",
		}}).Run()
	},
}

// forThreads returns nil if f succeeds for any thread of the parent process.
func forThreads(f func(id string) error) error {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", os.Getppid()))
	if err != nil {
		return err
	}
	err = errors.New("no threads")
	for _, task := range tasks {
		if err = f(task.Name()); err == nil {
			return nil
		}
	}
	return err
}

func appendTo(args []string) error {
	f, err := os.OpenFile(args[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// openAsPath opens the folder of a file without any right, and then the file below it.
func openAsPath(args []string) error {
	folder, err := unix.Open(filepath.Dir(args[0]), unix.O_PATH, 0)
	if err != nil {
		return err
	}
	_, err = unix.Openat(folder, filepath.Base(args[0]), unix.O_RDONLY, 0)
	return err
}

// mountNamespace hides a folder behind an empty one, as root of a namespace of its own.
func mountNamespace([]string) error { return inNamespaces("mount", nil) }

// inNamespaces makes an attempt as root of a user namespace and a mount namespace.
func inNamespaces(attempt string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return (&exec.Cmd{Path: self, Args: append([]string{self}, args...),
		Env: append(os.Environ(), attemptVariable+"="+attempt),
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		}}).Run()
}

func runFromMemory([]string) error {
	b, err := os.ReadFile("/bin/true")
	if err != nil {
		return err
	}
	file, err := unix.MemfdCreate("x", 0)
	if err != nil {
		return err
	}
	if _, err := unix.Write(file, b); err != nil {
		return err
	}
	return exec.Command("/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(file)).Run()
}

func dial(network, address string) error {
	c, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	return c.Close()
}

func socket(family, kind, protocol int) func([]string) error {
	return func([]string) error { _, err := unix.Socket(family, kind, protocol); return err }
}

// fastOpen sends data with the first packet of a connection, without a call of connect.
func fastOpen(args []string) error {
	file, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	address, err := net.ResolveTCPAddr("tcp", args[0])
	if err != nil {
		return err
	}
	return unix.Sendto(file, []byte("x"), unix.MSG_FASTOPEN,
		&unix.SockaddrInet4{Port: address.Port, Addr: [4]byte(address.IP.To4())})
}

// takeFile copies the first open file of another process.
func takeFile(args []string) error {
	process, err := unix.PidfdOpen(number(args[0]), 0)
	if err != nil {
		return err
	}
	_, err = unix.PidfdGetfd(process, 0, 0)
	return err
}

// lookUp sends queries of DNS, and connects to an address and to a port of HTTPS.
func lookUp(args []string) error {
	query := []byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" +
		"\x06learnt\x07example\x00\x00\x01\x00\x01")
	to, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer to.Close()
	file, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	address := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1},
		Port: to.LocalAddr().(*net.UDPAddr).Port}
	// Not queries for an address: an answer, another type, another class, other bytes, a short one.
	for _, change := range []struct {
		at   int
		to   byte
		size int
	}{{2, 0x81, 0}, {29, 16, 0}, {31, 3, 0}, {13, ' ', 0}, {5, 2, 0}, {0, 0, 20}} {
		other := slices.Clone(query)
		other[14] = 'x'
		other[change.at] = change.to
		if change.size > 0 {
			other = other[:change.size]
		}
		if err := unix.Sendto(file, other, 0, address); err != nil {
			return err
		}
	}
	if err := unix.Sendto(file, query, 0, address); err != nil {
		return err
	}
	second := bytes.Replace(query, []byte("learnt"), []byte("second"), 1)
	vector := unix.Iovec{Base: &second[0], Len: uint64(len(second))}
	raw := unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: address.Addr,
		Port: uint16(address.Port)<<8 | uint16(address.Port)>>8}
	messages := []struct {
		unix.Msghdr
		size uint32
	}{{Msghdr: unix.Msghdr{Name: (*byte)(unsafe.Pointer(&raw)), Namelen: unix.SizeofSockaddrInet4,
		Iov: &vector, Iovlen: 1}}}
	if _, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(file),
		uintptr(unsafe.Pointer(&messages[0])), 1, 0, 0, 0); errno != 0 {
		return errno
	}
	// A socket of UDP sends nothing when it is connected.
	unix.Connect(file, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: 443})
	return dial("tcp", args[0])
}

func number(s string) int { n, _ := strconv.Atoi(s); return n }

// place is a home folder with secrets, Gatekit's files, and what the server may use.
type place struct {
	home, secret, state, log, config, work, data, outside, tcp, unixSocket string

	program  string            // as the sandbox sees it; "" is the test program
	args     []string          // of the confined program, as the sandbox sees them
	env      map[string]string // variables that the operator set
	readable []string          // folders in hidden ones
}

func newPlace(t *testing.T) place {
	t.Helper()
	home := t.TempDir()
	p := place{home: home, secret: filepath.Join(home, ".ssh/id_ed25519"),
		state: filepath.Join(home, ".local/state/gatekit"), work: filepath.Join(home, "work"),
		data: filepath.Join(home, "data"), outside: filepath.Join(home, "documents")}
	p.log = filepath.Join(p.work, "audit.jsonl")
	p.config = filepath.Join(p.work, "gatekit.toml")
	for _, file := range []string{p.secret, filepath.Join(p.state, "gatekit.key"), p.log, p.config,
		filepath.Join(p.work, "gatekit.lock"),
		filepath.Join(p.data, "in.txt"), filepath.Join(p.outside, "letter.txt"),
		filepath.Join(p.work, "notes.txt")} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.unixSocket = filepath.Join(p.work, "s")
	unixSocket, err := net.Listen("unix", p.unixSocket)
	if err != nil {
		t.Fatal(err)
	}
	abstract, err := net.Listen("unix", "@"+p.unixSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close(); unixSocket.Close(); abstract.Close() })
	p.tcp = tcp.Addr().String()
	return p
}

// run makes an attempt in a new process, with a sandbox of these settings.
func (p place) run(t *testing.T, s sandbox.Settings, attempt string,
	args ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if s.Level == sandbox.Strict {
		s.Read = append(s.Read, self) // the test program lies in a folder of the go command
	}
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + p.home, attemptVariable + "=" + attempt,
		"GORACE=atexit_sleep_ms=0"}
	for name, value := range p.env {
		env = append(env, name+"="+value)
	}
	b, err := sandbox.New(s, sandbox.Launch{Program: cmp.Or(p.program, self), Args: p.args,
		Dir: p.work, Env: env,
		Given:  slices.Collect(maps.Keys(p.env)),
		Hidden: []string{p.state, p.log, filepath.Join(p.work, "audit-later.jsonl")},
		Fixed:  []string{p.config, filepath.Join(p.work, "gatekit.lock")}, Readable: p.readable})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i, a := range args {
		args[i] = strings.ReplaceAll(a, "{private}", privateFolder(b.Env))
	}
	path, name, args, files := b.Launch(self, args)
	cmd := &exec.Cmd{Path: path, Args: append([]string{name}, args...), Dir: p.work, Env: b.Env,
		ExtraFiles: files}
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	err = cmd.Run()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("%s: %v", attempt, err)
	}
	return output.String(), err
}

func privateFolder(env []string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "TMPDIR="); ok {
			return v
		}
	}
	return "/nonexistent"
}

func abi(t *testing.T) int {
	t.Helper()
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0,
		unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		t.Skipf("this kernel has no Landlock: %v", errno)
	}
	return int(v)
}

// Each attempt succeeds without a sandbox, so its failure inside proves something.
func TestAttemptsFailInside(t *testing.T) {
	version := abi(t)
	const both, strictOnly = "guard strict", "strict"
	procFails := both
	if os.Geteuid() != 0 {
		procFails = strictOnly // see the known limits
	}
	victim := exec.Command("sleep", "600")
	victim.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(victim.Dir, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer victim.Wait()
	defer victim.Process.Kill()
	other := strconv.Itoa(victim.Process.Pid)
	for i, test := range []struct {
		attempt string
		args    []string
		fails   string // levels
		minABI  int
	}{
		{"read", []string{"{home}/.ssh/id_ed25519"}, both, 0},
		{"read", []string{"{home}/work/../.ssh/id_ed25519"}, both, 0},
		{"read", []string{"/proc/self/root/{home}/.ssh/id_ed25519"}, both, 0},
		{"child reads", []string{"{home}/.ssh/id_ed25519"}, both, 0},
		{"open as path", []string{"{home}/.ssh/id_ed25519"}, both, 0},
		{"make a link, read it", []string{"{home}/.ssh/id_ed25519", "{private}/link"}, both, 0},
		{"hard link, read it", []string{"{home}/.ssh/id_ed25519", "{private}/link"}, both, 0},
		{"rename", []string{"{home}/.ssh/id_ed25519", "{private}/moved"}, both, 0},
		{"rename", []string{"{home}/.ssh", "{private}/moved"}, both, 0},
		{"remove", []string{"{home}/.ssh/id_ed25519"}, both, 0},
		{"read", []string{"{home}/.local/state/gatekit/gatekit.key"}, both, 0},
		{"create", []string{"{home}/.local/state/gatekit/approved"}, both, 0},
		{"read", []string{"{home}/work/audit.jsonl"}, both, 0},
		{"append", []string{"{home}/work/audit.jsonl"}, both, 0},
		{"cut off", []string{"{home}/work/audit.jsonl"}, both, 0},
		{"remove", []string{"{home}/work/audit.jsonl"}, both, 0},
		{"create", []string{"{home}/work/audit-later.jsonl"}, both, 0},
		{"append", []string{"{home}/work/gatekit.toml"}, both, 0},
		{"remove", []string{"{home}/work/gatekit.toml"}, both, 0},
		{"rename", []string{"{home}/work", "{home}/elsewhere"}, both, 0},
		{"create", []string{"{home}/documents/new.txt"}, both, 0},
		{"cut off", []string{"{home}/documents/letter.txt"}, both, 0},
		{"read", []string{"{home}/documents/letter.txt"}, strictOnly, 0},
		{"list", []string{"{home}/documents"}, strictOnly, 0},
		{"run a copy of true", []string{"{private}/true"}, strictOnly, 0},
		{"run from memory", nil, strictOnly, 0},
		{"mount namespace", nil, both, 0},
		{"bind mount", []string{"{home}/.ssh/id_ed25519", "{private}"}, both, 0},
		{"user namespace", nil, strictOnly, 0},
		{"read", []string{"/proc/" + other + "/environ"}, both, 0},
		{"read", []string{"/proc/" + other + "/root/{home}/.ssh/id_ed25519"}, both, 0},
		{"read", []string{"/proc/" + other + "/cwd/x"}, both, 0},
		{"read", []string{"/proc/" + other + "/fd/0"}, both, 0},
		{"open for writing", []string{"/proc/" + other + "/mem"}, both, 0},
		{"open for writing", []string{"/proc/" + other + "/oom_score_adj"}, procFails, 0},
		{"open for writing", []string{"/proc/sys/kernel/core_pattern"}, both, 0},
		{"append", []string{"{home}/work/gatekit.lock"}, both, 0},
		{"take a file of a process", []string{other}, both, 0},
		{"put characters into a terminal", nil, both, 0},
		{"signal", []string{other}, both, 6},
		{"trace", []string{other}, both, 0},
		{"read memory", []string{other}, both, 0},
		{"io_uring", nil, both, 0},
		{"set-uid program", nil, both, 0},
		{"tcp", []string{"{tcp}"}, strictOnly, 0},
		{"udp", nil, strictOnly, 0},
		{"listen", nil, strictOnly, 0},
		{"unix socket", []string{"{home}/work/s"}, strictOnly, 0},
		{"abstract socket", []string{"{home}/work/s"}, both, 6},
		{"netlink", nil, strictOnly, 0},
		{"vsock", nil, strictOnly, 0},
		{"raw socket", nil, both, 0},
		{"packet socket", nil, both, 0},
		{"ipv6", nil, strictOnly, 0},
		{"mptcp", nil, strictOnly, 0},
		{"sctp", nil, strictOnly, 0},
		{"unix datagram", nil, strictOnly, 0},
		{"tcp fast open", []string{"{tcp}"}, strictOnly, 0},
		{"dump memory", nil, both, 0},
		{"listen on a unix socket", []string{"{private}/l"}, strictOnly, 0},
	} {
		t.Run(fmt.Sprintf("%s %d", test.attempt, i), func(t *testing.T) {
			if version < test.minABI {
				t.Skipf("needs Landlock ABI %d, this kernel has %d", test.minABI, version)
			}
			for _, level := range []sandbox.Level{sandbox.Off, sandbox.Guard, sandbox.Strict} {
				p := newPlace(t)
				var args []string
				for _, a := range test.args {
					a = strings.ReplaceAll(a, "{home}", p.home)
					if level == sandbox.Off { // it has no private folder
						a = strings.ReplaceAll(a, "{private}", p.outside)
					}
					args = append(args, strings.ReplaceAll(a, "{tcp}", p.tcp))
				}
				output, err := p.run(t, sandbox.Settings{Level: level,
					NoNetwork: level == sandbox.Strict}, test.attempt, args...)
				failed, want := err != nil, strings.Contains(test.fails, string(level))
				switch {
				case level == sandbox.Off && failed && mayBeRefused[test.attempt]:
					t.Skipf("fails also without a sandbox: %s", output)
				case failed != want:
					t.Errorf("level %s, %v: failed is %v: %s", level, args, failed, output)
				}
			}
		})
	}
}

// mayBeRefused are attempts that kernels and containers may refuse to everybody.
var mayBeRefused = map[string]bool{"mount namespace": true, "trace": true, "read memory": true,
	"io_uring": true, "vsock": true, "set-uid program": true, "bind mount": true,
	"user namespace": true, "take a file of a process": true, "raw socket": true,
	"packet socket": true, "mptcp": true, "sctp": true, "tcp fast open": true, "ipv6": true,
	"dump memory":                    true,
	"put characters into a terminal": true, "open for writing": true}

// A program needs more than its own file: the modules beside a script, its packages, and the venv
// of an interpreter.
func TestProgramsReadTheirOwnParts(t *testing.T) {
	abi(t)
	for _, test := range []struct {
		name    string
		files   []string          // below the folder data
		links   map[string]string // below data, to files below outside
		program string            // below data; "" is the test program
		args    []string
		reads   string
		granted bool
	}{
		{"modules of a script", []string{"a.py", "b.py"}, nil, "", []string{"{data}/a.py"}, "b.py",
			true},
		{"a folder with hidden files", []string{"a.py", "audit.jsonl"}, nil, "",
			[]string{"{data}/a.py"}, "", true},
		{"hidden beside a script", []string{"a.py", "audit.jsonl"}, nil, "",
			[]string{"{data}/a.py"}, "audit.jsonl", false},
		{"beside another file", []string{"a.db", "b.db"}, nil, "", []string{"{data}/a.db"}, "b.db",
			false},
		{"beside a second script", []string{"a/a.py", "b/b.py", "b/x"}, nil, "",
			[]string{"{data}/a/a.py", "{data}/b/b.py"}, "b/x", false},
		{"a package", []string{"package.json", "dist/a.js", "x/y"}, nil, "",
			[]string{"{data}/dist/a.js"}, "x/y", true},
		{"packages behind a link", []string{"package.json", "dist/a.js"},
			map[string]string{"node_modules": "."}, "", []string{"{data}/dist/a.js"},
			"node_modules/letter.txt", true},
		{"a venv", []string{"venv/pyvenv.cfg", "venv/lib/x"}, map[string]string{"venv/bin/sh": ""},
			"venv/bin/sh", nil, "venv/lib/x", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlace(t)
			for _, f := range test.files {
				file := filepath.Join(p.data, f)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for link, target := range test.links {
				to := filepath.Join(p.outside, target)
				if target == "" {
					to = "/bin/sh"
				}
				link = filepath.Join(p.data, link)
				if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(to, link); err != nil {
					t.Fatal(err)
				}
			}
			for _, a := range test.args {
				p.args = append(p.args, strings.ReplaceAll(a, "{data}", p.data))
			}
			if test.program != "" {
				p.program = filepath.Join(p.data, test.program)
			}
			p.log, p.config = filepath.Join(p.data, "audit.jsonl"), filepath.Join(p.data, "none")
			attempt := "read"
			if test.reads == "" {
				attempt = "list"
			}
			output, err := p.run(t, sandbox.Settings{Level: sandbox.Strict}, attempt,
				filepath.Join(p.data, test.reads))
			if granted := err == nil; granted != test.granted {
				t.Errorf("granted: %v, want %v: %s", granted, test.granted, output)
			}
		})
	}
}

// Gatekit runs its own program as a plugin, with another name and an open file. Of the program,
// only its file is granted.
func TestOwnProgramGetsNameAndFiles(t *testing.T) {
	abi(t)
	p := newPlace(t)
	for _, level := range []sandbox.Level{sandbox.Off, sandbox.Strict} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		write.WriteString("x")
		write.Close()
		b, err := sandbox.New(sandbox.Settings{Level: level, NoNetwork: true},
			sandbox.Launch{Program: sandbox.Self, Name: "the-name", Files: []*os.File{read},
				Dir: p.work, Env: []string{"HOME=" + p.home,
					attemptVariable + "=read a file number", "GORACE=atexit_sleep_ms=0"}})
		if err != nil {
			t.Fatal(err)
		}
		path, name, args, files := b.Launch(sandbox.Self, []string{"3"})
		cmd := &exec.Cmd{Path: path, Args: append([]string{name}, args...), Dir: p.work,
			Env: append(b.Env, "GATEKIT_SHOW_NAME=1"), ExtraFiles: files}
		output, err := cmd.CombinedOutput()
		if err != nil || string(output) != "the-name\n" {
			t.Errorf("level %s: got %q, %v, want the name", level, output, err)
		}
		if err := b.Release(); err != nil {
			t.Error(err)
		}
		b.Close()
		read.Close()
	}
}

// These attempts succeed although they should not. If one fails, remove it from the known limits.
func TestKnownLimits(t *testing.T) {
	abi(t)
	linkers, err := filepath.Glob("/lib64/ld-linux-*.so.*")
	if err != nil || len(linkers) == 0 {
		linkers, _ = filepath.Glob("/lib/ld-linux-*.so.*")
	}
	for _, test := range []struct {
		level   sandbox.Level
		attempt string
		args    []string
	}{
		{sandbox.Strict, "stat", []string{"{home}/.ssh/id_ed25519"}},
		{sandbox.Guard, "list", []string{"{home}/.ssh"}},
		{sandbox.Strict, "chmod", []string{"{home}/documents/letter.txt"}},
		{sandbox.Strict, "touch", []string{"{home}/documents/letter.txt"}},
		{sandbox.Strict, "run a script by its interpreter", []string{"{private}/x"}},
		{sandbox.Strict, "run by the linker", append([]string{"{private}/x"}, linkers...)},
		{sandbox.Guard, "hard link, read it", []string{"{home}/data/secret", "{private}/x"}},
	} {
		p := newPlace(t)
		if err := os.Link(p.secret, filepath.Join(p.data, "secret")); err != nil {
			t.Fatal(err)
		}
		var args []string
		for _, a := range test.args {
			args = append(args, strings.ReplaceAll(a, "{home}", p.home))
		}
		output, err := p.run(t, sandbox.Settings{Level: test.level, Write: []string{p.data}},
			test.attempt, args...)
		if err != nil {
			t.Errorf("level %s, %s %s: refused: %s", test.level, test.attempt, args, output)
		}
	}
}

func TestWhatIsGrantedWorks(t *testing.T) {
	abi(t)
	guard := sandbox.Settings{Level: sandbox.Guard}
	strict := sandbox.Settings{Level: sandbox.Strict, NoNetwork: true}
	for _, test := range []struct {
		settings sandbox.Settings
		grant    string // "read", "write" or "run": of the folder data
		attempt  string
		args     []string
	}{
		{guard, "", "read", []string{"{home}/documents/letter.txt"}},
		{guard, "", "append", []string{"{home}/work/notes.txt"}},
		{guard, "", "create", []string{"{private}/x"}},
		{guard, "", "run a copy of true", []string{"{private}/true"}},
		{guard, "", "tcp", []string{"{tcp}"}},
		{guard, "", "listen", nil},
		{guard, "", "child reads", []string{"/etc/passwd"}},
		{guard, "write", "create", []string{"{home}/data/new.txt"}},
		{strict, "", "create", []string{"{private}/x"}},
		{strict, "", "child reads", []string{"/etc/passwd"}},
		{strict, "", "pair of sockets", nil},
		{strict, "read", "read", []string{"{home}/data/in.txt"}},
		{strict, "read", "list", []string{"{home}/data"}},
		{strict, "write", "create", []string{"{home}/data/new.txt"}},
		{strict, "write", "cut off", []string{"{home}/data/in.txt"}},
		{strict, "run", "run a copy of true", []string{"{home}/data/true"}},
	} {
		t.Run(fmt.Sprint(test.settings.Level, test.grant, test.attempt), func(t *testing.T) {
			p := newPlace(t)
			switch s := &test.settings; test.grant {
			case "read":
				s.Read = []string{p.data}
			case "write":
				s.Write = []string{p.data}
			case "run":
				s.Run = []string{p.data}
			}
			var args []string
			for _, a := range test.args {
				a = strings.ReplaceAll(a, "{home}", p.home)
				args = append(args, strings.ReplaceAll(a, "{tcp}", p.tcp))
			}
			if output, err := p.run(t, test.settings, test.attempt, args...); err != nil {
				t.Errorf("refused: %s", output)
			}
		})
	}
}

// Reading is granted, writing is not.
func TestReadIsNotWrite(t *testing.T) {
	abi(t)
	p := newPlace(t)
	s := sandbox.Settings{Level: sandbox.Strict, Read: []string{p.data}}
	if _, err := p.run(t, s, "create", filepath.Join(p.data, "new.txt")); err == nil {
		t.Error("a file is created in a folder that may only be read")
	}
	s = sandbox.Settings{Level: sandbox.Strict, Write: []string{p.data}}
	if _, err := p.run(t, s, "run a copy of true", filepath.Join(p.data, "true")); err == nil {
		t.Error("a program runs from a folder that may be written")
	}
}

// A secret that the operator names is granted, but Gatekit's own files never are.
func TestGrantsOfTheOperator(t *testing.T) {
	abi(t)
	p := newPlace(t)
	s := sandbox.Settings{Level: sandbox.Guard, Read: []string{filepath.Dir(p.secret), p.state}}
	if output, err := p.run(t, s, "read", p.secret); err != nil {
		t.Errorf("a named secret cannot be read: %s", output)
	}
	if _, err := p.run(t, s, "read", filepath.Join(p.state, "gatekit.key")); err == nil {
		t.Error("Gatekit's key can be read")
	}
	s.Read = []string{p.secret}
	if output, err := p.run(t, s, "read", p.secret); err != nil {
		t.Errorf("a named file in a folder of secrets cannot be read: %s", output)
	}
	s.Read = []string{p.home}
	if _, err := p.run(t, s, "read", p.secret); err == nil {
		t.Error("a secret is read, because the home folder is named")
	}
}

// A folder in a hidden one can be read if it is named as readable, and is never written, also if
// the command names a file in it.
func TestReadableFolderInAHiddenOne(t *testing.T) {
	abi(t)
	p := newPlace(t)
	program := filepath.Join(p.state, "packages", "box", "box.js")
	if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.args, p.readable = []string{program}, []string{filepath.Dir(program)}
	for _, level := range []sandbox.Level{sandbox.Guard, sandbox.Strict} {
		s := sandbox.Settings{Level: level, Write: []string{p.state}}
		for _, attempt := range []string{"read", "child reads"} {
			if output, err := p.run(t, s, attempt, program); err != nil {
				t.Errorf("%s: %s the program: %s", level, attempt, output)
			}
		}
		for attempt, path := range map[string]string{"create": program + ".new",
			"cut off": program, "append": program, "remove": program,
			"read": filepath.Join(p.state, "gatekit.key")} {
			if _, err := p.run(t, s, attempt, path); err == nil {
				t.Errorf("%s: the attempt %q with %s succeeded", level, attempt, path)
			}
		}
	}
}

// With Guard, the command of the operator grants what it names, and no more.
func TestCommandGrantsWhatItNames(t *testing.T) {
	abi(t)
	for _, test := range []struct {
		name     string
		arg      string
		variable string
		attempt  string
		path     string
		granted  bool
	}{
		{"a file", "{home}/data/in.txt", "", "append", "data/in.txt", true},
		{"a file beside it", "{home}/data/in.txt", "", "create", "data/in.txt.tmp", true},
		{"a new file", "--db={home}/data/new.db", "", "create", "data/new.db", true},
		{"a list", "--dirs={home}/data,{home}/documents", "", "create", "documents/x", true},
		{"a tilde", "~/data/new.db", "", "create", "data/new.db", true},
		{"a database's URI", "sqlite://{home}/data/new.db", "", "create", "data/new.db", true},
		{"another URI", "https://{home}/data/new.db", "", "create", "data/new.db", false},
		{"a variable", "", "DB_FILE={home}/data/new.db", "create", "data/new.db", true},
		{"a new folder", "", "STORE_ROOT={home}/store", "create", "store/x", true},
		{"a new folder's flag", "--data-dir={home}/store", "", "create", "store/x", true},
		{"a file in the home folder", "{home}/x.db", "", "create", "documents/x", false},
		{"a file in a dot folder", "{home}/.local/x", "", "create", ".local/y", false},
		{"the home folder's variable", "", "HOME={home}", "create", "documents/x", false},
		{"a key's variable", "", "KEY_FILE={home}/data/in.txt", "append", "data/in.txt", false},
		{"a secret", "--key={home}/.ssh/id_ed25519", "", "read", ".ssh/id_ed25519", true},
		{"to write a secret", "--key={home}/.ssh/id_ed25519", "", "append", ".ssh/id_ed25519",
			false},
		{"Gatekit's key", "{home}/.local/state/gatekit/gatekit.key", "", "read",
			".local/state/gatekit/gatekit.key", false},
		{"npm's cache", "npx", "", "create", ".npm/x", true},
		{"no cache", "nothing", "", "create", ".npm/x", false},
		{"its settings", "@acme/notes-mcp@1.2.3", "", "create", ".config/notes-mcp/x", true},
		{"its data", "/x/node_modules/@acme/notes-mcp/index.js", "", "create", ".notes-mcp/x",
			true},
		{"its data, by a relative path", "node_modules/notes-mcp/index.js", "", "create",
			".notes-mcp/x", true},
		{"its data, by a link of npm", "/x/node_modules/.bin/notes-mcp", "", "create",
			".notes-mcp/x", true},
		{"known data", "desktop-commander", "", "create", ".claude-server-commander/x", true},
		{"known data of another server", "mcp-server-atlassian-jira", "", "create", ".mcp/x", true},
		{"others' settings", "autostart", "", "create", ".config/autostart/x", false},
		{"settings of all", "@acme/config", "", "create", ".config/x", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlace(t)
			if err := os.MkdirAll(filepath.Join(p.home, ".config"), 0o700); err != nil {
				t.Fatal(err)
			}
			p.args = []string{strings.ReplaceAll(test.arg, "{home}", p.home)}
			if name, value, ok := strings.Cut(test.variable, "="); ok {
				p.env = map[string]string{name: strings.ReplaceAll(value, "{home}", p.home)}
			}
			output, err := p.run(t, sandbox.Settings{Level: sandbox.Guard}, test.attempt,
				filepath.Join(p.home, test.path))
			if granted := err == nil; granted != test.granted {
				t.Errorf("granted: %v, want %v: %s", granted, test.granted, output)
			}
		})
	}
}

// A browser confines its own processes, for which it needs a user namespace and chroot.
func TestBrowsersCanConfineThemselves(t *testing.T) {
	abi(t)
	if os.Geteuid() == 0 {
		t.Skip("as root, the process may not write to /proc")
	}
	p := newPlace(t)
	const attempt = "confine a process of its own"
	if output, err := p.run(t, sandbox.Settings{Level: sandbox.Off}, attempt); err != nil {
		t.Skipf("fails also without a sandbox: %s", output)
	}
	if output, err := p.run(t, sandbox.Settings{Level: sandbox.Guard}, attempt); err != nil {
		t.Errorf("level guard: %s", output)
	}
	if _, err := p.run(t, sandbox.Settings{Level: sandbox.Strict}, attempt); err == nil {
		t.Error("level strict: it succeeds")
	}
}

// Folders that the server might have made are made for it, and removed if it did not use them.
func TestUnusedFoldersAreRemoved(t *testing.T) {
	abi(t)
	p := newPlace(t)
	p.args = []string{"notes-mcp"}
	if err := os.MkdirAll(filepath.Join(p.home, ".config"), 0o700); err != nil {
		t.Fatal(err)
	}
	used := filepath.Join(p.home, ".config", "notes-mcp")
	if output, err := p.run(t, sandbox.Settings{Level: sandbox.Guard}, "create",
		filepath.Join(used, "x")); err != nil {
		t.Fatal(output)
	}
	if _, err := os.Stat(filepath.Join(used, "x")); err != nil {
		t.Error(err)
	}
	for _, unused := range []string{".notes-mcp", ".local/share/notes-mcp"} {
		if _, err := os.Stat(filepath.Join(p.home, unused)); err == nil {
			t.Errorf("%s is left", unused)
		}
	}
}

// The process may have replaced a folder that its arguments name by a link, before it was started
// again.
func TestLinksInWrittenFoldersAreNotFollowed(t *testing.T) {
	abi(t)
	for _, arg := range []string{"./link", "--db=./link", "link/letter.txt"} {
		p := newPlace(t)
		p.args = []string{arg}
		if err := os.Symlink(p.outside, filepath.Join(p.work, "link")); err != nil {
			t.Fatal(err)
		}
		if _, err := p.run(t, sandbox.Settings{Level: sandbox.Guard}, "cut off",
			filepath.Join(p.outside, "letter.txt")); err == nil {
			t.Errorf("%s: a file outside is cut off", arg)
		}
	}
}

// The configuration may be a link, which the process could replace.
func TestLinksToFixedFilesCannotBeReplaced(t *testing.T) {
	abi(t)
	p := newPlace(t)
	target := filepath.Join(p.outside, "gatekit.toml")
	if err := os.Rename(p.config, target); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, p.config); err != nil {
		t.Fatal(err)
	}
	if _, err := p.run(t, sandbox.Settings{Level: sandbox.Guard}, "remove", p.config); err == nil {
		t.Error("the link is removed")
	}
}

// Also the user's secrets are hidden if the server has another home folder.
func TestSecretsOfOtherHomesAreHidden(t *testing.T) {
	abi(t)
	p := newPlace(t)
	t.Setenv("HOME", p.home)
	secret := p.secret
	p.home = t.TempDir()
	if _, err := p.run(t, sandbox.Settings{Level: sandbox.Guard}, "read", secret); err == nil {
		t.Error("the secret of Gatekit's home is read")
	}
}

// A client often starts a server in the home folder. That grants nothing.
func TestHomeAsWorkingFolderIsNotGranted(t *testing.T) {
	abi(t)
	p := newPlace(t)
	p.work = p.home
	if _, err := p.run(t, sandbox.Settings{Level: sandbox.Guard}, "cut off",
		filepath.Join(p.outside, "letter.txt")); err == nil {
		t.Error("the home folder is granted, because it is the working folder")
	}
}

// The confined process must not reach the process that started it through any of its threads.
func TestThreadsOfTheParentCannotBeReached(t *testing.T) {
	abi(t)
	p := newPlace(t)
	for range 64 {
		go func() {
			runtime.LockOSThread() // and never unlock, so that there are many threads
			select {}
		}()
	}
	for _, attempt := range []string{"read a parent's thread", "signal a parent's thread"} {
		if output, err := p.run(t, sandbox.Settings{Level: sandbox.Off}, attempt); err != nil {
			t.Fatalf("%s fails also without a sandbox: %s", attempt, output)
		}
		for _, level := range []sandbox.Level{sandbox.Guard, sandbox.Strict} {
			if _, err := p.run(t, sandbox.Settings{Level: level}, attempt); err == nil {
				t.Errorf("level %s: %s succeeds", level, attempt)
			}
		}
	}
}

// Files that Gatekit inherited without close-on-exec stay out of the sandbox.
func TestInheritedFilesAreClosed(t *testing.T) {
	abi(t)
	p := newPlace(t)
	file, err := unix.Open(p.secret, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(file)
	args := []string{strconv.Itoa(file)}
	if output, err := p.run(t, sandbox.Settings{Level: sandbox.Off}, "read a file number",
		args...); err != nil {
		t.Fatalf("fails also without a sandbox: %s", output)
	}
	if _, err := p.run(t, sandbox.Settings{Level: sandbox.Guard}, "read a file number",
		args...); err == nil {
		t.Error("the confined process reads a file that its parent had opened")
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for _, s := range []sandbox.Settings{{}, {Level: "lax"},
		{Level: sandbox.Strict, Read: []string{"/does/not/exist"}}} {
		if b, err := sandbox.New(s, sandbox.Launch{Dir: "/"}); err == nil {
			b.Close()
			t.Errorf("%+v: no error", s)
		}
	}
}

func TestPrivateFolderIsRemoved(t *testing.T) {
	abi(t)
	b, err := sandbox.New(sandbox.Settings{Level: sandbox.Strict}, sandbox.Launch{
		Program: "/bin/true", Dir: "/", Env: []string{"HOME=/root", "TMPDIR=/tmp"},
		Given: []string{"HOME"}})
	if err != nil {
		t.Fatal(err)
	}
	folder := privateFolder(b.Env)
	if _, err := os.Stat(folder); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(b.Env, " "); !strings.Contains(got, "HOME=/root") {
		t.Errorf("a variable that the operator set is changed: %s", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); err == nil {
		t.Errorf("%s is left", folder)
	}
}

// What a process writes to stderr tells what it needs. Gatekit's files are never suggested.
func TestRefusals(t *testing.T) {
	abi(t)
	p := newPlace(t)
	guard := sandbox.Settings{Level: sandbox.Guard}
	strict := sandbox.Settings{Level: sandbox.Strict, NoNetwork: true}
	for _, test := range []struct {
		settings sandbox.Settings
		line     string
		want     string // "" is no refusal
	}{
		{guard, "Error: EACCES: permission denied, mkdir '{home}/.acme'",
			`write = ["{home}/.acme"], missing`},
		{guard, "PermissionError: [Errno 13] Permission denied: '{home}/documents/letter.txt'",
			`write = ["{home}/documents/letter.txt"]`},
		{guard, "cat: {home}/.ssh/id_ed25519: Permission denied",
			`read = ["{home}/.ssh/id_ed25519"], secret`},
		{guard, "open {home}/.kube/config: permission denied",
			`read = ["{home}/.kube/config"], missing, secret`},
		{guard, `log file write failed ({home}/x.log) EACCES`, `write = ["{home}/x.log"], missing`},
		{guard, "sh: 1: cannot create {home}/work/notes.txt: Permission denied", ""}, // is granted
		{guard, "EACCES: permission denied, open '{home}/work/audit.jsonl'", ""},
		{guard, "EACCES: permission denied, open '{home}/work/gatekit.toml'", ""},
		{guard, "EACCES: permission denied, open '{home}/.local/state/gatekit/gatekit.key'", ""},
		{guard, "EACCES: permission denied, open '/proc/sys/kernel/core_pattern'", ""},
		{guard, "/bin/sh: 1: cannot create {home}/x: Permission denied",
			`write = ["{home}/x"], missing`},
		{guard, "/bin/sh: 1: cannot create [redacted]/x: Permission denied", ""},
		{guard, "  code: 'EACCES',", ""},
		{guard, "connect EPERM 10.0.0.1:443", ""},
		{guard, "reading {home}/documents/letter.txt", ""},
		{strict, "cat: {home}/documents/letter.txt: Permission denied",
			`read = ["{home}/documents/letter.txt"]`},
		{strict, "EACCES: permission denied, open '{home}/documents/new.txt'",
			`write = ["{home}/documents/new.txt"], missing`},
		{strict, "getaddrinfo EAI_AGAIN api.example", `network = ["api.example"]`},
		{strict, "Error: getaddrinfo EAI_AGAIN API.example. (request)", `network = ["API.example"]`},
		{strict, "curl: (6) Could not resolve host: api.example", `network = ["api.example"]`},
		{strict, "dial tcp: lookup api.example: socket: operation not permitted",
			`network = ["api.example"]`},
		{strict, "getaddrinfo EAI_AGAIN \x1b[1mapi.example", `network = "all"`},
		{strict, "getaddrinfo EAI_AGAIN localhost", `network = "all"`},
		{guard, "getaddrinfo EAI_AGAIN api.example", ""},
		{strict, "dial tcp: socket: operation not permitted", `network = "all"`},
		{strict, "ptrace: Operation not permitted", ""},
	} {
		replace := strings.NewReplacer("{home}", p.home).Replace
		b, err := sandbox.New(test.settings, sandbox.Launch{Program: "/bin/true", Dir: p.work,
			Env:    []string{"HOME=" + p.home},
			Hidden: []string{p.state, p.log}, Fixed: []string{p.config}})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if r, ok := b.Refusal(replace(test.line)); ok {
			got = r.String()
			if r.Missing {
				got += ", missing"
			}
			if r.Secret {
				got += ", secret"
			}
		}
		if want := replace(test.want); got != want {
			t.Errorf("level %s, %s: got %q, want %q", test.settings.Level, test.line, got, want)
		}
		b.Close()
	}
}

// The test program itself cannot be limited: with the race detector, it has too much memory.
func TestLimits(t *testing.T) {
	abi(t)
	run := func(memory, files int, script string) error {
		b, err := sandbox.New(sandbox.Settings{Level: sandbox.Guard, Memory: memory, Files: files},
			sandbox.Launch{Program: "/bin/sh", Dir: t.TempDir(),
				Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		path, name, args, fds := b.Launch("/bin/sh", []string{"-c", script})
		return (&exec.Cmd{Path: path, Args: append([]string{name}, args...), Env: b.Env,
			ExtraFiles: fds}).Run()
	}
	for script, refused := range map[string]bool{
		"dd if=/dev/null of=/dev/null bs=100M count=1":         false,
		"dd if=/dev/null of=/dev/null bs=640M count=1":         true,
		"sh -c 'dd if=/dev/null of=/dev/null bs=640M count=1'": true,
		"exec 9</dev/null":    false,
		"ulimit -n 65":        true,
		"ulimit -d unlimited": true,
	} {
		if err := run(0, 0, script); err != nil {
			t.Fatalf("%s: refused without limits: %v", script, err)
		}
		if err := run(512<<20, 64, script); err != nil != refused {
			t.Errorf("%s: got %v, refused is to be %v", script, err, refused)
		}
	}
}

// Node reserves more address space than it uses. A limit must not keep it from starting.
func TestNodeStartsWithLimitedMemory(t *testing.T) {
	abi(t)
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip(err)
	}
	for memory, want := range map[int]string{256 << 20: "refused", 0: "allocated"} {
		b, err := sandbox.New(sandbox.Settings{Level: sandbox.Guard, Memory: memory},
			sandbox.Launch{Program: node, Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		path, name, args, files := b.Launch(node, []string{"-e", `try { Buffer.alloc(1 << 29);
			console.log("allocated") } catch { console.log("refused") }`})
		output, err := (&exec.Cmd{Path: path, Args: append([]string{name}, args...), Env: b.Env,
			ExtraFiles: files}).CombinedOutput()
		if got := strings.TrimSpace(string(output)); err != nil || got != want {
			t.Errorf("limit %d: got %s %v, want %s", memory, got, err, want)
		}
		b.Close()
	}
}

// What an observed process does is learnt, and with the learnt grants the level strict lets it.
func TestObserver(t *testing.T) {
	abi(t)
	p := newPlace(t)
	script := strings.ReplaceAll(`cat {home}/documents/letter.txt &&
		echo x > {home}/data/new.txt && cd {home} && cat ./.ssh/id_ed25519 && cat work/audit.jsonl
		echo x > "$TMPDIR/x"; cat /etc/passwd`, "{home}", p.home)
	o, err := sandbox.Observe(sandbox.Launch{Program: "/bin/sh", Args: []string{"-c", script},
		Dir: p.work, Env: []string{"PATH=/usr/bin:/bin", "HOME=" + p.home},
		Hidden: []string{p.log}})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	path, name, args, files := o.Launch("/bin/sh", []string{"-c", script})
	cmd := &exec.Cmd{Path: path, Args: append([]string{name}, args...), Dir: p.work, Env: o.Env,
		ExtraFiles: files}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { cmd.Wait(); close(done) }()
	needs, err := o.Run(done)
	<-done
	if err != nil || !cmd.ProcessState.Success() {
		t.Fatalf("%v, %v", err, cmd.ProcessState)
	}
	want := fmt.Sprintf(`level = "strict"
read = [
  "%s/.ssh/id_ed25519", # a known place of keys and passwords
  "%[1]s/documents/letter.txt",
]
write = [
  "%[1]s/data",
]
network = "none"
`, p.home)
	if got := needs.Table(); got != want {
		t.Errorf("got the table\n%s\nwant\n%s", got, want)
	}
	learnt := sandbox.Settings{Level: sandbox.Strict, Read: needs.Read, Write: needs.Write,
		NoNetwork: true}
	for attempt, file := range map[string]string{"read": "documents/letter.txt",
		"create": "data/new.txt"} {
		if output, err := p.run(t, learnt, attempt, filepath.Join(p.home, file)); err != nil {
			t.Errorf("%s %s: %s", attempt, file, output)
		}
	}
}

// Files are also opened by a folder's number, and addresses are learnt.
func TestObserverUnderstandsSystemCalls(t *testing.T) {
	abi(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for attempt, want := range map[string]string{
		"tcp": "# {tcp}\nnetwork = \"all\"\n",
		"look up": "network = [\n  \"{tcp}\",\n  " +
			"\"learnt.example\",\n  \"second.example\",\n]\n",
		"open as path": "\"{home}/documents/letter.txt\",",
		"rename":       "\"{home}/documents\",\n]\nnetwork = \"none\"\n",
	} {
		p := newPlace(t)
		arguments := map[string][]string{"tcp": {p.tcp}, "look up": {p.tcp},
			"open as path": {filepath.Join(p.outside, "letter.txt")},
			"rename": {filepath.Join(p.outside, "letter.txt"), filepath.Join(p.outside,
				"moved.txt")}}
		o, err := sandbox.Observe(sandbox.Launch{Program: self, Dir: p.work, Env: []string{
			"PATH=/usr/bin:/bin", "HOME=" + p.home, attemptVariable + "=" + attempt}})
		if err != nil {
			t.Fatal(err)
		}
		path, name, args, files := o.Launch(self, arguments[attempt])
		cmd := &exec.Cmd{Path: path, Args: append([]string{name}, args...), Dir: p.work,
			Env: o.Env, ExtraFiles: files}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { cmd.Wait(); close(done) }()
		needs, err := o.Run(done)
		want = strings.NewReplacer("{home}", p.home, "{tcp}", p.tcp).Replace(want)
		if table := needs.Table(); err != nil || !strings.Contains(table, want) {
			t.Errorf("%s: got the table\n%s%v, want %s", attempt, table, err, want)
		}
		<-done
		o.Close()
	}
}
