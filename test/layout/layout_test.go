// Package layout tests rules for the repository: the imports of each package, imports and
// identifiers that only some packages may use, the entries of the top folder, and the wording of
// code and documents. Change a rule only in a commit of its own, which gives the reason.
package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// module is the path of the module, as go.mod has it.
var module = func() string {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		panic(err)
	}
	return modfile.ModulePath(text)
}()

// inModule returns a planted source in which the imports of "gatekit/…" are those of the module.
func inModule(source string) string {
	return strings.ReplaceAll(source, `"gatekit/`, `"`+module+"/")
}

// allowedImports lists, for each package of the module, the packages of the module that it may
// import. core imports no package outside of core. Only cmd, the examples and the tests may import
// everything ("*"). A package that is not listed may import no package of the module.
var allowedImports = map[string][]string{
	"core/atomicfile":   {},
	"core/privatefiles": {"core/atomicfile"},
	"core/allowances":   {"core/display", "core/privatefiles", "core/shared"},
	"core/display":      {},
	"core/identity":     {},
	"core/mcp":          {"core/display", "core/identity"},
	// clientfiles finds and changes the configuration files of MCP clients
	"core/clientfiles": {"core/atomicfile", "core/regularfile"},
	// attacks has the cases of gatekit attack, and the scripted peers that play them
	"core/attacks": {"core/conn"},
	"core/config":  {"core/hostlist", "core/regularfile", "core/tlsconfig"},
	// pins has the stage that compares what servers send with the lock file
	"core/canary": {"core/mcp", "core/pipeline"},
	"core/pins": {"core/atomicfile", "core/mcp", "core/pipeline", "core/privatefiles",
		"core/regularfile", "core/shared"},
	"core/hostlist":    {},
	"core/regularfile": {},
	"core/tlsconfig":   {"core/regularfile"},
	"core/conn":        {},
	"core/uris":        {},
	"core/workers":     {},
	"core/pipeline":    {"core/mcp", "core/stop", "core/uris", "core/workers"},
	// the stops of an operator, which the pipeline asks before a message moves
	"core/stop": {"core/display", "core/mcp", "core/privatefiles"},
	// what several replicas know together; sharedtest is the suite of its stores
	"core/shared":            {},
	"core/shared/sharedtest": {"core/shared"},
	// the owners of tasks, in the shared state
	"core/tasks": {"core/shared"},
	"core/proxy": {"core/identity", "core/backoff", "core/display", "core/mcp", "core/pipeline",
		"core/shared", "core/stop", "core/tasks", "core/uris"},
	"core/taskgroup": {},
	"core/backoff":   {},
	"core/downstream": {"core/identity", "core/conn", "core/mcp", "core/pipeline", "core/proxy",
		"core/stop", "core/workers"},
	"core/upstream": {"core/identity", "core/backoff", "core/conn", "core/mcp", "core/pipeline",
		"core/proxy", "core/stop", "core/taskgroup"},
	// downstream and upstream do not import the bridge: cmd passes the bridge to them
	"core/bridge": {"core/backoff", "core/downstream", "core/mcp", "core/pipeline", "core/proxy",
		"core/taskgroup", "core/upstream", "core/workers"},
	"audit":        {"core/atomicfile", "core/mcp", "core/pipeline", "core/regularfile"},
	"audit/format": {"audit", "core/mcp", "core/pipeline"},
	"audit/sink": {"audit", "audit/format", "core/atomicfile", "core/display",
		"core/pipeline", "core/regularfile"},
	"audit/telemetry": {"core/canary", "core/display", "core/mcp", "core/pipeline", "core/proxy",
		"core/shared"},
	"audit/query": {"audit", "core/canary", "core/mcp", "core/pipeline"},
	// asks witnesses for cosignatures of checkpoints; cmd passes it the HTTP clients
	"audit/witness": {"audit", "core/atomicfile", "core/backoff", "core/display", "core/pipeline",
		"core/regularfile"},
	// the logs of all replicas of a cluster
	"audit/fleet": {"audit", "core/mcp", "core/pipeline", "core/regularfile"},
	// transport needs downstream and upstream for the interfaces that it implements
	"transport": {"core/identity", "core/conn", "core/display", "core/hostlist", "core/mcp",
		"core/downstream", "core/upstream", "transport/auth", "transport/cluster", "transport/egress",
		"transport/httpconns", "transport/process", "transport/sandbox"},
	// connections for HTTP requests to one server, or to another replica
	"transport/httpconns": {},
	// the connections of a confined server to a list of hosts
	"transport/egress":  {"core/hostlist", "transport/ssrfguard"},
	"transport/sandbox": {"transport/sandbox/launcher"},
	// confines a process of its own before other packages are initialized
	"transport/sandbox/launcher": {},
	// installed npm packages of servers; cmd starts the servers from there
	"transport/npmpackage": {"core/atomicfile", "core/privatefiles", "core/regularfile"},
	"transport/tokenstore": {"core/atomicfile", "core/backoff", "core/privatefiles",
		"core/shared"},
	// credentials needs upstream for the interface that it implements
	"transport/credentials": {"core/backoff", "core/identity", "core/shared", "core/taskgroup",
		"core/upstream", "transport/tokenstore"},
	// pages at which principals log in to servers; cmd passes them the logins
	"transport/connect": {"core/display", "core/identity", "core/shared"},
	// pages for operators; cmd passes them the data, in the types of query, format and audit
	"transport/console": {"audit", "audit/format", "audit/query", "core/display", "core/identity",
		"transport/connect"},
	// requests that one replica forwards to another one
	"transport/cluster": {"core/identity", "core/mcp", "transport/httpconns"},
	// shared state in Valkey or Redis
	"transport/valkey": {"core/shared"},
	"policies": {"core/identity", "core/mcp", "core/pipeline", "core/privatefiles",
		"core/regularfile", "core/shared", "core/tasks", "core/uris", "plugins/sdk/scan",
		"policies/library"},
	"policies/library": {"plugins/sdk"},
	// learn writes policies from recorded messages
	"policies/learn": {"core/mcp", "policies"},
	"policies/service": {"core/atomicfile", "core/mcp", "core/pipeline", "core/regularfile",
		"core/tlsconfig", "policies"},
	// the host lets plugins count in what replicas share, so all of these know its types
	"plugins/sdk": {"core/mcp", "core/pipeline", "core/shared", "plugins/proto",
		"plugins/proto/*"},
	"plugins/sdk/scan": {"core/mcp", "plugins/sdk/scan/eight"},
	// tests of eight bytes at a time, for scan and for the plugins that search texts
	"plugins/sdk/scan/eight": {},
	"plugins/sdk/sdktest":    {"core/identity", "core/mcp", "core/pipeline", "plugins/sdk"},
	"plugins/builtin":        {"core/mcp", "core/pipeline", "plugins/sdk", "plugins/builtin/*"},
	"plugins/builtin/*": {"core/mcp", "core/pipeline", "core/shared", "core/uris", "plugins/sdk",
		"plugins/sdk/scan", "plugins/sdk/scan/eight"},
	"plugins": {"core/display", "core/mcp", "core/pipeline", "core/regularfile", "core/shared",
		"plugins/proto", "plugins/proto/*", "plugins/sdk", "transport/process",
		"transport/sandbox"},
	"plugins/proto": {"core/identity", "core/mcp", "core/pipeline", "core/shared",
		"plugins/proto/*"},
	"plugins/proto/*":   {},
	"transport/process": {},
	// a client for URLs that others chose, for downstream authentication and for logins at servers
	"transport/ssrfguard": {},
	// who sends a request, for the HTTP server of transport; cmd passes it to the server
	"transport/auth": {"core/display", "core/identity", "core/privatefiles", "transport/ssrfguard"},
	"cmd/*":          {"*"},
	"examples/*":     {"*"},
	"test/*":         {"*"},
}

