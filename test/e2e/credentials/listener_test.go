package credentials

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// aClient is a client of Gatekit that logs in at its listener, and how it shows which client it is.
type aClient struct {
	t        *testing.T
	modern   bool
	url, id  string // id is empty for a registration, and a URL for a metadata document
	certFile string // certificate of the server that has the document
	// browse opens a page for the user, and returns what the last page shows
	browse func(page string) string
}

// TestClientsLogInAtTheListener has published clients that know only the URL of Gatekit. They find
// the authorization server by the metadata of the listener, and log a user in there, each with its
// metadata document, with a registration, and as a registered client.
func TestClientsLogInAtTheListener(t *testing.T) {
	document := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"client_id":"https://%s%s","client_name":"c","application_type":"native",`+
			`"redirect_uris":["http://127.0.0.1/oauth/callback"],"response_types":["code"],`+
			`"grant_types":["authorization_code","refresh_token"],`+
			`"token_endpoint_auth_method":"none"}`, r.Host, r.URL.Path)
	}))
	t.Cleanup(document.Close)
	certFile := filepath.Join(t.TempDir(), "document.pem")
	if err := os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: document.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		revision string // of the client
		logIn    func(c aClient) (output string)
	}{
		{"go-sdk", "2025-11-25", aClient.goSDK},
		{"go-sdk", mcptest.Modern, aClient.goSDK},
		{"TypeScript SDK v1", "2025-11-25", func(c aClient) string { return c.typeScript("v1") }},
		{"TypeScript SDK v2", "2025-11-25", func(c aClient) string { return c.typeScript("v2") }},
		{"TypeScript SDK v2", mcptest.Modern, func(c aClient) string { return c.typeScript("v2") }},
		{"Inspector", "2025-11-25", aClient.inspector},
		{"Inspector", mcptest.Modern, aClient.inspector},
		{"Inspector in a browser", "2025-11-25", aClient.inspectorInABrowser},
		{"Inspector in a browser", mcptest.Modern, aClient.inspectorInABrowser},
	} {
		t.Run(tt.name+" "+tt.revision, func(t *testing.T) {
			p, g := startListener(t, oidcProvider, tt.revision, certFile)
			for _, by := range []struct{ name, id string }{
				{"document", document.URL + "/client.json"}, {"registration", ""},
				{"registered", "desktop"}} {
				t.Run(by.name, func(t *testing.T) {
					registrations := p.count("registration")
					output := tt.logIn(aClient{t, tt.revision == mcptest.Modern, g.URL, by.id,
						certFile, func(page string) string { return p.browse(page, by.name) }})
					// The page of the Inspector has no field for the text.
					if !strings.Contains(output, "hello") && !strings.Contains(output,
						`"server": "box"`) {
						t.Errorf("the client printed\n%s\nwant the result of the tool", output)
					}
					wantCallsBy(t, g, p.issuer+"#"+by.name, by.id)
					registered := p.count("registration") - registrations
					if want := map[bool]int{true: 1}[by.id == ""]; registered != want {
						t.Errorf("%d registrations, want %d", registered, want)
					}
				})
			}
			logs := strings.Join(g.LogLines(), "\n") + g.Stderr.String()
			if strings.Contains(logs, "eyJ") { // each token begins with it
				t.Errorf("a token is in a log:\n%s", logs)
			}
		})
	}
}

// TestRegisteredClientLogsInWithoutNode logs in with a client that needs no Node.
func TestRegisteredClientLogsInWithoutNode(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run("go-sdk "+revision, func(t *testing.T) {
			p, g := startListener(t, zitadelOIDC, revision, "")
			c := aClient{t: t, modern: revision == mcptest.Modern, url: g.URL, id: "desktop",
				browse: func(page string) string { return p.browse(page, "ann") }}
			if output := c.goSDK(); !strings.Contains(output, "hello") {
				t.Errorf("the client printed\n%s\nwant the result of the tool", output)
			}
			wantCallsBy(t, g, p.issuer+"#ann", c.id)
			if logs := strings.Join(g.LogLines(), "\n") + g.Stderr.String(); strings.Contains(logs,
				"eyJ") { // each token begins with it
				t.Errorf("a token is in a log:\n%s", logs)
			}
		})
	}
}

// startListener starts a provider whose access tokens are JWTs, and a gatekit that accepts them.
func startListener(t *testing.T, at authorizationServer, revision, certFile string) (*provider,
	*harness.Gatekit) {
	t.Helper()
	p := at.start(t, 3600, 3600, "NODE_EXTRA_CA_CERTS="+certFile, "JWTS=1")
	g := harness.StartHTTP(t, fmt.Sprintf(`public_url = "http://LISTEN_ADDRESS"
