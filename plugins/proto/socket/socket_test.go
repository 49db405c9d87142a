package socket_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatekit/plugins/proto/socket"
)

// countingBuffers counts the bytes of the buffers that were taken and not put back.
type countingBuffers struct{ taken, largest int }

func (b *countingBuffers) Get(size int) *[]byte {
	b.taken += size
	b.largest = max(b.largest, size)
	buf := make([]byte, size)
	return &buf
}

func (b *countingBuffers) Put(buf *[]byte) {
	b.taken -= len(*buf)
}

func TestFramesOfAllSizes(t *testing.T) {
	sender, receiver := net.Pipe()
	sent, received := &countingBuffers{}, &countingBuffers{}
	from := socket.NewConnection(sender, sent)
	to := socket.NewConnection(receiver, received)
	defer to.Close()
	sizes := []int{0, 1, 3, 4, 4<<10 - 5, 4<<10 - 4, 4<<10 - 3, 64<<10 - 1, 64 << 10, 64<<10 + 1,
		1 << 20, 16<<20 + 1}
	content := func(size int) []byte {
		return bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
	}
	go func() {
		for _, size := range sizes {
			all := content(size)
			if err := from.Send(all[:size/2], nil, all[size/2:]); err != nil {
				t.Error(err)
			}
		}
		from.Close()
	}()
	for _, size := range sizes {
		frame, err := to.Receive(size)
		if err != nil {
			t.Fatalf("a frame of %d bytes: %v", size, err)
		}
		if !bytes.Equal(*frame, content(size)) {
			t.Errorf("a frame of %d bytes arrived with other content", size)
		}
		to.Release(frame)
	}
	if _, err := to.Receive(1); err != io.EOF {
		t.Errorf("after the last frame, the error is %v, want EOF", err)
	}
	if received.taken != 0 {
		t.Errorf("buffers of %d bytes were not put back", received.taken)
	}
}

func TestBrokenFrames(t *testing.T) {
	for name, c := range map[string]struct {
		bytes string
		want  error
	}{
		"a part of the size":     {"\x00\x00", io.ErrUnexpectedEOF},
		"a size only":            {"\x00\x00\x00\x02", io.ErrUnexpectedEOF},
		"a part of the content":  {"\x00\x00\x00\x02x", io.ErrUnexpectedEOF},
		"a large frame, cut off": {"\x01\x00\x00\x00x", io.ErrUnexpectedEOF},
		"one byte above the limit": {"\x01\x00\x00\x01",
			&socket.TooLargeError{16<<20 + 1, 16 << 20}},
		"the largest size": {"\xff\xff\xff\xff", &socket.TooLargeError{1<<32 - 1, 16 << 20}},
	} {
		buffers := &countingBuffers{}
		_, err := connectionOf([]byte(c.bytes), buffers).Receive(16 << 20)
		if err == nil || err.Error() != c.want.Error() {
			t.Errorf("%s: the error is %v, want %v", name, err, c.want)
		}
		if buffers.taken != 0 || buffers.largest > 64<<10 {
			t.Errorf("%s: %d bytes were not put back; the largest buffer had %d, want at most "+
				"64 KiB", name, buffers.taken, buffers.largest)
		}
	}
}

// FuzzReceive receives frames from any bytes. The frames, encoded again, are the beginning of the
// bytes. An error comes only where a frame is incomplete or too large.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02hi\x00\x00\x00\x00\x00\x00\x00\x01"), 10)
	f.Add([]byte("\xff\xff\xff\xff"), 1<<20)
	f.Add([]byte("\x00\x00\x00\x05hello"), 4)
	f.Fuzz(func(t *testing.T, all []byte, limit int) {
		buffers := &countingBuffers{}
		c := connectionOf(all, buffers)
		rest := all
		for {
			frame, err := c.Receive(limit)
			if err == nil {
				encoded := append(binary.BigEndian.AppendUint32(nil, uint32(len(*frame))),
					*frame...)
				if len(*frame) > max(limit, 0) || !bytes.HasPrefix(rest, encoded) {
					t.Fatalf("got the frame %q, want the beginning of %q", *frame, rest)
				}
				rest = rest[len(encoded):]
				c.Release(frame)
				continue
			}
			var tooLarge *socket.TooLargeError
			var want bool
			switch size := frameSize(rest); {
			case len(rest) == 0:
				want = err == io.EOF
			case len(rest) >= 4 && size > uint64(max(limit, 0)):
				want = errors.As(err, &tooLarge)
			default:
				want = err == io.ErrUnexpectedEOF && uint64(len(rest)) < 4+size
			}
			if !want || buffers.taken != 0 || buffers.largest > max(64<<10, 4*len(all)) {
				t.Fatalf("%v at %q; %d bytes were not put back, the largest buffer had %d", err,
					rest, buffers.taken, buffers.largest)
			}
			return
		}
	})
}

// frameSize returns the size at the beginning of a frame, or 0 if it is incomplete.
func frameSize(b []byte) uint64 {
	if len(b) < 4 {
		return 0
	}
	return uint64(binary.BigEndian.Uint32(b))
}

// connectionOf returns a connection from which the given bytes are received, and then its end.
func connectionOf(received []byte, buffers socket.Buffers) *socket.Connection {
	return socket.NewConnection(receivedBytes{reader: bytes.NewReader(received)}, buffers)
}

