package credentials

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/peers"

	"github.com/modelcontextprotocol/go-sdk/auth"
)

// authorizationServer is a certified authorization server for tests. Both have the same clients.
type authorizationServer string

const (
	// oidcProvider is the package oidc-provider, which needs Node. It has all features.
	oidcProvider authorizationServer = "oidc-provider"
	// zitadelOIDC is the library zitadel/oidc, which needs no Node. It has no registration of
	// clients and no ID-JAG, and sends no iss (RFC 9207).
	zitadelOIDC authorizationServer = "zitadel/oidc"
)

// authorizationServers has both of them, for the tests of the most important promises. So these
// are also tested on a machine without Node.
var authorizationServers = []authorizationServer{oidcProvider, zitadelOIDC}

// everywhere runs a test at both authorization servers, each with servers and clients of both eras.
func everywhere(t *testing.T, test func(t *testing.T, at authorizationServer, era,
	revision string)) {
	for _, at := range authorizationServers {
		for _, era := range []string{"legacy", "modern"} {
			for _, revision := range harness.Revisions {
				t.Run(fmt.Sprintf("%s, %s server, %s client", at, era, revision),
					func(t *testing.T) { test(t, at, era, revision) })
			}
		}
	}
}

// provider is a running authorization server.
type provider struct {
	t      *testing.T
	issuer string

	mu           sync.Mutex
	events       []string
	clientTokens []string // access tokens that clients of Gatekit have got
}

// hasClientToken reports whether a text has the access token of a client of Gatekit.
func (p *provider) hasClientToken(s string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.clientTokens, func(token string) bool {
		return strings.Contains(s, token)
	})
}

// oneAuthorizationServer returns the authorization server for a test that runs at one of them, and
// that both have all features for.
func oneAuthorizationServer() authorizationServer {
	if _, err := exec.LookPath("node"); err != nil {
		return zitadelOIDC
	}
	return oidcProvider
}

// startProvider starts an authorization server that can do what both can do. The access tokens of a
// login are valid for some seconds, refreshed ones for an hour.
func startProvider(t *testing.T, seconds int) *provider {
	t.Helper()
	return oneAuthorizationServer().start(t, seconds, 3600)
}

// start starts the authorization server. The access tokens of a login are valid for some seconds,
// refreshed ones for another number of seconds. env is added to its environment.
func (a authorizationServer) start(t *testing.T, seconds, refreshed int, env ...string) *provider {
	t.Helper()
	p := &provider{t: t}
	event := func(text string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.events = append(p.events, text)
	}
	if a == oidcProvider {
		p.issuer = peers.OIDCProvider(t, seconds, refreshed, event, env...)
		return p
	}
	cmd := exec.Command(peers.OpenIDProvider(t), fmt.Sprint(seconds), fmt.Sprint(refreshed))
	cmd.Env = append(cmd.Environ(), env...)
	p.issuer = peers.RunIssuer(t, cmd, event)
	return p
}

// count returns how often an event has happened.
func (p *provider) count(event string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if e == event {
			n++
		}
	}
	return n
}

