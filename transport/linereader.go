package transport

import (
	"bytes"
	"context"

	"gatekit/core/conn"
)

// defaultMaxMessage is the maximum size of one message if the caller sets none.
const defaultMaxMessage = 16 << 20

const (
	initialBufferSize = 8 << 10   // size of the buffer of an idle connection
	maxKeptBuffer     = 128 << 10 // a larger buffer is not kept for the next message
)

// source is a reader that a context can interrupt. When ctx ends during a Read, no bytes are lost:
// the next Read returns them.
type source interface {
	Read(ctx context.Context, p []byte) (int, error)
}

// buffer holds the bytes buf[pos:end], which were read from src and not taken yet.
type buffer struct {
	src          source
	max          int // bytes of the longest message
	buf          []byte
	pos, end     int
	expectedSize int   // estimated size of the next long message
	err          error // final error of src; nil as long as src can be read
}

// fill reads more bytes to buf[end:]. If ctx ends, the error is the cause of ctx. Any other error
// is the final error of the source, which all later calls return too.
func (b *buffer) fill(ctx context.Context) error {
	if b.err != nil {
		return b.err
	}
	if b.pos == b.end {
		b.pos, b.end = 0, 0
		if len(b.buf) > maxKeptBuffer {
			b.buf = nil
		}
	}
	if b.end == len(b.buf) {
		b.grow()
	}
	n, err := b.src.Read(ctx, b.buf[b.end:])
	b.end += n
	if n > 0 || err == nil {
		return nil // the next read returns the error again
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b.err = err
	return err
}

// grow makes room for more bytes after buf[pos:end].
func (b *buffer) grow() {
	held := b.buf[b.pos:b.end]
	if len(held) <= len(b.buf)/2 && len(b.buf) > 0 {
		b.end = copy(b.buf, held)
		b.pos = 0
		return
	}
	// The new buffer is four times as large, so that a long message is copied few times.
	size := max(initialBufferSize, 4*len(b.buf))
	if len(b.buf) > 0 {
		// The message is longer than the buffer. If it is about as long as earlier messages, it
		// fits into the new buffer and is copied only once.
		size = max(size, b.expectedSize+b.expectedSize/8)
	}
	// Two bytes more than max are enough to detect a line that is too long: one for a carriage
	// return, and one over the limit.
	grown := make([]byte, max(min(size, b.max+2), len(held)+initialBufferSize))
	b.end = copy(grown, held)
	b.pos, b.buf = 0, grown
}

// take removes the first n bytes and returns them. The caller owns the returned bytes. They are a
// copy, unless they fill much of a large buffer: then take returns them in that buffer, and
// allocates a new buffer for the bytes that follow.
func (b *buffer) take(n int) []byte {
	taken := b.buf[b.pos : b.pos+n : b.pos+n]
	b.pos += n
	b.expectedSize = max(n, b.expectedSize*3/4)
	if len(b.buf) <= maxKeptBuffer || n < len(b.buf)/4 {
		return bytes.Clone(taken)
	}
	rest := b.buf[b.pos:b.end]
	b.buf = make([]byte, max(initialBufferSize, len(rest)))
	b.pos, b.end = 0, copy(b.buf, rest)
	return taken
}

// lineReader reads messages that each end with a line feed. Only one goroutine may use it.
type lineReader struct {
	buffer
	scanned int // number of bytes from pos on that were searched and contain no line feed
	skipped int // number of skipped bytes of the current line, if it is too long
}

func newLineReader(src source, maxMessage int) *lineReader {
	return &lineReader{buffer: buffer{src: src, max: maxMessage}}
}

// next returns the next line that is not blank, without its line end. The caller owns the line. If
// the error is a *conn.TooLargeError, the line was too long and was skipped. Bytes after the last
// line feed count as a line.
func (l *lineReader) next(ctx context.Context) ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.pos+l.scanned:l.end], '\n'); i >= 0 {
			n := l.scanned + i
			l.scanned = 0
			line, err := l.takeLine(n)
			l.pos++ // the line feed itself
			if line != nil || err != nil {
				return line, err
			}
			continue
		}
		l.scanned = l.end - l.pos
		if l.skipped > 0 || l.scanned > l.max+1 { // one byte more for a carriage return
			l.skipped += l.scanned
			l.pos, l.end, l.scanned = 0, 0, 0
		}
		if err := l.fill(ctx); err != nil {
			if l.err == nil { // ctx ended
				return nil, err
			}
			n := l.scanned
			l.scanned = 0
			if line, err := l.takeLine(n); line != nil || err != nil {
				return line, err
			}
			return nil, l.err
		}
	}
}

// takeLine removes the first n bytes and returns them as a line. They are the current line, or its
// last part if earlier parts were skipped. The result is nil if the line is blank or too long.
func (l *lineReader) takeLine(n int) ([]byte, error) {
	raw := l.buf[l.pos : l.pos+n]
	if size := l.skipped + n; l.skipped > 0 || len(bytes.TrimSuffix(raw, []byte{'\r'})) > l.max {
		l.pos += n
		l.skipped = 0
		return nil, &conn.TooLargeError{Size: size, Limit: l.max}
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		l.pos += n
		return nil, nil
	}
	return bytes.TrimSuffix(l.take(n), []byte{'\r'}), nil
}

// appendWithoutLineBreaks appends b to dst without the carriage returns and line feeds in b. See
// "Why there is no compaction of JSON" in doc.go.
func appendWithoutLineBreaks(dst, b []byte) []byte {
	if bytes.IndexByte(b, '\n') < 0 && bytes.IndexByte(b, '\r') < 0 {
		return append(dst, b...)
	}
	for _, c := range b {
		if c != '\n' && c != '\r' {
			dst = append(dst, c)
		}
	}
	return dst
}
