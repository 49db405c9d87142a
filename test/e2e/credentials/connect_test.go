package credentials

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// connectable is a gatekit whose users are those of a provider, and a server that wants tokens of
// the same provider. Browsers reach gatekit through a proxy, at the public URL.
type connectable struct {
	provider *provider
	server   *protected
	gatekit  *harness.Gatekit
	public   string
}

// startConnectable starts them. settings are those of the server, and tables further tables.
func startConnectable(t *testing.T, settings, tables string) *connectable {
	t.Helper()
	front := startFront(t, false)
	return startConnectableAt(t, oneAuthorizationServer(), front, front.URL+"/gate", settings,
		tables)
}

// startConnectableAt is startConnectable with an authorization server, a proxy and its public URL.
func startConnectableAt(t *testing.T, at authorizationServer, front *front, public, settings,
	tables string) *connectable {
	t.Helper()
	c := &connectable{public: public}
	c.provider = at.start(t, 3600, 3600, "CONNECT="+c.public+"/connect")
	c.server = protectedBy(t, c.provider, false)
	c.gatekit = start(t, c.listening()+tables+oauth(c.server, pinned(c.provider), settings)+
		harness.ScriptedServer("other"))
	front.forward(t, c.gatekit)
	return c
}

// listening returns the settings of [listen] and its issuer.
func (c *connectable) listening() string {
	return fmt.Sprintf(`public_url = %q
[[listen.auth.issuer]]
issuer = %q
audience = [%q]
tokens = "introspection"
introspect = { id = "server", secret = "server" }
login = { id = "gatekit-connect", secret = "s3cret-of-connect" }
`, c.public, c.provider.issuer, gatekitResource)
}

// client returns a client of gatekit with a bearer token. If it is legacy, the principal has a
// login at first, so that the server answers its initialize, and no login afterwards.
func (c *connectable) client(t *testing.T, revision, principal, token string) *mcptest.Client {
	t.Helper()
	client := bearer(t, c.gatekit, token, revision)
	client.Capabilities = `{"elicitation":{"url":{}}}`
	c.provider.logIn(t, c.gatekit.Dir, "old", "box", "--principal", principal)
	harness.Handshake(t, client)
	subscribe(t, client)
	wantUser(t, client, "old")
	mark := client.Mark()
	if out, code := gatekit(t, c.gatekit.Dir, "auth", "logout", "box", "--principal",
		principal); code != 0 {
		t.Fatal(out)
	}
	awaitChange(t, client, mark)
	return client
}

// bearer returns a client of gatekit with a bearer token and a cookie. No server may get them.
func bearer(t *testing.T, g *harness.Gatekit, token, revision string) *mcptest.Client {
	connection := mcptest.NewHTTP(g.URL)
	connection.Header.Set("Authorization", "Bearer "+token)
	connection.Header.Set("Cookie", "canary=1")
	client := mcptest.NewClient(connection, revision)
	t.Cleanup(func() { client.Close() })
	return client
}

// callUntilAsked begins a call that needs a login, and waits for the question, which opensURLs
// sends to asked. It returns the question, and the channel that gets the answer of the call.
func callUntilAsked(t *testing.T, client *mcptest.Client,
	asked <-chan mcptest.Message) (question mcptest.Message, called <-chan string) {
	t.Helper()
	answered := make(chan string, 1)
	go func() {
		m, err := client.Tool(harness.Context(t), "box__whoami", `{}`)
		answered <- fmt.Sprint(string(m.Result), string(m.Error), err)
	}()
	select {
	case question = <-asked:
	case got := <-answered:
		t.Fatalf("the call ended without a question: %s", got)
	}
	return question, answered
}

// user is a person with a browser.
type user struct {
	t       *testing.T
	name    string
	browser *http.Client
}

func newUser(t *testing.T, name string) *user {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &user{t, name, &http.Client{Jar: jar, Timeout: harness.Patience}}
}

// open opens a page, and fills in the forms of the provider. It returns the first page that is not
// the provider's.
func (u *user) open(c *connectable, page string) (status int, text string) {
	u.t.Helper()
	answer, err := u.browser.Get(page)
	return u.fill(c, answer, err)
}

func (u *user) fill(c *connectable, answer *http.Response, err error) (status int, text string) {
	u.t.Helper()
	for {
		text := c.provider.read(answer, err)
		action := formAction.FindStringSubmatch(text)
		if action == nil {
			return answer.StatusCode, text
		}
		form := url.Values{"prompt": {"consent"}}
		if strings.Contains(text, `value="login"`) {
			form = url.Values{"prompt": {"login"}, "login": {u.name}, "password": {"x"}}
		}
		to, parseErr := answer.Request.URL.Parse(action[1])
		if parseErr != nil {
			u.t.Fatal(parseErr)
		}
		answer, err = u.browser.PostForm(to.String(), form)
	}
}

