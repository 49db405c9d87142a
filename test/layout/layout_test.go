// Package layout holds the shape of the project: who may import whom, what lies at the top,
// which identifiers only some packages may use, and how code and documents are worded. A change of the map is a decision; it goes into a commit of
// its own, with the reason.
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
)

const module = "gatekit"

// allowed says which of our packages a package may import: core knows nobody, everybody knows core,
// and only cmd knows everybody. A package that is not listed may import nothing of ours; "*" is
// everything.
var allowed = map[string][]string{
	"core/atomicfile": {},
	"core/display":    {},
	"core/mcp":        {"core/display"},
	"core/config":     {"core/tlsconfig"},
	"core/tlsconfig":  {},
	"core/conn":       {},
	"core/workers":    {},
	"core/pipeline":   {"core/mcp", "core/workers"},
	"core/tasks":      {},
	"core/proxy":      {"core/backoff", "core/display", "core/mcp", "core/pipeline", "core/tasks"},
	"core/taskgroup":  {},
	"core/backoff":    {},
	"core/downstream": {"core/conn", "core/mcp", "core/pipeline", "core/proxy", "core/workers"},
	"core/upstream": {"core/backoff", "core/conn", "core/mcp", "core/pipeline", "core/proxy",
		"core/taskgroup"},
	// the native paths do not import the bridge; cmd hands it to them
	"core/bridge": {"core/backoff", "core/downstream", "core/mcp", "core/pipeline", "core/proxy",
		"core/taskgroup", "core/upstream", "core/workers"},
	"audit":        {"core/atomicfile", "core/mcp", "core/pipeline"},
	"audit/format": {"audit", "core/mcp", "core/pipeline"},
	"audit/sink": {"audit", "audit/format", "core/atomicfile", "core/display",
		"core/pipeline"},
	"audit/telemetry": {"core/display", "core/mcp", "core/pipeline", "core/proxy"},
	"audit/query":     {"audit", "core/mcp", "core/pipeline"},
	// for the types that their seams are made of
	"transport": {"core/conn", "core/display", "core/mcp", "core/downstream", "core/upstream",
		"transport/process"},
	"policies": {"core/atomicfile", "core/mcp", "core/pipeline", "core/tasks", "plugins/sdk/scan",
		"policies/library"},
	"policies/library":    {"plugins/sdk"},
	"policies/service":    {"core/atomicfile", "core/mcp", "core/pipeline", "core/tlsconfig", "policies"},
	"plugins/sdk":         {"core/mcp", "core/pipeline", "plugins/proto", "plugins/proto/*"},
	"plugins/sdk/scan":    {"core/mcp"},
	"plugins/sdk/sdktest": {"core/mcp", "core/pipeline", "plugins/sdk"},
	"plugins/builtin":     {"core/mcp", "core/pipeline", "plugins/sdk", "plugins/builtin/*"},
	"plugins/builtin/*":   {"core/mcp", "core/pipeline", "plugins/sdk", "plugins/sdk/scan"},
	"plugins": {"core/display", "core/mcp", "core/pipeline", "plugins/proto", "plugins/proto/*",
		"plugins/sdk", "transport/process"},
	"plugins/proto":     {"core/mcp", "core/pipeline", "plugins/proto/*"},
	"plugins/proto/*":   {},
	"transport/process": {},
	"cmd/*":             {"*"},
	"examples/*":        {"*"},
	"test/*":            {"*"},
}

// inTests is what test files may import beside: the fakes, the suite that every plugin passes, the
// bundles that policies come in, and what a test binary serves plugins with.
var inTests = []string{"test/mcptest", "test/downstreamtest", "test/upstreamtest", "plugins/sdk",
	"plugins/sdk/sdktest", "policies", "test/bundles"}

// confined names imports and identifiers that belong to some packages or files only, test files
// apart.
var confined = []struct {
	what, why string
	rooms     []string
}{
	{"github.com/modelcontextprotocol/go-sdk", "its codec loses what a transparent proxy must keep",
		[]string{"cmd/*", "examples/*", "test/*"}},
	{"encoding/json", "it folds case and takes the last of two equal names", []string{"core/config",
		"audit", "policies", "policies/library", "policies/service", "cmd/*", "examples/*",
		"test/*"}},
	{"mcp.Era", "only both ends and the bridge know eras", []string{"core/mcp",
		"core/downstream", "core/upstream", "core/bridge", "test/*"}},
	{"mcp.Legacy", "only both ends and the bridge know eras", []string{"core/mcp",
		"core/downstream", "core/upstream", "core/bridge", "test/*"}},
	{"mcp.Modern", "only both ends and the bridge know eras", []string{"core/mcp",
		"core/downstream", "core/upstream", "core/bridge", "test/*"}},
	{"upstream.Own", "what is written to a server passed the pipeline or is made in this file",
		[]string{"core/bridge/outgoing.go"}},
}

// emptyNames are package names that say nothing.
var emptyNames = []string{"util", "utils", "common", "helper", "helpers", "types", "misc",
	"manager"}

func in(pkg string, rooms []string) bool {
	return slices.ContainsFunc(rooms, func(r string) bool {
		parent, all := strings.CutSuffix(r, "/*")
		return r == "*" || r == pkg || all && strings.HasPrefix(pkg, parent+"/")
	})
}