// receivedBytes is a net.Conn of which only Read is used.
type receivedBytes struct {
	net.Conn
	reader io.Reader
}

func (r receivedBytes) Read(p []byte) (int, error) { return r.reader.Read(p) }

// startControl returns both ends of a control socket, as if this process had started itself.
func startControl(t *testing.T) (*socket.Control, *socket.Acceptor) {
	t.Helper()
	control, file, err := socket.New(&countingBuffers{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { control.Close() })
	// Inherited closes this file descriptor, so file must not close it, too.
	t.Setenv(socket.Variable, fmt.Sprint(duplicate(t, file)))
	file.Close()
	acceptor := socket.Inherited()
	if acceptor == nil {
		t.Fatal("the control socket was not inherited")
	}
	t.Cleanup(func() { acceptor.Close() })
	if _, isSet := os.LookupEnv(socket.Variable); isSet {
		t.Error("the environment variable is still set")
	}
	if !control.IsToken(acceptor.Token()) || control.IsToken(nil) {
		t.Error("the token of the process is not the token of the control socket")
	}
	return control, acceptor
}

func TestConnectionsArePassedAndCancelled(t *testing.T) {
	control, acceptor := startControl(t)
	for range 3 {
		ours, err := control.Open()
		if err != nil {
			t.Fatal(err)
		}
		ctx, conn, done, err := acceptor.Accept()
		if err != nil {
			t.Fatal(err)
		}
		other, err := control.Open()
		if err != nil {
			t.Fatal(err)
		}
		otherCtx, _, otherDone, err := acceptor.Accept()
		if err != nil {
			t.Fatal(err)
		}
		theirs := socket.NewConnection(conn, &countingBuffers{})
		if err := ours.Send([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if frame, err := theirs.Receive(10); err != nil || string(*frame) != "ping" {
			t.Fatalf("received %v, %v, want ping", frame, err)
		}
		ours.Close()
		control.Open() // Accept handles the cancellation before it
		if _, _, doneWithNext, err := acceptor.Accept(); err != nil {
			t.Fatal(err)
		} else {
			doneWithNext()
		}
		if ctx.Err() == nil || otherCtx.Err() != nil {
			t.Errorf("the contexts of the two connections have ended with %v and %v, want only "+
				"the first to have ended", ctx.Err(), otherCtx.Err())
		}
		if _, err := theirs.Receive(10); err != io.EOF {
			t.Errorf("the plugin receives %v from a closed connection, want EOF", err)
		}
		done()
		otherDone()
		other.Close()
	}
	control.Close()
	if _, _, _, err := acceptor.Accept(); !errors.Is(err, io.EOF) {
		t.Errorf("Accept of a closed control socket returned %v, want EOF", err)
	}
	if _, err := control.Open(); err == nil {
		t.Error("Open of a closed control socket succeeded")
	}
}

// A process that does not read its control socket does not block Gatekit.
func TestOpenDoesNotBlock(t *testing.T) {
	control, _ := startControl(t)
	begin := time.Now()
	for range 10_000 {
		c, err := control.Open()
		if err != nil {
			if waited := time.Since(begin); waited > time.Minute {
				t.Errorf("Open failed after %v, want a second", waited)
			}
			return
		}
		c.Close()
	}
	t.Error("10000 connections were opened, although nobody accepts them")
}

func TestInvalidControlMessages(t *testing.T) {
	for name, message := range map[string]string{
		"unknown":            "x\x00\x00\x00\x01",
		"without a socket":   "o\x00\x00\x00\x01",
		"part of a message":  "c\x00\x00",
		"garbage":            strings.Repeat("\xff", 100),
		"cancel, then a bad": "c\x00\x00\x00\x01o\x00\x00\x00\x01",
	} {
		control, acceptor := startControl(t)
		socket.WriteRaw(control, []byte(message))
		control.Close()
		if _, _, _, err := acceptor.Accept(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: Accept returned %v, want an error", name, err)
		}
	}
}

func TestNoControlSocketIsInherited(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()
	silent, _ := unixPair(t)
	talking, other := unixPair(t)
	syscall.Write(other, bytes.Repeat([]byte("x"), 100)) // not a hello
	for name, value := range map[string]string{"no number": "x", "a closed file": "9999",
		"a negative number": "-1", "a file": fmt.Sprint(file.Fd()),
		"a pipe": fmt.Sprint(reader.Fd()), "a socket without a hello": fmt.Sprint(silent),
		"a socket with another hello": fmt.Sprint(talking)} {
		t.Setenv(socket.Variable, value)
		if socket.Inherited() != nil {
			t.Errorf("%s: a control socket was inherited", name)
		}
	}
	os.Unsetenv(socket.Variable)
	if socket.Inherited() != nil {
		t.Error("without the variable, a control socket was inherited")
	}
}

// unixPair returns a connected pair of sockets.
func unixPair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Close(fds[0])
		syscall.Close(fds[1])
	})
	return fds[0], fds[1]
}

// duplicate returns another file descriptor of a file.
func duplicate(t *testing.T, file *os.File) int {
	t.Helper()
	fd, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return fd
}
