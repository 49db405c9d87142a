package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// The test binary is the client that the suite starts, too.
func TestMain(m *testing.M) {
	if os.Getenv("GATEKIT_CONFORMANCE_CLIENT") != "" {
		os.Exit(client())
	}
	os.Exit(peers.M{M: m}.Run())
}

// revisions are those with a frozen set of requirements, and how many of its scenarios are scored: a smaller set would be a lesser test.
var revisions = []struct {
	name           string
	server, client int
	serverFlags    []string // of the go-sdk's conformance server
}{
	{"2025-11-25", 30, 4, []string{"-stateless=false"}},
	{mcptest.Modern, 37, 7, nil},
}

// fixture starts the go-sdk's conformance server and answers its URL.
func fixture(t *testing.T, flags ...string) string {
	t.Helper()
	address := peers.FreeAddress(t)
	peers.Serve(t, exec.Command(peers.Tool(t, "everything-server"), append([]string{"-http", address}, flags...)...), address)
	return "http://" + address + "/mcp"
}

// through starts gatekit before a server, given as its table in the configuration, and answers gatekit's URL.
func through(t *testing.T, server string) string {
	t.Helper()
	address := peers.FreeAddress(t)
	cmd, err := gatekit(t.TempDir(), peers.Gatekit(t), address, server)
	if err != nil {
		t.Fatal(err)
	}
	peers.Serve(t, cmd, address)
	return "http://" + address + "/mcp"
}

// gatekit is the command that serves one server, unprefixed, on the address.
func gatekit(dir, binary, address, server string) (*exec.Cmd, error) {
	config := fmt.Sprintf("[listen]\nhttp = %q\n[names]\nprefix = \"never\"\n[audit]\nfile = \"audit.jsonl\"\n[server.s]\n%s\n", address, server)
	cmd := exec.Command(binary, "run")
	cmd.Dir = dir
	return cmd, os.WriteFile(filepath.Join(dir, "gatekit.toml"), []byte(config), 0o644)
}

// suite is the command that runs the conformance suite.
func suite(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	preload := filepath.Join(peers.Top(), "test", "conformance", "preload.mjs")
	dist := peers.Node(t).Path("@modelcontextprotocol", "conformance", "dist", "index.js")
	return exec.CommandContext(ctx, "node", append([]string{"--import", preload, dist}, args...)...)
}

