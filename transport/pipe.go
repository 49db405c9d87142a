package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// longAgo as a deadline ends what waits now.
var longAgo = time.Unix(1, 0)

// polled reads a file whose deadlines work: reading waits in the runtime's poller and can be
// interrupted.
type polled struct{ f *os.File }

func (s polled) Read(ctx context.Context, p []byte) (int, error) {
	if ctx.Done() == nil {
		return s.f.Read(p)
	}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		s.f.SetReadDeadline(longAgo)
		close(fired)
	})
	n, err := s.f.Read(p)
	if !stop() {
		<-fired // else a late deadline would end the next read
		s.f.SetReadDeadline(time.Time{})
	}
	return n, err
}

// blocking reads a file that cannot be interrupted (a terminal, a regular file) in a goroutine that
// a caller can leave behind. The goroutine ends with its read, or with the process.
type blocking struct {
	f       *os.File
	buf     []byte      // what the goroutine reads into
	results chan result // nil while no read is under way
	left    []byte      // read, and not taken yet
}

type result struct {
	n   int
	err error
}

func (s *blocking) Read(ctx context.Context, p []byte) (int, error) {
	if len(s.left) == 0 {
		if s.results == nil {
			if s.buf == nil {
				s.buf = make([]byte, firstBuffer)
			}
			results := make(chan result, 1)
			s.results = results
			go func() {
				n, err := s.f.Read(s.buf)
				results <- result{n, err}
			}()
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case r := <-s.results:
			s.results = nil
			if r.n == 0 {
				return 0, r.err
			}
			s.left = s.buf[:r.n]
		}
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

// sourceOf reads f in the way that f allows.
func sourceOf(f *os.File) source {
	if f.SetReadDeadline(time.Time{}) == nil {
		return polled{f}
	}
	return &blocking{f: f}
}

// lineWriter writes messages as whole lines. It is safe for many goroutines.
type lineWriter struct {
	w     io.Writer
	fd    syscall.RawConn // w's, where a write to it need not wait; else nil
	bound int             // bytes that may wait; a Write that finds more waits for room

	mu      sync.Mutex
	pending *batch // what the next write takes; nil when none waits
	writing bool   // somebody writes
	spare   []byte // a buffer to use again
	err     error  // of the first write that failed; none follows it
}

// newLineWriter makes a writer to f.
func newLineWriter(f *os.File, bound int) *lineWriter {
	l := &lineWriter{w: f, bound: bound}
	if f.SetWriteDeadline(time.Time{}) == nil {
		l.fd, _ = f.SyscallConn()
	}
	return l
}

// batch is what leaves in one write.
type batch struct {
	b    []byte
	done chan struct{}
	err  error // valid when done is closed
}

// Write answers when the message is written. A caller whose ctx ends first is told so, but its line
// leaves nevertheless, if the other end ever reads it.
//
// A message that finds nobody writing and room in the pipe is written from where it is. All else is
// done by one goroutine, so that callers can leave.
func (l *lineWriter) Write(ctx context.Context, parts ...[]byte) error {
	size := 1
	for _, p := range parts {
		size += len(p)
	}
	l.mu.Lock()
	for l.pending != nil && len(l.pending.b)+size > l.bound && l.err == nil {
		full := l.pending
		l.mu.Unlock()
		if err := full.wait(ctx); err != nil {
			return err
		}
		l.mu.Lock()
	}
	if l.err != nil {
		l.mu.Unlock()
		return l.err
	}
	if !l.writing && l.fd != nil && !broken(parts) {
		return l.writeNow(ctx, parts, size)
	}
	if l.pending == nil {
		l.pending = l.newBatch()
	}
	mine := l.pending
	mine.b = slices.Grow(mine.b, size)
	for _, p := range parts {
		mine.b = withoutBreaks(mine.b, p)
	}
	mine.b = append(mine.b, '\n')
	if !l.writing {
		l.writing = true
		go l.flush(nil)
	}
	l.mu.Unlock()
	return mine.wait(ctx)
}

// newBatch is called with l.mu held.
func (l *lineWriter) newBatch() *batch {
	b := &batch{b: l.spare, done: make(chan struct{})}
	l.spare = nil
	return b
}

var lineFeed = []byte{'\n'}

// writeNow writes what the pipe has room for, and leaves the rest of the message to flush. It is
// called with l.mu held, and gives it back.
func (l *lineWriter) writeNow(ctx context.Context, parts [][]byte, size int) error {
	l.writing = true
	l.mu.Unlock()
	parts = append(parts[:len(parts):len(parts)], lineFeed)
	n, err := writev(l.fd, parts)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if l.err == nil {
			l.err = err
		}
		n = size
	}
	if n == size {
		if l.pending == nil {
			l.writing = false
		} else {
			go l.flush(nil)
		}
		return l.err
	}
	rest := l.newBatch()
	rest.b = slices.Grow(rest.b, size-n)
	for _, p := range parts {
		done := min(n, len(p))
		rest.b = append(rest.b, p[done:]...)
		n -= done
	}
	go l.flush(rest)
	l.mu.Unlock()
	defer l.mu.Lock()
	return rest.wait(ctx)
}

// writev writes what can be written without waiting.
func writev(fd syscall.RawConn, parts [][]byte) (n int, err error) {
	outer := fd.Write(func(fd uintptr) bool {
		for {
			n, err = unix.Writev(int(fd), parts)
			if err != unix.EINTR {
				return true
			}
		}
	})
	switch {
	case outer != nil: // closed in the meantime, in words of its own
		return 0, os.ErrClosed
	case err == unix.EAGAIN:
		return 0, nil
	}
	return max(n, 0), err
}

// broken says whether a message holds line breaks.
func broken(parts [][]byte) bool {
	for _, p := range parts {
		if bytes.IndexByte(p, '\n') >= 0 || bytes.IndexByte(p, '\r') >= 0 {
			return true
		}
	}
	return false
}

func (b *batch) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// flush writes first, unless it is nil, and then what waits until nothing does.
func (l *lineWriter) flush(first *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for now := first; now != nil || l.pending != nil; now = nil {
		if now == nil {
			now, l.pending = l.pending, nil
		}
		if l.err == nil {
			l.mu.Unlock()
			_, err := l.w.Write(now.b)
			l.mu.Lock()
			if l.err == nil {
				l.err = err
			}
		}
		now.err = l.err
		close(now.done)
		if cap(now.b) <= keepBuffer {
			l.spare = now.b[:0]
		}
	}
	l.writing = false
}

// fail makes all further writes answer err.
func (l *lineWriter) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

var errClosed = errors.New("the pipe is closed")
