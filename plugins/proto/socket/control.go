package socket

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Variable is the environment variable with the number of the file descriptor that the process
// inherits.
const Variable = "GATEKIT_PLUGIN_SOCKET"

const (
	// version begins the hello. A process that does not know the version uses gRPC.
	version   = "gatekit.socket.1"
	tokenSize = 16
	// controlTimeout is how long the plugin may take to make room for a message on the control
	// socket. It reads them at once.
	controlTimeout = time.Second
)

// A message on the control socket is one of these bytes, and the number of a connection in four
// bytes, big-endian. opens comes with the file descriptor of the connection.
const (
	opens       = 'o'
	cancels     = 'c'
	messageSize = 5
)

// Control is Gatekit's end of a control socket. Its methods may be called from many goroutines.
type Control struct {
	token   []byte
	buffers Buffers

	mu   sync.Mutex // guards the fields below
	conn *net.UnixConn
	last uint32 // number of the last connection
}

// New makes a control socket. The process must inherit the file. The caller closes the file when
// the process has started.
func New(buffers Buffers) (_ *Control, forProcess *os.File, err error) {
	conn, forProcess, err := pair()
	if err != nil {
		return nil, nil, err
	}
	token := make([]byte, tokenSize)
	rand.Read(token)
	if _, err := conn.Write(append([]byte(version), token...)); err != nil {
		conn.Close()
		forProcess.Close()
		return nil, nil, fmt.Errorf("write to a new socket: %w", err)
	}
	return &Control{token: token, buffers: buffers, conn: conn}, forProcess, nil
}

// IsToken reports whether token is the token of the hello.
func (c *Control) IsToken(token []byte) bool { return bytes.Equal(token, c.token) }

// Open opens a connection to the process.
func (c *Control) Open() (*Connection, error) {
	conn, forProcess, err := pair()
	if err != nil {
		return nil, err
	}
	defer forProcess.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	number := c.last
	if err := c.write(opens, number, forProcess); err != nil {
		conn.Close()
		return nil, fmt.Errorf("pass a socket to the plugin: %w", err)
	}
	connection := NewConnection(conn, c.buffers)
	connection.onClose = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.write(cancels, number, nil) // an error means that the process no longer reads
	}
	return connection, nil
}

// write writes a message. The caller holds c.mu.
func (c *Control) write(kind byte, number uint32, file *os.File) error {
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	c.conn.SetWriteDeadline(time.Now().Add(controlTimeout))
	n, _, err := c.conn.WriteMsgUnix(binary.BigEndian.AppendUint32([]byte{kind}, number), rights,
		nil)
	if err == nil && n < messageSize {
		err = io.ErrShortWrite
	}
	if err != nil {
		c.conn.Close() // the plugin may have got a part of the message
	}
	return err
}

// Close closes the control socket. Connections that are open stay open.
func (c *Control) Close() error { return c.conn.Close() }

// pair returns a connected pair of sockets.
func pair() (*net.UnixConn, *os.File, error) {
	syscall.ForkLock.RLock() // a process that is started meanwhile must not inherit the sockets
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	other := os.NewFile(uintptr(fds[1]), "plugin socket")
	conn, err := unixConn(fds[0])
	if err != nil {
		other.Close()
		return nil, nil, err
	}
	return conn, other, nil
}

// unixConn returns the connection of a file descriptor, which it closes.
func unixConn(fd int) (*net.UnixConn, error) {
	file := os.NewFile(uintptr(fd), "plugin socket")
	defer file.Close() // FileConn makes a copy of the file descriptor
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("use a socket: %w", err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("the file descriptor is no unix socket")
	}
	return unixConn, nil
}

// Acceptor is the plugin's end of a control socket.
type Acceptor struct {
	token []byte
	conn  *net.UnixConn

	mu   sync.Mutex // guards open
	open map[uint32]context.CancelFunc
}

// Inherited returns the control socket that this process has inherited. It returns nil if there is
// none, or if its version is unknown. It unsets [Variable], and children of this process do not
// inherit the socket.
func Inherited() *Acceptor {
	fd, err := strconv.Atoi(os.Getenv(Variable))
	os.Unsetenv(Variable)
	if err != nil {
		return nil
	}
	// A program between Gatekit and this process may have closed the socket, and the number may
	// belong to something else. So the hello is only looked at first.
	hello := make([]byte, len(version)+tokenSize)
	n, _, err := unix.Recvfrom(fd, hello, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err != nil || n < len(hello) || string(hello[:len(version)]) != version {
		return nil
	}
	conn, err := unixConn(fd)
	if err != nil {
		return nil
	}
	if _, err := io.ReadFull(conn, hello); err != nil {
		conn.Close()
		return nil
	}
	return &Acceptor{token: hello[len(version):], conn: conn,
		open: map[uint32]context.CancelFunc{}}
}

// Token returns the token of the hello.
func (a *Acceptor) Token() []byte { return a.token }

// Accept waits for the next connection. The context ends when Gatekit no longer waits for a
// response on the connection. The caller must call done when it no longer uses the connection. Only
// one goroutine may call Accept.
func (a *Acceptor) Accept() (ctx context.Context, conn net.Conn, done func(), err error) {
	for {
		kind, number, fd, err := a.read()
		if err != nil {
			return nil, nil, nil, err
		}
		if kind == cancels {
			a.mu.Lock()
			if cancel := a.open[number]; cancel != nil {
				cancel()
			}
			a.mu.Unlock()
			continue
		}
		conn, err := unixConn(fd)
		if err != nil {
			return nil, nil, nil, err
		}
		ctx, cancel := context.WithCancel(context.Background())
		a.mu.Lock()
		a.open[number] = cancel
		a.mu.Unlock()
		return ctx, conn, func() {
			a.mu.Lock()
			delete(a.open, number)
			a.mu.Unlock()
			cancel()
			conn.Close()
		}, nil
	}
}

// Close closes the control socket. Connections that are open stay open.
func (a *Acceptor) Close() error { return a.conn.Close() }

// read reads a message. fd is the file descriptor that came with a message that opens a connection.
func (a *Acceptor) read() (kind byte, number uint32, fd int, err error) {
	message, rights := make([]byte, messageSize), make([]byte, unix.CmsgSpace(4))
	n, rightsSize, _, _, err := a.conn.ReadMsgUnix(message, rights)
	if err != nil {
		return 0, 0, 0, err
	}
	fds, err := receivedFiles(rights[:rightsSize])
	if err != nil {
		return 0, 0, 0, err
	}
	_, err = io.ReadFull(a.conn, message[n:])
	switch {
	case err != nil && n > 0:
		err = fmt.Errorf("read the control socket: %w", io.ErrUnexpectedEOF)
	case err == nil:
		kind, number = message[0], binary.BigEndian.Uint32(message[1:])
		if kind == opens && len(fds) == 1 {
			return kind, number, fds[0], nil
		}
		if kind == cancels && len(fds) == 0 {
			return kind, number, 0, nil
		}
		err = fmt.Errorf("invalid message %q with %d files on the control socket", kind, len(fds))
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return 0, 0, 0, err
}

// receivedFiles returns the file descriptors in a control message.
func receivedFiles(rights []byte) ([]int, error) {
	if len(rights) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, m := range messages {
		received, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, err
		}
		fds = append(fds, received...)
	}
	return fds, nil
}
