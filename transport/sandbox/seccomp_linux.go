//go:build amd64 || arm64

package sandbox

import (
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. The low half of an argument comes first: both architectures are
// little-endian.
const (
	offsetNumber    = 0
	offsetArch      = 4
	offsetArguments = 16
)

var (
	allow = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	deny  = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	// absent makes libraries fall back to older system calls, whose arguments a filter can read.
	absent = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
)

// refused are the system calls that no server needs. Most of them need privileges that the user has
// not, unless Gatekit runs as root. io_uring does the work of other system calls unseen by a
// filter.
var refused = append([]int{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_ADJTIMEX, unix.SYS_BPF, unix.SYS_CLOCK_ADJTIME,
	unix.SYS_CLOCK_SETTIME, unix.SYS_DELETE_MODULE, unix.SYS_FANOTIFY_INIT,
	unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSOPEN, unix.SYS_FSPICK,
	unix.SYS_INIT_MODULE, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_IO_URING_SETUP, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_KEXEC_LOAD,
	unix.SYS_KEYCTL, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR,
	unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE,
	unix.SYS_PERF_EVENT_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIVOT_ROOT,
	unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PTRACE, unix.SYS_QUOTACTL,
	unix.SYS_REBOOT, unix.SYS_REQUEST_KEY, unix.SYS_SETDOMAINNAME, unix.SYS_SETHOSTNAME,
	unix.SYS_SETNS, unix.SYS_SETTIMEOFDAY, unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_SYSLOG,
	unix.SYS_UMOUNT2, unix.SYS_USERFAULTFD, unix.SYS_VHANGUP,
}, refusedByArch...)

// newFilter returns a program of seccomp. It answers EPERM to the refused system calls, and to the
// sockets of any network if noNetwork is set. With listen, it allows stream sockets of Unix, but
// not to connect them. In a network of its own, the process may open sockets of the families that a
// network namespace holds. With strict, it also refuses new namespaces and root folders, and files
// in memory, which can be executed and are not bound by Landlock.
func newFilter(g grants) ([]unix.SockFilter, error) {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: firstForeignNumber, SkipTrue: 1},
		absent,
	}
	answer := func(number int, verdict ...bpf.Instruction) {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(number),
			SkipTrue: uint8(len(verdict))})
		program = append(program, verdict...)
	}
	// argument answers deny if the low half of an argument fulfils the condition.
	argument := func(index uint32, condition bpf.JumpTest, values ...uint32) []bpf.Instruction {
		code := []bpf.Instruction{bpf.LoadAbsolute{Off: offsetArguments + 8*index, Size: 4}}
		for _, v := range values {
			code = append(code, bpf.JumpIf{Cond: condition, Val: v, SkipFalse: 1}, deny)
		}
		return append(code, allow)
	}
	for _, number := range refused {
		answer(number, deny)
	}
	answer(unix.SYS_IOCTL, argument(1, bpf.JumpEqual, unix.TIOCSTI, tioclinux)...)
	// socket answers allow to AF_UNIX if a comparison with the type of the socket holds.
	socket := func(condition bpf.JumpTest, kind uint32) []bpf.Instruction {
		return []bpf.Instruction{
			bpf.LoadAbsolute{Off: offsetArguments, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_UNIX, SkipTrue: 4},
			bpf.LoadAbsolute{Off: offsetArguments + 8, Size: 4},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf},
			bpf.JumpIf{Cond: condition, Val: kind, SkipFalse: 1},
			allow, deny,
		}
	}
	switch {
	case g.ownNetwork:
		answer(unix.SYS_SOCKET, bpf.LoadAbsolute{Off: offsetArguments, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipTrue: 3},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_NETLINK, SkipTrue: 3},
			bpf.LoadAbsolute{Off: offsetArguments + 8*2, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.NETLINK_ROUTE, SkipTrue: 1},
			allow, deny)
	case g.noNetwork && g.listen:
		answer(unix.SYS_SOCKET, socket(bpf.JumpEqual, unix.SOCK_STREAM)...)
		answer(unix.SYS_CONNECT, deny)
	case g.noNetwork:
		answer(unix.SYS_SOCKET, deny)
	}
	if g.ownNetwork || g.noNetwork {
		// A pair of datagram sockets could send to any other datagram socket.
		answer(unix.SYS_SOCKETPAIR, socket(bpf.JumpNotEqual, unix.SOCK_DGRAM)...)
	}
	if g.strict {
		answer(unix.SYS_CHROOT, deny) // browsers confine their own processes with it
		answer(unix.SYS_MEMFD_CREATE, deny)
		answer(unix.SYS_MEMFD_SECRET, deny)
		answer(unix.SYS_UNSHARE, deny)
		answer(unix.SYS_CLONE3, absent)
		answer(unix.SYS_CLONE, argument(0, bpf.JumpBitsSet, unix.CLONE_NEWUSER|unix.CLONE_NEWNS|
			unix.CLONE_NEWPID|unix.CLONE_NEWNET|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS|
			unix.CLONE_NEWCGROUP)...)
	}
	return assemble(append(program, allow))
}

func assemble(program []bpf.Instruction) ([]unix.SockFilter, error) {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assemble the filter of system calls: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return filter, nil
}

const tioclinux = 0x541c // puts characters into a virtual console; see ioctl_console(2)
