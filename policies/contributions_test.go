package policies_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/policies"
	"gatekit/test/bundles"
)

// A policy file or rule without an effect is an error with file and line, because it looks as if it
// were in force.
func TestFileOrRuleWithoutEffectIsRejected(t *testing.T) {
	const good = "package gatekit.good\n\ndeny contains \"no\" if input.name == \"x\"\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string // the lines of the error; none when the policies are valid
	}{
		"a deny in a package that is not below gatekit": {map[string]string{"good.rego": good,
			"b.rego": "package second\n\ndeny contains \"no\"\n"},
			[]string{"b.rego:3: deny is not in force: only packages below gatekit are " +
				"evaluated; write `package gatekit.second`"}},
		"a package whose name only begins with gatekit": {map[string]string{"good.rego": good,
			"b.rego": "package gatekitty.second\n\nhide contains \"no\"\n"},
			[]string{"b.rego:3: hide is not in force"}},
		"a misspelt effect": {map[string]string{"good.rego": good,
			"b.rego": "package gatekit.b\n\n\ndenny contains \"no\"\n"},
			[]string{"b.rego:4: denny has no effect: its name is not deny, "}},
		"a misspelt effect beside a good one": {map[string]string{
			"a.rego": good + "\ndenny contains \"no\"\n\ndenny contains \"never\"\n"},
			[]string{"a.rego:5: denny has no effect"}},
		"an effect with a dotted name": {map[string]string{"good.rego": good,
			"b.rego": "package gatekit\n\nh.deny contains \"no\"\n"},
			[]string{"b.rego:3: h.deny is not in force: write deny in a file with " +
				"`package gatekit.h`"}},
		"an allow rule, which other systems have": {map[string]string{"good.rego": good,
			"b.rego": "package gatekit.b\n\ndefault allow := false\n\n" +
				"allow if input.name == \"y\"\n"},
			[]string{"b.rego:3: allow has no effect"}},
		"rules that only use each other": {map[string]string{"good.rego": good,
			"b.rego": "package b\n\nnames := {\"x\"}\n\nbad if input.name in names\n"},
			[]string{"b.rego:3: names has no effect", "b.rego:5: bad has no effect"}},
		"an empty package": {map[string]string{"good.rego": good,
			"b.rego": "# a comment\npackage gatekit.b\n"},
			[]string{"b.rego:2: the file contributes nothing"}},
		"only functions that nothing uses": {map[string]string{"good.rego": good,
			"b.rego": "package lib\n\nsmall(x) if x < 3\n"},
			[]string{"b.rego:3: small has no effect"}},
		"only tests, in a file that is not named _test.rego": {map[string]string{"good.rego": good,
			"b.rego": "package gatekit.b\n\ntest_it if true\n"},
			[]string{"b.rego:1: the file contributes nothing"}},
		"a mistake in each of two files": {map[string]string{"good.rego": good,
			"b.rego": "package b\n\ndeny contains 1\n",
			"c.rego": "package c\n\ndeny contains 1\n"}, []string{"b.rego:3: ", "c.rego:3: "}},

		"helpers in another package, which also has an unused function": {map[string]string{
			"a.rego": "package gatekit.a\n\nimport data.lib\n\n" +
				"deny contains \"no\" if lib.bad\n",
			"b.rego": "package lib\n\nbad if small(count(input.name))\n\n" +
				"small(n) if n < names.max\n\n" +
				"names := {\"max\": 3}\n\nlarge(n) if n > 3\n"}, nil},
		"a helper that is reached by a computed name": {map[string]string{
			"a.rego": "package gatekit.a\n\n" +
				"deny contains \"no\" if some x in data.lib[input.method]\n",
			"b.rego": "package lib\n\nbad contains 1\n"}, nil},
		"a test in the same file": {map[string]string{"a.rego": good + "\ntest_it if true\n"}, nil},
		"a default of a helper": {map[string]string{
			"a.rego": "package gatekit.a\n\ndeny contains \"no\" if not ok\n\n" +
				"default ok := false\n\nok if input.name == \"x\"\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			check := func(source string, o policies.Options, prefix string) {
				_, err := policies.Load(o)
				var lines []string
				if err != nil {
					lines = strings.Split(err.Error(), "\n")
				}
				if len(lines) != len(c.want) {
					t.Fatalf("%s: %d errors, want %d: %v", source, len(lines), len(c.want), err)
				}
				for i, want := range c.want {
					if !strings.HasPrefix(lines[i], prefix+want) {
						t.Errorf("%s: error %q, want %q", source, lines[i], prefix+want)
					}
				}
			}
			check("folder", policies.Options{Files: []string{dir}}, dir+"/")
			b, err := policies.ReadBundle("acme", bundles.Build(t, "1", c.files, nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			check("bundle", policies.Options{Bundles: []*policies.Bundle{b}}, "acme:")
		})
	}
}

func TestContributions(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"a.rego": "package gatekit.a\n\nhide contains \"x\" if data.lib.bad\n\n" +
			"deny contains \"no\" if data.lib.bad\n\n" +
			"deny contains \"never\" if input.name == \"n\"\n",
		"b.rego":      "package lib\n\nbad if input.name == \"y\"\n",
		"a_test.rego": "package gatekit.a_test\n\ntest_it if true\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := policies.Load(policies.Options{Files: []string{dir},
		Rules: []string{"tools/readonly"}})
	if err != nil {
		t.Fatal(err)
	}
	got := s.Contributions()
	if len(got) != 2 || got[0].File != filepath.Join(dir, "a.rego") ||
		got[0].Package != "gatekit.a" || got[0].Helpers != 0 || len(got[0].Effects) != 2 ||
		got[0].Effects[0] != (policies.EffectCount{Effect: "deny", Rules: 2}) ||
		got[0].Effects[1] != (policies.EffectCount{Effect: "hide", Rules: 1}) {
		t.Errorf("the contributions are %+v, want 2 deny and 1 hide from a.rego", got)
	}
	if got[1].File != filepath.Join(dir, "b.rego") || got[1].Package != "lib" ||
		got[1].Helpers != 1 || len(got[1].Effects) != 0 {
		t.Errorf("the contributions of b.rego are %+v, want 1 helper", got[1])
	}
}

// Load does not read a policy behind a link to a folder, or in a test file. Such a policy is an
// error, because it would not be in force.
func TestPolicyThatIsNotReadIsRejected(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "good.rego"), "package gatekit.good\n\ndeny contains \"no\"\n")
	write(filepath.Join(other, "b.rego"), "package gatekit.b\n\ndeny contains \"no\"\n")
	if err := os.Symlink(other, filepath.Join(dir, "team")); err != nil {
		t.Fatal(err)
	}
	_, err := policies.Load(policies.Options{Files: []string{dir}})
	if err == nil || !strings.Contains(err.Error(), "team: links to folders are not followed") {
		t.Errorf("a link to a folder of policies: %v, want an error", err)
	}
	write(filepath.Join(other, "smoke_test.rego"), "package gatekit.b\n\nhide contains \"x\"\n")
	_, _, err = policies.RunTests(t.Context(), policies.Options{Files: []string{other}})
	if want := "smoke_test.rego:3: hide is not in force"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("a rule with an effect in a test file: %v, want %q", err, want)
	}
	_, err = policies.Load(policies.Options{Files: []string{
		filepath.Join(other, "smoke_test.rego")}})
	if err == nil || !strings.Contains(err.Error(), "its rules are not in force") {
		t.Errorf("a test file as a policy: %v, want an error", err)
	}
}
