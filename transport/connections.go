package transport

import (
	"container/list"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// limitedListener limits the number of connections that are open at the same time. If the limit is
// reached when a new connection arrives, the listener closes the connection that has been idle for
// the longest time. If no connection is idle, it refuses the new connection at once with status
// 503. So idle connections block no client, and no client waits without an answer.
//
// The listener does the same if the process has no file descriptor left. It keeps one descriptor in
// reserve, so that even then it can accept a connection and refuse it.
type limitedListener struct {
	net.Listener
	max int
	log *slog.Logger

	mu      sync.Mutex
	open    int
	idle    list.List // *limitedConn that wait for a request; the longest idle is first
	full    bool      // the last new connection was refused
	refused int64     // number of refused connections since the start
	reserve *os.File  // open file of the reserved descriptor; nil if it could not be opened
	closed  bool      // the reserve is not opened again
}

func newLimitedListener(l net.Listener, most int, log *slog.Logger) *limitedListener {
	limited := &limitedListener{Listener: l, max: most, log: log}
	limited.openReserve()
	return limited
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if isNoDescriptor(err) && l.openReserve() {
			l.closeReserve()
			// The system reports the lack of a descriptor even if no connection waits. So Accept
			// waits for a connection here. When it arrives, descriptors may be free again.
			c, err = l.Listener.Accept()
		}
		if err != nil {
			return nil, err // if err is the lack of a descriptor, net/http calls Accept again
		}
		hasDescriptors := l.openReserve()
		if c := l.admit(c, hasDescriptors); c != nil {
			return c, nil
		}
	}
}

func isNoDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// openReserve opens the reserve if it is not open, and reports whether it is open now.
func (l *limitedListener) openReserve() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reserve == nil && !l.closed {
		l.reserve, _ = os.Open(os.DevNull)
	}
	return l.reserve != nil
}

func (l *limitedListener) closeReserve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reserve != nil {
		l.reserve.Close()
		l.reserve = nil
	}
}

// admit returns c as one of the open connections, or refuses c and returns nil. hasDescriptors is
// false if c has taken the last descriptor.
func (l *limitedListener) admit(c net.Conn, hasDescriptors bool) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if (l.open >= l.max || !hasDescriptors) && !l.closeIdleLocked() {
		l.refused++
		if !l.full {
			l.full = true
			l.log.Warn("connections refused: no further one can be opened and none is idle",
				"address", l.Addr(), "open", l.open, "limit", l.max,
				"file_descriptors_left", hasDescriptors)
		}
		refuseConnection(c)
		return nil
	}
	l.full = false
	l.open++
	admitted := &limitedConn{TCPConn: c.(*net.TCPConn), listener: l}
	admitted.idle = l.idle.PushBack(admitted) // idle until its first request
	return admitted
}

// closeIdleLocked closes the connection that has been idle for the longest time. It reports whether
// a connection was idle. The caller holds l.mu.
func (l *limitedListener) closeIdleLocked() bool {
	oldest := l.idle.Front()
	if oldest == nil {
		return false
	}
	oldest.Value.(*limitedConn).closeLocked()
	return true
}

// connectionRefusal is the answer on a connection that is refused.
const connectionRefusal = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n" +
	"Connection: close\r\nContent-Length: 0\r\n\r\n"

// refuseConnection writes the refusal to c and closes c. The write does not wait, because the
// refusal fits into the empty send buffer.
func refuseConnection(c net.Conn) {
	c.SetWriteDeadline(time.Now().Add(time.Second))
	c.Write([]byte(connectionRefusal))
	c.Close()
}

// stateChanged is the ConnState of the http.Server that serves the listener.
func (l *limitedListener) stateChanged(c net.Conn, state http.ConnState) {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	limited, ok := c.(*limitedConn)
	if !ok || state != http.StateActive && state != http.StateIdle {
		return // admit handles a new connection, and Close handles a closed one
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if limited.idle != nil {
		l.idle.Remove(limited.idle)
		limited.idle = nil
	}
	if state == http.StateIdle && !limited.closed {
		limited.idle = l.idle.PushBack(limited)
	}
}

// counts returns the number of open connections and the number of refused connections since the
// start.
func (l *limitedListener) counts() (open int, refused int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.refused
}

// Close implements net.Listener.
func (l *limitedListener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.closeReserve()
	return l.Listener.Close()
}

// limitedConn is a connection of a limitedListener. It embeds *net.TCPConn, so that net/http can
// use ReadFrom and CloseWrite.
type limitedConn struct {
	*net.TCPConn
	listener *limitedListener

	// guarded by listener.mu
	idle   *list.Element // in listener.idle; nil while a request is served
	closed bool
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return c.closeLocked()
}

// closeLocked is Close for a caller that holds listener.mu.
func (c *limitedConn) closeLocked() error {
	if !c.closed {
		c.closed = true
		c.listener.open--
		if c.idle != nil {
			c.listener.idle.Remove(c.idle)
			c.idle = nil
		}
	}
	return c.TCPConn.Close()
}
