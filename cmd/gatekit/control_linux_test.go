package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const foreignUID = 65534 // nobody

// asForeignUser runs f on a thread that belongs to another user. Sockets get the user id of the
// thread that connects, listens or makes a pair. Only root can change its user id.
func asForeignUser(t *testing.T, f func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		// Unlike unix.Setresuid, the raw call changes only this thread.
		const unchanged = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, foreignUID,
			unchanged); errno != 0 {
			result <- fmt.Errorf("become user %d: %w", foreignUID, errno)
			return
		}
		result <- f()
	}()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

// unixConn returns the connection of a socket.
func unixConn(t *testing.T, fd int) *net.UnixConn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UnixConn)
}

// TestControlServerRefusesOtherUsers sends a request with the right token, as this user and as
// another user. The other user gets no answer.
func TestControlServerRefusesOtherUsers(t *testing.T) {
	pair := func(ends *[2]int) func() error {
		return func() (err error) {
			*ends, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			return err
		}
	}
	exchange := func(ends [2]int) (answer, logged string) {
		var log bytes.Buffer
		s := controlServer{token: "right", log: slog.New(slog.NewTextHandler(&log, nil))}
		server, client := unixConn(t, ends[0]), unixConn(t, ends[1])
		if _, err := fmt.Fprintln(client, `{"token":"right","command":"other"}`); err != nil {
			t.Fatal(err)
		}
		s.serve(server)
		server.Close()
		b, err := io.ReadAll(client)
		if err != nil && !errors.Is(err, unix.ECONNRESET) { // the server did not read the request
			t.Fatal(err)
		}
		return string(b), log.String()
	}
	var own, foreign [2]int
	if err := pair(&own)(); err != nil {
		t.Fatal(err)
	}
	if answer, logged := exchange(own); !strings.Contains(answer, "does not know the command") {
		t.Errorf("this user got the answer %q, want that the command is unknown; log: %s", answer,
			logged)
	}
	asForeignUser(t, pair(&foreign))
	answer, logged := exchange(foreign)
	if answer != "" || !strings.Contains(logged, "control connection refused") ||
		!strings.Contains(logged, "the other process belongs to the user id 65534") {
		t.Errorf("another user got the answer %q, want none; log: %q, want a refusal", answer,
			logged)
	}
}

// TestCommandSendsNothingToOtherUsers puts a socket on which another user listens in the place of
// the control socket. A command must not send its request, which contains the token.
func TestCommandSendsNothingToOtherUsers(t *testing.T) {
	state, err := os.MkdirTemp("", "gk") // an address needs a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	t.Setenv("XDG_STATE_HOME", state)
	dir, err := controlFolder(true)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(state, "audit.jsonl")
	socket := filepath.Join(dir, socketName(log))
	if err := os.WriteFile(socket+tokenSuffix, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	asForeignUser(t, func() error { return unix.Listen(fd, 1) })
	f := os.NewFile(uintptr(fd), "socket")
	listener, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	received := make(chan string, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			received <- err.Error()
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		b, _ := io.ReadAll(c)
		received <- string(b)
	}()
	_, err = callControl(log, controlRequest{Command: "approve", ID: waitingID})
	if err == nil || !strings.Contains(err.Error(), "belongs to the user id 65534") {
		t.Errorf("the command ended with the error %v, want that the other process belongs to "+
			"another user", err)
	}
	if got := <-received; got != "" {
		t.Errorf("the other user received %q, want nothing", got)
	}
}
