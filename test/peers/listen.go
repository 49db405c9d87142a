package peers

import (
	"net"
	"testing"
	"time"
)

// FreeAddress is an address of the loopback interface that nobody listens on. Where the system can,
// it is kept for the test's own processes until the test is over: other tests, in this process and
// in others, are looking for ports at the same time, and a server that came too late for its port
// leaves its test talking to somebody else's.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, free, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(free)
	return address
}

// Listening waits until somebody listens on the address, for as long as alive says that there is
// hope.
func Listening(address string, alive func() bool) bool {
	// another process: there is nothing to wait on
	for deadline := time.Now().Add(2 * time.Minute); alive() &&
		time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return true
		}
	}
	return false
}
