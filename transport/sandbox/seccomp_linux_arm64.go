package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch          = unix.AUDIT_ARCH_AARCH64
	firstForeignNumber = 0x40000000 // no system call has such a number
)

var refusedByArch []int

var pathCallsByArch []pathCall
