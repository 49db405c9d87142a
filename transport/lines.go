package transport

import (
	"bytes"
	"context"

	"gatekit/core/conn"
)

// defaultMessage is the bound of one message where the caller gave none.
const defaultMessage = 16 << 20

const (
	firstBuffer = 8 << 10   // what an idle connection holds
	keepBuffer  = 128 << 10 // a larger one is given away with its message, or dropped
)

// source is where bytes come from. A Read that ctx ended loses nothing: the next one goes on.
type source interface {
	Read(ctx context.Context, p []byte) (int, error)
}

// buffer holds what was read and not yet taken: buf[pos:end].
type buffer struct {
	src      source
	max      int // it never holds much more than this
	buf      []byte
	pos, end int
	expect   int   // size of a long message, by those that came last
	err      error // of the source, after which there is nothing more
}

// fill reads more behind buf[end]. It fails only when ctx ends, or with the source's error once and
// for all.
func (b *buffer) fill(ctx context.Context) error {
	if b.err != nil {
		return b.err
	}
	if b.pos == b.end {
		b.pos, b.end = 0, 0
		if len(b.buf) > keepBuffer {
			b.buf = nil
		}
	}
	if b.end == len(b.buf) {
		b.makeRoom()
	}
	n, err := b.src.Read(ctx, b.buf[b.end:])
	b.end += n
	if n > 0 || err == nil {
		return nil // an error that matters comes again
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b.err = err
	return err
}

func (b *buffer) makeRoom() {
	held := b.buf[b.pos:b.end]
	if len(held) <= len(b.buf)/2 && len(b.buf) > 0 {
		b.end = copy(b.buf, held)
		b.pos = 0
		return
	}
	size := max(firstBuffer, 4*len(b.buf)) // few copies of long messages
	if len(b.buf) > 0 {
		size = max(size, b.expect+b.expect/8) // and one where they come again and again
	}
	// One byte over the bound is enough to see that it is exceeded.
	grown := make([]byte, max(min(size, b.max+2), len(held)+firstBuffer))
	b.end = copy(grown, held)
	b.pos, b.buf = 0, grown
}

// take removes n bytes and answers them as the caller's own.
func (b *buffer) take(n int) []byte {
	taken := b.buf[b.pos : b.pos+n : b.pos+n]
	b.pos += n
	b.expect = max(n, b.expect*3/4)
	if len(b.buf) <= keepBuffer || n < len(b.buf)/4 {
		return bytes.Clone(taken)
	}
	rest := b.buf[b.pos:b.end]
	b.buf = make([]byte, max(firstBuffer, len(rest)))
	b.pos, b.end = 0, copy(b.buf, rest)
	return taken
}

// lines reads messages that end with a line feed. It is for one goroutine.
type lines struct {
	buffer
	seen    int // bytes behind pos known to hold no line feed
	skipped int // of a line that is too long
}

func newLines(src source, maxMessage int) *lines {
	return &lines{buffer: buffer{src: src, max: maxMessage}}
}

// next answers the next line that is not blank, without its end, owned by the caller. a
// *conn.TooLargeError
// reports a line that was skipped. What stands before the end of the input without a line feed is a
// line, too.
func (l *lines) next(ctx context.Context) ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.pos+l.seen:l.end], '\n'); i >= 0 {
			n := l.seen + i
			l.seen = 0
			line, err := l.line(n)
			l.pos++ // the line feed itself
			if line != nil || err != nil {
				return line, err
			}
			continue
		}
		l.seen = l.end - l.pos
		if l.skipped > 0 || l.seen > l.max+1 { // one for a carriage return
			l.skipped += l.seen
			l.pos, l.end, l.seen = 0, 0, 0
		}
		if err := l.fill(ctx); err != nil {
			if l.err == nil { // ctx ended
				return nil, err
			}
			n := l.seen
			l.seen = 0
			if line, err := l.line(n); line != nil || err != nil {
				return line, err
			}
			return nil, l.err
		}
	}
}

// line takes n bytes off and answers them, or nil when they are blank, or what they were the end
// of.
func (l *lines) line(n int) ([]byte, error) {
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

// withoutBreaks appends b to dst without its carriage returns and line feeds. See "Why there is no
// compaction of JSON".
func withoutBreaks(dst, b []byte) []byte {
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
