//go:build !linux

package sink

import "net"

// unacknowledged cannot tell on this system.
func unacknowledged(net.Conn) (n int, known bool) { return 0, false }
