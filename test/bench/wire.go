//go:build linux

package main

import (
	"bytes"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// member answers the raw value of a member of the object obj, and nil when there is none. It
// validates nothing, so that whoever uses it (client, relay, backend) costs as little as one can:
// what is well formed is found, what is not is not noticed.
func member(obj []byte, name string) []byte {
	start, end := span(obj, name)
	return obj[start:end]
}

// span is where the value of a member of the object obj is; 0, 0 when there is none.
func span(obj []byte, name string) (start, end int) {
	i := bytes.IndexByte(obj, '{') + 1
	for i < len(obj) {
		switch obj[i] {
		case ' ', '\t', '\r', '\n', ',':
			i++
			continue
		case '"':
		default:
			return 0, 0
		}
		keyEnd := stringEnd(obj, i)
		key := obj[i+1 : keyEnd-1]
		start = keyEnd
		for start < len(obj) && (obj[start] == ':' || obj[start] == ' ') {
			start++
		}
		end = valueEnd(obj, start)
		if string(key) == name {
			return start, end
		}
		i = end
	}
	return 0, 0
}

// stringEnd is the index behind the string that opens at i.
func stringEnd(b []byte, i int) int {
	for j := i + 1; ; {
		n := bytes.IndexByte(b[j:], '"')
		if n < 0 {
			return len(b)
		}
		j += n
		backslashes := 0
		for b[j-1-backslashes] == '\\' {
			backslashes++
		}
		j++
		if backslashes%2 == 0 {
			return j
		}
	}
}

// valueEnd is the index behind the value that starts at i.
func valueEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i // a bare value, ended by what holds it
			} else if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// withID appends raw to dst under another id. The message must have one.
func withID(dst, raw []byte, id string) []byte {
	start, end := span(raw, "id")
	dst = append(dst, raw[:start]...)
	dst = append(dst, id...)
	return append(dst, raw[end:]...)
}

// pipeSize is what every pipe is set to: with the kernel's 64 KiB a larger message is passed on in
// slices, each a switch of processes (performance.md 5.2).
const pipeSize = 1 << 20

// ownEnd makes an inherited end of a pipe large and non-blocking, so that waiting on it parks a
// goroutine and not a thread.
func ownEnd(f *os.File) *os.File {
	fd := f.Fd()
	enlarge(f)
	if err := unix.SetNonblock(int(fd), true); err != nil {
		return f
	}
	return os.NewFile(fd, f.Name())
}

// enlarge is best effort: a system may allow less.
func enlarge(f *os.File) {
	if c, err := f.SyscallConn(); err == nil {
		c.Control(func(fd uintptr) { unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}

// lines reads messages that end in a line break.
type lines struct {
	from       io.Reader
	buf        []byte
	start, end int // of what was read and not yet taken
}

func newLines(r io.Reader) *lines { return &lines{from: r, buf: make([]byte, 256<<10)} }

// next answers the next line without its break. It is valid until the following call.
func (l *lines) next() ([]byte, error) {
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