// check asks the provider about a token, as the protected server does.
func (p *provider) check(token, resource string) (*auth.TokenInfo, error) {
	r, err := http.NewRequest(http.MethodPost, p.issuer+"/token/introspection",
		strings.NewReader(url.Values{"token": {token}}.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("server", "server")
	r.Header["Idempotency-Key"] = nil // ask again if the provider closes an idle connection
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var about struct {
		Active     bool
		Sub, Scope string
		Aud        any // a string or a list
		Exp        int64
	}
	if err := json.NewDecoder(answer.Body).Decode(&about); err != nil {
		return nil, err
	}
	audience, isList := about.Aud.([]any)
	if !isList {
		audience = []any{about.Aud}
	}
	if !about.Active || !slices.Contains(audience, any(resource)) {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{UserID: about.Sub, Scopes: strings.Fields(about.Scope),
		Expiration: time.Unix(about.Exp, 0)}, nil
}

var formAction = regexp.MustCompile(`action="([^"]*)"`)

// browse opens a page of the provider as a browser does, logs in with a name, consents, and follows
// the redirect to Gatekit. It returns the text of the last page.
func (p *provider) browse(page, name string) string {
	p.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: harness.Patience}
	answer, err := browser.Get(page)
	for _, form := range []url.Values{{"prompt": {"login"}, "login": {name}, "password": {"x"}},
		{"prompt": {"consent"}}} {
		text := p.read(answer, err)
		action := formAction.FindStringSubmatch(text)
		if action == nil || !strings.Contains(text, fmt.Sprintf(`value="%s"`, form.Get("prompt"))) {
			p.t.Fatalf("%s has no form to %s:\n%s", answer.Request.URL.Path, form.Get("prompt"),
				text)
		}
		to, parseErr := answer.Request.URL.Parse(action[1])
		if parseErr != nil {
			p.t.Fatal(parseErr)
		}
		answer, err = browser.PostForm(to.String(), form)
	}
	return p.read(answer, err)
}

var formInput = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)

// enterCode opens a page of the provider as a browser does, enters a code, logs in with a name, and
// consents. It returns the text of the last page.
func (p *provider) enterCode(page, code, name string) string {
	p.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: harness.Patience}
	answer, err := browser.Get(page)
	for _, entered := range []url.Values{{"user_code": {code}}, {"confirm": {"yes"}},
		{"login": {name}, "password": {"x"}}, {}} {
		text := p.read(answer, err)
		action := formAction.FindStringSubmatch(text)
		if action == nil {
			p.t.Fatalf("%s has no form for %v:\n%s", answer.Request.URL.Path, entered, text)
		}
		for _, hidden := range formInput.FindAllStringSubmatch(text, -1) {
			entered.Set(hidden[1], hidden[2])
		}
		to, parseErr := answer.Request.URL.Parse(action[1])
		if parseErr != nil {
			p.t.Fatal(parseErr)
		}
		answer, err = browser.PostForm(to.String(), entered)
	}
	return p.read(answer, err)
}

func (p *provider) read(answer *http.Response, err error) string {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// gatekit runs a command of gatekit beside a running one, and returns its output and exit code.
func gatekit(t *testing.T, dir string, args ...string) (string, int) {
	t.Helper()
	cmd := command(t, dir, args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func command(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(harness.Context(t), peers.Gatekit(t), args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), stateIn(dir))
	return cmd
}

// stateIn returns the variable of the environment for the state folder of a test.
func stateIn(dir string) string { return "XDG_STATE_HOME=" + filepath.Join(dir, "state") }

// logIn runs gatekit auth login, and is its user. It returns the output.
func (p *provider) logIn(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	page, out, code := p.tryLogIn(t, dir, name, args...)
	if code != 0 || !strings.Contains(page, "You are logged in") {
		t.Fatalf("gatekit auth login: exit code %d\n%s\nthe last page is %s", code, out, page)
	}
	return out
}

// tryLogIn is logIn for a login that may fail. It returns the last page that the user sees.
func (p *provider) tryLogIn(t *testing.T, dir, name string, args ...string) (page, output string,
	code int) {
	t.Helper()
	return runLogIn(t, dir, args, func(at, _ string) string { return p.browse(at, name) })
}

var userCode = regexp.MustCompile(`enter the code (\S+):`)

// runLogIn runs gatekit auth login. The function open is the user: it gets the page that the
// command prints and, with --device, the code, and returns the last page that the user sees.
func runLogIn(t *testing.T, dir string, args []string,
	open func(page, code string) string) (page, output string, exitCode int) {
	t.Helper()
	cmd := command(t, dir, append([]string{"auth", "login"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr harness.Output
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	code := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&text, lines.Text())
		if m := userCode.FindStringSubmatch(lines.Text()); m != nil {
			code = m[1]
		}
		if strings.HasPrefix(lines.Text(), "  http") {
			page = open(strings.TrimSpace(lines.Text()), code)
		}
	}
	cmd.Wait()
	return page, text.String() + stderr.String(), cmd.ProcessState.ExitCode()
}

// tokensSeen returns the different tokens that the server has got.
func (p *protected) tokensSeen() (tokens []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, seen := range p.seen {
		token, ok := strings.CutPrefix(seen.Get("Authorization"), "Bearer ")
		if ok && !slices.Contains(tokens, token) {
			tokens = append(tokens, token)
		}
	}
	return tokens
}
