package transport

import (
	"cmp"
	"fmt"
	"syscall"
)

// errFewDescriptors is why a connection is not opened, or a process is not started.
var errFewDescriptors = fmt.Errorf("too few file descriptors are free: raise the limit of open "+
	"files (ulimit -n): %w", syscall.EMFILE)

// descriptorUse is a use of file descriptors. Each leaves some descriptors free for the uses before
// it. Without this, servers that reconnect all the time could take every descriptor as soon as it
// is free.
type descriptorUse uint64

const (
	forLog     descriptorUse = iota // the audit log and everything else leave none free
	forClients                      // connections of clients
	forServers                      // connections to servers, and processes of servers
)

// isAllowed reports whether fd may be the descriptor of a new connection or process. The parameter
// use is what it is for. A use leaves up to 16 descriptors free for each use before it, but at most
// a sixteenth of all descriptors that the process may open.
//
// The system gives a new descriptor the lowest number that is free. So if fd is high, that many
// descriptors are open.
func (use descriptorUse) isAllowed(fd uintptr) bool {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return true // the limit is unknown
	}
	limit := uint64(files.Cur)
	return uint64(fd) < limit-uint64(use)*min(16, limit/16)
}

// check returns errFewDescriptors if the descriptor of c is not allowed for the use.
func (use descriptorUse) check(c syscall.RawConn) (err error) {
	failed := c.Control(func(fd uintptr) {
		if !use.isAllowed(fd) {
			err = errFewDescriptors
		}
	})
	return cmp.Or(failed, err)
}

// checkDial is the Control of a net.Dialer for connections to servers.
func checkDial(_, _ string, c syscall.RawConn) error { return forServers.check(c) }

// checkFile is check for a connection or an open file.
func (use descriptorUse) checkFile(f syscall.Conn) error {
	c, err := f.SyscallConn() // os.File.Fd would make the file blocking
	if err != nil {
		return err
	}
	return use.check(c)
}
