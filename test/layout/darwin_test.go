package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestProductCompilesForMacOS checks the types of the product's packages as a compiler for macOS
// would. Of other modules, only the declarations are checked, and nothing is compiled. So this
// takes a fraction of the time that a build would take.
func TestProductCompilesForMacOS(t *testing.T) {
	if testing.Short() {
		t.Skip("checks the types of all dependencies")
	}
	requireCompiles(t, 40, false, []string{"GOOS=darwin", "GOARCH=arm64"}, "./cmd/...", "./core/...",
		"./transport/...", "./plugins/...", "./policies/...", "./audit/...")
}

// TestSandboxCompilesForARM64 checks the numbers of system calls, which tests of the sandbox compare
// at compile time.
func TestSandboxCompilesForARM64(t *testing.T) {
	if testing.Short() {
		t.Skip("checks the types of all dependencies")
	}
	requireCompiles(t, 4, true, []string{"GOOS=linux", "GOARCH=arm64"}, "./transport/sandbox/...")
}

// requireCompiles checks the types of packages, and of their tests if tests is set, for another
// system. There must be a least number of packages.
func requireCompiles(t *testing.T, least int, tests bool, system []string, patterns ...string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	config := &packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles |
			packages.NeedImports | packages.NeedDeps | packages.NeedSyntax | packages.NeedTypes,
		Context: t.Context(), Dir: root, Tests: tests,
		Env: append(append(os.Environ(), "CGO_ENABLED=0"), system...),
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
			if err == nil && !strings.HasPrefix(name, root+string(filepath.Separator)) {
				for _, d := range file.Decls {
					if f, ok := d.(*ast.FuncDecl); ok {
						f.Body = nil
					}
				}
			}
			return file, err
		},
	}
	loaded, err := packages.Load(config, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) < least {
		t.Errorf("%d packages were found, want at least %d", len(loaded), least)
	}
	for _, p := range loaded {
		if strings.HasSuffix(p.PkgPath, ".test") { // a main package that the go command makes
			continue
		}
		for _, err := range p.Errors {
			t.Error(err)
		}
	}
}
