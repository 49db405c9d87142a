//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The filter is run for system calls that a test cannot make, because they would change the system,
// or because the system may refuse them for other reasons.
func TestFilter(t *testing.T) {
	const (
		allowed = unix.SECCOMP_RET_ALLOW
		refused = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		absent  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		killed  = unix.SECCOMP_RET_KILL_PROCESS

		none, unixStream = unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC
		high             = uint64(1) << 32 // the kernel does not look at this bit
	)
	guard, strict := grants{}, grants{strict: true}
	alone, listen := grants{noNetwork: true}, grants{noNetwork: true, listen: true}
	type call struct {
		number int
		args   [2]uint64
	}
	type result struct {
		call  call
		wants map[string]uint32 // by the name of the grants; allowed if it is absent
	}
	all := func(want uint32) map[string]uint32 {
		return map[string]uint32{"guard": want, "strict": want, "alone": want, "listen": want}
	}
	results := []result{
		{call{unix.SYS_READ, [2]uint64{}}, nil},
		{call{unix.SYS_IOCTL, [2]uint64{0, unix.TIOCSTI}}, all(refused)},
		{call{unix.SYS_IOCTL, [2]uint64{0, unix.TIOCSTI | high}}, all(refused)},
		{call{unix.SYS_IOCTL, [2]uint64{0, tioclinux}}, all(refused)},
		{call{unix.SYS_IOCTL, [2]uint64{0, unix.TIOCGWINSZ}}, nil},
		{call{firstForeignNumber | unix.SYS_READ, [2]uint64{}}, all(absent)},
		{call{unix.SYS_CLONE3, [2]uint64{}}, map[string]uint32{"strict": absent}},
		{call{unix.SYS_CLONE, [2]uint64{unix.CLONE_VM | unix.CLONE_VFORK}}, nil},
		{call{unix.SYS_SOCKET, [2]uint64{none, unixStream}}, map[string]uint32{"alone": refused}},
		{call{unix.SYS_SOCKET, [2]uint64{none, unix.SOCK_DGRAM}},
			map[string]uint32{"alone": refused, "listen": refused}},
		{call{unix.SYS_SOCKET, [2]uint64{none, unix.SOCK_SEQPACKET}},
			map[string]uint32{"alone": refused, "listen": refused}},
		{call{unix.SYS_CONNECT, [2]uint64{}}, map[string]uint32{"listen": refused}},
		{call{unix.SYS_BIND, [2]uint64{}}, nil},
		{call{unix.SYS_SOCKETPAIR, [2]uint64{none, unixStream}}, nil},
		{call{unix.SYS_SOCKETPAIR, [2]uint64{none, unix.SOCK_DGRAM | unix.SOCK_NONBLOCK}},
			map[string]uint32{"alone": refused, "listen": refused}},
		{call{unix.SYS_SOCKETPAIR, [2]uint64{unix.AF_TIPC, unix.SOCK_SEQPACKET}},
			map[string]uint32{"alone": refused, "listen": refused}},
	}
	for _, family := range []uint64{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET,
		unix.AF_VSOCK, unix.AF_BLUETOOTH, unix.AF_CAN, unix.AF_ALG, unix.AF_XDP} {
		results = append(results, result{call{unix.SYS_SOCKET, [2]uint64{family, unixStream}},
			map[string]uint32{"alone": refused, "listen": refused}})
	}
	for _, number := range []int{unix.SYS_CHROOT, unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET,
		unix.SYS_UNSHARE} {
		results = append(results, result{call{number, [2]uint64{}},
			map[string]uint32{"strict": refused}})
	}
	for _, flag := range []uint64{unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWPID,
		unix.CLONE_NEWNET, unix.CLONE_NEWIPC, unix.CLONE_NEWUTS, unix.CLONE_NEWCGROUP} {
		results = append(results, result{call{unix.SYS_CLONE, [2]uint64{flag | unix.CLONE_VFORK}},
			map[string]uint32{"strict": refused}})
	}
	for _, number := range []int{unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV,
		unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_MOUNT, unix.SYS_MOVE_MOUNT,
		unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_PIVOT_ROOT,
		unix.SYS_UMOUNT2, unix.SYS_SETNS, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_BPF,
		unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEXEC_LOAD,
		unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
		unix.SYS_DELETE_MODULE, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		unix.SYS_REBOOT, unix.SYS_SETHOSTNAME, unix.SYS_CLOCK_SETTIME, unix.SYS_SETTIMEOFDAY,
		unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SYSLOG, unix.SYS_ACCT} {
		results = append(results, result{call{number, [2]uint64{}}, all(refused)})
	}
	for name, g := range map[string]grants{"guard": guard, "strict": strict, "alone": alone,
		"listen": listen} {
		filter := newMachine(t, g)
		for _, r := range results {
			want, ok := r.wants[name]
			if !ok {
				want = allowed
			}
			if got := filter(auditArch, r.call.number, r.call.args[:]...); got != want {
				t.Errorf("%s: system call %d of %x: got %s, want %s", name, r.call.number,
					r.call.args, describe(got), describe(want))
			}
		}
		for _, arch := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM} {
			if got := filter(arch, unix.SYS_READ); got != killed {
				t.Errorf("%s: a system call of another architecture: got %s", name, describe(got))
			}
		}
	}
}

// newMachine returns a function that runs the filter of a process.
func newMachine(t *testing.T, g grants) func(arch uint32, number int, args ...uint64) uint32 {
	t.Helper()
	filter, err := newFilter(g)
	if err != nil {
		t.Fatal(err)
	}
	var raw []bpf.RawInstruction
	for _, f := range filter {
		raw = append(raw, bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K})
	}
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter cannot be disassembled")
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return func(arch uint32, number int, args ...uint64) uint32 {
		// The machine reads words in the byte order of networks, and seccomp in that of the system.
		words := []uint32{uint32(number), arch, 0, 0}
		for _, a := range append(slices.Clone(args), make([]uint64, 6-len(args))...) {
			words = append(words, uint32(a), uint32(a>>32))
		}
		var data []byte
		for _, w := range words {
			data = binary.BigEndian.AppendUint32(data, w)
		}
		got, err := vm.Run(data)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(got)
	}
}

func describe(verdict uint32) string {
	if verdict&unix.SECCOMP_RET_ACTION_FULL == unix.SECCOMP_RET_ERRNO {
		return unix.ErrnoName(unix.Errno(verdict & unix.SECCOMP_RET_DATA))
	}
	return fmt.Sprintf("%#x", verdict)
}

// Each version of Landlock refuses what its documentation says.
func TestWhatVersionsOfLandlockCannotRefuse(t *testing.T) {
	for _, test := range []struct {
		abi       int
		noNetwork bool
		want      int // number of things; -1 is an error
	}{{0, false, -1}, {2, false, -1}, {3, false, 2}, {5, true, 1}, {6, false, 1}, {8, true, 0},
		{8, false, 1}, {9, false, 0}} {
		got, err := notHeldBy(test.abi, test.noNetwork)
		if (err != nil) != (test.want < 0) || err == nil && len(got) != test.want {
			t.Errorf("ABI %d, no network %v: got %q, %v, want %d", test.abi, test.noNetwork, got,
				err, test.want)
		}
	}
}
