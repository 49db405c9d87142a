package peers

import (
	"fmt"
	"os"
	"syscall"
)

// Reserve returns a loopback address and reserves it until free is called, as FreeAddress does. A
// socket that is bound to the address but does not listen reserves it: Linux does not choose the
// port of this socket for other listeners. A listener that names the port can still use the address
// if it has SO_REUSEADDR, which Go and Node set.
func Reserve() (address string, free func(), err error) {
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
