package transport

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/conn"
	"gatekit/core/downstream"
)

// recorder is an http.ResponseWriter that records the flushed bytes and the last write deadline. If
// fail is set, writes return it.
type recorder struct {
	http.ResponseWriter
	mu       sync.Mutex
	deadline time.Time
	fail     error
	waiting  strings.Builder // bytes that were written but not flushed yet
	written  strings.Builder // bytes that were flushed
}

func (w *recorder) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = t
	return nil
}

func (w *recorder) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return 0, w.fail
	}
	return w.waiting.Write(b)
}

func (w *recorder) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written.WriteString("|" + w.waiting.String())
	w.waiting.Reset()
}

// takeWritten returns the bytes that were flushed since the last call, with a bar before each
// flush, and the last write deadline. Later writes return the error fail.
func (w *recorder) takeWritten(fail error) (written string, deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	written = w.written.String()
	w.written.Reset()
	w.fail = fail
	return written, w.deadline
}

// openStream opens a stream on w.
func openStream(t *testing.T, w http.ResponseWriter) (*reply, downstream.Stream) {
	t.Helper()
	f := &HTTPServer{o: HTTPServerOptions{Limits: HTTPServerLimits{}.orDefaults()},
		log: slog.New(slog.DiscardHandler)}
	p := &reply{server: f, w: w, r: httptest.NewRequest(http.MethodGet, "/mcp", nil)}
	s, err := p.Stream(nil)
	if err != nil {
		t.Fatal(err)
	}
	return p, s
}

func TestStreamsAreKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{ResponseWriter: httptest.NewRecorder()}
		p, s := openStream(t, w)
		start := time.Now()
		expect := func(want string, last time.Duration) {
			t.Helper()
			synctest.Wait()
			got, deadline := w.takeWritten(nil)
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if want := start.Add(last).Add(p.server.o.Limits.Write); !deadline.Equal(want) {
				t.Errorf("the deadline of the last write is %s, want %s", deadline, want)
			}
		}
		expect("|", 0) // the header is flushed before the first event
		time.Sleep(31 * time.Second)
		expect("|:\n\n|:\n\n", 30*time.Second)
		time.Sleep(13 * time.Second)
		s.Send(conn.Event{ID: "1", Name: "x", Data: []byte("a\nb"), Retry: 7})
		expect("|id: 1\nevent: x\nretry: 7\ndata: a\ndata: b\n\n", 44*time.Second)
		time.Sleep(14 * time.Second)
		expect("", 44*time.Second) // no keep-alive is needed so soon after the event
		time.Sleep(2 * time.Second)
		expect("|:\n\n", 59*time.Second)
		p.end()
		if err := s.Send(conn.Event{Data: []byte("late")}); err == nil {
			t.Error("Send after the end of the stream returned no error")
		}
		time.Sleep(time.Minute)
		expect("", 59*time.Second)
		if n := p.server.streams.Load(); n != 0 {
			t.Errorf("%d streams are counted, want 0", n)
		}
	})
}

func TestAStreamThatFailedKeepsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{ResponseWriter: httptest.NewRecorder()}
		p, s := openStream(t, w)
		gone := errors.New("gone")
		w.takeWritten(gone)
		time.Sleep(20 * time.Second) // the keep-alive fails
		synctest.Wait()
		w.takeWritten(nil)
		if err := s.Send(conn.Event{}); err != gone {
			t.Errorf("got %v, want %v", err, gone)
		}
		p.end()
	})
}
