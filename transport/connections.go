package transport

import (
	"container/list"
	"crypto/tls"
	"errors"
	"io"
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
// A connection that has been idle for less than minIdle is not closed, because the client's next
// request is probably on its way. That request would get no answer.
//
// The listener refuses a new connection, too, if the process has few file descriptors left. It
// keeps one descriptor in reserve, so that even without another it can accept a connection and
// refuse it.
type limitedListener struct {
	net.Listener
	max     int
	minIdle time.Duration
	log     *slog.Logger

	refusals sync.WaitGroup // refused connections that are not closed yet

	mu       sync.Mutex
	open     int
	idle     list.List         // *limitedConn that wait for a request; the longest idle is first
	full     bool              // the last new connection was refused
	failing  bool              // the last connection could not be accepted
	refused  int64             // number of refused connections since the start
	refusing map[net.Conn]bool // connections in refusals
	reserve  *os.File          // holds the reserved descriptor; nil if it could not be opened
	closed   bool              // the reserve is not opened again
}

// minIdle is the default of HTTPServerLimits.MinIdle.
const minIdle = time.Second

func newLimitedListener(l net.Listener, most int, minIdle time.Duration,
	log *slog.Logger) *limitedListener {
	limited := &limitedListener{Listener: l, max: most, minIdle: minIdle, log: log,
		refusing: map[net.Conn]bool{}}
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
		l.logFailure(err)
		if err != nil {
			// If err is the lack of a descriptor, net/http calls Accept again, after a delay that
			// grows up to a second.
			return nil, err
		}
		hasDescriptors := l.openReserve() && forClients.checkFile(c.(*net.TCPConn)) == nil
		if c := l.admit(c, hasDescriptors); c != nil {
			return c, nil
		}
	}
}

// logFailure logs why no connection can be accepted, once until one is accepted again.
func (l *limitedListener) logFailure(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && !l.failing && !l.closed {
		l.log.Warn("connections cannot be accepted", "address", l.Addr(), "open", l.open, "error",
			err)
	}
	l.failing = err != nil
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
// false if c has taken one of the last descriptors. Such a c is refused in any case. If another
// connection is idle, it is closed, so that the client's next attempt succeeds.
func (l *limitedListener) admit(c net.Conn, hasDescriptors bool) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	isFull := l.open >= l.max || !hasDescriptors
	if isFull && (!l.closeIdleLocked() || !hasDescriptors) {
		l.refused++
		if !l.full {
			l.full = true
			l.log.Warn("connections refused: no further one can be opened and none is idle",
				"address", l.Addr(), "open", l.open, "limit", l.max,
				"file_descriptors_left", hasDescriptors)
		}
		l.refuseLocked(c.(*net.TCPConn), hasDescriptors)
		return nil
	}
	l.full = false
	l.open++
	admitted := &limitedConn{TCPConn: c.(*net.TCPConn), listener: l, idleSince: time.Now()}
	admitted.idle = l.idle.PushBack(admitted) // idle until its first request
	return admitted
}

// closeIdleLocked closes the connection that has been idle for the longest time, if that time is at
// least minIdle. It reports whether there was such a connection. The caller holds l.mu.
func (l *limitedListener) closeIdleLocked() bool {
	oldest := l.idle.Front()
	if oldest == nil {
		return false
	}
	c := oldest.Value.(*limitedConn)
	if time.Since(c.idleSince) < l.minIdle {
		return false
	}
	c.closeLocked()
	return true
}

// connectionRefusal is the answer on a connection that is refused.
const connectionRefusal = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n" +
	"Connection: close\r\nContent-Length: 0\r\n\r\n"

// refusalTime is how long Gatekit waits for the request on a connection that it refuses, and then
// for the client to close the connection.
const refusalTime = time.Second

// refuseLocked refuses c. The client should get the refusal as the answer to its request. Many
// clients take an answer that comes before their request for a failure. If c were closed before its
// request is read, the system would reset c, and the client might lose the refusal. So c stays open
// for a moment, unless there are too few descriptors or too many such connections. If no request
// comes, c is closed without an answer: to a client that keeps c for a later request, it is an idle
// connection that was closed. The caller holds l.mu.
func (l *limitedListener) refuseLocked(c *net.TCPConn, hasDescriptors bool) {
	if !hasDescriptors || l.closed || len(l.refusing) >= max(8, min(64, l.max/8)) {
		readArrived(c)
		writeRefusal(c)
		c.Close()
		return
	}
	l.refusing[c] = true
	l.refusals.Go(func() {
		c.SetReadDeadline(time.Now().Add(refusalTime))
		if n, _ := c.Read(make([]byte, 1)); n > 0 {
			writeRefusal(c)
		}
		c.CloseWrite()
		c.SetReadDeadline(time.Now().Add(refusalTime))
		io.CopyN(io.Discard, c, 1<<20)
		l.mu.Lock()
		delete(l.refusing, c)
		l.mu.Unlock()
		c.Close()
	})
}

// readArrived reads what has arrived on c, up to 4 KiB, and does not wait for more.
func readArrived(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	raw.Read(func(fd uintptr) bool {
		syscall.Read(int(fd), make([]byte, 4<<10))
		return true
	})
}

// writeRefusal writes the refusal to c. The write does not wait, because the refusal fits into the
// empty send buffer.
func writeRefusal(c net.Conn) {
	c.SetWriteDeadline(time.Now().Add(time.Second))
	io.WriteString(c, connectionRefusal)
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
		limited.idleSince = time.Now()
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
	for c := range l.refusing {
		c.Close()
	}
	l.mu.Unlock()
	l.closeReserve()
	err := l.Listener.Close()
	l.refusals.Wait()
	return err
}

// limitedConn is a connection of a limitedListener. It embeds *net.TCPConn, so that net/http can
// use ReadFrom and CloseWrite.
type limitedConn struct {
	*net.TCPConn
	listener *limitedListener

	// guarded by listener.mu
	idle      *list.Element // in listener.idle; nil while a request is served
	idleSince time.Time
	closed    bool
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
