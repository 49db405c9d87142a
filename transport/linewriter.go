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

// lineWriter writes messages as whole lines. It is safe for many goroutines. See "Why the
// writer's goroutine ends when nothing is pending" in doc.go.
type lineWriter struct {
	w io.Writer
	// of w, if w can be written without waiting; else nil
	fd         syscall.RawConn
	maxPending int // bytes of pending; a Write that would exceed it waits

	mu          sync.Mutex // guards what follows
	pending     *lineBatch // the lines of the next write; nil when there are none
	writing     bool       // a write is under way
	spareBuffer []byte     // to be used again
	err         error      // of the first write that failed; nothing is written after it
}

// newLineWriter returns a writer to f.
func newLineWriter(f *os.File, bound int) *lineWriter {
	l := &lineWriter{w: f, maxPending: bound}
	if f.SetWriteDeadline(time.Time{}) == nil {
		l.fd, _ = f.SyscallConn()
	}
	return l
}

// lineBatch holds lines that are written by one write.
type lineBatch struct {
	b    []byte
	done chan struct{}
	err  error // valid when done is closed
}

// Write writes the parts as one line, and returns when the line has been written. When ctx ends
// first, Write returns its cause, but the line is still written if the other end ever reads it.
//
// When no other write is under way, the caller itself writes what the pipe has room for. One
// goroutine writes all else, so that callers can return.
func (l *lineWriter) Write(ctx context.Context, parts ...[]byte) error {
	size := 1
	for _, p := range parts {
		size += len(p)
	}
	l.mu.Lock()
	for l.pending != nil && len(l.pending.b)+size > l.maxPending && l.err == nil {
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
	if !l.writing && l.fd != nil && !hasLineBreaks(parts) {
		return l.writeNow(ctx, parts, size)
	}
	if l.pending == nil {
		l.pending = l.newBatch()
	}
	mine := l.pending
	mine.b = slices.Grow(mine.b, size)
	for _, p := range parts {
		mine.b = appendWithoutLineBreaks(mine.b, p)
	}
	mine.b = append(mine.b, '\n')
	if !l.writing {
		l.writing = true
		go l.flush(nil)
	}
	l.mu.Unlock()
	return mine.wait(ctx)
}

// newBatch returns an empty batch. The caller holds l.mu.
func (l *lineWriter) newBatch() *lineBatch {
	b := &lineBatch{b: l.spareBuffer, done: make(chan struct{})}
	l.spareBuffer = nil
	return b
}

var lineFeed = []byte{'\n'}

// writeNow writes what the pipe has room for, and leaves the rest of the message to flush. The
// caller holds l.mu; writeNow releases it.
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

// writev writes what can be written without waiting, and returns the number of bytes.
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
	case outer != nil: // closed in the meantime
		return 0, os.ErrClosed
	case err == unix.EAGAIN:
		return 0, nil
	}
	return max(n, 0), err
}

// hasLineBreaks reports whether a message holds line breaks.
func hasLineBreaks(parts [][]byte) bool {
	for _, p := range parts {
		if bytes.IndexByte(p, '\n') >= 0 || bytes.IndexByte(p, '\r') >= 0 {
			return true
		}
	}
	return false
}

// wait waits until the batch has been written or ctx ends.
func (b *lineBatch) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// flush writes first, unless it is nil, and then pending batches until none is left.
func (l *lineWriter) flush(first *lineBatch) {
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
		if cap(now.b) <= maxKeptBuffer {
			l.spareBuffer = now.b[:0]
		}
	}
	l.writing = false
}

// fail makes all further writes return err.
func (l *lineWriter) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

var errClosed = errors.New("the pipe is closed")
