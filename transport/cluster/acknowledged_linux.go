package cluster

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// limitUnacknowledged is the Control of a net.Dialer and of a net.ListenConfig. It lets the system
// break a connection whose other end acknowledges nothing for lostAfter. Without it, a request to a
// machine that has just vanished would wait for about 15 minutes.
func limitUnacknowledged(_, _ string, c syscall.RawConn) (err error) {
	failed := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
			int(lostAfter.Milliseconds()))
	})
	if failed != nil {
		return failed
	}
	return err
}
