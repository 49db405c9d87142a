package peers_test

import (
	"os"
	"os/exec"
	"testing"

	"gatekit/test/peers"
)

func TestThePinnedPeersAreThere(t *testing.T) {
	m := peers.Node(t)
	for _, name := range []string{"everything", "filesystem", "memory"} {
		if _, err := os.Stat(m.Server(name)[1]); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"everything-server", "everything-client", "listfeatures"} {
		if _, err := exec.LookPath(peers.Tool(t, name)); err != nil {
			t.Error(err)
		}
	}
}
