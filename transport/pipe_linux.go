package transport

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeBuffer is what the buffers of pipes are enlarged to, where the system allows it.
const pipeBuffer = 1 << 20

// enlarge gives the pipe f a larger buffer. It is for speed alone: what is no pipe, or may not be
// enlarged, stays as it is.
func enlarge(f *os.File, size int) {
	control(f, func(fd uintptr) {
		unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size)
	})
}

// childBuffer is smaller than pipeBuffer: the system grants each user 64 MiB of pipes in all
// (pipe-user-pages-soft) and gives all of that user's further pipes two pages only, and there may
// be many children. Our ends do not block, so that little is lost.
const childBuffer = 256 << 10
