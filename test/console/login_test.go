package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/storage"
	"github.com/chromedp/chromedp"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// public is a gatekit whose console is at a public URL, below a path of a proxy with TLS.
type public struct {
	*harness.Gatekit
	issuer, console string
}

// startPublic starts it. The members of secops may read, those of leads approve.
func startPublic(t *testing.T) *public {
	t.Helper()
	peers.Installed(t, "chromium")
	var target *url.URL
	front := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}})
	t.Cleanup(front.Close)
	p := &public{console: front.URL + "/gate/console"}
	p.issuer = peers.OIDCProvider(t, 3600, 3600, nil, "CONSOLE="+p.console)
	dir := t.TempDir()
	// The tables of [listen] come first, because the harness puts [listen] before them.
	p.Gatekit = harness.StartHTTPIn(t, dir, fmt.Sprintf(`public_url = "%s/gate"
console = true
[listen.auth]
anonymous = true # the MCP clients of the test
[[listen.auth.issuer]]
issuer = %q
login = { id = "gatekit-connect", secret = "s3cret-of-connect" }
[listen.auth.roles]
"console/read" = ["group:secops"]
"console/approve" = ["group:leads"]
`, front.URL, p.issuer)+
		harness.PolicyFile(t, strings.ReplaceAll(askRule, "risky", "echo"))+
		harness.ScriptedServer("box"),
		"XDG_STATE_HOME="+stateFolder(dir))
	var err error
	if target, err = url.Parse(p.URL); err != nil {
		t.Fatal(err)
	}
	target.Path = ""
	return p
}

// logIn opens the console and logs in at the issuer as a user.
func (b *tab) logIn(p *public, user string) {
	b.t.Helper()
	b.run(chromedp.Navigate(p.console + "/"))
	b.awaitText("Log in at " + p.issuer)
	b.eval(`document.querySelector("main a.button").click()`)
	b.await(`document.querySelector("input[name=login]")`)
	b.takeProblems() // the page of the issuer has its own policy
	b.eval(fmt.Sprintf(`(() => {
		document.querySelector("input[name=login]").value = %q;
		document.querySelector("input[name=password]").value = "x";
		document.querySelector("form").submit();
	})()`, user))
	b.await(`document.querySelector("input[name=prompt][value=consent]")`)
	b.takeProblems()
	b.eval(`document.querySelector("form").submit()`)
}

const trafficShown = `document.querySelector("main h1")?.textContent === "Traffic"`

// cookies returns the names of the cookies of the console in the browser.
func (b *tab) cookies() (names []string) {
	b.t.Helper()
	for _, c := range command(b, storage.GetCookies, storage.GetCookiesParams{}).Cookies {
		if strings.Contains(c.Name, "gatekit") {
			names = append(names, c.Name)
		}
	}
	return names
}

// wantEvent checks that one record has the action, the principal and a reason.
func (p *public) wantEvent(t *testing.T, action, principal, reason string) {
	t.Helper()
	n := 0
	for _, r := range p.Records() {
		if r.Action == action && r.Principal == principal &&
			regexp.MustCompile(reason).MatchString(r.Reason) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the log has %d records %s of %q with a reason like %s, want 1", n, action,
			principal, reason)
	}
}

const askedCall = `{"name":"box__echo","arguments":{"text":"x"}}`

