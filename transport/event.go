package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"

	"gatekit/core/conn"
	"gatekit/core/upstream"
)

// appendEvent appends the encoding of e to dst. Data with line breaks becomes several data fields,
// which the reader joins with line feeds.
func appendEvent(dst []byte, e conn.Event) ([]byte, error) {
	if strings.ContainsAny(e.ID, "\r\n\x00") || strings.ContainsAny(e.Name, "\r\n") {
		return dst, errors.New("an event's id must not hold line breaks or null bytes, and its " +
			"name no line breaks")
	}
	if e.ID != "" {
		dst = append(append(append(dst, "id: "...), e.ID...), '\n')
	}
	if e.Name != "" {
		dst = append(append(append(dst, "event: "...), e.Name...), '\n')
	}
	if e.Retry > 0 {
		dst = append(strconv.AppendInt(append(dst, "retry: "...), int64(e.Retry), 10), '\n')
	}
	for rest := e.Data; ; {
		i := lineEnd(rest)
		dst = append(append(append(dst, "data: "...), rest[:i]...), '\n')
		if i == len(rest) {
			break
		}
		if rest[i] == '\r' && i+1 < len(rest) && rest[i+1] == '\n' {
			i++
		}
		rest = rest[i+1:]
	}
	return append(dst, '\n'), nil
}

// lineEnd returns the index of the first carriage return or line feed in b, or the length of b.
func lineEnd(b []byte) int {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		b = b[:i]
	}
	if i := bytes.IndexByte(b, '\r'); i >= 0 {
		b = b[:i]
	}
	return len(b)
}

// eventReader reads text/event-stream, which the section "Server-sent events" of the HTML standard
// defines. Only one goroutine may use it, but any goroutine may call Close.
type eventReader struct {
	buffer
	body      io.Closer
	atStart   bool // no line has been read yet, so a byte order mark may follow
	afterCR   bool // the last line ended with a carriage return, so the next line feed is skipped
	discarded int  // number of discarded bytes of the current line, if it is too long

	// the event that is being read
	event    conn.Event
	hasData  bool // the event has a data field
	hasField bool // the event has data, an id or a retry time
	tooLarge bool
	size     int // bytes
}

var _ upstream.EventStream = (*eventReader)(nil)

// newEventReader returns a reader of events of at most maxEvent bytes each. The name of the first
// data field, len("data: ") bytes, does not count.
func newEventReader(body io.ReadCloser, maxEvent int) *eventReader {
	return &eventReader{buffer: buffer{src: readerSource{body}, max: maxEvent}, body: body,
		atStart: true}
}

// readerSource is a source whose Read ignores ctx. Only closing r interrupts it.
type readerSource struct{ r io.Reader }

func (s readerSource) Read(_ context.Context, p []byte) (int, error) { return s.r.Read(p) }

func (s *eventReader) Close() error { return s.body.Close() }

// Next returns the next event that has data, an id or a retry time. An event without an id has an
// empty ID, even if an earlier event had an id. When the stream ends after an event, the error is
// io.EOF; when it ends within an event, the error is io.ErrUnexpectedEOF. If the error is a
// *conn.TooLargeError, the event was too large. Next then returns the event without its data, and
// can be called again.
func (s *eventReader) Next() (conn.Event, error) {
	for {
		line, err := s.line()
		if err != nil {
			if err == io.EOF && (s.hasField || s.tooLarge || s.discarded > 0 || s.pos < s.end) {
				err = io.ErrUnexpectedEOF
			}
			return conn.Event{}, err
		}
		if len(line) > 0 {
			s.field(line)
			continue
		}
		e, hasField, tooLarge, size := s.event, s.hasField, s.tooLarge, s.size
		s.event, s.hasData, s.hasField, s.tooLarge, s.size = conn.Event{}, false, false, false, 0
		switch {
		case tooLarge:
			e.Data = nil
			return e, &conn.TooLargeError{Size: size, Limit: s.max}
		case hasField:
			return e, nil
		}
	}
}

// field adds one line to the event that is being read.
func (s *eventReader) field(line []byte) {
	// A line without a colon is a field with an empty value.
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	s.size += len(line)
	if s.size > s.max+len("data: ") {
		s.tooLarge, s.event.Data = true, nil
	}
	switch string(name) {
	case "data":
		if s.tooLarge {
			return
		}
		if s.hasData {
			s.event.Data = append(append(s.event.Data, '\n'), value...)
		} else {
			s.event.Data = append(make([]byte, 0, len(value)), value...)
		}
		s.hasData, s.hasField = true, true
	case "event":
		s.event.Name = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			s.event.ID = string(value)
			s.hasField = true
		}
	case "retry":
		if n, err := strconv.ParseUint(string(value), 10, 31); err == nil {
			s.event.Retry = int(n)
			s.hasField = true
		}
	}
}

// line returns the next line without its end. The line is valid until the next call. If a line is
// too long, its event is too large, and line returns ":" instead, which is an empty comment.
func (s *eventReader) line() ([]byte, error) {
	seen := 0 // number of bytes from pos on that were searched and contain no line end
	for {
		if s.afterCR && s.pos < s.end {
			if s.buf[s.pos] == '\n' {
				s.pos++
			}
			s.afterCR = false
		}
		held := s.buf[s.pos:s.end]
		if i := seen + lineEnd(held[min(seen, len(held)):]); i < len(held) {
			s.afterCR = held[i] == '\r'
			s.pos += i + 1
			line := held[:i]
			if s.atStart {
				line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
				s.atStart = false
			}
			if s.discarded+len(line) > s.max+len("data: ") {
				s.tooLarge = true
				s.size += s.discarded + len(line)
				line = []byte{':'}
			}
			s.discarded = 0
			return line, nil
		}
		seen = len(held)
		if s.discarded > 0 || seen > s.max+len("data: ") {
			s.discarded += seen
			s.pos, s.end, seen = 0, 0, 0
		}
		if err := s.fill(context.Background()); err != nil {
			return nil, err
		}
	}
}
