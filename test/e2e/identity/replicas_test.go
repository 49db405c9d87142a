package identity_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/issuertest"
	"gatekit/test/peers"
	"gatekit/test/redistest"
)

// startReplica starts a replica with a folder of its own, and the table [shared].
func startReplica(t *testing.T, i *issuertest.Issuer, state *redistest.Server) *harness.Gatekit {
	t.Helper()
	dir := t.TempDir()
	return harness.StartHTTPIn(t, dir, fmt.Sprintf(`state_key = %q
public_url = "https://gatekit.example"
[[listen.auth.issuer]]
issuer = %q
[shared]
url = "redis://%s"
timeout = "5s"
`, strings.Repeat("k", 32), i.URL, state.Addr)+harness.ScriptedServer("box"), stateIn(dir))
}

func stateIn(dir string) string { return "XDG_STATE_HOME=" + filepath.Join(dir, "state") }

// authBeside runs gatekit auth beside a replica.
func authBeside(t *testing.T, g *harness.Gatekit, args ...string) (out string, err error) {
	t.Helper()
	c := exec.Command(peers.Gatekit(t), append([]string{"auth"}, args...)...)
	c.Dir, c.Env = g.Dir, append(os.Environ(), stateIn(g.Dir))
	b, err := c.CombinedOutput()
	return string(b), err
}

// wantStatus waits until all replicas answer a token with a status.
func wantStatus(t *testing.T, all []*harness.Gatekit, token string, status int) {
	t.Helper()
	for i, g := range all {
		harness.WaitUntilAtMost(t, fmt.Sprintf("answers of replica %d without %d", i, status), 0,
			func() int {
				if answer, _ := post(t, g, http.MethodPost, g.URL, token); answer.StatusCode ==
					status {
					return 0
				}
				return 1
			})
	}
}

// A revocation beside one replica holds in all of them within a second, and in those that start
// later. Each has a record. So has its end.
func TestRevocationHoldsInEveryReplica(t *testing.T) {
	i := issuertest.Start(t)
	state := redistest.Start(t)
	var all []*harness.Gatekit
	for range 3 {
		all = append(all, startReplica(t, i, state))
	}
	ann := i.Token("first", i.Claims(resource, map[string]any{"sub": "ann"}))
	bob := i.Token("first", i.Claims(resource, map[string]any{"sub": "bob"}))
	wantStatus(t, all, ann, http.StatusOK)
	began := time.Now()
	if out, err := authBeside(t, all[0], "revoke", i.URL+"#ann", "--reason", "lost"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wantStatus(t, all, ann, http.StatusUnauthorized)
	t.Logf("all replicas refuse the principal after %v", time.Since(began).Round(time.Millisecond))
	wantStatus(t, all, bob, http.StatusOK)
	late := startReplica(t, i, state)
	if answer, _ := post(t, late, http.MethodPost, late.URL, ann); answer.StatusCode !=
		http.StatusUnauthorized {
		t.Errorf("a replica that starts later answers with status %d", answer.StatusCode)
	}
	all = append(all, late)
	if out, err := authBeside(t, all[1], "revoke"); err != nil || !strings.Contains(out, "#ann") {
		t.Errorf("auth revoke beside another replica prints %s, %v", out, err)
	}
	all[2].Stop() // beside a replica that does not run, the command tells the others itself
	if out, err := authBeside(t, all[2], "revoke", "remove", i.URL+"#ann"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	running := []*harness.Gatekit{all[0], all[1], late}
	wantStatus(t, running, ann, http.StatusOK)
	if out, err := authBeside(t, all[2], "revoke", i.URL+"#ann", "--reason", "again"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wantStatus(t, running, ann, http.StatusUnauthorized)
	for n, g := range all {
		var events []string
		for _, r := range g.Records() {
			if r.Principal == i.URL+"#ann" && (r.Action == "revoke" || r.Action == "readmit") {
				events = append(events, r.Action)
			}
		}
		if got := strings.Join(events, " "); got != "revoke readmit revoke" {
			t.Errorf("replica %d has recorded %q, want revoke, readmit and revoke", n, got)
		}
	}
}

// Without the state, the revocations that are known count for 10 s. Then no client is accepted,
// until the state is back.
func TestRevocationsWithoutTheState(t *testing.T) {
	harness.Long(t, "replicas accept clients for 10 s without the state")
	i := issuertest.Start(t)
	state := redistest.Start(t)
	g := startReplica(t, i, state)
	ann := i.Token("first", i.Claims(resource, map[string]any{"sub": "ann"}))
	wantStatus(t, []*harness.Gatekit{g}, ann, http.StatusOK)
	state.Kill(t)
	if answer, _ := post(t, g, http.MethodPost, g.URL, ann); answer.StatusCode != http.StatusOK {
		t.Errorf("at first, the status is %d, want 200", answer.StatusCode)
	}
	wantStatus(t, []*harness.Gatekit{g}, ann, http.StatusServiceUnavailable)
	if out, err := authBeside(t, g, "revoke", i.URL+"#bob", "--reason", "lost"); err == nil ||
		!strings.Contains(out, "not yet in the others") {
		t.Errorf("auth revoke prints %s, %v; want an error", out, err)
	}
	g.WantReasons("the revocations of the other replicas are not known")
	state.Restart(t)
	wantStatus(t, []*harness.Gatekit{g}, ann, http.StatusOK)
	bob := i.Token("first", i.Claims(resource, map[string]any{"sub": "bob"}))
	wantStatus(t, []*harness.Gatekit{startReplica(t, i, state)}, bob, http.StatusUnauthorized)
}
