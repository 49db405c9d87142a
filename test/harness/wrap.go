package harness

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// Wrap starts `gatekit wrap FLAGS -- COMMAND` as the child of a scripted client. It does not make
// the handshake. env holds names and values of the server's environment in turn.
func Wrap(t *testing.T, revision string, flags, command []string,
	env ...string) (*Gatekit, *mcptest.Client) {
	t.Helper()
	return WrapIn(t, "", revision, flags, command, env...)
}

// WrapIn is Wrap in a folder. If dir is empty, the folder is new.
func WrapIn(t *testing.T, dir, revision string, flags, command []string,
	env ...string) (*Gatekit, *mcptest.Client) {
	t.Helper()
	g := Prepare(t, "")
	args := append([]string{"wrap", "--audit", filepath.Join(g.Dir, "audit.jsonl"),
		"--env", "GATEKIT_E2E=" + g.Mark}, flags...)
	for i := 0; i < len(env); i += 2 {
		args = append(args, "--env", env[i]+"="+env[i+1])
	}
	g.Cmd = exec.Command(peers.Gatekit(t), append(append(args, "--"), command...)...)
	g.Cmd.Dir, g.Cmd.Stderr, g.Cmd.WaitDelay = cmp.Or(dir, g.Dir), g.Stderr, 10*time.Second
	if os.Getenv("XDG_STATE_HOME") == "" { // each launch has a lock file in the state folder
		g.Cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir())
	}
	p, err := mcptest.Command(g.Cmd)
	if err != nil {
		t.Fatal(err)
	}
	c := mcptest.NewClient(p, revision)
	g.Reap(p.Wait)
	t.Cleanup(func() { c.Close() })
	return g, c
}

// WrapScripted starts gatekit wrap with a scripted server and makes the handshake.
func WrapScripted(t *testing.T, revision string, flags ...string) (*Gatekit, *mcptest.Client) {
	t.Helper()
	g, c := Wrap(t, revision, flags, []string{os.Args[0]}, "MCPTEST_SERVE", "1", "GORACE",
		"atexit_sleep_ms=0")
	c.Capabilities = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}`
	Handshake(t, c)
	return g, c
}

// WantNothingChanged fails the test unless messages passed, and no message was denied or changed.
func (g *Gatekit) WantNothingChanged() {
	g.T.Helper()
	passed := 0
	for _, r := range g.Records() {
		switch r.Action {
		case "deny", "modify", "hide", "ask", "skip":
			g.T.Errorf("got the record %s: %s %s, want no message denied or changed", r, r.Reason,
				r.Error)
		case "pass":
			passed++
		}
	}
	if passed == 0 {
		g.T.Error("the audit log has no message that passed, want at least one")
	}
}
