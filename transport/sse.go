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

// appendEvent appends e as it stands on the wire. Line breaks in its data become several data
// fields, which a reader joins by line feeds.
func appendEvent(dst []byte, e conn.Event) ([]byte, error) {
	if strings.ContainsAny(e.ID, "\r\n\x00") || strings.ContainsAny(e.Name, "\r\n") {
		return dst, errors.New("an event's id and name must not hold line breaks")
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

// lineEnd is where the first carriage return or line feed of b stands, or its length.
func lineEnd(b []byte) int {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		b = b[:i]
	}
	if i := bytes.IndexByte(b, '\r'); i >= 0 {
		b = b[:i]
	}
	return len(b)
}

// events reads text/event-stream as HTML's section "server-sent events" defines it. It is for one
// goroutine; Close may be called by another.
type events struct {
	buffer
	body  io.Closer
	first bool // nothing was read yet: a byte order mark may come
	cr    bool // the last line ended with a carriage return: a line feed that follows belongs to it
	long  int  // bytes of the line under way that were thrown away

	// the event under way
	e     conn.Event
	data  bool // it has a data field
	some  bool // it has any field that is told
	over  bool // it is too large
	total int
}

var _ upstream.EventStream = (*events)(nil)

// newEvents reads events of at most maxEvent bytes each.
func newEvents(body io.ReadCloser, maxEvent int) *events {
	return &events{buffer: buffer{src: plain{body}, max: maxEvent}, body: body, first: true}
}

// plain is a source that only closing can interrupt.
type plain struct{ r io.Reader }

func (s plain) Read(_ context.Context, p []byte) (int, error) { return s.r.Read(p) }

func (s *events) Close() error { return s.body.Close() }

// Next answers the next event: one with data, or one that only sets the last event id or the retry
// time (its Data is then empty). Its ID is what this event said. io.EOF is the end between two
// events, io.ErrUnexpectedEOF within one. A *conn.TooLargeError is for an event that was skipped;
// the Event beside it still has its ID, and reading goes on.
func (s *events) Next() (conn.Event, error) {
	for {
		line, err := s.line()
		if err != nil {
			if err == io.EOF && (s.some || s.over || s.long > 0 || s.pos < s.end) {
				err = io.ErrUnexpectedEOF
			}
			return conn.Event{}, err
		}
		if len(line) > 0 {
			s.field(line)
			continue
		}
		e, some, over, total := s.e, s.some, s.over, s.total
		s.e, s.data, s.some, s.over, s.total = conn.Event{}, false, false, false, 0
		switch {
		case over:
			e.Data = nil
			return e, &conn.TooLargeError{Size: total, Limit: s.max}
		case some:
			return e, nil
		}
	}
}

func (s *events) field(line []byte) {
	// without a colon it is a field with an empty value
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	s.total += len(line)
	if s.total > s.max+len("data: ") {
		s.over, s.e.Data = true, nil
	}
	switch string(name) {
	case "data":
		if s.over {
			return
		}
		if s.data {
			s.e.Data = append(append(s.e.Data, '\n'), value...)
		} else {
			s.e.Data = append(make([]byte, 0, len(value)), value...)
		}
		s.data, s.some = true, true
	case "event":
		s.e.Name = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			s.e.ID = string(value)
			s.some = true
		}
	case "retry":
		if n, err := strconv.ParseUint(string(value), 10, 31); err == nil {
			s.e.Retry = int(n)
			s.some = true
		}
	}
}

// line answers the next line without its end; it is valid until the next call. A line that is too
// long comes back as a comment, and the event that it is in is over.
func (s *events) line() ([]byte, error) {
	seen := 0
	for {
		if s.cr && s.pos < s.end {
			if s.buf[s.pos] == '\n' {
				s.pos++
			}
			s.cr = false
		}
		held := s.buf[s.pos:s.end]
		if i := seen + lineEnd(held[min(seen, len(held)):]); i < len(held) {
			s.cr = held[i] == '\r'
			s.pos += i + 1
			line := held[:i]
			if s.first {
				line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
				s.first = false
			}
			if s.long+len(line) > s.max+len("data: ") {
				s.over = true
				s.total += s.long + len(line)
				line = []byte{':'}
			}
			s.long = 0
			return line, nil
		}
		seen = len(held)
		if s.long > 0 || seen > s.max+len("data: ") {
			s.long += seen
			s.pos, s.end, seen = 0, 0, 0
		}
		if err := s.fill(context.Background()); err != nil {
			return nil, err
		}
	}
}
