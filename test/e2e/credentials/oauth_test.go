package credentials

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gatekit/audit"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// preRegistered is the client that the provider knows.
const preRegistered = `client = { id = "gatekit", secret = "s3cret-of-gatekit" }`

// oauth returns the configuration of a server that users log in to.
func oauth(p *protected, settings ...string) string {
	return harness.HTTPServer("box", p.url()) + "[server.box.auth]\ntype = \"oauth\"\n" +
		strings.Join(settings, "\n") + "\n"
}

// pinned returns the setting for the issuer of a provider.
func pinned(a *provider) string { return fmt.Sprintf("issuer = %q", a.issuer) }

// start starts gatekit with a state folder of its own.
func start(t *testing.T, config string) *harness.Gatekit {
	t.Helper()
	dir := t.TempDir()
	return harness.StartHTTPIn(t, dir, config, stateIn(dir))
}

// whoAmI calls the server's tool, and returns the text of its result, or of the error.
func whoAmI(t *testing.T, c *mcptest.Client) string {
	t.Helper()
	m, err := c.Tool(harness.Context(t), "box__whoami", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	return string(m.Result) + string(m.Error)
}

// wantUser fails the test unless the server takes the client for a user.
func wantUser(t *testing.T, c *mcptest.Client, name string) {
	t.Helper()
	if got := whoAmI(t, c); !strings.Contains(got, "you are "+name+`"`) {
		t.Fatalf("got %s, want a result for %s", got, name)
	}
}

// wantNoLogin fails the test unless a call gets an error that names the command to log in.
func wantNoLogin(t *testing.T, c *mcptest.Client, command string) {
	t.Helper()
	if got := whoAmI(t, c); !strings.Contains(got, "not logged in") ||
		!strings.Contains(got, "run "+command+`"`) {
		t.Fatalf("got %s, want an error that says: run %s", got, command)
	}
}

// subscribe makes the server notify a modern client of changed tools.
func subscribe(t *testing.T, c *mcptest.Client) {
	t.Helper()
	if c.Revision != mcptest.Modern {
		return
	}
	mark := c.Mark()
	c.Send(c.Request(`"l"`, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`))
	if _, err := c.AwaitMethod(harness.Context(t), mark,
		"notifications/subscriptions/acknowledged"); err != nil {
		t.Fatal(err)
	}
}

// awaitChange waits until the client is notified that the list of tools has changed since mark.
func awaitChange(t *testing.T, c *mcptest.Client, mark int) {
	t.Helper()
	if _, err := c.AwaitMethod(harness.Context(t), mark,
		"notifications/tools/list_changed"); err != nil {
		t.Fatal(err)
	}
}

// actions returns the number of records of each action, by the principal and the action.
func actions(g *harness.Gatekit) map[string]int {
	n := map[string]int{}
	for _, r := range g.Records() {
		if r.Kind == "event" && r.Server == "box" || r.Method == "" && r.Server == "box" {
			n[strings.TrimSpace(r.Principal+" "+r.Action)]++
		}
	}
	return n
}

// wantHidden fails the test if a token, or another credential, is in the audit log, in the log of
// gatekit, or in one of the texts. It also fails if the server got a credential of a client.
func wantHidden(t *testing.T, g *harness.Gatekit, p *protected, texts ...string) {
	t.Helper()
	p.check()
	b, err := os.ReadFile(filepath.Join(g.Dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	hidden := append(p.tokensSeen(), "canary", "s3cret")
	for _, text := range append(texts, string(b), g.Stderr.String()) {
		if containsStaticToken(text) {
			t.Errorf("the token of a client is in\n%s", text)
		}
		for _, secret := range hidden {
			if strings.Contains(text, secret) {
				t.Errorf("the secret %s is in\n%s", secret, text)
			}
		}
	}
	err = filepath.WalkDir(filepath.Join(g.Dir, "state", "gatekit", "tokens"),
		func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			b, err := os.ReadFile(path)
			for _, secret := range hidden {
				if strings.Contains(string(b), secret) || info.Mode().Perm() != 0o600 {
					t.Errorf("%s has the mode %o, and shows the secret %s", path, info.Mode(),
						secret)
				}
			}
			return err
		})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // nobody has logged in
		t.Error(err)
	}
}

func TestUserLogsInAndOut(t *testing.T) {
	everywhere(t, func(t *testing.T, at authorizationServer, era, revision string) {
		a := at.start(t, 3600, 3600)
		p := protectedBy(t, a, era == "legacy")
		g := start(t, oauth(p, pinned(a), preRegistered)+harness.ScriptedServer("other"))
		c := connect(t, g, revision)
		harness.Handshake(t, c)
		subscribe(t, c)
		if list := string(harness.Request(t, c, "tools/list", `{}`).Result); !strings.
			Contains(list, `"gatekit/partial"`) || !strings.Contains(list, "not logged in") {
			t.Errorf("before the login, the list is %s", list)
		}
		wantNoLogin(t, c, "gatekit auth login box")

		mark := c.Mark()
		out := a.logIn(t, g.Dir, "ann", "box")
		awaitChange(t, c, mark)
		wantUser(t, c, "ann")
		if list := string(harness.Request(t, c, "tools/list", `{}`).Result); !strings.
			Contains(list, "box__whoami") || strings.Contains(list, "gatekit/partial") {
			t.Errorf("after the login, the list is %s", list)
		}
		listed, _ := gatekit(t, g.Dir, "auth", "list", "--json")
		if !strings.Contains(listed, `"server":"box","principal":"","issuer":"`+a.issuer) ||
			!strings.Contains(listed, `"state":"valid"`) {
			t.Errorf("auth list printed %s", listed)
		}

		// The server refuses the token: it is refreshed, and the call is repeated.
		p.refuse(p.tokensSeen()[0])
		wantUser(t, c, "ann")
		if n := a.count("grant refresh_token"); n != 1 || len(p.tokensSeen()) != 2 {
			t.Errorf("%d refreshes, %d tokens; want 1 and 2", n, len(p.tokensSeen()))
		}

		mark = c.Mark()
		left, code := gatekit(t, g.Dir, "auth", "logout", "box")
		if code != 0 {
			t.Errorf("auth logout: exit code %d, %s", code, left)
		}
		for _, token := range p.tokensSeen() {
			if info, err := a.check(token, p.url()); err == nil {
				t.Errorf("the provider still accepts a token of %s", info.UserID)
			}
		}
		awaitChange(t, c, mark)
		wantNoLogin(t, c, "gatekit auth login box")
		if got := actions(g); got["login"] != 1 || got["refreshed"] != 1 ||
			got["logout"] != 1 {
			t.Errorf("got the events %v, want one login, refreshed and logout", got)
		}
		if _, code := gatekit(t, g.Dir, "auth", "logout", "box"); code != 1 {
			t.Errorf("a second logout: exit code %d, want 1", code)
		}
		wantHidden(t, g, p, out, listed, left)
	})
}

// staticToken returns a static token, and its table for the configuration.
func staticToken(t *testing.T, name string) (token, table string) {
	t.Helper()
	out, err := exec.Command(peers.Gatekit(t), "auth", "token", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ = strings.Cut(string(out), "\n[listen")
	return strings.Split(string(out), "\n")[1], "[listen" + table
}

func TestPrincipalsNeverShareLogins(t *testing.T) {
	everywhere(t, func(t *testing.T, at authorizationServer, era, revision string) {
		a := at.start(t, 3600, 3600)
		p := protectedBy(t, a, era == "legacy")
		var tables string
		names, tokens := []string{"ann", "bob", "eve"}, map[string]string{}
		for _, name := range names {
			token, table := staticToken(t, name)
			tokens[name], tables = token, tables+table
		}
		g := start(t, tables+oauth(p, pinned(a), preRegistered)+
			harness.ScriptedServer("other"))
		out := a.logIn(t, g.Dir, "ann-there", "box", "--principal", "token:ann")
		out += a.logIn(t, g.Dir, "bob-there", "box", "--principal", "token:bob")
		var wg sync.WaitGroup
		for _, name := range names {
			connection := mcptest.NewHTTP(g.URL)
			connection.Header.Set("Authorization", "Bearer "+tokens[name])
			connection.Header.Set("Cookie", "canary=1")
			c := mcptest.NewClient(connection, revision)
			t.Cleanup(func() { c.Close() })
			harness.Handshake(t, c)
			for range 8 {
				wg.Go(func() {
					m, err := c.Tool(harness.Context(t), "box__whoami", `{}`)
					got := string(m.Result) + string(m.Error)
					want := "you are " + name + `-there"`
					if name == "eve" {
						want = "run gatekit auth login box --principal 'token:eve'"
					}
					if err != nil || !strings.Contains(got, want) {
						t.Errorf("%s got %s, %v; want %s", name, got, err, want)
					}
				})
			}
		}
		wg.Wait()
		if n := len(p.tokensSeen()); n != 2 {
			t.Errorf("the server got %d tokens, want 2", n)
		}
		checked, code := gatekit(t, g.Dir, "check")
		if code != 0 || !strings.Contains(checked, "logged in: 2 principals") {
			t.Errorf("gatekit check: exit code %d, %s", code, checked)
		}
		if left, code := gatekit(t, g.Dir, "auth", "logout", "box", "--principal",
			"token:ann"); code != 0 {
			t.Errorf("auth logout: %s", left)
		}
		if got := actions(g); got["token:ann login"] != 1 || got["token:bob login"] != 1 ||
			got["token:ann logout"] != 1 {
			t.Errorf("got the events %v", got)
		}
		wantHidden(t, g, p, out, checked)
	})
}

func TestLoginNeedsAPrincipalThatExists(t *testing.T) {
	a := startProvider(t, 3600)
	p := protectedBy(t, a, false)
	_, table := staticToken(t, "ann")
	dir := harness.Prepare(t, "[listen]\nhttp = \"127.0.0.1:1\"\n"+table+
		oauth(p, pinned(a), preRegistered)).Dir
	for principal, want := range map[string]string{
		"":                "needs a principal",
		"ann":             "no client can be the principal",
		"token:bob":       "no client can be the principal",
		"cert:x":          "no client can be the principal",
		a.issuer + "#ann": "no client can be the principal",
	} {
		out, code := gatekit(t, dir, "auth", "login", "box", "--principal", principal)
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("principal %q: exit code %d, %s; want an error that %s", principal, code, out,
				want)
		}
	}
}

func TestManyCallsWithAnExpiredTokenRefreshOnce(t *testing.T) {
	t.Parallel()
	for _, at := range authorizationServers {
		for _, revision := range harness.Revisions {
			t.Run(string(at)+", "+revision, func(t *testing.T) {
				t.Parallel()
				a := at.start(t, 2, 3600)
				p := protectedBy(t, a, false)
				g := start(t, oauth(p, pinned(a), preRegistered)+harness.ScriptedServer("other"))
				a.logIn(t, g.Dir, "ann", "box")
				c := connect(t, g, revision)
				untilExpired(t, g.Dir)
				harness.Handshake(t, c)
				var wg sync.WaitGroup
				for range 64 {
					wg.Go(func() {
						if m, err := c.Tool(harness.Context(t), "box__whoami", `{}`); err != nil ||
							!strings.Contains(string(m.Result), "you are ann") {
							t.Errorf("got %s, %v", m.Raw, err)
						}
					})
				}
				wg.Wait()
				if n := a.count("grant refresh_token"); n != 1 {
					t.Errorf("%d refreshes, want 1", n)
				}
				// The provider issues a new refresh token each time. The old one would revoke all.
				p.refuse(p.tokensSeen()[len(p.tokensSeen())-1])
				wantUser(t, c, "ann")
				if got := actions(g); got["refreshed"] != 2 || a.count("grant refresh_token") != 2 {
					t.Errorf("got the events %v and %d refreshes, want 2", got,
						a.count("grant refresh_token"))
				}
				wantHidden(t, g, p)
			})
		}
	}
}

func TestGatekitRegistersItself(t *testing.T) {
	a := oidcProvider.start(t, 3600, 3600)
	p := protectedBy(t, a, false)
	g := start(t, oauth(p, "register = true", `per = "gatekit"`)+harness.ScriptedServer("other"))
	c := connect(t, g, mcptest.Modern)
	for range 2 {
		a.logIn(t, g.Dir, "robot", "box")
		wantUser(t, c, "robot")
		if out, code := gatekit(t, g.Dir, "auth", "logout", "box"); code != 0 {
			t.Error(out)
		}
	}
	if n := a.count("registration"); n != 1 {
		t.Errorf("%d registrations, want 1", n)
	}
	if got := actions(g); got["registered"] != 1 || got["login"] != 2 || got["logout"] != 2 {
		t.Errorf("got the events %v", got)
	}
	wantHidden(t, g, p)
}

// TestLoginWithoutARunningGatekit logs in before the first start, so that the command writes the
// first record of the log.
func TestLoginWithoutARunningGatekit(t *testing.T) {
	a := startProvider(t, 3600)
	p := protectedBy(t, a, false)
	config := oauth(p, pinned(a), preRegistered)
	dir := harness.Prepare(t, config).Dir
	a.logIn(t, dir, "ann", "box")
	if out, code := gatekit(t, dir, "check"); code != 0 || !strings.Contains(out,
		"the local user is logged in") {
		t.Errorf("gatekit check: exit code %d, %s", code, out)
	}
	g := harness.StartHTTPIn(t, dir, config, stateIn(dir))
	c := connect(t, g, mcptest.Modern)
	wantUser(t, c, "ann")
	if first := g.Records()[0]; first.Action != "login" || first.Server != "box" ||
		!strings.Contains(first.Reason, "by gatekit auth login") {
		t.Errorf("the first record is %s: %s", first, first.Reason)
	}
	wantHidden(t, g, p)
}

func TestLoginWithoutARecordChangesNothing(t *testing.T) {
	a := startProvider(t, 3600)
	p := protectedBy(t, a, false)
	dir := harness.Prepare(t, oauth(p, pinned(a), preRegistered)).Dir
	log, err := audit.Open(audit.Options{File: filepath.Join(dir, "audit.jsonl")})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	page, out, code := a.tryLogIn(t, dir, "ann", "box")
	if code != 1 || !strings.Contains(page, "The login failed") ||
		!strings.Contains(out, "record the login") {
		t.Errorf("exit code %d, page %s, output %s; want a failed login", code, page, out)
	}
	if n := a.count("revoked"); n != 1 {
		t.Errorf("%d revocations, want 1", n)
	}
	if out, _ := gatekit(t, dir, "auth", "list", "--json"); out != "" {
		t.Errorf("there is a login: %s", out)
	}
}