// allowedInTests lists the packages that every test file may import, too. These are the fakes, the
// authorization server, principals, the test suite for plugins, policies, the policy bundles for
// tests, and the SDK, with which a test binary serves plugins.
var allowedInTests = []string{"core/shared", "core/shared/sharedtest", "test/redistest",
	"test/mcptest", "test/downstreamtest", "test/upstreamtest",
	"test/issuertest", "core/identity", "plugins/sdk", "plugins/sdk/sdktest", "policies",
	"test/bundles"}

// confined lists imports and identifiers that only some packages or files may use. Test files are
// exempt.
var confined = []struct {
	name    string // an import path or an identifier
	reason  string
	allowed []string // packages and files
}{
	// credentials takes the types of OAuth metadata and the parser of challenges, and no codec
	{"github.com/modelcontextprotocol/go-sdk", "its codec loses what a transparent proxy must keep",
		[]string{"cmd/*", "examples/*", "test/*", "transport/credentials"}},
	// core/tasks reads only what it has written itself, into the shared state
	{"encoding/json", "it ignores case and accepts duplicate names", []string{"core/allowances",
		"core/config", "core/tasks",
		"audit", "policies", "policies/library", "policies/service", "cmd/*", "examples/*",
		"test/*"}},
	{"mcp.Era", "only both ends and the bridge depend on the era", []string{"core/mcp",
		"core/downstream", "core/upstream", "core/bridge", "test/*"}},
	{"mcp.Legacy", "only both ends and the bridge depend on the era", []string{"core/mcp",
		"core/downstream", "core/upstream", "core/bridge", "test/*"}},
	{"mcp.Modern", "only both ends and the bridge depend on the era", []string{"core/mcp",
		"core/downstream", "core/upstream", "core/bridge", "test/*"}},
	{"upstream.Own", "only core/bridge/outgoing.go makes messages to servers without the pipeline",
		[]string{"core/bridge/outgoing.go"}},
}

