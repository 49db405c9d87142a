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

// lineWriter writes messages as whole lines. Many goroutines may use it. See "Why the writer has no
// permanent goroutine" in doc.go.
type lineWriter struct {
	out io.Writer
	// descriptor of out, for writes that do not wait; nil if out does not support such writes
	fd         syscall.RawConn
	maxPending int // maximum number of bytes in pending; when it is reached, Write waits

	mu          sync.Mutex // guards the fields below
	pending     *lineBatch // lines for the next write; nil if there are none
	writing     bool       // a write is in progress, or flush runs
	spareBuffer []byte     // buffer of a written batch, for the next batch
	// error of the first failed write, or the error passed to fail; all later writes return it
	err error
}

// newLineWriter returns a writer to f. At most maxPending bytes may wait to be written.
func newLineWriter(f *os.File, maxPending int) *lineWriter {
	l := &lineWriter{out: f, maxPending: maxPending}
	if f.SetWriteDeadline(time.Time{}) == nil {
		l.fd, _ = f.SyscallConn()
	}
	return l
}

// lineBatch holds the lines of one write.
type lineBatch struct {
	lines []byte
	done  chan struct{}
	err   error // may be read when done is closed
}

// Write writes the parts as one line, and returns when the line has been written. If ctx ends
// first, Write returns the cause of ctx, and the line may still be written later.
//
// If no other write is in progress, Write itself writes as many bytes as the pipe has room for. A
// goroutine that runs flush writes the remaining bytes, so that Write can return when ctx ends.
func (l *lineWriter) Write(ctx context.Context, parts ...[]byte) error {
	size := 1
	for _, p := range parts {
		size += len(p)
	}
	l.mu.Lock()
	for l.pending != nil && len(l.pending.lines)+size > l.maxPending && l.err == nil {
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
	batch := l.pending
	batch.lines = slices.Grow(batch.lines, size)
	for _, p := range parts {
		batch.lines = appendWithoutLineBreaks(batch.lines, p)
	}
	batch.lines = append(batch.lines, '\n')
	if !l.writing {
		l.writing = true
		go l.flush(nil)
	}
	l.mu.Unlock()
	return batch.wait(ctx)
}

// newBatch returns an empty batch. The caller holds l.mu.
func (l *lineWriter) newBatch() *lineBatch {
	b := &lineBatch{lines: l.spareBuffer, done: make(chan struct{})}
	l.spareBuffer = nil
	return b
}

var lineFeed = []byte{'\n'}

// writeNow writes as many bytes as the pipe has room for, and starts flush for the rest of the
// message. The caller holds l.mu, and writeNow releases l.mu.
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
		n = size // the rest is not written
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
	rest.lines = slices.Grow(rest.lines, size-n)
	for _, p := range parts {
		done := min(n, len(p))
		rest.lines = append(rest.lines, p[done:]...)
		n -= done
	}
	go l.flush(rest)
	l.mu.Unlock()
	defer l.mu.Lock()
	return rest.wait(ctx)
}

// writev writes as many bytes of the parts as it can without waiting, and returns their number.
func writev(fd syscall.RawConn, parts [][]byte) (n int, err error) {
	connErr := fd.Write(func(fd uintptr) bool {
		for {
			n, err = unix.Writev(int(fd), parts)
			if err != unix.EINTR {
				return true
			}
		}
	})
	switch {
	case connErr != nil: // the file was closed meanwhile
		return 0, os.ErrClosed
	case err == unix.EAGAIN:
		return 0, nil
	}
	return max(n, 0), err
}

// hasLineBreaks reports whether a message contains line breaks.
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

// flush writes the batch rest, which may be nil, and then pending batches until none is left.
func (l *lineWriter) flush(rest *lineBatch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for batch := rest; batch != nil || l.pending != nil; batch = nil {
		if batch == nil {
			batch, l.pending = l.pending, nil
		}
		if l.err == nil {
			l.mu.Unlock()
			_, err := l.out.Write(batch.lines)
			l.mu.Lock()
			if l.err == nil {
				l.err = err
			}
		}
		batch.err = l.err
		close(batch.done)
		if cap(batch.lines) <= maxKeptBuffer {
			l.spareBuffer = batch.lines[:0]
		}
	}
	l.writing = false
}

// fail makes all later writes return err, unless an earlier write has failed.
func (l *lineWriter) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

var errClosed = errors.New("the pipe is closed")
