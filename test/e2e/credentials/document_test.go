package credentials

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
)

// TestLoginWithOwnClientDocument logs in with no client in the configuration: the authorization
// server reads the document that Gatekit serves, behind a TLS proxy, below its public_url.
func TestLoginWithOwnClientDocument(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			front := startFront(t, true)
			certificate := filepath.Join(t.TempDir(), "front.pem")
			if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
				Bytes: front.Certificate().Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
			a := oidcProvider.start(t, 3600, 3600, "NODE_EXTRA_CA_CERTS="+certificate)
			p := protectedBy(t, a, false)
			public := front.URL + "/gate"
			g := start(t, fmt.Sprintf("public_url = %q\n", public)+oauth(p)+
				harness.ScriptedServer("other"))
			front.forward(t, g)

			c := connect(t, g, revision)
			harness.Handshake(t, c)
			subscribe(t, c)
			wantNoLogin(t, c, "gatekit auth login box")
			mark := c.Mark()
			out := a.logIn(t, g.Dir, "ann", "box")
			awaitChange(t, c, mark)
			wantUser(t, c, "ann")
			listed, _ := gatekit(t, g.Dir, "auth", "list", "--json")
			document := public + "/connect/client.json"
			if !strings.Contains(listed, `"client":"`+document+`"`) {
				t.Errorf("auth list printed %s, want the client %s", listed, document)
			}
			p.refuse(p.tokensSeen()[0])
			wantUser(t, c, "ann") // refreshes, with the same client
			if n := a.count("registration"); n != 0 {
				t.Errorf("%d registrations, want none", n)
			}
			if got := actions(g); got["login"] != 1 || got["refreshed"] != 1 ||
				got["registered"] != 0 {
				t.Errorf("got the events %v, want one login and one refresh", got)
			}
			for _, r := range g.Records() {
				if r.Action == "login" && !strings.Contains(r.Reason, "client "+document) {
					t.Errorf("the record of the login has the reason %s", r.Reason)
				}
			}
			wantHidden(t, g, p, out, listed)
		})
	}
}

// TestClientDocumentIsPublic reads the document without authentication, which the MCP endpoint
// wants.
func TestClientDocumentIsPublic(t *testing.T) {
	_, table := staticToken(t, "ann")
	g := start(t, "public_url = \"https://gate.example/team\"\n"+table+
		harness.ScriptedServer("box"))
	at := strings.TrimSuffix(g.URL, "/mcp")
	for _, c := range []struct {
		method, path, host string
		status             int
	}{
		{"GET", "/connect/client.json", "gate.example", 200},
		{"GET", "/team/connect/client.json", "gate.example", 200},
		{"HEAD", "/connect/client.json", "gate.example", 200},
		{"POST", "/connect/client.json", "gate.example", 405},
		{"OPTIONS", "/connect/client.json", "gate.example", 405},
		{"GET", "/connect/client.json", "evil.example", 403},
		{"GET", "/connect/", "gate.example", 404},
		{"GET", "/mcp", "gate.example", 401},
	} {
		r, err := http.NewRequestWithContext(harness.Context(t), c.method, at+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		r.Header.Set("Accept", "text/event-stream")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != c.status {
			t.Errorf("%s %s: status %d, want %d", c.method, c.path, answer.StatusCode, c.status)
		}
		if c.status != 200 {
			continue
		}
		if got := answer.Header.Get("Cache-Control"); got != "public, max-age=600" ||
			answer.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: headers %v", c.method, c.path, answer.Header)
		}
		const id = `"client_id": "https://gate.example/team/connect/client.json"`
		if c.method == "GET" && !strings.Contains(string(b), id) || c.method == "HEAD" &&
			len(b) > 0 {
			t.Errorf("%s %s: got %s", c.method, c.path, b)
		}
	}
	refused := 0
	for _, r := range g.Records() {
		if strings.Contains(r.Reason, "a document can only be read") {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("%d records of refused requests for the document, want 2", refused)
	}
}
