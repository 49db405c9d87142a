package peers

import (
	"net"
	"testing"
	"time"
)

// FreeAddress returns a loopback address that nobody listens on. On Linux it stays reserved for the
// processes of this test until the test is over. Otherwise another test could take the port first,
// and this test would talk to the other's server.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, free, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(free)
	return address
}

// Listening waits until somebody listens on the address, and reports whether that happened. It
// gives up after two minutes, or when alive returns false.
func Listening(address string, alive func() bool) bool {
	// polling, since another process listens
	for deadline := time.Now().Add(2 * time.Minute); alive() &&
		time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return true
		}
	}
	return false
}
