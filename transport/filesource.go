package transport

import (
	"context"
	"os"
	"time"
)

// longAgo is a deadline in the past. It interrupts reads and writes that wait.
var longAgo = time.Unix(1, 0)

// pollableFile is a source that reads a file with deadlines. A read waits in the runtime's poller,
// so a deadline can interrupt it.
type pollableFile struct{ f *os.File }

func (s pollableFile) Read(ctx context.Context, p []byte) (int, error) {
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
		<-fired // otherwise the deadline could be set later and interrupt the next read
		s.f.SetReadDeadline(time.Time{})
	}
	return n, err
}

// blockingFile is a source that reads a file without deadlines (a terminal, a regular file). It
// reads in a goroutine, so that a caller can return before the read has ended. The goroutine ends
// when its read ends, or with Gatekit.
type blockingFile struct {
	f       *os.File
	buf     []byte          // the goroutine reads into it
	results chan readResult // gets the result of the running read; nil if no read is running
	unread  []byte          // part of buf that Read has not returned yet
}

// readResult is the result of one read of a blockingFile.
type readResult struct {
	n   int
	err error
}

func (s *blockingFile) Read(ctx context.Context, p []byte) (int, error) {
	if len(s.unread) == 0 {
		if s.results == nil {
			if s.buf == nil {
				s.buf = make([]byte, initialBufferSize)
			}
			results := make(chan readResult, 1)
			s.results = results
			go func() {
				n, err := s.f.Read(s.buf)
				results <- readResult{n, err}
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
			s.unread = s.buf[:r.n]
		}
	}
	n := copy(p, s.unread)
	s.unread = s.unread[n:]
	return n, nil
}

// newSource returns a source that reads f. It uses deadlines if f supports them.
func newSource(f *os.File) source {
	if f.SetReadDeadline(time.Time{}) == nil {
		return pollableFile{f}
	}
	return &blockingFile{f: f}
}
