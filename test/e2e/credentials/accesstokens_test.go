package credentials

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/peers"
)

// listenerFor starts a gatekit that accepts the tokens of a provider. settings are those of the
// issuer.
func listenerFor(t *testing.T, p *provider, settings string) *harness.Gatekit {
	t.Helper()
	return start(t, fmt.Sprintf(`public_url = "https://gatekit.example"
[listen.auth]
scopes = ["read"]
skew = "1s"
[[listen.auth.issuer]]
issuer = %q
%s
`, p.issuer, settings)+harness.ScriptedServer("box"))
}

// statusOf sends a request with an access token, and returns the status of the answer.
func statusOf(t *testing.T, g *harness.Gatekit, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(harness.Context(t), http.MethodPost, g.URL,
		strings.NewReader(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// wantRefused fails the test unless a token gets status 401, and the audit log has a refusal with
// the reason and without the token.
func wantRefused(t *testing.T, g *harness.Gatekit, token, reason string) {
	t.Helper()
	if got := statusOf(t, g, token); got != http.StatusUnauthorized {
		t.Errorf("got status %d, want 401 because %s", got, reason)
	}
	if !slices.ContainsFunc(g.Records(), func(r harness.Record) bool {
		return r.Action == "refuse" && strings.Contains(r.Reason, reason)
	}) {
		t.Errorf("the audit log has no refusal because %s", reason)
	}
	wantNotLogged(t, g, token)
}

// wantNotLogged fails the test if the last part of a token is in a log.
func wantNotLogged(t *testing.T, g *harness.Gatekit, token string) {
	t.Helper()
	secret := token[strings.LastIndex(token, ".")+1:]
	if strings.Contains(strings.Join(g.LogLines(), "\n")+g.Stderr.String(), secret) {
		t.Error("the token is in a log")
	}
}

// wantAccepted fails the test unless a client can call a tool with a token of ann, in each
// revision.
func wantAccepted(t *testing.T, g *harness.Gatekit, p *provider, token string) {
	t.Helper()
	for _, revision := range harness.Revisions {
		c := bearer(t, g, token, revision)
		harness.Handshake(t, c)
		if m := harness.CallTool(t, c, "box__echo", `{"text":"hi"}`); m.Error != nil {
			t.Errorf("%s: got the error %s, want a result", revision, m.Error)
		}
	}
	calls := 0
	for _, r := range g.Records() {
		if r.Method == "tools/call" && r.Action == "pass" {
			calls++
			if r.Principal != p.issuer+"#ann" || r.Client != "editor" {
				t.Errorf("the record %s has the principal %q and the client %q", r, r.Principal,
					r.Client)
			}
		}
	}
	if calls == 0 {
		t.Error("the audit log has no call")
	}
	wantNotLogged(t, g, token)
}

// TestAccessTokensOfAProvider presents JWTs of certified authorization servers to the listener. It
// finds the keys by the metadata of the issuer. No token is in a metric.
func TestAccessTokensOfAProvider(t *testing.T) {
	for _, at := range authorizationServers {
		t.Run(string(at), func(t *testing.T) {
			p, admin := at.start(t, 3600, 3600, "JWTS=1"), peers.FreeAddress(t)
			g := listenerFor(t, p, fmt.Sprintf("[admin]\nhttp = %q", admin))
			token := p.accessToken("ann")
			wantAccepted(t, g, p, token)
			wantRefused(t, g, p.accessTokenFor("https://other.example/mcp", "editor", "ann",
				"read"), "the audience")
			if got := statusOf(t, g, p.accessTokenOf("editor", "ann", "write")); got !=
				http.StatusForbidden {
				t.Errorf("without the scope: got status %d, want 403", got)
			}
			signature := strings.LastIndex(token, ".") + 1
			wantRefused(t, g, token[:signature]+strings.Repeat("A", len(token)-signature),
				"signature")
			answer, err := http.Get("http://" + admin + "/metrics")
			metrics := p.read(answer, err)
			if !strings.Contains(metrics, `mcp_method_name="tools/call"`) ||
				strings.Contains(metrics, token[signature:]) || strings.Contains(metrics, "eyJ") {
				t.Errorf("got the metrics\n%s\nwant those of the calls, and no token", metrics)
			}
		})
	}
}

// TestExpiredAccessTokensOfAProvider waits until a token has expired.
func TestExpiredAccessTokensOfAProvider(t *testing.T) {
	t.Parallel()
	for _, at := range authorizationServers {
		for _, kind := range []struct{ name, env, settings, reason string }{
			{"JWT", "JWTS=1", "", "the token expired at"},
			{"opaque", "JWTS=", introspected, "the issuer does not accept the token"},
		} {
			t.Run(string(at)+", "+kind.name, func(t *testing.T) {
				t.Parallel()
				p := at.start(t, 1, 3600, kind.env)
				g := listenerFor(t, p, kind.settings)
				token := p.accessToken("ann")
				harness.WaitUntilAtMost(t, "an accepted token", 0, func() int {
					if statusOf(t, g, token) == http.StatusUnauthorized {
						return 0
					}
					return 1
				})
				wantRefused(t, g, token, kind.reason)
			})
		}
	}
}

// introspected are settings of an issuer that is asked about each token.
const introspected = `tokens = "introspection"
introspect = { id = "server", secret = "server", cache = "1s" }`

// TestRevokedAccessTokenOfAProvider revokes an opaque token.
func TestRevokedAccessTokenOfAProvider(t *testing.T) {
	for _, at := range authorizationServers {
		t.Run(string(at), func(t *testing.T) {
			p := at.start(t, 3600, 3600)
			g := listenerFor(t, p, introspected)
			token := p.accessToken("ann")
			wantAccepted(t, g, p, token)
			answer, err := http.PostForm(p.issuer+"/token/revocation", url.Values{
				"token": {token}, "token_type_hint": {"access_token"}, "client_id": {"editor"}})
			if p.read(answer, err); answer.StatusCode != http.StatusOK {
				t.Fatalf("the revocation got status %d", answer.StatusCode)
			}
			harness.WaitUntilAtMost(t, "an accepted token", 0, func() int {
				if statusOf(t, g, token) == http.StatusUnauthorized {
					return 0
				}
				return 1
			})
			wantRefused(t, g, token, "the issuer does not accept the token")
		})
	}
}

// TestProviderReplacesItsKey replaces the key that signs tokens. Tokens of the new key are accepted
// at once, and those of the old key no longer.
func TestProviderReplacesItsKey(t *testing.T) {
	p := zitadelOIDC.start(t, 3600, 3600, "JWTS=1")
	g := listenerFor(t, p, "")
	old := p.accessToken("ann")
	wantAccepted(t, g, p, old)
	answer, err := http.Post(p.issuer+"/rotate", "", nil)
	p.read(answer, err)
	wantAccepted(t, g, p, p.accessToken("ann"))
	wantRefused(t, g, old, "the issuer has no key")
}
