//go:build !linux

package sink

import "net"

// unacknowledged is not known here.
func unacknowledged(net.Conn) (n int, known bool) { return 0, false }
