package conformance

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// TestAuthorizationScenarios runs the suite's auth/ scenarios for clients with Gatekit as the OAuth
// client. The user logs in with gatekit auth login, which an authorization server of the suite
// allows at once.
func TestAuthorizationScenarios(t *testing.T) {
	for _, c := range []struct {
		revision string
		required int
	}{{"2025-11-25", 14}, {mcptest.Modern, 25}} {
		t.Run(c.revision, func(t *testing.T) {
			t.Parallel()
			names, passed := scenarios(t, c.revision, "client", "auth/"), 0
			if len(names) != c.required {
				t.Fatalf("%d scenarios are required, want %d", len(names), c.required)
			}
			for _, name := range names {
				t.Run(name, func(t *testing.T) {
					runAuthScenario(t, name, c.revision)
					if !t.Failed() {
						passed++
					}
				})
			}
			t.Logf("%d of %d required scenarios pass", passed, len(names))
		})
	}
}

// TestOtherAuthorizationScenarios runs auth/ scenarios that the suite does not require: those of
// the extensions for client credentials and for enterprise-managed authorization, and the two of
// the revision 2025-03-26, whose servers have no metadata of their own. Gatekit uses such a server
// only if the operator has named its issuer. In one of them, the authorization server has no
// metadata either, which the operator must allow.
func TestOtherAuthorizationScenarios(t *testing.T) {
	for _, c := range []struct{ name, revision string }{
		{"auth/client-credentials-basic", "2025-11-25"},
		{"auth/client-credentials-jwt", "2025-11-25"},
		{"auth/client-credentials-basic", mcptest.Modern},
		{"auth/client-credentials-jwt", mcptest.Modern},
		{"auth/enterprise-managed-authorization", "2025-11-25"},
		{"auth/enterprise-managed-authorization", mcptest.Modern},
		{"auth/2025-03-26-oauth-metadata-backcompat", "2025-03-26"},
		{"auth/2025-03-26-oauth-endpoint-fallback", "2025-03-26"},
	} {
		t.Run(c.name+" "+c.revision, func(t *testing.T) {
			t.Parallel()
			runAuthScenario(t, c.name, c.revision, "--force") // extensions belong to no revision
		})
	}
}

// runAuthScenario runs one scenario with authClient as the client. options are more options of the
// suite.
func runAuthScenario(t *testing.T, name, revision string, options ...string) {
	t.Helper()
	dir, out := t.TempDir(), t.TempDir()
	runSuite(t, []string{envAuth + "=" + dir, envGatekit + "=" + peers.Gatekit(t),
		envAddress + "=" + peers.FreeAddress(t),
		"GORACE=" + os.Getenv("GORACE") + " atexit_sleep_ms=0"}, append([]string{"client",
		"--command", os.Args[0], "--scenario", name, "--spec-version", revision,
		"--timeout", "120000", "-o", out}, options...)...)
	if faults := authFaults(t, out); len(faults) > 0 {
		t.Errorf("got %q\n%s", faults, output(out))
	}
	checkAuditLog(t, dir)
}

// authFaults returns the checks that failed or warned. Without a check that succeeded, the result
// is not empty.
func authFaults(t *testing.T, out string) (faults []string) {
	successes := 0
	for _, checks := range readVerdicts(t, filepath.Join(out, "auth"), "") {
		for v := range checks {
			switch v.Status {
			case "SUCCESS":
				successes++
			case "FAILURE", "WARNING":
				faults = append(faults, v.ID+" "+v.Status)
			}
		}
	}
	if successes == 0 {
		faults = append(faults, "no check succeeded")
	}
	slices.Sort(faults)
	return faults
}

// output returns what the client printed.
func output(out string) (text string) {
	for _, name := range []string{"stdout.txt", "stderr.txt"} {
		files, _ := filepath.Glob(filepath.Join(out, "auth", "*", name))
		for _, file := range files {
			b, _ := os.ReadFile(file) // only for the text of a failure
			text += string(b)
		}
	}
	return text
}

// envAuth has the folder of authClient.
const envAuth = "GATEKIT_CONFORMANCE_AUTH"

// operator is the operator of the gatekit of one scenario, and its only user.
type operator struct {
	dir, binary string
	env         []string
}

// authClient is the client of one scenario. It starts gatekit in front of the suite's server, with
// the settings that an operator would write, and uses it until the server answers. When an error
// says so, it logs in.
func authClient(server string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	o := &operator{dir: os.Getenv(envAuth), binary: os.Getenv(envGatekit)}
	o.env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(o.dir, "state"))
	settings, err := authSettings(ctx, server)
	if err != nil {
		return err
	}
	address := os.Getenv(envAddress)
	cmd, err := gatekitCommand(o.binary, o.dir, address, fmt.Sprintf("url = %q\n", server)+settings)
	if err != nil {
		return err
	}
	cmd.Env = o.env
	p, err := startProcess(cmd, address)
	if err != nil {
		return err
	}
	defer func() {
		if e := p.stop(); e != nil {
			err = errors.Join(err, e)
		}
	}()
	revision := cmp.Or(os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION"), mcptest.Modern)
	for range 4 { // a client that logs in without end must fail, and not hang
		err = use(ctx, "http://"+address+"/mcp", revision)
		if err == nil || !strings.Contains(err.Error(), "gatekit auth login") {
			return err
		}
		fmt.Println("the client got:", err)
		if err := o.logIn(ctx); err != nil {
			return err
		}
	}
	return err
}

