package credentials

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

const gatekitResource = "https://gatekit.example/mcp"

// accessToken logs a user in as the client editor does, and returns the access token.
func (p *provider) accessToken(name string) string {
	p.t.Helper()
	return p.accessTokenOf("editor", name, "read")
}

// accessTokenOf logs a user in as a client does, and returns an access token for Gatekit with some
// scopes.
func (p *provider) accessTokenOf(client, name, scope string) string {
	p.t.Helper()
	return p.accessTokenFor(gatekitResource, client, name, scope)
}

// accessTokenFor is accessTokenOf for any resource.
func (p *provider) accessTokenFor(resource, client, name, scope string) string {
	p.t.Helper()
	var answer struct {
		DeviceCode  string `json:"device_code"`
		UserCode    string `json:"user_code"`
		Page        string `json:"verification_uri"`
		AccessToken string `json:"access_token"`
		Error       string `json:"error"`
	}
	post := func(path string, form url.Values) {
		p.t.Helper()
		form.Set("client_id", client)
		form.Set("resource", resource)
		r, err := http.PostForm(p.issuer+path, form)
		if err := json.Unmarshal([]byte(p.read(r, err)), &answer); err != nil {
			p.t.Fatal(err)
		}
	}
	post("/device/auth", url.Values{"scope": {scope}})
	p.enterCode(answer.Page, answer.UserCode, name)
	post("/token", url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"},
		"device_code": {answer.DeviceCode}})
	if answer.AccessToken == "" {
		p.t.Fatalf("%s got no access token: %s", name, answer.Error)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clientTokens = append(p.clientTokens, answer.AccessToken)
	return answer.AccessToken
}

// TestTokensOfClientsAreExchanged has a listener and a server with the same certified authorization
// server. Each of two users is known to the server, and no token of a client reaches it.
func TestTokensOfClientsAreExchanged(t *testing.T) {
	everywhere(t, func(t *testing.T, at authorizationServer, era, revision string) {
		a := at.start(t, 3600, 3600)
		p := protectedBy(t, a, era == "legacy")
		g := start(t, exchanging(a, p, ""))
		clients, tokens := map[string]*mcptest.Client{}, map[string]bool{}
		for _, name := range []string{"ann", "bob"} {
			token := a.accessToken(name)
			tokens[token] = true
			c := bearer(t, g, token, revision)
			harness.Handshake(t, c)
			clients[name] = c
		}
		for range 3 {
			for name, c := range clients {
				wantUser(t, c, name)
			}
		}
		if n := a.count("grant urn:ietf:params:oauth:grant-type:token-exchange"); n != 2 {
			t.Errorf("%d tokens were exchanged, want one for each user", n)
		}
		for name := range clients {
			if n := actions(g)[a.issuer+"#"+name+" exchanged"]; n != 1 {
				t.Errorf("got %d records of an exchange for %s, want 1", n, name)
			}
		}
		for _, seen := range p.tokensSeen() {
			if tokens[seen] {
				t.Error("the server got the token of a client")
			}
		}
		wantHidden(t, g, p)
	})
}

// TestClientsOfOneUserKeepTheirRights has two clients of one user, whose tokens have different
// scopes. Neither is sent to the server with the rights of the other.
func TestClientsOfOneUserKeepTheirRights(t *testing.T) {
	everywhere(t, func(t *testing.T, at authorizationServer, era, revision string) {
		a := at.start(t, 3600, 3600)
		p := protectedBy(t, a, era == "legacy")
		g := start(t, exchanging(a, p, ""))
		ask := func(client, scope string) func() {
			c := bearer(t, g, a.accessTokenOf(client, "ann", scope), revision)
			harness.Handshake(t, c)
			return func() {
				m, err := c.Tool(harness.Context(t), "box__scopes", `{}`)
				if got := string(m.Result); err != nil || !strings.Contains(got,
					"the scopes are "+scope+".") {
					t.Errorf("%s got %s %s %v, want the scopes %s", client, got, m.Error,
						err, scope)
				}
			}
		}
		editor, admin := ask("editor", "read"), ask("admin", "read write")
		for range 3 {
			editor()
			admin()
		}
		g.WantRecords("to_client response tools/call box scopes pass")
		if n := actions(g)[a.issuer+"#ann exchanged"]; n != 2 {
			t.Errorf("got %d records of an exchange, want one for each client", n)
		}
		wantHidden(t, g, p)
	})
}

// exchanging returns a configuration with a server that gets tokens in exchange for those of the
// clients. tables are further tables.
func exchanging(a *provider, p *protected, tables string) string {
	return fmt.Sprintf(`public_url = "https://gatekit.example"
[[listen.auth.issuer]]
issuer = %[1]q
tokens = "introspection"
introspect = { id = "server", secret = "server" }
%[3]s
[server.box]
url = %[2]q
[server.box.auth]
type = "exchange"
issuer = %[1]q
audience = "box"
client = { id = "exchanger", secret = "s3cret-of-exchanger" }
`, a.issuer, p.url(), tables)
}

// TestExchangeNeedsATokenOfTheIssuer has a client with a static token, which cannot be exchanged.
func TestExchangeNeedsATokenOfTheIssuer(t *testing.T) {
	a := startProvider(t, 3600)
	p := protectedBy(t, a, false)
	token, table := staticToken(t, "ci")
	g := start(t, exchanging(a, p, table)+harness.ScriptedServer("other"))
	c := bearer(t, g, token, harness.Revisions[0])
	harness.Handshake(t, c)
	if got := whoAmI(t, c); !strings.Contains(got, "you have no access token of "+a.issuer) {
		t.Errorf("got %s, want that there is no token to exchange", got)
	}
	wantHidden(t, g, p)
}
