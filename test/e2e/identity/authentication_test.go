// Package identity_test tests with a real gatekit who may use the HTTP endpoint.
package identity_test

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/issuertest"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// start starts a gatekit that accepts the tokens of an issuer on this machine.
func start(t *testing.T, i *issuertest.Issuer, rest string) *harness.Gatekit {
	t.Helper()
	return harness.StartHTTP(t, fmt.Sprintf(`sse = true
public_url = "https://gatekit.example"
[listen.auth]
scopes = ["mcp"]
[[listen.auth.issuer]]
issuer = %q
`, i.URL)+rest+harness.ScriptedServer("box"))
}

const resource = "https://gatekit.example/mcp"

// post sends initialize with a token, and returns the answer without its body, and the body.
func post(t *testing.T, g *harness.Gatekit, method, url, token string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(harness.Context(t), method, url, strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
			`"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(b)
}

func TestTokensOfAnIssuer(t *testing.T) {
	i := issuertest.Start(t)
	g := start(t, i, "")
	claims := i.Claims(resource, nil)
	good := i.Token("first", claims)
	cases := []struct {
		name, token string
		want        int
		record      string
	}{
		{"no token", "", 401, "the request has no credential"},
		{"expired", i.Token("first", i.Claims(resource, map[string]any{
			"exp": time.Now().Add(-time.Hour).Unix()})), 401, "the token expired at"},
		{"wrong audience", i.Token("first", i.Claims("https://other.example", nil)), 401,
			"the audience"},
		{"wrong issuer", i.Token("first", i.Claims(resource, map[string]any{
			"iss": "https://evil.example"})), 401, "is not configured"},
		{"too few scopes", i.Token("first", i.Claims(resource, map[string]any{"scope": "x"})), 403,
			"the token does not have the scopes mcp"},
		{"good", good, 200, ""},
	}
	for _, tt := range cases {
		answer, body := post(t, g, http.MethodPost, g.URL, tt.token)
		if answer.StatusCode != tt.want {
			t.Errorf("%s: got status %d and %s, want %d", tt.name, answer.StatusCode, body, tt.want)
		}
		challenge := answer.Header.Get("WWW-Authenticate")
		if (tt.want != 200) != strings.Contains(challenge, `resource_metadata="https://`+
			`gatekit.example/.well-known/oauth-protected-resource/mcp"`) {
			t.Errorf("%s: got the challenge %s", tt.name, challenge)
		}
		if tt.record != "" && strings.Contains(body, tt.record) {
			t.Errorf("%s: the client got the detail: %s", tt.name, body)
		}
	}

	// A key that was rotated is known at once, and the withdrawn one no longer counts.
	i.AddKey("second", "RS256")
	i.Withdraw("first")
	if answer, body := post(t, g, http.MethodPost, g.URL, i.Token("second",
		claims)); answer.StatusCode != 200 {
		t.Errorf("rotated key: got status %d and %s, want 200", answer.StatusCode, body)
	}
	if answer, _ := post(t, g, http.MethodPost, g.URL, good); answer.StatusCode != 401 {
		t.Errorf("withdrawn key: got status %d, want 401", answer.StatusCode)
	}

	// The endpoint and the old transport need a token for every method. The metadata does not.
	base := strings.TrimSuffix(g.URL, "/mcp")
	for _, tt := range []struct{ method, path string }{{"GET", "/mcp"}, {"DELETE", "/mcp"},
		{"GET", "/sse"}, {"POST", "/messages?sid=1"}} {
		if answer, _ := post(t, g, tt.method, base+tt.path, ""); answer.StatusCode != 401 {
			t.Errorf("%s %s: got status %d, want 401", tt.method, tt.path, answer.StatusCode)
		}
	}
	for _, path := range []string{"", "/mcp"} {
		answer, body := post(t, g, "GET", base+"/.well-known/oauth-protected-resource"+path, "")
		if answer.StatusCode != 200 || !strings.Contains(body, i.URL) ||
			!strings.Contains(body, resource) {
			t.Errorf("metadata at %q: got status %d and %s", path, answer.StatusCode, body)
		}
	}
	if answer, _ := post(t, g, "POST", g.URL+"?access_token="+good, ""); answer.StatusCode != 400 {
		t.Errorf("token in the URL: got status %d, want 400", answer.StatusCode)
	}

	g.Stop()
	var refused []string
	principals := map[string]bool{}
	for _, r := range g.Records() {
		if r.Action == "refuse" {
			refused = append(refused, r.Reason)
		}
		if r.Method == "initialize" {
			principals[r.Principal] = true
		}
	}
	for _, tt := range cases {
		if tt.record != "" && !slices.ContainsFunc(refused, func(reason string) bool {
			return strings.Contains(reason, fmt.Sprintf("HTTP %d", tt.want)) &&
				strings.Contains(reason, tt.record)
		}) {
			t.Errorf("%s: got the refusals %q, want one with %q", tt.name, refused, tt.record)
		}
	}
	if len(principals) != 1 || !principals[i.URL+"#ann"] {
		t.Errorf("got the principals %v, want only ann of the issuer", principals)
	}
	// No token is in a log: each has a signature that nothing else has.
	written := g.Stderr.String() + strings.Join(g.LogLines(), "\n")
	for _, tt := range cases {
		if at := strings.LastIndex(tt.token, "."); at > 0 && strings.Contains(written,
			tt.token[at+1:]) {
			t.Errorf("%s: the token is in a log", tt.name)
		}
	}
}

