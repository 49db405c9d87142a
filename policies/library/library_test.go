package library_test

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"gatekit/policies"
	"gatekit/policies/library"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
)

// TestRules checks each rule and runs its tests. The rule and the tests may use only the built-in
// functions that policies may use.
func TestRules(t *testing.T) {
	for _, rule := range library.Names() {
		t.Run(rule, func(t *testing.T) {
			if library.Title(rule) == "" {
				t.Error("the rule has no title in its metadata")
			}
			if err := library.CheckSettings(rule, nil); err != nil {
				t.Errorf("the rule's schema does not accept empty settings: %v; every setting "+
					"must be optional", err)
			}
			modules := map[string]*ast.Module{}
			for _, file := range []string{"rule.rego", "rule_test.rego"} {
				b, err := fs.ReadFile(library.FS, path.Join(rule, file))
				if err != nil {
					t.Fatal(err)
				}
				if modules[file], err = ast.ParseModuleWithOpts(file, string(b),
					ast.ParserOptions{RegoVersion: ast.RegoV1}); err != nil {
					t.Fatal(err)
				}
			}
			if want := "data.gatekit." + strings.ReplaceAll(rule,
				"/", "."); modules["rule.rego"].Package.Path.String() != want {
				t.Errorf("the rule's package is %s, want %s", modules["rule.rego"].Package.Path,
					want)
			}
			effects := map[string]bool{}
			for _, r := range modules["rule.rego"].Rules {
				effects[r.Head.Ref().String()] = true
			}
			if effects["hide"] && !effects["deny"] {
				t.Error("the rule hides items and denies nothing: a library rule that hides an " +
					"item must also deny its use (Stage.hideQuery in policies/hidden.go)")
			}
			// Like policies.Load, store {} for a rule without settings.
			store := inmem.NewFromObject(
				map[string]any{"config": map[string]any{rule: map[string]any{}}})
			var functions []*tester.Builtin
			for _, f := range policies.Builtins() {
				functions = append(functions, (*tester.Builtin)(&f))
			}
			// The runner's own limit is 5 s for each test, too short with -race on a busy machine.
			results, err := tester.NewRunner().SetTimeout(time.Minute).AddCustomBuiltins(
				functions).SetStore(store).SetCompiler(ast.NewCompiler().WithCapabilities(
				policies.Capabilities())).SetModules(modules).RunTests(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for r := range results {
				if n++; !r.Pass() {
					t.Errorf("%s: %v", r.Name, r)
				}
			}
			if n == 0 {
				t.Error("the rule has no tests")
			}
			if _, err := policies.Load(policies.Options{Rules: []string{rule}}); err != nil {
				t.Errorf("the rule cannot be loaded: %v", err)
			}
		})
	}
}

func TestDocumentsListEveryRule(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range library.Names() {
		if row := "| [`" + rule + "`](policies/library/" + rule + ") | " + library.Title(rule) +
			" |\n"; !strings.Contains(string(readme), row) {
			t.Errorf("README.md lacks this row in the table of rules (its text is the rule's "+
				"title):\n%s", row)
		}
		if !strings.Contains(string(guide), "\n| `"+rule+"` | ") {
			t.Errorf("docs/policies.md has no row for the rule %s", rule)
		}
	}
}
