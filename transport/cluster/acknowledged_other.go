//go:build !linux

package cluster

import "syscall"

// limitUnacknowledged does nothing: this system has no such limit for one connection.
func limitUnacknowledged(_, _ string, _ syscall.RawConn) error { return nil }
