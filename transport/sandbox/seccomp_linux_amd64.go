package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	// firstForeignNumber is the first system call of the x32 ABI, whose numbers differ.
	firstForeignNumber = 0x40000000
)

var refusedByArch = []int{unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_MODIFY_LDT, unix.SYS_USELIB,
	unix.SYS__SYSCTL}
