//go:build linux

package main

import (
	"bytes"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is the size of every pipe. With the kernel's default of 64 KiB, a larger message needs
// several writes and reads, and a process switch for each of them.
const pipeSize = 1 << 20

// inheritedPipe makes an inherited end of a pipe large and non-blocking, so that waiting for it
// blocks a goroutine and not a thread.
func inheritedPipe(f *os.File) *os.File {
	fd := f.Fd()
	enlargePipe(f)
	if err := unix.SetNonblock(int(fd), true); err != nil {
		return f
	}
	return os.NewFile(fd, f.Name())
}

// enlargePipe sets the size of a pipe to pipeSize, if the system allows this.
func enlargePipe(f *os.File) {
	if c, err := f.SyscallConn(); err == nil {
		c.Control(func(fd uintptr) { unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}

// lineReader reads messages that end with a line break.
type lineReader struct {
	from       io.Reader
	buf        []byte
	start, end int // of the bytes in buf that next has not returned yet
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{from: r, buf: make([]byte, 256<<10)}
}

// next returns the next line without its line break. The line is valid until the following call.
func (l *lineReader) next() ([]byte, error) {
	for seen := l.start; ; {
		if i := bytes.IndexByte(l.buf[seen:l.end], '\n'); i >= 0 {
			line := l.buf[l.start : seen+i]
			l.start = seen + i + 1
			return line, nil
		}
		seen = l.end
		if l.end == len(l.buf) {
			to := l.buf
			if l.start == 0 {
				to = make([]byte, 2*len(l.buf))
			}
			l.end = copy(to, l.buf[l.start:l.end])
			seen -= l.start
			l.buf, l.start = to, 0
		}
		n, err := l.from.Read(l.buf[l.end:])
		l.end += n
		if n == 0 && err != nil {
			return nil, err
		}
	}
}