// meaninglessNames are package names that do not tell what the package holds.
var meaninglessNames = []string{"util", "utils", "common", "helper", "helpers", "types", "misc",
	"manager"}

// matchesAny reports whether a package matches one of the patterns. A pattern is a package,
// "folder/*" for all packages below a folder, or "*" for all packages.
func matchesAny(pkg string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		parent, all := strings.CutSuffix(p, "/*")
		return p == "*" || p == pkg || all && strings.HasPrefix(pkg, parent+"/")
	})
}

// importsOf returns the patterns of allowedImports for a package.
func importsOf(pkg string) []string {
	for p, imports := range allowedImports {
		if matchesAny(pkg, []string{p}) {
			return imports
		}
	}
	return nil
}

// violations returns a description of each rule that a file breaks. pkg is the folder of the file,
// relative to the top folder.
func violations(file, pkg string, f *ast.File) (found []string) {
	isTest := strings.HasSuffix(file, "_test.go")
	report := func(format string, a ...any) {
		found = append(found, file+": "+fmt.Sprintf(format, a...))
	}
	if slices.Contains(meaninglessNames, f.Name.Name) {
		report("the package name %s does not tell what the package holds", f.Name.Name)
	}
	for _, i := range f.Imports {
		imported, _ := strconv.Unquote(i.Path.Value)
		if imported == module || strings.HasPrefix(imported, module+"/") {
			imported = strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
			allowed := importsOf(pkg)
			if imported != pkg && !matchesAny(imported, allowed) && !matchesAny("*", allowed) &&
				!(isTest && matchesAny(imported, allowedInTests)) {
				report("%s may not import %s", pkg, imported)
			}
			continue
		}
		for _, c := range confined {
			isConfined := imported == c.name || strings.HasPrefix(imported, c.name+"/")
			if isConfined && !isTest && !matchesAny(pkg, c.allowed) {
				report("%s may not import %s: %s", pkg, imported, c.reason)
			}
		}
	}
	if isTest {
		return found
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				for _, c := range confined {
					if x.Name+"."+s.Sel.Name == c.name && !matchesAny(pkg, c.allowed) &&
						!slices.Contains(c.allowed, file) {
						report("%s may not use %s: %s", pkg, c.name, c.reason)
					}
				}
			}
		}
		return true
	})
	return found
}