// required are the scenarios that a revision's frozen set scores, without those for authorization, which a proxy has no part in.
func required(t *testing.T, revision, leg string) (names []string) {
	t.Helper()
	f, err := os.Open(peers.Node(t).Path("@modelcontextprotocol", "conformance", "requirements", revision+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	section := ""
	for lines := bufio.NewScanner(f); lines.Scan(); { // a flat file: no need of a YAML library
		line := lines.Text()
		if s, ok := strings.CutSuffix(line, ":"); ok && !strings.HasPrefix(line, " ") {
			section = s
		}
		if name, ok := strings.CutPrefix(line, "  - "); ok && section == leg && !strings.HasPrefix(name, "auth/") {
			names = append(names, name)
		}
	}
	return names
}

// check is one check of a scenario.
type check struct{ ID, Status, ErrorMessage string }

// results reads the suite's checks.json files: checks by scenario.
func results(t *testing.T, dir, leg string) map[string][]check {
	t.Helper()
	stamp, all := regexp.MustCompile(`-\d{4}-\d\d-\d\dT[\d-]+Z$`), map[string][]check{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "checks.json" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, filepath.Dir(path))
		name = stamp.ReplaceAllString(name, "")
		if leg == "server" {
			name = strings.TrimPrefix(name, "server-")
		}
		var checks []check
		err = json.Unmarshal(b, &checks)
		all[name] = checks
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// hold wants every scored scenario to pass through gatekit and every check that succeeded directly to succeed as often. It says how many did, strictly.
func hold(t *testing.T, scored []string, direct, via map[string][]check) {
	t.Helper()
	passed, lost := 0, 0
	names := slices.Clone(scored)
	for name := range direct {
		if !slices.Contains(names, name) {
			names = append(names, name) // not scored, but what it shows directly it must show
		}
	}
	for _, name := range names {
		count := map[string]int{}
		ok := len(via[name]) > 0
		for _, c := range via[name] {
			switch c.Status {
			case "SUCCESS":
				count[c.ID]++
			case "FAILURE":
				if slices.Contains(scored, name) {
					t.Errorf("%s: %s: %s", name, c.ID, c.ErrorMessage)
				}
				ok = false
			}
		}
		for _, c := range direct[name] {
			if c.Status == "SUCCESS" && !strings.HasPrefix(c.ID, "wire-schema-") { // those succeed even when nobody answers
				if count[c.ID]--; count[c.ID] < 0 {
					t.Errorf("%s: the check %s succeeds directly and is lost through gatekit", name, c.ID)
					lost++
					ok = false
				}
			}
		}
		if ok && slices.Contains(scored, name) {
			passed++
		}
	}
	t.Logf("strictly passed %d of %d, lost %d checks", passed, len(scored), lost)
	if passed != len(scored) {
		t.Errorf("passed %d of %d scenarios", passed, len(scored))
	}
}

func TestServerScenarios(t *testing.T) {
	for _, rev := range revisions {
		t.Run(rev.name, func(t *testing.T) {
			scored := required(t, rev.name, "server")
			if len(scored) != rev.server {
				t.Fatalf("%d scenarios are scored, want %d", len(scored), rev.server)
			}
			run := func(url string) map[string][]check {
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
				defer cancel()
				out := t.TempDir()
				cmd := suite(ctx, t, "server", "--url", url, "--requirements", rev.name, "-o", out)
				log, err := cmd.CombinedOutput() // it fails when a scenario that is not scored does
				if ctx.Err() != nil {
					t.Fatalf("the suite hangs: %v\n%s", err, log[max(0, len(log)-2000):])
				}
				return results(t, out, "server")
			}
			direct := run(fixture(t, rev.serverFlags...))
			t.Run("http", func(t *testing.T) {
				hold(t, scored, direct, run(through(t, fmt.Sprintf("url = %q", fixture(t, rev.serverFlags...)))))
			})
			t.Run("stdio", func(t *testing.T) {
				hold(t, scored, direct, run(through(t, fmt.Sprintf("command = %q", peers.Tool(t, "everything-server")))))
			})
		})
	}
}

func TestClientScenarios(t *testing.T) {
	for _, rev := range revisions {
		t.Run(rev.name, func(t *testing.T) {
			scored := required(t, rev.name, "client")
			if len(scored) != rev.client {
				t.Fatalf("%d scenarios are scored, want %d", len(scored), rev.client)
			}
			run := func(how string) map[string][]check {
				out := t.TempDir()
				for _, name := range scored {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					cmd := suite(ctx, t, "client", "--command", os.Args[0], "--scenario", name, "--spec-version", rev.name, "--force", "--timeout", "30000", "-o", out)
					cmd.Env = append(os.Environ(), "GATEKIT_CONFORMANCE_CLIENT="+how, "GATEKIT_BINARY="+peers.Gatekit(t), "GATEKIT_ADDRESS="+peers.FreeAddress(t), "EVERYTHING_CLIENT="+peers.Tool(t, "everything-client"))
					if log, err := cmd.CombinedOutput(); err != nil {
						t.Logf("%s %s: %v\n%s", how, name, err, log[max(0, len(log)-2000):])
					}
					cancel()
				}
				return results(t, out, "client")
			}
			hold(t, scored, run("direct"), run("through"))
		})
	}
}

// client is the program that the suite starts for a client scenario. The last argument is the URL of the suite's server; it is reached directly or
// through a gatekit of its own.
func client() int {
	url, echo := os.Args[len(os.Args)-1], os.Getenv("MCP_CONFORMANCE_SCENARIO") == "json-schema-2020-12-preservation"
	if os.Getenv("GATEKIT_CONFORMANCE_CLIENT") == "through" {
		dir, err := os.MkdirTemp("", "conformance-")
		if err != nil {
			return fail(err)
		}
		defer os.RemoveAll(dir)
		address := os.Getenv("GATEKIT_ADDRESS")
		cmd, err := gatekit(dir, os.Getenv("GATEKIT_BINARY"), address, fmt.Sprintf("url = %q", url))
		if err != nil {
			return fail(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return fail(err)
		}
		defer func() {
			cmd.Process.Signal(os.Interrupt)
			cmd.Wait()
		}()
		if !peers.Listening(address, func() bool { return true }) {
			return fail(fmt.Errorf("gatekit does not listen"))
		}
		url = "http://" + address + "/mcp"
	}
	if echo {
		return fail(echoSchema(url))
	}
	cmd := exec.Command(os.Getenv("EVERYTHING_CLIENT"), url)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return fail(cmd.Run())
}

func fail(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// echoSchema is the client that one scenario wants and the go-sdk has not got: it sends a tool's schema back as it came.
func echoSchema(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := mcptest.NewClient(mcptest.NewHTTP(url), os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION"))
	defer c.Close()
	if _, err := c.Open(ctx); err != nil {
		return err
	}
	list, err := c.Call(ctx, "tools/list", "{}")
	if err != nil {
		return err
	}
	var tools []json.RawMessage
	json.Unmarshal(mcptest.At(list.Result, "tools"), &tools)
	for _, tool := range tools {
		if mcptest.Text(tool, "name") == "json_schema_2020_12_tool" {
			_, err := c.Tool(ctx, "json_schema_echo", fmt.Sprintf(`{"schema":%s}`, mcptest.At(tool, "inputSchema")))
			return err
		}
	}
	return fmt.Errorf("no json_schema_2020_12_tool in %s", list.Raw)
}
