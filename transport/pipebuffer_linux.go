package transport

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeBuffer is the size of the pipe buffers of Gatekit's stdin and stdout, if the system allows
// it.
const pipeBuffer = 1 << 20

// enlargePipe gives the pipe f a larger buffer, for speed. If f is not a pipe, or the system does
// not allow the size, f stays as it is.
func enlargePipe(f *os.File, size int) {
	withDescriptor(f, func(fd uintptr) {
		unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size)
	})
}

// childPipeBuffer is the size of the buffers of the pipes to children. It is smaller than
// pipeBuffer because there may be many children: the system grants each user 64 MiB of pipes in all
// (pipe-user-pages-soft), and gives that user's further pipes two pages each. Gatekit's ends of the
// pipes do not block, so the smaller size costs little.
const childPipeBuffer = 256 << 10