var csrfInput = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// press presses the button of a page of gatekit, and does what open does after that.
func (u *user) press(c *connectable, page, text string) (int, string) {
	u.t.Helper()
	token := csrfInput.FindStringSubmatch(text)
	if token == nil {
		u.t.Fatalf("the page has no form:\n%s", text)
	}
	answer, err := u.browser.PostForm(page, url.Values{"csrf": {html.UnescapeString(token[1])}})
	return u.fill(c, answer, err)
}

// refusals returns the records of refused requests for a principal's login at the server box.
func refusals(g *harness.Gatekit, principal string) (reasons []string) {
	for _, r := range g.Records() {
		if r.Action == "refuse" && r.Principal == principal && r.Server == "box" {
			reasons = append(reasons, r.Reason)
		}
	}
	return reasons
}

// TestPrincipalIsAskedToLogIn calls a tool without a login. Ann gets a link. Bob, who opens it, is
// refused. After ann has logged in on the pages, the call goes on.
func TestPrincipalIsAskedToLogIn(t *testing.T) {
	for _, at := range authorizationServers {
		for _, revision := range harness.Revisions {
			t.Run(string(at)+", "+revision, func(t *testing.T) {
				front := startFront(t, false)
				c := startConnectableAt(t, at, front, front.URL+"/gate", preRegistered, "")
				ann := c.provider.issuer + "#ann"
				client := c.client(t, revision, ann, c.provider.accessToken("ann"))
				asked := opensURLs(client, "accept")
				question, called := callUntilAsked(t, client, asked)
				page := mcptest.Text(question.Params, "url")
				if mcptest.Text(question.Params, "mode") != "url" ||
					!strings.HasPrefix(page, c.public+"/connect/gk1.") ||
					!strings.Contains(mcptest.Text(question.Params, "message"),
						`Log in to the server "box" at `+c.provider.issuer) {
					t.Errorf("got the question %s", question.Params)
				}

				status, text := newUser(t, "bob").open(c, page)
				if status != http.StatusForbidden || !strings.Contains(text, "not for you") ||
					strings.Contains(text, "ann") || strings.Contains(text, "box") {
					t.Errorf("bob got status %d and the page\n%s", status, text)
				}
				if got := refusals(c.gatekit, ann); len(got) != 1 || !strings.Contains(got[0],
					"was opened by \""+c.provider.issuer+"#bob\"") {
					t.Errorf("got the refusals %q, want one that names bob", got)
				}

				user := newUser(t, "ann")
				status, text = user.open(c, page)
				for _, want := range []string{"<dd>editor</dd>", "<dd>box</dd>",
					"<dd>" + c.provider.issuer + "</dd>", "<dd>read", "<dd>" + ann + "</dd>"} {
					if status != http.StatusOK || !strings.Contains(text, want) {
						t.Errorf("ann got status %d and a page without %s:\n%s", status, want, text)
					}
				}
				if got := actions(c.gatekit)[ann+" login"]; got != 1 {
					t.Errorf("%d logins before ann has pressed the button, want the first one", got)
				}
				status, last := user.press(c, page, text)
				if status != http.StatusOK || !strings.Contains(last, "You are logged in") {
					t.Errorf("the last page has status %d:\n%s", status, last)
				}
				if got := <-called; !strings.Contains(got, "you are ann") {
					t.Errorf("the call got %s, want the result for ann", got)
				}
				wantUser(t, client, "ann")
				if got := actions(c.gatekit)[ann+" login"]; got != 2 {
					t.Errorf("%d logins, want 2", got)
				}
				if status, text := user.open(c, page); status != http.StatusNotFound ||
					!strings.Contains(text, "cannot be used") {
					t.Errorf("the link was used, and now gets status %d:\n%s", status, text)
				}
				if revision != mcptest.Modern {
					if _, err := client.AwaitMethod(harness.Context(t), 0,
						"notifications/elicitation/complete"); err != nil {
						t.Error(err)
					}
				}
				c.gatekit.WantRecords("to_client request elicitation/create box - pass",
					"to_server response elicitation/create box - pass")
				wantHidden(t, c.gatekit, c.server, text, last)
			})
		}
	}
}

