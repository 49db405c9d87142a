package peers

import (
	"fmt"
	"os"
	"syscall"
)

// reserve answers an address of the loopback interface, and keeps it until free is called: a socket
// is bound to it and does not listen. Linux then gives the port to nobody who asks for any, and
// lets one who asks for this port (with SO_REUSEADDR, which Go's listeners and Node's have) listen
// on it.
func reserve() (address string, free func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, os.NewSyscallError("socket", err)
	}
	free = func() { syscall.Close(fd) }
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var at syscall.Sockaddr
	if err == nil {
		at, err = syscall.Getsockname(fd)
	}
	if err != nil {
		free()
		return "", nil, os.NewSyscallError("bind", err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port), free, nil
}
