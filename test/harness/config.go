package harness

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"gatekit/test/mcptest"
)

// ScriptedServer returns the configuration of a scripted server over stdio. flags are flags of
// mcptest.Main.
func ScriptedServer(name string, flags ...string) string {
	// Without GORACE, a server with the race detector would sleep for a second when it ends.
	return StdioServer(name, append([]string{os.Args[0], "-name", name}, flags...), "MCPTEST_SERVE",
		"1", "GORACE", "atexit_sleep_ms=0")
}

// StdioServer returns the configuration of a stdio server. env holds names and values in turn.
func StdioServer(name string, command []string, env ...string) string {
	args := make([]string, 0, len(command))
	for _, a := range command[1:] {
		args = append(args, mcptest.Quote(a))
	}
	vars := []string{`GATEKIT_E2E = "MARK"`} // Configure replaces MARK
	for i := 0; i < len(env); i += 2 {
		vars = append(vars, fmt.Sprintf("%s = %s", env[i], mcptest.Quote(env[i+1])))
	}
	return fmt.Sprintf("[server.%s]\ncommand = %s\nargs = [%s]\nenv = { %s }\n", name,
		mcptest.Quote(command[0]), strings.Join(args, ", "), strings.Join(vars, ", "))
}

// HTTPServer returns the configuration of a server at a URL.
func HTTPServer(name, url string) string {
	return fmt.Sprintf("[server.%s]\nurl = %q\n", name, url)
}

// AuditTable is the [audit] table that Configure adds to a configuration without one.
const AuditTable = "[audit]\nfile = \"audit.jsonl\"\n"

// Route is a pair of a protocol revision and the transport to a scripted server of that revision.
type Route struct {
	Name     string
	Revision string
	Back     string // transport to the server: "stdio" or "http"
}

// Routes has every pair of an era and a transport.
var Routes = []Route{
	{"legacy before stdio", "2025-11-25", "stdio"},
	{"legacy before http", "2025-11-25", "http"},
	{"modern before stdio", mcptest.Modern, "stdio"},
	{"modern before http", mcptest.Modern, "http"},
}

// ScriptedServerOver returns the configuration of a scripted server of a revision. The parameter
// back is the transport, "stdio" or "http".
func ScriptedServerOver(t *testing.T, name, revision, back string) string {
	if back == "stdio" {
		return ScriptedServer(name, "-revisions", revision)
	}
	return HTTPServer(name, ServeWithoutCredentials(t, mcptest.Toolbox(name, revision)))
}

// ServeWithoutCredentials serves a server, and returns its URL. It fails the test at its end if a
// request had a header with a credential, which only a client of Gatekit can have sent.
func ServeWithoutCredentials(t *testing.T, server http.Handler) (url string) {
	var stray atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization"} {
			if r.Header.Get(name) != "" {
				stray.Add(1)
			}
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.Close()
		if n := stray.Load(); n > 0 {
			t.Errorf("the server got %d credentials of a client", n)
		}
	})
	return s.URL
}

// Revisions has one revision of each era.
var Revisions = []string{"2025-11-25", mcptest.Modern}

// LibraryRules returns a configuration with library rules. settings holds the settings of each rule
// as TOML, by the rule's name.
func LibraryRules(settings map[string]string) string {
	var names []string
	var tables strings.Builder
	for rule, s := range settings {
		names = append(names, fmt.Sprintf("%q", rule))
		fmt.Fprintf(&tables, "[policy.config.%q]\n%s\n", rule, s)
	}
	return "[policy]\nrules = [" + strings.Join(names, ", ") + "]\n" + tables.String()
}

// Builtin returns the configuration of a built-in plugin. config holds the plugin's settings, as
// the members of an inline table.
func Builtin(use, config string) string {
	return fmt.Sprintf("[[plugin]]\nname = %q\nuse = %q\nconfig = { %s }\n", use, use, config)
}

// PolicyFile writes rego to a file, as the package gatekit.mine, and returns a configuration with
// that file.
func PolicyFile(t *testing.T, rego string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mine.rego")
	if err := os.WriteFile(file, []byte("package gatekit.mine\n\n"+rego), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("[policy]\nfiles = [%q]\n", file)
}

// PlantedKey looks like an AWS access key, but is not one. The constant is split, so that scanners
// of this repository do not find it.
var PlantedKey = "AKIA" + "Z5GMNQ7TX2RWLKPD"
