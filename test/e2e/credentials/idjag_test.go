package credentials

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// asserting returns the settings of a server whose authorization server takes the assertions of an
// identity provider.
func asserting(idp, a *provider) string {
	return fmt.Sprintf(`type = "id_jag"
issuer = %q
client = { id = "exchanger", secret = "s3cret-of-exchanger" }
login = { issuer = %q, id = "gatekit", secret = "s3cret-of-gatekit" }
`, a.issuer, idp.issuer)
}

// startAsserting starts an identity provider, whose users are those of gatekit, and a server with
// an authorization server that takes its assertions. Browsers reach gatekit at the public URL.
func startAsserting(t *testing.T, keepsSessions bool) (*connectable, *provider) {
	t.Helper()
	front := startFront(t, false)
	c := &connectable{public: front.URL + "/gate"}
	c.provider = oidcProvider.start(t, 3600, 3600, "CONNECT="+c.public+"/connect")
	a := oidcProvider.start(t, 3600, 3600, "IDP="+c.provider.issuer)
	c.server = protectedBy(t, a, keepsSessions)
	c.gatekit = start(t, fmt.Sprintf(`public_url = %q
[[listen.auth.issuer]]
issuer = %q
audience = [%q]
tokens = "introspection"
introspect = { id = "server", secret = "server" }
login = { id = "gatekit-connect", secret = "s3cret-of-connect" }
`, c.public, c.provider.issuer, gatekitResource)+
		harness.HTTPServer("box", c.server.url())+"[server.box.auth]\n"+asserting(c.provider, a)+
		harness.ScriptedServer("other"))
	front.forward(t, c.gatekit)
	return c, a
}

const (
	exchanges  = "grant urn:ietf:params:oauth:grant-type:token-exchange"
	assertions = "grant urn:ietf:params:oauth:grant-type:jwt-bearer"
)

// TestUsersLogInAtTheirIdentityProvider has two users, who log in at the identity provider only.
// Each is known to the server by its authorization server, and no token of the identity provider
// or of a client reaches the server.
func TestUsersLogInAtTheirIdentityProvider(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		for _, revision := range harness.Revisions {
			t.Run(era+" server, "+revision+" client", func(t *testing.T) {
				c, a := startAsserting(t, era == "legacy")
				idp, dir := c.provider, c.gatekit.Dir
				clients, tokens := map[string]*mcptest.Client{}, map[string]bool{}
				for _, name := range []string{"ann", "bob"} {
					principal := idp.issuer + "#" + name
					// With somebody else's account, nobody is logged in.
					page, out, code := idp.tryLogIn(t, dir, "mallory", "box", "--principal",
						principal)
					if code == 0 || strings.Contains(page, "You are logged in") ||
						!strings.Contains(out, "of another user than the principal") {
						t.Errorf("the login of mallory for %s got %q, %s", principal, page, out)
					}
					out = idp.logIn(t, dir, name, "box", "--principal", principal)
					if !strings.Contains(out, "asks for the scopes openid offline_access") {
						t.Errorf("got the output %s", out)
					}
					token := idp.accessToken(name)
					tokens[token] = true
					client := bearer(t, c.gatekit, token, revision)
					client.Capabilities = `{}` // so that it is not asked after the logout
					harness.Handshake(t, client)
					clients[name] = client
				}
				for range 3 {
					for name, client := range clients {
						wantUser(t, client, name)
					}
				}
				if n, m := idp.count(exchanges), a.count(assertions); n != 2 || m != 2 {
					t.Errorf("%d ID tokens and %d assertions were exchanged, want one for each "+
						"user", n, m)
				}
				for name := range clients {
					for action, want := range map[string]int{"login": 1, "exchanged": 1,
						"rejected": 1} {
						principal := idp.issuer + "#" + name
						if n := actions(c.gatekit)[principal+" "+action]; n != want {
							t.Errorf("got %d records %s for %s, want %d", n, action, name, want)
						}
					}
				}
				for _, seen := range c.server.tokensSeen() {
					if tokens[seen] || strings.HasPrefix(seen, "eyJ") {
						t.Error("the server got the token of a client or an ID token")
					}
				}
				// Without the login, there are no further calls.
				if out, code := gatekit(t, dir, "auth", "logout", "box", "--principal",
					idp.issuer+"#ann"); code != 0 {
					t.Error(out)
				}
				wantNoLogin(t, clients["ann"], "gatekit auth login box --principal '"+idp.issuer+
					"#ann'")
				wantUser(t, clients["bob"], "bob")
				wantHidden(t, c.gatekit, c.server)
			})
		}
	}
}

// TestPrincipalIsAskedToLogInAtItsIdentityProvider calls a tool without a login. Bob opens the link
// of ann, and is refused.
func TestPrincipalIsAskedToLogInAtItsIdentityProvider(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			c, _ := startAsserting(t, false)
			ann := c.provider.issuer + "#ann"
			client := bearer(t, c.gatekit, c.provider.accessToken("ann"), revision)
			client.Capabilities = `{"elicitation":{"url":{}}}`
			asked := opensURLs(client, "accept")
			harness.Handshake(t, client)
			answered := make(chan string, 1)
			go func() {
				m, err := client.Tool(harness.Context(t), "box__connect", `{}`)
				answered <- fmt.Sprint(string(m.Result), string(m.Error), err)
			}()
			var question mcptest.Message
			select {
			case question = <-asked:
			case got := <-answered:
				t.Fatalf("the call ended without a question: %s", got)
			}
			page := mcptest.Text(question.Params, "url")
			if status, text := newUser(t, "bob").open(c, page); status != http.StatusForbidden ||
				!strings.Contains(text, "not for you") {
				t.Errorf("bob got status %d and the page\n%s", status, text)
			}
			if got := refusals(c.gatekit, ann); len(got) != 1 || !strings.Contains(got[0],
				c.provider.issuer+"#bob") {
				t.Errorf("got the refusals %q, want one that names bob", got)
			}
			user := newUser(t, "ann")
			_, text := user.open(c, page)
			if !strings.Contains(text, "<dd>"+c.provider.issuer+"</dd>") {
				t.Errorf("the page does not name the identity provider:\n%s", text)
			}
			_, last := user.press(c, page, text)
			if !strings.Contains(last, "You are logged in") {
				t.Errorf("the last page is\n%s", last)
			}
			if got := <-answered; !strings.Contains(got, "logged in") {
				t.Errorf("the call got %s", got)
			}
			harness.Request(t, client, "tools/list", `{}`)
			wantUser(t, client, "ann")
			if n := actions(c.gatekit)[ann+" exchanged"]; n != 1 {
				t.Errorf("got %d records of an exchange, want 1", n)
			}
			wantHidden(t, c.gatekit, c.server, text, last)
		})
	}
}