// A client with a token works as one without on a listener without authentication.
func TestClientsWithTokens(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			i := issuertest.Start(t)
			g := start(t, i, "")
			h := mcptest.NewHTTP(g.URL)
			h.Header.Set("Authorization", "Bearer "+i.Token("first", i.Claims(resource, nil)))
			c := mcptest.NewClient(h, revision)
			t.Cleanup(func() { c.Close() })
			harness.Handshake(t, c)
			if m := harness.CallTool(t, c, "box__echo", `{"text":"hi"}`); m.Error != nil {
				t.Errorf("got the error %s, want a result", m.Error)
			}
			// A refreshed token keeps the session.
			h.Header.Set("Authorization", "Bearer "+i.Token("first", i.Claims(resource,
				map[string]any{"jti": "2"})))
			if m := harness.CallTool(t, c, "box__echo", `{"text":"hi"}`); m.Error != nil {
				t.Errorf("with a refreshed token: got the error %s, want a result", m.Error)
			}
			calls := 0
			for _, r := range g.Records() {
				if r.Method == "tools/call" && r.Principal == i.URL+"#ann" && r.Action == "pass" {
					calls++
				}
			}
			if calls != 4 {
				t.Errorf("got %d records of ann's calls, want 4", calls)
			}
		})
	}
}

// The table that auth token prints makes its token valid, and auth explain shows why another token
// is not.
func TestStaticTokenFromItsCommand(t *testing.T) {
	out, err := exec.Command(peers.Gatekit(t), "auth", "token", "ci").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(out), "\n")
	token := lines[1]
	table := string(out)[strings.Index(string(out), "[listen.auth.token.ci]"):]
	if !strings.HasPrefix(token, "gk_ci_") || strings.Contains(table, token[6:]) {
		t.Fatalf("got %s, want a token and its table", out)
	}
	i := issuertest.Start(t)
	g := start(t, i, table+"scopes = [\"mcp\"]\n")
	if answer, body := post(t, g, "POST", g.URL, token); answer.StatusCode != 200 {
		t.Errorf("got status %d and %s, want 200", answer.StatusCode, body)
	}
	if answer, _ := post(t, g, "POST", g.URL, token+"0"); answer.StatusCode != 401 {
		t.Errorf("another secret: got status %d, want 401", answer.StatusCode)
	}
	explain := func(token string) (string, error) {
		cmd := exec.Command(peers.Gatekit(t), "auth", "explain", "--config",
			filepath.Join(g.Dir, "gatekit.toml"))
		cmd.Stdin = strings.NewReader(token + "\n")
		b, err := cmd.Output()
		if strings.Contains(string(b), token) {
			t.Errorf("explain printed the token: %s", b)
		}
		return string(b), err
	}
	for _, good := range []string{token, "Bearer " + i.Token("first", i.Claims(resource, nil))} {
		if b, err := explain(good); err != nil || strings.Contains(b, "FAIL") {
			t.Errorf("a good token: got error %v and\n%s", err, b)
		}
	}
	b, err := explain(i.Token("first", i.Claims("https://other.example", nil)))
	if err == nil || !strings.Contains(b, "FAIL  audience") ||
		strings.Count(b, "FAIL") != 1 {
		t.Errorf("a bad token: got error %v and\n%s\nwant one failed check", err, b)
	}
	g.Stop()
	found := false
	for _, r := range g.Records() {
		found = found || r.Method == "initialize" && r.Principal == "token:ci"
	}
	if !found {
		t.Error("got no record of token:ci")
	}
}

// Gatekit check fetches the metadata and keys of each issuer, and fails if it cannot.
func TestCheckAsksTheIssuers(t *testing.T) {
	i := issuertest.Start(t)
	i.AddKey("second", "ES256")
	asked := start(t, i, `tokens = "introspection"
introspect = { id = "gatekit", secret = "s" }
`)
	asked.Stop()
	g := start(t, i, "")
	g.Stop()
	check := func(g *harness.Gatekit) (string, error) {
		b, err := exec.CommandContext(harness.Context(t), peers.Gatekit(t), "check", "--config",
			filepath.Join(g.Dir, "gatekit.toml")).Output()
		return string(b), err
	}
	want := "ok    [listen.auth]  issuer " + i.URL + ": 2 keys\n"
	if out, err := check(g); err != nil || !strings.Contains(out, want) {
		t.Errorf("got error %v and\n%s\nwant the line %s", err, out, want)
	}
	want = "ok    [listen.auth]  issuer " + i.URL + ": asked about each token\n"
	if out, err := check(asked); err != nil || !strings.Contains(out, want) {
		t.Errorf("got error %v and\n%s\nwant the line %s", err, out, want)
	}
	i.Withdraw("first")
	i.Withdraw("second")
	out, err := check(g)
	if err == nil || !strings.Contains(out, "FAIL  [listen.auth]  issuer "+i.URL+": the JSON Web "+
		"Key Set has no key that can verify signatures\n") {
		t.Errorf("without keys: got error %v and\n%s", err, out)
	}
}
