//go:build !linux

package peers

import "net"

// Reserve returns an address that no process listens on now. These systems cannot reserve an
// address for another process.
func Reserve() (address string, free func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), func() {}, l.Close()
}
