package transport

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeBuffer is what the buffers of pipes are enlarged to, where the system allows it.
const pipeBuffer = 1 << 20

// enlarge gives the pipe f a larger buffer. It is for speed alone: what is no pipe, or may not be enlarged, stays as it is.
func enlarge(f *os.File, size int) {
	control(f, func(fd uintptr) {
		unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size)
	})
}
