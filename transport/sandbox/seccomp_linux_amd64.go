package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	// firstForeignNumber is the first system call of the x32 ABI, whose numbers differ.
	firstForeignNumber = 0x40000000
)

// pathCallsByArch are older system calls.
var pathCallsByArch = []pathCall{
	{unix.SYS_OPEN, [][2]int{{-1, 0}}, 1}, {unix.SYS_CREAT, [][2]int{{-1, 0}}, changes},
	{unix.SYS_MKDIR, [][2]int{{-1, 0}}, changes}, {unix.SYS_RMDIR, [][2]int{{-1, 0}}, changes},
	{unix.SYS_UNLINK, [][2]int{{-1, 0}}, changes}, {unix.SYS_SYMLINK, [][2]int{{-1, 1}}, changes},
	{unix.SYS_RENAME, [][2]int{{-1, 0}, {-1, 1}}, changes},
	{unix.SYS_LINK, [][2]int{{-1, 0}, {-1, 1}}, changes},
	{unix.SYS_RENAMEAT, [][2]int{{0, 1}, {2, 3}}, changes},
}

var refusedByArch = []int{unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_MODIFY_LDT, unix.SYS_USELIB,
	unix.SYS__SYSCTL}
