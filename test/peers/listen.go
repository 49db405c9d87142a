package peers

import (
	"net"
	"testing"
	"time"
)

// FreeAddress is an address of the loopback interface that nobody listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Listening waits until somebody listens on the address, for as long as alive says that there is hope.
func Listening(address string, alive func() bool) bool {
	for deadline := time.Now().Add(20 * time.Second); alive() && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) { // another process: there is nothing to wait on
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return true
		}
	}
	return false
}
