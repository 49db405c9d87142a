package transport

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"gatekit/core/conn"
)

// readAll returns the events of a stream, the number of events that were too large, and the last
// error.
func readAll(r io.Reader, maxEvent int) (all []conn.Event, large int, end error) {
	s := newEventReader(io.NopCloser(r), maxEvent)
	for {
		e, err := s.Next()
		if _, ok := errors.AsType[*conn.TooLargeError](err); ok {
			large++
			continue
		}
		if err != nil {
			return all, large, err
		}
		all = append(all, e)
	}
}

func equalEvents(a, b []conn.Event) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].ID != b[i].ID || a[i].Name != b[i].Name || a[i].Retry != b[i].Retry ||
			!bytes.Equal(a[i].Data, b[i].Data) {
			return false
		}
	}
	return true
}

func TestEventReaderFollowsTheHTMLStandard(t *testing.T) {
	data := func(s ...string) (all []conn.Event) {
		for _, d := range s {
			all = append(all, conn.Event{Data: []byte(d)})
		}
		return all
	}
	for _, c := range []struct {
		name, stream string
		want         []conn.Event
		end          error
	}{
		{"line feeds", "data: a\n\ndata: b\n\n", data("a", "b"), io.EOF},
		{"carriage returns", "data: a\r\rdata: b\r\r", data("a", "b"), io.EOF},
		{"carriage returns before line feeds",
			"data: a\r\n\r\ndata: b\r\n\r\n", data("a", "b"), io.EOF},
		{"all three line ends in one stream", "data: a\rdata: b\r\ndata: c\n\r\ndata: d\r\n\n",
			data("a\nb\nc", "d"), io.EOF},
		{"data over several lines", "data: a\ndata:\ndata:  b\n\n", data("a\n\n b"), io.EOF},
		{"no space after the colon", "data:{\"a\":1}\n\n", data(`{"a":1}`), io.EOF},
		{"colons in the value", "data: a: b\n\n", data("a: b"), io.EOF},
		{"comments", ": hello\n\ndata: a\n:\ndata: b\n\n:\n\n", data("a\nb"), io.EOF},
		{"a field without a colon", "data\ndata\n\ndata: a\nfoo\n\n", data("\n", "a"), io.EOF},
		{"a byte order mark at the start", "\xef\xbb\xbfdata: a\n\n", data("a"), io.EOF},
		{"a byte order mark elsewhere is an unknown field", "data: a\n\n\xef\xbb\xbfdata: b\n\n",
			data("a"), io.EOF},
		{"unknown fields", "foo: bar\nDATA: x\ndata : y\ndata: a\n\n", data("a"), io.EOF},
		{"an id", "id: 7\ndata: a\n\ndata: b\n\n", []conn.Event{{ID: "7", Data: []byte("a")},
			{Data: []byte("b")}}, io.EOF},
		{"an id without data", "id: 7\n\ndata: a\n\n", []conn.Event{{ID: "7"},
			{Data: []byte("a")}}, io.EOF},
		{"an id with a null byte is ignored", "id: a\x00b\ndata: a\n\n", data("a"), io.EOF},
		{"an event with an id and empty data", "id: 7\ndata:\n\n", []conn.Event{{ID: "7"}}, io.EOF},
		{"a retry time", "retry: 1500\n\n", []conn.Event{{Retry: 1500}}, io.EOF},
		{"a retry time that is not a number", "retry: 15s\nretry: -1\nretry:\n\ndata: a\n\n",
			data("a"), io.EOF},
		{"a name", "event: endpoint\ndata: /x\n\ndata: a\n\n",
			[]conn.Event{{Name: "endpoint", Data: []byte("/x")}, {Data: []byte("a")}}, io.EOF},
		{"a name without data is no event", "event: ping\n\ndata: a\n\n", data("a"), io.EOF},
		{"a repeated field has its last value", "id: 1\nid: 2\nevent: a\nevent: b\ndata: x\n\n",
			[]conn.Event{{ID: "2", Name: "b", Data: []byte("x")}}, io.EOF},
		{"many blank lines", "\n\n\ndata: a\n\n\n\n", data("a"), io.EOF},
		{"an end within an event", "data: a\n\ndata: b\n", data("a"), io.ErrUnexpectedEOF},
		{"an end within a line", "data: a\n\ndata: b", data("a"), io.ErrUnexpectedEOF},
		{"an empty stream", "", nil, io.EOF},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(c.stream),
				iotest.OneByteReader(strings.NewReader(c.stream)),
				iotest.DataErrReader(strings.NewReader(c.stream))} {
				got, _, end := readAll(r, 1000)
				if !equalEvents(got, c.want) || end != c.end {
					t.Errorf("got %+v, %v\nwant %+v, %v", got, end, c.want, c.end)
				}
			}
		})
	}
}

