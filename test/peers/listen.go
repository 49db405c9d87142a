package peers

import (
	"net"
	"testing"
	"time"
)

// FreeAddress returns a loopback address that no process listens on. On Linux the address stays
// reserved for the processes of this test until the test ends. Without this, another test could
// take the port first, and this test would connect to the other test's server.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, free, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(free)
	return address
}

// Listening waits until a process listens on the address. It returns false after two minutes, or
// when alive returns false.
func Listening(address string, alive func() bool) bool {
	// The listener is in another process, so Listening has to poll.
	for deadline := time.Now().Add(2 * time.Minute); alive() &&
		time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return true
		}
	}
	return false
}