// mapOf is the row of the map for a package.
func mapOf(pkg string) []string {
	for p, to := range allowed {
		if in(pkg, []string{p}) {
			return to
		}
	}
	return nil
}

// check answers what file of package pkg (a folder, relative to the top) does that the map does not
// allow.
func check(file, pkg string, f *ast.File) (faults []string) {
	isTest := strings.HasSuffix(file, "_test.go")
	fault := func(format string, a ...any) {
		faults = append(faults, file+": "+fmt.Sprintf(format,
			a...))
	}
	if slices.Contains(emptyNames, f.Name.Name) {
		fault("a package named %s is named for nothing", f.Name.Name)
	}
	for _, i := range f.Imports {
		to, _ := strconv.Unquote(i.Path.Value)
		if to == module || strings.HasPrefix(to, module+"/") {
			to = strings.TrimPrefix(strings.TrimPrefix(to, module), "/")
			if to != pkg && !in(to, mapOf(pkg)) && !in("*", mapOf(pkg)) && !(isTest && in(to,
				inTests)) {
				fault("%s may not import %s", pkg, to)
			}
			continue
		}
		for _, c := range confined {
			if (to == c.what || strings.HasPrefix(to, c.what+"/")) && !isTest && !in(pkg, c.rooms) {
				fault("%s may not import %s: %s", pkg, to, c.why)
			}
		}
	}
	if isTest {
		return faults
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				for _, c := range confined {
					if x.Name+"."+s.Sel.Name == c.what && !in(pkg, c.rooms) &&
						!slices.Contains(c.rooms, file) {
						fault("%s may not use %s: %s", pkg, c.what, c.why)
					}
				}
			}
		}
		return true
	})
	return faults
}

func TestNobodyImportsWhatTheMapDoesNotAllow(t *testing.T) {
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
		for _, fault := range check(p, path.Dir(p), f) {
			t.Error(fault)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 10 {
		t.Errorf("read %d files: not the project's top?", files)
	}
}

// The map test would be worth nothing if it could not fail.
func TestAPlantedViolationIsFound(t *testing.T) {
	for _, c := range []struct{ name, file, source, want string }{
		{"core/mcp imports the pipeline", "core/mcp/x.go",
			`package mcp; import "gatekit/core/pipeline"`, "core/mcp may not import core/pipeline"},
		{"the proxy imports its downstream", "core/proxy/x.go",
			`package proxy; import "gatekit/core/downstream"`,
			"core/proxy may not import core/downstream"},
		{"upstream imports its sibling", "core/upstream/x.go",
			`package upstream; import "gatekit/core/downstream"`,
			"core/upstream may not import core/downstream"},
		{"a test reaches across too", "core/mcp/x_test.go",
			`package mcp; import "gatekit/core/proxy"`, "core/mcp may not import core/proxy"},
		{"somebody imports the program",
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
		{"a package that nobody planned", "core/unplanned/x.go",
			`package unplanned; import "gatekit/core/mcp"`,
			"core/unplanned may not import core/mcp"},
		{"the SDK on the path", "core/upstream/x.go",
			`package upstream; import "github.com/modelcontextprotocol/go-sdk/mcp"`,
			"may not import github.com/modelcontextprotocol/go-sdk/mcp"},
		{"encoding/json on the path", "core/proxy/x.go", `package proxy; import "encoding/json"`,
			"may not import encoding/json"},
		{"an era in the proxy", "core/proxy/x.go",
			`package proxy; import "gatekit/core/mcp"; var x = mcp.Modern`,
			"core/proxy may not use mcp.Modern"},
		{"a package named for nothing", "core/util/x.go", `package util`, "named for nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := parser.ParseFile(token.NewFileSet(), c.file, c.source,
				parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if got := check(c.file, path.Dir(c.file), f); len(got) != 1 || !strings.Contains(got[0],
				c.want) {
				t.Errorf("found %q, want one fault with %q", got, c.want)
			}
		})
	}
	t.Run("what is allowed passes", func(t *testing.T) {
		source := `package upstream; import ("gatekit/core/mcp"; "gatekit/core/proxy"); var x = mcp.Modern`
		f, _ := parser.ParseFile(token.NewFileSet(), "x.go", source, parser.SkipObjectResolution)
		if got := check("core/upstream/x.go", "core/upstream", f); len(got) != 0 {
			t.Errorf("found %q, want nothing", got)
		}
	})
}

func TestTheTopHoldsExactlyWhatTheDesignSays(t *testing.T) {
	known := []string{"LICENSE", "README.md", "audit", "cmd", "core", "docs", "examples",
		"gatekit.toml.example", "go.mod", "go.sum", "plugins", "policies", "test", "transport"}
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(known, e.Name()) {
			t.Errorf("%s lies at the top; the design knows %s and dot files", e.Name(),
				strings.Join(known, ", "))
		}
	}
	if l, err := os.ReadFile("../../LICENSE"); err != nil || !strings.Contains(string(l),
		"Apache License") {
		t.Errorf("LICENSE is not the Apache licence (%v)", err)
	}
}
