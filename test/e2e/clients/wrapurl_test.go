package clients

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// TestWrapStandsBeforeARemoteServer puts gatekit wrap --url before a server that wants a token. The
// server is another Gatekit. Calls pass, a call with a disguised path is denied, and neither the
// audit log nor stderr has the token.
func TestWrapStandsBeforeARemoteServer(t *testing.T) {
	secret := strings.Repeat("5ec2e7", 11)[:64]
	token, sum := "gk_ci_"+secret, sha256.Sum256([]byte(secret))
	far := harness.StartHTTP(t, "[listen.auth.token.ci]\nsubject = \"ci\"\nsha256 = \""+
		hex.EncodeToString(sum[:])+"\"\n"+harness.ScriptedServer("one"))
	g := harness.Prepare(t, "") // for its folder and the checks of its log
	g.Cmd = exec.Command(peers.Gatekit(t), "wrap", "--audit", filepath.Join(g.Dir, "audit.jsonl"),
		"--url", far.URL, "--header", "Authorization=Bearer ${env:FAR_TOKEN}")
	g.Cmd.Dir, g.Cmd.Stderr, g.Cmd.WaitDelay = g.Dir, g.Stderr, 10*time.Second
	g.Cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+g.Dir, "FAR_TOKEN="+token)
	p, err := mcptest.Command(g.Cmd)
	if err != nil {
		t.Fatal(err)
	}
	c := mcptest.NewClient(p, "2025-11-25")
	g.Reap(p.Wait)
	harness.Handshake(t, c)
	harness.CallTool(t, c, "one__echo", `{"text":"hello"}`)
	harness.WantDenied(t, c, "tools/call",
		`{"name":"one__echo","arguments":{"path":"reports/..%2f..%2fetc%2fpasswd"}}`)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-g.Exited
	g.CheckChain()
	g.WantRecords("to_client response tools/call server one__echo pass",
		"to_server request tools/call server one__echo deny")
	far.WantRecords("to_server request tools/call one echo pass")
	log := strings.Join(g.LogLines(), "\n") + g.Stderr.String()
	if strings.Contains(log, secret) {
		t.Errorf("the token is in the log:\n%s", log)
	}
}
