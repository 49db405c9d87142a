package transport_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gatekit/transport"
)

// TestReserveIsOpenedAgain has no file descriptor left twice. The first time, the server uses the
// descriptor that it keeps in reserve. It must have a reserve again the second time, since
// otherwise the client gets no answer.
func TestReserveIsOpenedAgain(t *testing.T) {
	server := listen(t, nil)
	for i := range 2 {
		restore := leaveDescriptors(t, 1) // for the client's end of a connection
		defer restore()
		c := server.dial(t, post("x"))
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("no answer without a free descriptor, time %d: %v", i+1, err)
		}
		r.Body.Close()
		c.Close()
		restore()
		c = server.dial(t, post("x"))
		if r, err = http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != 200 {
			t.Fatalf("with free descriptors: got %v and the error %v, want status 200", r, err)
		}
		r.Body.Close()
		c.Close()
		server.waitUntilIdle(0)
	}
}

// TestYoungIdleConnectionIsKept opens as many connections as the limit, which have just become
// idle, and then one more. The new connection is refused, since the clients of the others may have
// sent their next requests already.
func TestYoungIdleConnectionIsKept(t *testing.T) {
	server := listen(t, func(o *transport.HTTPServerOptions) {
		o.Limits.Connections, o.Limits.MinIdle = 2, time.Hour
	})
	answered, silent := server.dial(t, post("x")), server.dial(t, "")
	r, err := http.ReadResponse(bufio.NewReader(answered), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	server.waitUntilIdle(2)
	if r, _ := server.do(t, post("third")); r.StatusCode != 503 {
		t.Errorf("the third connection: got status %d, want 503", r.StatusCode)
	}
	for name, c := range map[string]net.Conn{"after an answer": answered,
		"since it was accepted": silent} {
		io.WriteString(c, strings.ReplaceAll(strings.ReplaceAll(post("next"), "\n", "\r\n"), "HOST",
			server.addr))
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("the connection that was idle %s: %v", name, err)
			continue
		}
		r.Body.Close()
	}
}

// TestConnectionWithoutARequestGetsNoRefusal opens a connection over the limit and sends nothing.
// An answer would look like a failure of the next request of a client that keeps the connection.
func TestConnectionWithoutARequestGetsNoRefusal(t *testing.T) {
	server := listen(t, func(o *transport.HTTPServerOptions) { o.Limits.Connections = 1 })
	server.dial(t, post("wait"))
	<-server.opened
	c := server.dial(t, "")
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Errorf("got %q, %v, want the end of the connection", b, err)
	}
}

// TestRefusalsAreLoggedOnce refuses two connections in a row, admits one, and refuses another. The
// log has one line for each row of refusals.
func TestRefusalsAreLoggedOnce(t *testing.T) {
	var log lockedBuffer
	server := listen(t, func(o *transport.HTTPServerOptions) {
		o.Limits.Connections = 1
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	for row := 1; row <= 2; row++ {
		busy := server.dial(t, post("wait"))
		<-server.opened
		for range 2 {
			if r, _ := server.do(t, post("x")); r.StatusCode != 503 {
				t.Errorf("row %d: got status %d, want 503", row, r.StatusCode)
			}
		}
		if n := strings.Count(log.String(), "connections refused"); n != row {
			t.Errorf("row %d: the log has %d lines, want %d:\n%s", row, n, row, &log)
		}
		busy.Close()
		<-server.ended
		for server.Stats().Connections > 0 {
			runtime.Gosched() // the connection is closed after its handler has ended
		}
	}
	if got := server.Stats().ConnectionsRefused; got != 4 {
		t.Errorf("got %d refused connections, want 4", got)
	}
}

// failingListener is a listener without file descriptors while failures is positive.
type failingListener struct {
	net.Listener
	failures int
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// TestAcceptErrorsAreLoggedOnce has a listener fail several times, accept a connection, and fail
// again. The log has one line for each row of failures.
func TestAcceptErrorsAreLoggedOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	failing := &failingListener{Listener: l}
	var log lockedBuffer
	limited := transport.NewLimitedListener(failing, 9, slog.New(slog.NewTextHandler(&log, nil)))
	defer limited.Close()
	for row := 1; row <= 2; row++ {
		failing.failures = 6
		for failing.failures > 0 {
			if _, err := limited.Accept(); !errors.Is(err, syscall.EMFILE) {
				t.Errorf("row %d: got the error %v, want EMFILE", row, err)
			}
		}
		if n := strings.Count(log.String(), "connections cannot be accepted"); n != row {
			t.Errorf("row %d: the log has %d lines, want %d:\n%s", row, n, row, &log)
		}
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := limited.Accept()
		if err != nil {
			t.Fatal(err)
		}
		client.Close()
		server.Close()
	}
}

// lockedBuffer is a bytes.Buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestServersLeaveDescriptorsFree calls a server and starts a process while few descriptors are
// free. Both fail, although there would be enough for each of them. When more are free, they
// succeed.
func TestServersLeaveDescriptorsFree(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"ok":true}`)
	}))
	t.Cleanup(s.Close)
	call := func() error {
		b, err := transport.NewHTTPClient(transport.HTTPClientOptions{Name: "github", URL: s.URL})
		if err != nil {
			return err
		}
		defer b.Close()
		_, err = b.Post(t.Context(), http.Header{}, []byte(`{}`))
		return err
	}
	start := func() error {
		c, err := transport.Spawn(t.Context(), transport.Command{Name: "files",
			Path: "/proc/self/exe", Env: map[string]string{mode: "echo",
				"GOCOVERDIR": t.TempDir()}})
		if err == nil {
			c.Close()
		}
		return err
	}
	// Of 128 descriptors, servers leave 16 free.
	restore := leaveDescriptors(t, 14)
	defer restore()
	for name, use := range map[string]func() error{"a call": call, "a process": start} {
		if err := use(); !errors.Is(err, syscall.EMFILE) ||
			!strings.Contains(err.Error(), "ulimit -n") {
			t.Errorf("%s with few free descriptors: got the error %v, want EMFILE and a hint", name,
				err)
		}
	}
	restore()
	restore = leaveDescriptors(t, 60)
	defer restore()
	for name, use := range map[string]func() error{"a call": call, "a process": start} {
		if err := use(); err != nil {
			t.Errorf("%s with 60 free descriptors: %v", name, err)
		}
	}
}
