package transport

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeBuffer is the size of the buffers of Gatekit's stdin and stdout if they are pipes and the
// system allows the size. By default, Linux allows users no more (/proc/sys/fs/pipe-max-size).
const pipeBuffer = 1 << 20

// enlargePipe gives the pipe f a larger buffer, for speed. If f is not a pipe, or the system does
// not allow the size, f stays as it is.
func enlargePipe(f *os.File, size int) {
	withDescriptor(f, func(fd uintptr) {
		unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size)
	})
}

// childPipeBuffer is the size of the buffers of the pipes to children. It is smaller than
// pipeBuffer because there may be many children. All pipes of a user together may have 64 MiB
// (pipe-user-pages-soft); after that, a new pipe gets only two pages. Gatekit's ends of the pipes
// do not block, so the smaller size costs little time.
const childPipeBuffer = 256 << 10
