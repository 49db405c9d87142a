package peers_test

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"gatekit/test/peers"
)

func TestPinnedPeersAreInstalled(t *testing.T) {
	m := peers.Node(t)
	for _, name := range []string{"everything", "filesystem", "memory"} {
		if _, err := os.Stat(m.Server(name)[1]); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(peers.Published(t).Path()); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"everything-server", "everything-client", "listfeatures"} {
		if _, err := exec.LookPath(peers.Tool(t, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestFreeAddressStaysReserved(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this system cannot reserve an address")
	}
	reserved := peers.FreeAddress(t)
	// the system would choose an unreserved port again within about 7000 listeners
	for range 20000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if l.Addr().String() == reserved {
			t.Fatalf("the reserved address %s was given to another listener", reserved)
		}
	}
	l, err := net.Listen("tcp", reserved)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
