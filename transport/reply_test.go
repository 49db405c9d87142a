package transport

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/downstream"
)

// slowWriter is a connection that counts what is written.
type slowWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
	fail     error
}

func (w *slowWriter) SetWriteDeadline(t time.Time) error { w.deadline = t; return nil }

func (w *slowWriter) Write(b []byte) (int, error) {
	if w.fail != nil {
		return 0, w.fail
	}
	return w.ResponseRecorder.Write(b)
}

func TestStreamsAreKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowWriter{ResponseRecorder: httptest.NewRecorder()}
		f := &Front{o: FrontOptions{Limits: FrontLimits{}.orDefaults()}, log: slog.New(slog.DiscardHandler)}
		p := &reply{f: f, w: w, r: httptest.NewRequest(http.MethodGet, "/mcp", nil)}
		s, err := p.Stream(nil)
		if err != nil {
			t.Fatal(err)
		}
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := w.Body.String(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			w.Body.Reset()
		}
		if !w.Flushed {
			t.Error("the header waits for the first event")
		}
		time.Sleep(31 * time.Second)
		expect(":\n\n:\n\n")
		if want := time.Now().Add(-time.Second).Add(f.o.Limits.Write); !w.deadline.Equal(want) {
			t.Errorf("a write may last until %s, want %s", w.deadline, want)
		}
		time.Sleep(13 * time.Second)
		s.Send(downstream.Event{ID: "1", Name: "x", Data: []byte("a\nb"), Retry: 7})
		expect("id: 1\nevent: x\nretry: 7\ndata: a\ndata: b\n\n")
		time.Sleep(14 * time.Second)
		expect("") // the event counts as a sign of life
		time.Sleep(2 * time.Second)
		expect(":\n\n")
		p.end()
		if err := s.Send(downstream.Event{Data: []byte("late")}); err == nil {
			t.Error("an event was sent after the end")
		}
		time.Sleep(time.Minute)
		expect("")
		if n := f.streams.Load(); n != 0 {
			t.Errorf("%d streams are counted", n)
		}
	})
}

func TestAStreamThatFailedSaysSoEverAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowWriter{ResponseRecorder: httptest.NewRecorder()}
		f := &Front{o: FrontOptions{Limits: FrontLimits{}.orDefaults()}, log: slog.New(slog.DiscardHandler)}
		p := &reply{f: f, w: w, r: httptest.NewRequest(http.MethodGet, "/mcp", nil)}
		s, err := p.Stream(nil)
		if err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		w.fail = gone
		time.Sleep(20 * time.Second) // the keep-alive finds out
		w.fail = nil
		if err := s.Send(downstream.Event{}); err != gone {
			t.Errorf("got %v, want %v", err, gone)
		}
		p.end()
	})
}