// TestRolesOpenTheConsole logs users of an identity provider in, each in a browser of its own.
func TestRolesOpenTheConsole(t *testing.T) {
	p := startPublic(t)
	running := browser(t)
	c := p.Client(mcptest.Modern)
	c.Capabilities = `{}`
	harness.Handshake(t, c)
	harness.Request(t, c, "tools/call", askedCall)

	t.Run("a reader can look, and not approve", func(t *testing.T) {
		b := newTab(t, running)
		b.logIn(p, "ann.secops")
		b.await(trafficShown)
		ann := p.issuer + "#ann.secops"
		b.awaitText(ann + " · read only")
		b.goTo("#waiting", "Waiting")
		b.awaitText("This console can only read.")
		id := strings.Trim(b.eval(`document.querySelector("main .card").dataset.key`), `"`)
		if got := b.do("waiting/approve", id); got != "403" {
			t.Errorf("an approval of a reader: status %s, want 403", got)
		}
		if m := harness.Request(t, c, "tools/call", askedCall); m.Error == nil {
			t.Errorf("the call got %s, want an error: nobody may have approved it", m.Raw)
		}
		p.wantEvent(t, "console", ann, `^opened with the scope "read" by a login at http://127`)
		p.wantEvent(t, "refuse", ann, `^HTTP 403 to .*console: the session can only read, and `+
			`asked for "approve" of the page "waiting"$`)
	})
	t.Run("an approver can approve", func(t *testing.T) {
		b := newTab(t, running)
		b.acceptDialogs()
		b.logIn(p, "bob.secops.leads")
		b.awaitText("· may approve")
		b.goTo("#waiting", "Waiting")
		b.eval(`document.querySelector("main form[data-action=approve] button").click()`)
		b.awaitText("Approved. It passes when the client makes the request again.")
		if m := harness.Request(t, c, "tools/call", askedCall); m.Error != nil {
			t.Errorf("the approved call got %s, want a result", m.Raw)
		}
		p.wantEvent(t, "console", p.issuer+"#bob.secops.leads", `^opened with the scope "approve"`)
		p.wantEvent(t, "approve", "local:anonymous", `^request [a-z2-7]+: by console session `+
			`[a-z2-7]{6} of `+regexp.QuoteMeta(p.issuer)+`#bob\.secops\.leads$`)
	})
	t.Run("a user without a role is refused", func(t *testing.T) {
		b := newTab(t, running)
		b.logIn(p, "eve.sales")
		b.awaitText("you may not use this console")
		if got := b.eval(`sessionStorage.length + location.search + location.hash`); got != `"0"` {
			t.Errorf("after the refusal, the tab has %s, want no token and no code", got)
		}
		if got := b.cookies(); len(got) > 0 {
			t.Errorf("after the refusal, the browser has the cookies %q", got)
		}
		p.wantEvent(t, "refuse", p.issuer+"#eve.sales", `^HTTP 403 to .*console: the console is `+
			`not opened: the principal has no role in \[listen\.auth\.roles\]$`)
	})
	t.Run("a revoked user is logged out", func(t *testing.T) {
		b := newTab(t, running)
		b.logIn(p, "joe.secops")
		b.await(trafficShown)
		out, err := (&box{T: t}).command(p.Dir, "auth", "revoke", p.issuer+"#joe.secops",
			"--reason", "laptop lost")
		if err != nil {
			t.Fatal(out)
		}
		b.awaitText("Log in at")
		p.wantEvent(t, "revoke", p.issuer+"#joe.secops", "laptop lost")
	})
}

// do sends an action of a page with the token of the tab, and returns the status.
func (b *tab) do(action, id string) string {
	b.t.Helper()
	return b.eval(fmt.Sprintf(`fetch("api/do/%s", {method: "POST", headers:
		{Authorization: "Bearer " + sessionStorage.getItem("gatekit-console-token")},
		body: new URLSearchParams({id: %q})}).then((r) => r.status)`, action, id))
}

func TestLoginPageIsAccessible(t *testing.T) {
	axe := readAxe(t)
	p := startPublic(t)
	b := newTab(t, browser(t))
	b.run(chromedp.Navigate(p.console))
	b.awaitText("Log in at")
	b.eval(axe)
	b.wantAccessible("the login")
	b.takeProblems() // axe-core makes style elements, which the policy refuses
}

