package transport

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// longAgo as a deadline ends what waits now.
var longAgo = time.Unix(1, 0)

// polled reads a file whose deadlines work: reading waits in the runtime's poller and can be interrupted.
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

// blocking reads a file that cannot be interrupted (a terminal, a regular file) in a goroutine that a caller can leave behind. The
// goroutine ends with its read, or with the process.
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
	bound int // bytes that may wait; a Write that finds more waits for room

	mu      sync.Mutex
	pending *batch // what the next write takes; nil when none waits
	writing bool   // a goroutine runs flush
	spare   []byte // a buffer to use again
	err     error  // of the first write that failed; none follows it
}

// batch is what leaves in one write.
type batch struct {
	b    []byte
	done chan struct{}
	err  error // valid when done is closed
}

// Write answers when b is written. A caller whose ctx ends first is told so, but its line leaves nevertheless, if the other end ever reads it.
func (l *lineWriter) Write(ctx context.Context, b []byte) error {
	l.mu.Lock()
	for l.pending != nil && len(l.pending.b)+len(b) > l.bound && l.err == nil {
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
	if l.pending == nil {
		l.pending = &batch{b: l.spare, done: make(chan struct{})}
		l.spare = nil
	}
	mine := l.pending
	mine.b = append(withoutBreaks(slices.Grow(mine.b, len(b)+1), b), '\n')
	if !l.writing {
		l.writing = true
		go l.flush()
	}
	l.mu.Unlock()
	return mine.wait(ctx)
}

func (b *batch) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// flush writes until nothing is left.
func (l *lineWriter) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.pending != nil {
		now := l.pending
		l.pending = nil
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
