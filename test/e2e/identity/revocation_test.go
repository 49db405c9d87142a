package identity_test

import (
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/issuertest"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// authCommand runs gatekit auth with the configuration of g.
func authCommand(t *testing.T, g *harness.Gatekit, args ...string) (out string, err error) {
	t.Helper()
	b, err := exec.Command(peers.Gatekit(t), append(append([]string{"auth"}, args...), "--config",
		filepath.Join(g.Dir, "gatekit.toml"))...).CombinedOutput()
	return string(b), err
}

// A revoked principal loses its streams, its session and its running call, and its token. Nobody
// else notices. A token that was issued later begins anew.
func TestRevokedPrincipalLosesWhatItHas(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			i := issuertest.Start(t)
			g := start(t, i, "")
			ann, bob := connect(t, g, i, "ann", revision), connect(t, g, i, "bob", revision)
			annPID := serverPID(t, ann, "box")
			harness.StartWaitingCall(t, ann.Client, "box", "77", "a")
			harness.StartWaitingCall(t, bob.Client, "box", "77", "b")
			stream := openStream(t, strings.TrimSuffix(g.URL, "/mcp")+"/sse",
				ann.http.Header.Get("Authorization"))
			if out, err := authCommand(t, g, "revoke", i.URL+"#ann", "--reason",
				"laptop lost"); err != nil {
				t.Fatalf("auth revoke: %v\n%s", err, out)
			}
			if _, err := io.ReadAll(stream); err != nil && !strings.Contains(err.Error(), "EOF") {
				t.Errorf("ann's stream of the old transport ended with %v", err)
			}
			harness.WaitUntilAtMost(t, "processes of ann", 0, func() int {
				if syscall.Kill(annPID, 0) != nil {
					return 0
				}
				return 1
			})
			old := strings.TrimPrefix(ann.http.Header.Get("Authorization"), "Bearer ")
			if answer, body := post(t, g, "POST", g.URL, old); answer.StatusCode != 401 ||
				strings.Contains(body, "laptop") {
				t.Errorf("with her old token, ann got status %d and %s, want 401 and no reason",
					answer.StatusCode, body)
			}
			harness.CallTool(t, bob.Client, "box__echo", "{}")
			harness.WantNoAnswer(t, bob.Client, "77")
			if out, err := authCommand(t, g, "revoke"); err != nil ||
				!strings.Contains(out, "#ann") || !strings.Contains(out, "laptop lost") {
				t.Errorf("auth revoke prints %s, %v", out, err)
			}

			again := mcptest.NewHTTP(g.URL)
			again.Header.Set("Authorization", "Bearer "+i.Token("first", i.Claims(resource,
				map[string]any{"sub": "ann", "iat": time.Now().Add(40 * time.Second).Unix()})))
			c := mcptest.NewClient(again, revision)
			t.Cleanup(func() { c.Close() })
			harness.Handshake(t, c)
			harness.CallTool(t, c, "box__echo", "{}")

			if out, err := authCommand(t, g, "revoke", "remove", i.URL+"#ann"); err != nil {
				t.Errorf("auth revoke remove: %v\n%s", err, out)
			}
			if answer, body := post(t, g, "POST", g.URL, old); answer.StatusCode != 200 {
				t.Errorf("after the removal, ann got status %d and %s", answer.StatusCode, body)
			}
			if out, err := authCommand(t, g, "revoke", "remove", i.URL+"#ann"); err == nil ||
				!strings.Contains(out, "is not revoked") {
				t.Errorf("a second removal prints %s, %v", out, err)
			}
			bob.Close() // so that gatekit does not wait for the open call
			g.Stop()
			var events []string
			for _, r := range g.Records() {
				if r.Principal == i.URL+"#ann" && (r.Action == "revoke" || r.Action == "readmit" ||
					r.Action == "refuse" && strings.Contains(r.Reason, "revoked")) {
					events = append(events, r.Action)
				}
			}
			text := strings.Join(events, " ")
			if !strings.HasPrefix(text, "revoke refuse") || !strings.HasSuffix(text, "readmit") {
				t.Errorf("the records of ann are %q, want revoke, refuse, readmit", text)
			}
		})
	}
}

// Without a running Gatekit, a revocation holds from the next start.
func TestRevocationWithoutARunningGatekit(t *testing.T) {
	i := issuertest.Start(t)
	g := start(t, i, "")
	token := i.Token("first", i.Claims(resource, map[string]any{"sub": "ann"}))
	if answer, _ := post(t, g, "POST", g.URL, token); answer.StatusCode != 200 {
		t.Fatalf("got status %d, want 200", answer.StatusCode)
	}
	g.Stop()
	if out, err := authCommand(t, g, "revoke", i.URL+"#ann"); err == nil ||
		!strings.Contains(out, "needs a reason") {
		t.Errorf("without a reason: got %s, %v", out, err)
	}
	if out, err := authCommand(t, g, "revoke", i.URL+"#ann", "--reason", "left"); err != nil {
		t.Fatalf("auth revoke: %v\n%s", err, out)
	}
	g.WantReasons("left")
}

// openStream opens an event stream and reads its first bytes.
func openStream(t *testing.T, url, authorization string) io.Reader {
	t.Helper()
	r, err := http.NewRequestWithContext(harness.Context(t), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", authorization)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	if _, err := answer.Body.Read(make([]byte, 1)); err != nil || answer.StatusCode != 200 {
		t.Fatalf("the stream began with status %d, %v", answer.StatusCode, err)
	}
	return answer.Body
}