func TestAnEventOverTheLimitIsSkipped(t *testing.T) {
	for _, c := range []struct{ name, event string }{
		{"one line that is too long", "data: " + strings.Repeat("x", 101) + "\n\n"},
		{"one line of 100,000 bytes", "data: " + strings.Repeat("x", 100_000) + "\n\n"},
		{"many lines that are too long together", strings.Repeat("data: xxxx\n", 12) + "\n"},
		{"an id that is too long", "id: " + strings.Repeat("x", 200) + "\n\n"},
		{"a comment that is too long", ":" + strings.Repeat("x", 200) + "\ndata: a\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fits := "data: " + strings.Repeat("y", 100) + "\n\n"
			got, large, end := readAll(strings.NewReader(fits+c.event+c.event+fits), 100)
			if len(got) != 2 || large != 2 || end != io.EOF {
				t.Errorf("got %d events, %d too large, %v; want 2, 2, io.EOF", len(got), large, end)
			}
		})
	}
	t.Run("the id of the event is returned with the error", func(t *testing.T) {
		s := newEventReader(io.NopCloser(strings.NewReader("id: 9\ndata: "+strings.Repeat("x",
			200)+"\n\n")), 100)
		if e, err := s.Next(); e.ID != "9" || err == nil {
			t.Errorf("got %+v, %v, want the id 9 and an error", e, err)
		}
	})
}

func TestAppendEventRefusesLineBreaksInIDAndName(t *testing.T) {
	for _, e := range []conn.Event{{ID: "a\nb"}, {ID: "a\rb"}, {ID: "a\x00"},
		{Name: "a\ndata: b"}} {
		if b, err := appendEvent(nil, e); err == nil {
			t.Errorf("%+v became %q, want an error", e, b)
		}
	}
}

// FuzzEventsRoundTrip checks that an event is read as it was written, even if the bytes arrive in
// small pieces. No part of its data may become another event.
func FuzzEventsRoundTrip(f *testing.F) {
	f.Add("1", "message", []byte(`{"jsonrpc":"2.0"}`), 0, 1)
	f.Add("", "", []byte("a\r\n\r\ndata: b\n\nid: 3\r"), 10, 3)
	f.Add("", "", []byte("\xef\xbb\xbf \r"), 0, 2)
	f.Fuzz(func(t *testing.T, id, name string, data []byte, retry, piece int) {
		e := conn.Event{ID: id, Name: name, Data: data, Retry: retry}
		stream, err := appendEvent([]byte(":\n\n"), e)
		if err != nil {
			t.Skip()
		}
		stream, _ = appendEvent(stream, conn.Event{Data: []byte("end")})
		breaks := strings.NewReplacer("\r\n", "\n", "\r", "\n")
		want := []conn.Event{
			{ID: id, Name: name, Data: []byte(breaks.Replace(string(data))), Retry: max(0, retry)},
			{Data: []byte("end")},
		}
		if retry > 1<<31-1 {
			want[0].Retry = 0
		}
		got, _, end := readAll(shortReader{bytes.NewReader(stream), max(1, piece%16)}, 1<<20)
		if !equalEvents(got, want) || end != io.EOF {
			t.Errorf("%q was read as %+v, %v; want %+v", stream, got, end, want)
		}
	})
}

// FuzzEventsOfAnyBytes checks that the reader reads any bytes to their end and returns no event
// over the limit. The result must be the same if the bytes arrive one at a time.
func FuzzEventsOfAnyBytes(f *testing.F) {
	f.Add([]byte("data: a\r\n\r\nid\ndata\n\n:x\nretry: 1\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, large, end := readAll(bytes.NewReader(stream), 20)
		again, large2, end2 := readAll(iotest.OneByteReader(bytes.NewReader(stream)), 20)
		if !equalEvents(whole, again) || large != large2 || end != end2 {
			t.Errorf("read whole: %+v, %d, %v; byte by byte: %+v, %d, %v; want the same", whole,
				large, end, again, large2, end2)
		}
		for _, e := range whole {
			if len(e.Data) > 20 {
				t.Errorf("got an event of %d bytes, want at most 20", len(e.Data))
			}
		}
	})
}

// shortReader reads at most n bytes at a time.
type shortReader struct {
	r io.Reader
	n int
}

func (p shortReader) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.n)]) }