// TestLoginLeavesOnlyTheToken has a login with its cookie, its end, and requests that no page of
// the console sends.
func TestLoginLeavesOnlyTheToken(t *testing.T) {
	p := startPublic(t)
	b := newTab(t, browser(t))
	b.run(chromedp.Navigate(strings.TrimSuffix(p.console, "/"))) // without the slash at the end
	b.awaitText("Log in at")
	b.logIn(p, "ann.secops")
	b.await(trafficShown)
	token := strings.Trim(b.eval(`sessionStorage.getItem("gatekit-console-token")`), `"`)
	if len(token) < 43 {
		t.Fatalf("the token has %d characters, want at least 43", len(token))
	}
	if got := b.cookies(); len(got) > 0 {
		t.Errorf("after the login, the browser has the cookies %q", got)
	}
	history := ""
	for _, e := range command(b, page.GetNavigationHistory, cdp.Empty{}).Entries {
		history += e.URL + "\n"
	}
	for place, text := range map[string]string{"document": b.eval(
		"document.documentElement.outerHTML"), "address": b.eval("location.href"),
		"history": history, "stderr": p.Stderr.String(), "log": strings.Join(p.LogLines(), "\n")} {
		if strings.Contains(text, token) || strings.Contains(text, "code=") {
			t.Errorf("%s: contains the token or the code", place)
		}
	}

	send := func(path, header, value string) int {
		r, err := http.NewRequest("GET", p.URL[:strings.LastIndex(p.URL, "/")]+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		if header == "Host" {
			r.Host = value
		} else {
			r.Header.Set(header, value)
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	const page = "/console/api/page/traffic"
	origin := strings.TrimSuffix(p.console, "/gate/console")
	for _, c := range []struct {
		name, header, value string
		want                int
	}{
		{"the console itself", "Origin", origin, 200},
		{"another origin", "Origin", "https://evil.example", 403},
		{"the address of the listener", "Origin", strings.TrimSuffix(p.URL, "/mcp"), 403},
		{"a page of another site", "Sec-Fetch-Site", "cross-site", 403},
		{"another host", "Host", "evil.example", 403},
	} {
		if got := send(page, c.header, c.value); got != c.want {
			t.Errorf("%s: status %d, want %d", c.name, got, c.want)
		}
	}
	for _, reason := range []string{`console: Origin "https://evil.example" is not allowed`,
		"console: a page of another origin sent this request",
		`Host "evil.example" is not allowed`} {
		if !slices.ContainsFunc(p.Records(), func(r harness.Record) bool {
			return r.Action == "refuse" && strings.HasSuffix(r.Reason, reason)
		}) {
			t.Errorf("no record of a refusal has the reason %s", reason)
		}
	}

	b.eval(`document.getElementById("log-out").click()`)
	b.awaitText("Log in at")
	if got := send(page, "Origin", origin); got != 401 {
		t.Errorf("after the logout: status %d, want 401", got)
	}
	if got := b.eval("sessionStorage.length"); got != "0" {
		t.Errorf("after the logout, the tab keeps %s items", got)
	}
}

// TestCheckRefusesConsolesThatNobodyCanUse runs gatekit check.
func TestCheckRefusesConsolesThatNobodyCanUse(t *testing.T) {
	const listen = "[listen]\nhttp = \"127.0.0.1:0\"\nconsole = true\n"
	const token = "[listen.auth.token.ci]\nsha256 = " +
		"\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"\n"
	for name, test := range map[string]struct{ config, want string }{
		"no authentication": {listen, "listen.console needs listen.public_url"},
		"no issuer with a login": {listen + "public_url = \"http://127.0.0.1:1\"\n" + token,
			"listen.console needs an [[listen.auth.issuer]] with login"},
		"an unknown role": {listen + "[listen.auth.roles]\n\"console/write\" = []\n",
			`unknown key "console/write" in [listen.auth.roles]`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			harness.ReplaceFile(t, filepath.Join(dir, "gatekit.toml"),
				[]byte(test.config+harness.ScriptedServer("box")))
			out, err := (&box{T: t}).command(dir, "check")
			if err == nil || !strings.Contains(out, test.want) {
				t.Errorf("gatekit check: %v, without %q:\n%s", err, test.want, out)
			}
		})
	}
}
