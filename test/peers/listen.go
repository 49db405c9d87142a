package peers

import (
	"net"
	"os"
	"os/exec"
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

// Serve starts a server and waits until it listens on the address. It is interrupted when the test ends.
func Serve(t testing.TB, cmd *exec.Cmd, address string) {
	t.Helper()
	if cmd.Stderr == nil {
		cmd.Stderr = t.Output()
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			cmd.Process.Kill()
			<-ended
			t.Errorf("%s did not end when it was interrupted", cmd)
		}
	})
	if !Listening(address, func() bool { return len(ended) == 0 }) {
		t.Fatalf("%s does not listen on %s", cmd, address)
	}
}