// TestFirstLoginIsAskedFor has nobody who has ever logged in, so that the revisions of the server
// are not known. Both the local user and a principal are asked.
func TestFirstLoginIsAskedFor(t *testing.T) {
	call := func(t *testing.T, client *mcptest.Client, logIn func(page string) string) {
		asked := opensURLs(client, "accept")
		harness.Handshake(t, client)
		subscribe(t, client)
		if list := string(harness.Request(t, client, "tools/list", `{}`).Result); !strings.Contains(
			list, "not logged in") || len(asked) != 0 {
			t.Errorf("before the login, there are %d questions, and the list is %s", len(asked),
				list)
		}
		mark := client.Mark()
		question, called := callUntilAsked(t, client, asked)
		if last := logIn(mcptest.Text(question.Params, "url")); !strings.Contains(last,
			"You are logged in") {
			t.Errorf("the last page is\n%s", last)
		}
		if got := <-called; !strings.Contains(got, "you are ann") {
			t.Errorf("the call got %s, want the result for ann", got)
		}
		awaitChange(t, client, mark)
		if list := string(harness.Request(t, client, "tools/list", `{}`).Result); !strings.Contains(
			list, "box__whoami") {
			t.Errorf("after the login, the list is %s", list)
		}
	}
	t.Run("a principal", func(t *testing.T) {
		c := startConnectable(t, preRegistered, "")
		client := bearer(t, c.gatekit, c.provider.accessToken("ann"), mcptest.Modern)
		call(t, client, func(page string) string {
			user := newUser(t, "ann")
			_, text := user.open(c, page)
			_, last := user.press(c, page, text)
			return last
		})
		if got := actions(c.gatekit)[c.provider.issuer+"#ann login"]; got != 1 {
			t.Errorf("%d logins, want 1", got)
		}
		wantHidden(t, c.gatekit, c.server)
	})
	t.Run("the local user", func(t *testing.T) {
		a := startProvider(t, 3600)
		p := protectedBy(t, a, false)
		g := start(t, oauth(p, pinned(a), preRegistered)+harness.ScriptedServer("other"))
		client := connect(t, g, mcptest.Modern)
		call(t, client, func(page string) string { return a.browse(page, "ann") })
		if got := actions(g)["login"]; got != 1 {
			t.Errorf("%d logins, want 1", got)
		}
		wantHidden(t, g, p)
	})
}

// TestBobCannotFinishTheLoginOfAnn has bob, who gets the answer of the authorization server to
// ann's login, and a login of his own.
func TestBobCannotFinishTheLoginOfAnn(t *testing.T) {
	c := startConnectable(t, preRegistered, "")
	ann := c.provider.issuer + "#ann"
	client := c.client(t, mcptest.Modern, ann, c.provider.accessToken("ann"))
	asked := opensURLs(client, "accept")
	question, called := callUntilAsked(t, client, asked)
	page := mcptest.Text(question.Params, "url")
	user := newUser(t, "ann")
	// Ann's browser stops before it comes back from the authorization server.
	var back string
	user.browser.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/connect/callback") {
			back = r.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}
	_, text := user.open(c, page)
	user.press(c, page, text)
	if back == "" {
		t.Fatal("ann's browser was not sent back")
	}
	bob := newUser(t, "bob")
	bob.open(c, page)
	if status, text := bob.open(c, back); status != http.StatusBadRequest ||
		!strings.Contains(text, "not a login that Gatekit waits for") {
		t.Errorf("bob got status %d and the page\n%s", status, text)
	}
	// Another state, and an error of another issuer, end nothing and show nothing.
	for _, change := range []string{"&state=x", "&error_description=text-of-others"} {
		to := c.public + "/connect/callback?state=x&error=access_denied&iss=https://evil.example"
		if status, text := user.open(c, to+change); status != http.StatusBadRequest ||
			strings.Contains(text, "of-others") || strings.Contains(text, "evil") {
			t.Errorf("got status %d and the page\n%s", status, text)
		}
	}
	if got := actions(c.gatekit)[ann+" login"]; got != 1 {
		t.Errorf("%d logins, want only the first one", got)
	}
	if _, text := user.open(c, back); !strings.Contains(text, "You are logged in") {
		t.Errorf("ann got the page\n%s", text)
	}
	if got := <-called; !strings.Contains(got, "you are ann") {
		t.Errorf("the call got %s, want the result for ann", got)
	}
	wantHidden(t, c.gatekit, c.server)
}

// TestPrincipalsWithoutLoginGetNoLink has a static token, and a login that all principals share.
func TestPrincipalsWithoutLoginGetNoLink(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			token, table := staticToken(t, "ci")
			c := startConnectable(t, preRegistered, table)
			client := c.client(t, revision, "token:ci", token)
			asked := opensURLs(client, "accept")
			wantNoLogin(t, client, "gatekit auth login box --principal 'token:ci'")
			if len(asked) != 0 {
				t.Errorf("got the question %s", (<-asked).Params)
			}
			wantHidden(t, c.gatekit, c.server)
		})
	}
	t.Run("a shared login", func(t *testing.T) {
		c := startConnectable(t, preRegistered+"\nper = \"gatekit\"", "")
		client := bearer(t, c.gatekit, c.provider.accessToken("ann"), mcptest.Modern)
		asked := opensURLs(client, "accept")
		wantNoLogin(t, client, "gatekit auth login box")
		if len(asked) != 0 {
			t.Errorf("got the question %s", (<-asked).Params)
		}
	})
}