[listen.auth]
scopes = ["read"]
[[listen.auth.issuer]]
issuer = %q
`, p.issuer)+harness.HTTPServer("box", harness.ServeWithoutCredentials(t,
		mcptest.Toolbox("box", revision))))
	return p, g
}

// wantCallsBy fails the test unless the audit log has a call by the principal, with the client id.
func wantCallsBy(t *testing.T, g *harness.Gatekit, principal, id string) {
	t.Helper()
	calls := 0
	for _, r := range g.Records() {
		if r.Principal != principal {
			continue
		}
		if r.Client != id && (id != "" || r.Client == "" || r.Client == "desktop") {
			t.Errorf("the record %s of %s has the client %q, want %q", r, principal, r.Client, id)
		}
		if r.String() == "to_server request tools/call box echo pass" {
			calls++
		}
	}
	if calls != 1 {
		t.Errorf("%d records of a call by %s, want 1", calls, principal)
	}
}

// goSDK logs in with the handler of the go-sdk.
func (c aClient) goSDK() string {
	back := make(chan url.Values, 1)
	callback := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		back <- r.URL.Query()
	}))
	c.t.Cleanup(callback.Close)
	config := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL: callback.URL + "/oauth/callback",
		AuthorizationCodeFetcher: func(_ context.Context, args *auth.AuthorizationArgs) (
			*auth.AuthorizationResult, error) {
			c.browse(args.URL)
			q := <-back
			return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"),
				Iss: q.Get("iss")}, nil
		},
	}
	switch {
	case strings.HasPrefix(c.id, "https:"):
		config.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: c.id}
	case c.id == "":
		config.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{
			Metadata: &oauthex.ClientRegistrationMetadata{ClientName: "go-sdk",
				RedirectURIs: []string{config.RedirectURL}, TokenEndpointAuthMethod: "none"}}
	default:
		config.PreregisteredClient = &oauthex.ClientCredentials{ClientID: c.id}
	}
	handler, err := auth.NewAuthorizationCodeHandler(config)
	if err != nil {
		c.t.Fatal(err)
	}
	revision := map[bool]string{false: "2025-11-25", true: mcptest.Modern}[c.modern]
	client := mcp.NewClient(&mcp.Implementation{Name: "go-sdk", Version: "1"}, nil)
	session, err := client.Connect(harness.Context(c.t), &mcp.StreamableClientTransport{
		Endpoint: c.url, OAuthHandler: handler},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		c.t.Fatal(err)
	}
	defer session.Close()
	if got := session.InitializeResult().ProtocolVersion; got != revision {
		c.t.Errorf("the client speaks revision %s, want %s", got, revision)
	}
	result, err := session.CallTool(harness.Context(c.t), &mcp.CallToolParams{Name: "box__echo",
		Arguments: map[string]string{"text": "hello"}})
	if err != nil {
		c.t.Fatal(err)
	}
	b, err := json.Marshal(result)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

// typeScript logs in with a version of the TypeScript SDK.
func (c aClient) typeScript(sdk string) string {
	era := map[bool]string{false: "legacy", true: "modern"}[c.modern]
	id := c.id
	if id == "" {
		id = "register"
	}
	script := filepath.Join(peers.Top(), "test", "e2e", "credentials", "login.mjs")
	cmd := exec.CommandContext(harness.Context(c.t), "node", script, sdk,
		map[bool]string{false: "legacy", true: "auto"}[c.modern], c.url, id)
	cmd.Env = append(os.Environ(), "NODE_MODULES="+peers.Node(c.t).Path(),
		"NODE_EXTRA_CA_CERTS="+c.certFile)
	output := c.run(cmd)
	if !strings.HasSuffix(output, " "+era+"\n") {
		c.t.Errorf("the client printed\n%s\nwant the era %s", output, era)
	}
	return output
}

// inspector logs in with the command line of the Inspector.
func (c aClient) inspector() string {
	m, home := peers.Node(c.t), c.t.TempDir()
	_, port, _ := strings.Cut(peers.FreeAddress(c.t), ":")
	args := append(m.Inspector()[1:], "--cli", "--server-url", c.url, "--transport", "http",
		"--protocol-era", map[bool]string{false: "legacy", true: "modern"}[c.modern],
		"--callback-url", "http://127.0.0.1:"+port+"/oauth/callback",
		"--method", "tools/call", "--tool-name", "box__echo", "--tool-arg", "text=hello")
	switch {
	case strings.HasPrefix(c.id, "https:"):
		args = append(args, "--client-metadata-url", c.id)
	case c.id != "":
		args = append(args, "--client-id", c.id)
	}
	cmd := exec.CommandContext(harness.Context(c.t), m.Inspector()[0], args...)
	// The Inspector opens a browser. The test is the browser.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "BROWSER=true",
		"MCP_AUTO_OPEN_ENABLED=true", "MCP_INSPECTOR_SECRET_STORE=file",
		"NODE_EXTRA_CA_CERTS=" + c.certFile}
	return c.run(cmd)
}

var authorizationPage = regexp.MustCompile(`http://\S+/auth\?\S+`)

// run runs a client that prints the page for its user, and returns its output.
func (c aClient) run(cmd *exec.Cmd) string {
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	var text strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&text, lines.Text())
		if page := authorizationPage.FindString(lines.Text()); page != "" {
			c.browse(page)
		}
	}
	if err := cmd.Wait(); err != nil {
		c.t.Fatalf("%s: %v\n%s", cmd, err, &text)
	}
	return text.String()
}
