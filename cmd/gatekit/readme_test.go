package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"gatekit/core/config"
)

// What the README shows is what there is: the demo's output is the one that demo.txtar holds, the Go it asks for
// is that of go.mod, its configuration loads, its JSON is JSON.
func TestTheREADMEIsTrue(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := txtar.ParseFile("testdata/demo.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if demo := script.Files[0].Data; !bytes.Contains(readme, demo) {
		t.Errorf("the README does not show what the demo prints:\n%s", demo)
	}
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module); m == nil || !bytes.Contains(readme, []byte("needs Go "+string(m[1])+" ")) {
		t.Errorf("the README does not say that it needs the Go of go.mod (%q)", m)
	}
	t.Setenv("GITHUB_TOKEN", "x")
	file := filepath.Join(t.TempDir(), "gatekit.toml")
	for _, block := range blocks(string(readme), "toml") {
		if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(file); err != nil {
			t.Errorf("%v in\n%s", err, block)
		}
	}
	for _, block := range blocks(string(readme), "json") {
		if !json.Valid([]byte(block)) {
			t.Errorf("no JSON:\n%s", block)
		}
	}
}

// blocks are the README's examples in a language. There must be some.
func blocks(text, language string) []string {
	var out []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		out = append(out, strings.TrimSpace(m[1]))
	}
	if out == nil {
		panic("no blocks of " + language)
	}
	return out
}
