package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"gatekit/core/config"
	"gatekit/policies"
	"gatekit/policies/library"
)

// TestREADMEMatchesBinary checks that the README has the output of the demo as in demo.txtar, the
// Go version of go.mod, configurations that load, and valid JSON.
func TestREADMEMatchesBinary(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := txtar.ParseFile("testdata/demo.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if demo := script.Files[0].Data; !bytes.Contains(readme, demo) {
		t.Errorf("the README does not have the demo's output, want\n%s", demo)
	}
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module); m == nil ||
		!bytes.Contains(readme, []byte("needs Go "+string(m[1])+" ")) {
		t.Errorf("the README does not have \"needs Go\" with the version of go.mod (%q)", m)
	}
	t.Setenv("GITHUB_TOKEN", "x")
	file := filepath.Join(t.TempDir(), "gatekit.toml")
	for i, block := range blocks(string(readme), "toml") {
		if i > 0 { // only the first block has servers
			block = "[server.files]\ncommand = \"x\"\n" + block
		}
		if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(file)
		if err == nil {
			_, err = loadPolicies(c, nil, &policies.SessionStore{}, nil)
		}
		if err != nil {
			t.Errorf("%v in\n%s", err, block)
		}
	}
	for _, block := range blocks(string(readme), "json") {
		if !json.Valid([]byte(block)) {
			t.Errorf("this block is not valid JSON:\n%s", block)
		}
		// mcp-inspector --cli --config takes the argument -- for one of its own.
		if strings.Contains(block, `"--"`) {
			t.Errorf("this client's configuration has the argument --:\n%s", block)
		}
	}
}

// TestShownDenialsMatchExample checks that the denials in the README and in the README of
// examples/03-policies are in the script of this example.
func TestShownDenialsMatchExample(t *testing.T) {
	script, err := os.ReadFile("../../examples/03-policies/script.txtar")
	if err != nil {
		t.Fatal(err)
	}
	want := func(where, text string) {
		if !bytes.Contains(script, []byte(text)) {
			t.Errorf("%s has %q, which is not in the script of examples/03-policies", where, text)
		}
	}
	example, err := os.ReadFile("../../examples/03-policies/README.md")
	if err != nil {
		t.Fatal(err)
	}
	// The first block is not compared: the output of gatekit check has the number of tests, which
	// changes.
	for _, block := range blocks(string(example), "console")[1:] {
		for line := range strings.Lines(block) {
			if line = strings.TrimSpace(line); line != "…" && !strings.HasPrefix(line, "$ (") {
				line, _, _ = strings.Cut(line, "…") // "…" stands for the number of a record
				want("the example's README", strings.TrimPrefix(line, "$ "))
			}
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	spans := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(table, -1)
	if len(spans) < 10 {
		t.Fatalf("the README's table of denials has %d code spans, want 10 or more: %q",
			len(spans), table)
	}
	for _, span := range spans {
		want("the README", strings.TrimSuffix(span[1], " ID"))
	}
}

// TestPoliciesOfTheExampleLoad checks that the rules of gatekit.toml.example exist and accept their
// settings.
func TestPoliciesOfTheExampleLoad(t *testing.T) {
	t.Setenv("FILES_TOKEN", "x")
	t.Setenv("GITHUB_TOKEN", "x")
	example, err := os.ReadFile("../../gatekit.toml.example")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"gatekit.toml": string(example),
		"policies/own.rego": "package gatekit.own\n\ndeny contains \"no\" if input.method == " +
			"\"acme/delete\"\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(filepath.Join(dir, "gatekit.toml"))
	if err != nil {
		t.Fatal(err)
	}
	stage, err := loadPolicies(c, nil, &policies.SessionStore{}, nil)
	if err != nil || stage == nil {
		t.Errorf("loading the policies got %v, %v, want a stage", stage, err)
	}
}

// TestDocumentedDefaultRulesMatchLibrary compares the default rules in help texts and examples with
// the default rules of the library.
func TestDocumentedDefaultRulesMatchLibrary(t *testing.T) {
	t.Setenv("FILES_TOKEN", "x")
	t.Setenv("GITHUB_TOKEN", "x")
	_, help, _ := strings.Cut((&program{}).wrap().Long, "In it, the default rules are:\n")
	texts := map[string]string{"gatekit help wrap": "[server.files]\ncommand = \"x\"\n" + help}
	written := answers{servers: []foreignServer{{name: "x", command: []string{"x"}}}}
	texts["gatekit init"] = written.configuration().text.String()
	for _, file := range []string{"gatekit.toml.example", "examples/01-one-server/gatekit.toml"} {
		b, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(b)
	}
	for name, text := range texts {
		file := filepath.Join(t.TempDir(), "gatekit.toml")
		if err := os.Mkdir(filepath.Join(filepath.Dir(file), "policies"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := library.DefaultRules()
		if c.Policy == nil || !slices.Equal(c.Policy.Rules, slices.Sorted(maps.Keys(want))) {
			t.Errorf("%s has the policy %+v, want the default rules", name, c.Policy)
			continue
		}
		got, err := json.Marshal(c.Policy.Config)
		if err != nil {
			t.Fatal(err)
		}
		if want, err := json.Marshal(want); err != nil || string(got) != string(want) {
			t.Errorf("%s\ngot  %s\nwant %s (%v)", name, got, want, err)
		}
	}
}

// blocks returns the code blocks of a language. It panics if there are none.
func blocks(text, language string) []string {
	var out []string
	for _, m := range regexp.MustCompile("(?s)```"+language+
		"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		out = append(out, strings.TrimSpace(m[1]))
	}
	if out == nil {
		panic("no blocks of " + language)
	}
	return out
}
