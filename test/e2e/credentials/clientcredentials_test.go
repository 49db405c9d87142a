package credentials

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// clientCredentials returns the configuration of a server, with a client secret.
func clientCredentials(p *protected, secret string) string {
	return harness.HTTPServer("box", p.url()) +
		"[server.box.auth]\ntype = \"client_credentials\"\n" +
		"issuer = \"" + p.auth.URL + "\"\n" +
		"client = { id = \"gatekit\", secret = \"" + secret + "\" }\n"
}

// connect connects a client that sends credentials of its own.
func connect(t *testing.T, g *harness.Gatekit, revision string) *mcptest.Client {
	connection := mcptest.NewHTTP(g.URL)
	connection.Header.Set("Authorization", "Bearer canary-token")
	connection.Header.Set("Cookie", "canary=1")
	c := mcptest.NewClient(connection, revision)
	c.Capabilities = `{}` // without elicitation.url, nobody is asked to log in
	t.Cleanup(func() { c.Close() })
	return c
}

// noSecrets fails the test if the audit log or the log contains a token or a secret.
func noSecrets(t *testing.T, g *harness.Gatekit) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(g.Dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"audit log": string(b), "log": g.Stderr.String()} {
		for _, secret := range []string{"secret-token", "s3cret", "canary", "secret-description"} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s contains %q", name, secret)
			}
		}
	}
}

func TestGatekitGetsATokenOfItsOwn(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		for _, revision := range []string{"2025-11-25", mcptest.Modern} {
			t.Run(era+" server, "+revision+" client", func(t *testing.T) {
				p := newProtected(t, era == "legacy")
				g := harness.StartHTTP(t, clientCredentials(p, "s3cret"))
				c := connect(t, g, revision)
				harness.Handshake(t, c)
				for range 2 {
					answer := harness.CallTool(t, c, "box__whoami", `{}`)
					if !strings.Contains(string(answer.Result), "you are gatekit") {
						t.Fatalf("got %s %s, want the name of the token's client", answer.Result,
							answer.Error)
					}
				}
				p.revoke()
				answer := harness.CallTool(t, c, "box__whoami", `{}`)
				if !strings.Contains(string(answer.Result), "you are gatekit") {
					t.Fatalf("with a revoked token, got %s %s", answer.Result, answer.Error)
				}
				g.WantRecords("- - - box - login", "- - - box - refreshed")
				if p.issued != 2 {
					t.Errorf("%d tokens were issued, want 2", p.issued)
				}
				p.check()
				noSecrets(t, g)
			})
		}
	}
}

func TestRefusedClientIsRecordedAndNotRelayed(t *testing.T) {
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			p := newProtected(t, false)
			g := harness.StartHTTP(t, clientCredentials(p, "wrong"))
			answer, err := connect(t, g, revision).Open(harness.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			text := string(answer.Error)
			if !strings.Contains(text, "could not obtain a token") ||
				strings.Contains(text, "secret-description") {
				t.Errorf("got %s %s, want an error that Gatekit could not obtain a token",
					answer.Result, text)
			}
			g.WantRecords("- - - box - rejected")
			p.check()
			noSecrets(t, g)
		})
	}
}