func TestImportsFollowTheRules(t *testing.T) {
	top, files := os.DirFS("../.."), 0
	err := fs.WalkDir(top, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); n != "." && (strings.HasPrefix(n, ".") || n == "testdata" ||
				n == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		files++
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", p), nil,
			parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, violation := range violations(p, path.Dir(p), f) {
			t.Error(violation)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 10 {
		t.Errorf("found %d Go files, want 10 or more; is ../.. the top of the repository?", files)
	}
}

// TestPlantedViolationsAreFound checks that TestImportsFollowTheRules can fail.
func TestPlantedViolationsAreFound(t *testing.T) {
	for _, c := range []struct{ name, file, source, want string }{
		{"core/mcp imports the pipeline", "core/mcp/x.go",
			`package mcp; import "gatekit/core/pipeline"`, "core/mcp may not import core/pipeline"},
		{"the proxy imports downstream", "core/proxy/x.go",
			`package proxy; import "gatekit/core/downstream"`,
			"core/proxy may not import core/downstream"},
		{"upstream imports downstream", "core/upstream/x.go",
			`package upstream; import "gatekit/core/downstream"`,
			"core/upstream may not import core/downstream"},
		{"a test file imports the proxy", "core/mcp/x_test.go",
			`package mcp; import "gatekit/core/proxy"`, "core/mcp may not import core/proxy"},
		{"the audit log imports the program",
			"audit/x.go", `package audit; import "gatekit/cmd/gatekit"`,
			"audit may not import cmd/gatekit"},
		{"upstream imports the bridge", "core/upstream/x.go",
			`package upstream; import "gatekit/core/bridge"`,
			"core/upstream may not import core/bridge"},
		{"downstream imports the bridge", "core/downstream/x.go",
			`package downstream; import "gatekit/core/bridge"`,
			"core/downstream may not import core/bridge"},
		{"the proxy imports the bridge", "core/proxy/x.go",
			`package proxy; import "gatekit/core/bridge"`,
			"core/proxy may not import core/bridge"},
		{"the bridge makes a message outside of outgoing.go", "core/bridge/x.go",
			`package bridge; import "gatekit/core/upstream"; var x = upstream.Own(nil)`,
			"core/bridge may not use upstream.Own"},
		{"a package that is not listed", "core/unplanned/x.go",
			`package unplanned; import "gatekit/core/mcp"`,
			"core/unplanned may not import core/mcp"},
		{"upstream imports the SDK", "core/upstream/x.go",
			`package upstream; import "github.com/modelcontextprotocol/go-sdk/mcp"`,
			"may not import github.com/modelcontextprotocol/go-sdk/mcp"},
		{"the proxy imports encoding/json", "core/proxy/x.go",
			`package proxy; import "encoding/json"`,
			"may not import encoding/json"},
		{"the proxy uses an era", "core/proxy/x.go",
			`package proxy; import "gatekit/core/mcp"; var x = mcp.Modern`,
			"core/proxy may not use mcp.Modern"},
		{"a package with a meaningless name", "core/util/x.go", `package util`,
			"does not tell what the package holds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := parser.ParseFile(token.NewFileSet(), c.file, inModule(c.source),
				parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			got := violations(c.file, path.Dir(c.file), f)
			if len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("got the violations %q, want one with %q", got, c.want)
			}
		})
	}
	t.Run("allowed imports", func(t *testing.T) {
		source := `package upstream; import ("gatekit/core/mcp"; "gatekit/core/proxy"); var x = mcp.Modern`
		f, _ := parser.ParseFile(token.NewFileSet(), "x.go", inModule(source), parser.SkipObjectResolution)
		if got := violations("core/upstream/x.go", "core/upstream", f); len(got) != 0 {
			t.Errorf("got the violations %q, want none", got)
		}
	})
}

// TestTopFolderHasOnlyKnownEntries checks the top folder. Names that begin with a dot are exempt.
func TestTopFolderHasOnlyKnownEntries(t *testing.T) {
	known := []string{"LICENSE", "README.md", "audit", "cmd", "core", "docs", "examples",
		"gatekit.toml.example", "go.mod", "go.sum", "plugins", "policies", "test", "transport"}
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(known, e.Name()) {
			t.Errorf("the top folder has %s, want only %s and dot files", e.Name(),
				strings.Join(known, ", "))
		}
	}
	if l, err := os.ReadFile("../../LICENSE"); err != nil || !strings.Contains(string(l),
		"Apache License") {
		t.Errorf("LICENSE is not the Apache License (%v)", err)
	}
}