// authSettings returns [server.everything.auth]. Of a client that was registered before, the
// operator knows the authorization server.
func authSettings(ctx context.Context, server string) (string, error) {
	var registered struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Key    string `json:"private_key_pem"`
		suiteProvider
	}
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &registered); err != nil {
			return "", err
		}
	}
	scenario, kind := os.Getenv("MCP_CONFORMANCE_SCENARIO"), "oauth"
	switch {
	case strings.HasPrefix(scenario, "auth/2025-03-26-"):
		u, err := url.Parse(server)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("[server.everything.auth]\ntype = \"oauth\"\nregister = true\n"+
			"issuer = \"%s://%s\"\nwithout_metadata = %t\n", u.Scheme, u.Host,
			strings.HasSuffix(scenario, "endpoint-fallback")), nil
	case registered.ID == "":
		return "[server.everything.auth]\ntype = \"oauth\"\nregister = true\nclient = { " +
			"id = \"https://conformance-test.local/client-metadata.json\" }\n", nil
	case strings.HasPrefix(scenario, "auth/client-credentials-"):
		kind = "client_credentials"
	}
	issuer, err := issuerOf(ctx, server)
	if err != nil {
		return "", err
	}
	login := ""
	if registered.IDToken != "" {
		kind = "id_jag"
		// The process ends with the scenario, and the provider with it.
		provider := startIdentityProvider(registered.suiteProvider)
		login = fmt.Sprintf("login = { issuer = %q, id = %q, secret = \"x\" }\n", provider.URL,
			registered.ClientID)
	}
	proof := fmt.Sprintf("secret = %q", registered.Secret)
	if registered.Key != "" {
		proof = fmt.Sprintf("key = %q", registered.Key)
	}
	return fmt.Sprintf("[server.everything.auth]\ntype = %q\nissuer = %q\nclient = { id = %q, %s "+
		"}\n%s", kind, issuer, registered.ID, proof, login), nil
}

// issuerOf returns the issuer that the metadata of a server names.
func issuerOf(ctx context.Context, server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	u.Path = "/.well-known/oauth-protected-resource" + u.Path
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var m struct {
		Issuers []string `json:"authorization_servers"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&m); err != nil || len(m.Issuers) == 0 {
		return "", fmt.Errorf("%s names no authorization server: %w", u, err)
	}
	return m.Issuers[0], nil
}

// use makes the requests of a client.
func use(ctx context.Context, gatekit, revision string) error {
	c := mcptest.NewClient(mcptest.NewHTTP(gatekit), revision)
	c.Capabilities = `{}` // the user logs in with the command, and is not asked during a call
	defer c.Close()
	failed := func(m mcptest.Message, err error) error {
		text := string(m.Raw)
		if err == nil && (m.Error != nil || strings.Contains(text, "gatekit/partial")) {
			err = errors.New(text)
		}
		return err
	}
	if err := failed(c.Open(ctx)); err != nil {
		return err
	}
	if err := failed(c.Call(ctx, "tools/list", `{}`)); err != nil {
		return err
	}
	return failed(c.Tool(ctx, "test-tool", `{}`))
}

// logIn runs gatekit auth login. If the server has another authorization server than before, logIn
// removes the login to the previous one, as the error says.
func (o *operator) logIn(ctx context.Context) error {
	out, err := o.tryLogIn(ctx)
	if err != nil && strings.Contains(out, "gatekit auth logout") {
		if out, err := o.command(ctx, "logout").CombinedOutput(); err != nil {
			return fmt.Errorf("gatekit auth logout: %w\n%s", err, out)
		}
		out, err = o.tryLogIn(ctx)
	}
	if err != nil {
		return fmt.Errorf("gatekit auth login: %w\n%s", err, out)
	}
	return nil
}

func (o *operator) command(ctx context.Context, name string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, o.binary, "auth", name, "everything")
	cmd.Dir, cmd.Env = o.dir, o.env
	return cmd
}

func (o *operator) tryLogIn(ctx context.Context) (string, error) {
	cmd := o.command(ctx, "login")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	var text strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&text, lines.Text())
		page, ok := strings.CutPrefix(lines.Text(), "  http")
		if !ok {
			continue
		}
		answer, err := http.Get("http" + page) // follows the redirect to the command
		if err != nil {
			cmd.Process.Kill()
			cmd.Wait()
			return "", err
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	err = cmd.Wait()
	return text.String() + stderr.String(), err
}