// TestPagesInABrowser opens a link in Chromium, without scripts and with the keyboard. Over https,
// the browser resolves example.com to the proxy, and accepts no certificate but the proxy's.
func TestPagesInABrowser(t *testing.T) {
	harness.Long(t, "starts a browser")
	peers.Installed(t, "chromium")
	t.Run("http", func(t *testing.T) {
		usePagesInABrowser(t, startConnectable(t, preRegistered, ""),
			"gatekit-connect false true Lax")
	})
	t.Run("https", func(t *testing.T) {
		front := startFront(t, true)
		key := sha256.Sum256(front.Certificate().RawSubjectPublicKeyInfo)
		u, err := url.Parse(front.URL)
		if err != nil {
			t.Fatal(err)
		}
		c := startConnectableAt(t, oneAuthorizationServer(), front,
			"https://example.com:"+u.Port()+"/gate", preRegistered, "")
		usePagesInABrowser(t, c, "__Host-gatekit-connect true true Lax",
			"--host-resolver-rules=MAP example.com 127.0.0.1",
			"--ignore-certificate-errors-spki-list="+base64.StdEncoding.EncodeToString(key[:]))
	})
}

// usePagesInABrowser is the part of TestPagesInABrowser after the start of gatekit. cookie is the
// cookie that the browser must have in the end: its name, and whether it is secure, for HTTP only
// and for the same site. flags are flags of Chromium. The variable GATEKIT_SCREENSHOT names a
// folder for images of the pages.
func usePagesInABrowser(t *testing.T, c *connectable, cookie string, flags ...string) {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	ann := c.provider.issuer + "#ann"
	client := c.client(t, mcptest.Modern, ann, c.provider.accessToken("ann"))
	asked := opensURLs(client, "accept")
	question, called := callUntilAsked(t, client, asked)
	page := mcptest.Text(question.Params, "url")
	open := func(name string) string {
		cmd := exec.CommandContext(harness.Context(t), "node", append([]string{
			filepath.Join(peers.Top(), "test", "e2e", "credentials", "browser.mjs"),
			peers.Published(t).Path("playwright-core", "index.js"), chromium, page, name},
			flags...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("the browser of %s: %v", name, err)
		}
		return string(out)
	}
	if got := open("bob"); got != "This link is not for you\n\n" {
		t.Errorf("bob saw\n%s", got)
	}
	if got := refusals(c.gatekit, ann); len(got) != 1 || !strings.Contains(got[0], "#bob") {
		t.Errorf("got the refusals %q, want one that names bob", got)
	}
	got := open("ann")
	for _, want := range []string{"Log in to box\neditor\nbox\n" + c.provider.issuer + "\nread",
		"\n" + ann + "\nYou are logged in\n", "\n" + cookie + "\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("ann saw\n%s\nwant also\n%s", got, want)
		}
	}
	if got := <-called; !strings.Contains(got, "you are ann") {
		t.Errorf("the call got %s, want the result for ann", got)
	}
	if got := actions(c.gatekit)[ann+" login"]; got != 2 {
		t.Errorf("%d logins, want one by the command and one on the pages", got)
	}
	wantHidden(t, c.gatekit, c.server, got)
}

// TestPagesRegisterGatekit logs in on the pages at an authorization server at which Gatekit
// registers itself.
func TestPagesRegisterGatekit(t *testing.T) {
	front := startFront(t, false)
	c := startConnectableAt(t, oidcProvider, front, front.URL+"/gate", "register = true", "")
	ann := c.provider.issuer + "#ann"
	client := c.client(t, mcptest.Modern, ann, c.provider.accessToken("ann"))
	asked := opensURLs(client, "accept")
	question, called := callUntilAsked(t, client, asked)
	page := mcptest.Text(question.Params, "url")
	user := newUser(t, "ann")
	_, text := user.open(c, page)
	if _, last := user.press(c, page, text); !strings.Contains(last, "You are logged in") {
		t.Errorf("the last page is\n%s", last)
	}
	if got := <-called; !strings.Contains(got, "you are ann") {
		t.Errorf("the call got %s, want the result for ann", got)
	}
	if n := c.provider.count("registration"); n != 2 {
		t.Errorf("%d registrations, want one for the command and one for the pages", n)
	}
	wantHidden(t, c.gatekit, c.server, text)
}
