package main

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/rego"

	"gatekit/core/config"
	"gatekit/policies"
)

// documents returns the texts of the repository's Markdown files. The keys are the paths of the
// files, relative to the top of the repository.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/*/*.md", "examples/*.md",
		"examples/*/README.md"} {
		files, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[strings.TrimPrefix(filepath.ToSlash(file), "../../")] = string(b)
		}
	}
	if len(texts) < 10 {
		t.Fatalf("found %d documents, want 10 or more; is ../.. the top of the repository?",
			len(texts))
	}
	return texts
}

var (
	link    = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	fence   = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
)

// anchors returns the anchors that GitHub makes for the headings of a document.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		anchor := strings.ToLower(regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(m[1], ""))
		all[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	return all
}

// brokenLinks returns the relative links of a document whose target does not exist.
func brokenLinks(file, text string, read func(string) (string, error)) (broken []string) {
	for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		u, err := url.Parse(m[1])
		if err != nil || u.IsAbs() {
			continue
		}
		to, target := text, file
		if u.Path != "" {
			target = filepath.ToSlash(filepath.Join(filepath.Dir(file), u.Path))
			if to, err = read(target); err != nil {
				broken = append(broken, m[1])
				continue
			}
		}
		if u.Fragment == "" {
			continue
		}
		if strings.HasSuffix(target, ".md") && !anchors(to)[u.Fragment] {
			broken = append(broken, m[1])
		}
	}
	return broken
}

func TestLinksInDocumentsHaveTargets(t *testing.T) {
	read := func(name string) (string, error) {
		if info, err := os.Stat("../../" + name); err != nil || info.IsDir() {
			return "", err
		}
		b, err := os.ReadFile("../../" + name)
		return string(b), err
	}
	for file, text := range documents(t) {
		for _, to := range brokenLinks(file, text, read) {
			t.Errorf("%s links to %s, which does not exist", file, to)
		}
	}
	planted := "# A\n[a](#a) [b](#b) [c](no.md) [d](README.md#no) [e](https://example.com) " +
		"[f](README.md)"
	want := "#b no.md README.md#no"
	if got := strings.Join(brokenLinks("x.md", planted, read), " "); got != want {
		t.Errorf("got the broken links %q among the planted ones, want %q", got, want)
	}
}

// TestBlocksInDocumentsAreValid checks the code blocks of all documents: configurations load,
// policies compile, JSON and Go parse, and the commands and flags of gatekit exist.
func TestBlocksInDocumentsAreValid(t *testing.T) {
	t.Setenv("GITHUB_TOKEN", "x")
	found := map[string]int{}
	for file, text := range documents(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			language, block := m[1], m[2]
			if file == "examples/README.md" && language == "toml" && block[0] != '[' {
				continue // not a whole configuration; test/e2e/plugins completes and runs it
			}
			if err := checkBlock(t, language, block); err != nil {
				t.Errorf("%s: %v in\n%s", file, err, block)
			}
			found[language]++
		}
	}
	for _, language := range []string{"toml", "rego", "json", "sh", "console"} {
		if found[language] == 0 {
			t.Errorf("the documents have no block of %s, want some", language)
		}
	}
	for language, block := range map[string]string{
		"toml": "[server.x]\ncomand = \"x\"\n",
		"rego": "package gatekit.x\n\ndeny contains \"x\" if input.nmae == \"x\"\n",
		"json": "{", "go": "package", "sh": "gatekit audit shwo\n",
		"console": "$ gatekit audit show --stge x\n",
	} {
		if checkBlock(t, language, block) == nil {
			t.Errorf("checkBlock found no fault in this invalid block of %s, want one:\n%s",
				language, block)
		}
	}
	// a command that has subcommands and arguments
	if err := checkBlock(t, "console", "$ gatekit pin github\n"); err != nil {
		t.Errorf("checkBlock found the fault %v in a valid command", err)
	}
}

// checkBlock returns the fault in a code block of the given language. It checks only some
// languages. For all other languages, it returns nil.
func checkBlock(t *testing.T, language, block string) error {
	t.Helper()
	switch language {
	case "toml":
		return checkConfig(t, block)
	case "rego":
		return checkConfig(t, "[policy]\nfiles = [\"block.rego\"]\n", block)
	case "json":
		if !json.Valid([]byte(block)) {
			return errNotJSON
		}
	case "go":
		_, err := parser.ParseFile(token.NewFileSet(), "", block, 0)
		return err
	case "sh":
		for line := range strings.Lines(block) {
			if err := checkCommand(line); err != nil {
				return err
			}
		}
	case "console":
		for line := range strings.Lines(block) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				if err := checkCommand(command); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

var errNotJSON = jsonError("not JSON")

type jsonError string

func (e jsonError) Error() string { return string(e) }

// checkConfig loads a configuration and its policies. A block without a server is a part of a
// configuration, so checkConfig adds a server.
func checkConfig(t *testing.T, toml string, rego ...string) error {
	t.Helper()
	dir := t.TempDir()
	if !strings.Contains(toml, "[server.") {
		toml = "[server.files]\ncommand = \"x\"\n" + toml
	}
	for name, text := range map[string]string{"gatekit.toml": toml,
		"block.rego": strings.Join(rego, "\n"), "policies/own.rego": "package gatekit.own\n",
		"connect.secret": "x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(filepath.Join(dir, "gatekit.toml"))
	if err != nil {
		return err
	}
	_, err = loadPolicies(c, nil, &policies.SessionStore{}, nil)
	return err
}

// checkCommand returns an error if a shell line uses a command or a flag of gatekit that does not
// exist.
func checkCommand(line string) error {
	line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
	words := strings.Fields(line)
	for i, word := range words {
		if word == "./cmd/gatekit" && i > 0 && words[i-1] == "run" {
			word = "gatekit"
		}
		if word != "gatekit" || i > 0 && words[i-1] != "run" && words[i-1] != "|" {
			continue
		}
		args := words[i+1:]
		for n, arg := range args {
			if arg == "--" || arg == "|" || arg == "<" || arg == ">" || arg == "&&" || arg == "&" {
				args = args[:n]
				break
			}
		}
		cmd, rest, err := (&program{}).root().Find(args)
		if err != nil {
			return err
		}
		// The next word may be a wrong subcommand.
		if len(rest) > 0 && cmd.HasSubCommands() && !strings.HasPrefix(rest[0], "-") {
			if err := cmd.ValidateArgs(rest[:1]); err != nil {
				return err
			}
		}
		if err := cmd.ParseFlags(rest); err != nil {
			return err
		}
	}
	return nil
}

// TestCookbookPoliciesMatchTheirHeadings evaluates the policies of the cookbook in docs/policies.md
// for messages that they must affect, and for messages that they must not affect.
func TestCookbookPoliciesMatchTheirHeadings(t *testing.T) {
	text := documents(t)["docs/policies.md"]
	recipes := map[string]string{}
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if name, ok := strings.CutPrefix(m[2], "package gatekit."); ok && m[1] == "rego" {
			name, _, _ = strings.Cut(name, "\n")
			recipes[name] = m[2]
		}
	}
	call := func(server, name, arguments string) string {
		return `{"direction":"to_server","kind":"request","method":"tools/call","server":"` +
			server +
			`","name":"` + name + `","params":{"name":"` + name + `","arguments":` + arguments +
			`}}`
	}
	with := func(message, more string) string {
		return strings.TrimSuffix(message, "}") + "," + more + "}"
	}
	answer := func(server string) string {
		return `{"direction":"to_client","kind":"response","method":"tools/call","server":"` +
			server + `"}`
	}
	list := `{"direction":"to_client","kind":"response","method":"tools/list",` +
		`"items":[{"name":"admin_x"},{"name":"y"}]}`
	seen := map[string]bool{}
	for _, c := range []struct {
		recipe, effect, input string
		want                  bool // the rule has the effect
	}{
		{"house", "deny", call("files", "delete_file", `{}`), true},
		{"house", "deny", call("files", "read_file", `{}`), false},
		{"approve", "ask", call("x", "send", `{}`), true},
		{"approve", "ask", with(call("x", "get", `{}`),
			`"item":{"annotations":{"readOnlyHint":true}}`), false},
		{"sql", "deny", call("postgres", "query", `{"sql":"select 1; DROP table x"}`), true},
		{"sql", "deny", call("postgres", "query", `{"sql":"select dropped from x"}`), false},
		{"hours", "deny", with(call("x", "deploy", `{}`), `"time":"2026-11-22T10:00:00Z"`), true},
		{"hours", "deny", with(call("x", "deploy", `{}`), `"time":"2026-11-23T17:00:00Z"`), true},
		{"hours", "deny", with(call("x", "deploy", `{}`), `"time":"2026-11-23T16:59:00Z"`), false},
		{"amounts", "deny", call("x", "create_payment", `{"amount":1001}`), true},
		{"amounts", "deny", call("x", "create_payment", `{"amount":"10"}`), true},
		{"amounts", "deny", call("x", "create_payment", `{}`), true},
		{"amounts", "deny", call("x", "create_payment", `{"amount":1000}`), false},
		{"codenames", "redact", answer("x"), true},
		{"codenames", "redact", call("x", "y", `{}`), false},
		{"flow", "label", answer("crm"), true},
		{"flow", "label", answer("web"), false},
		{"flow", "deny", with(call("mail", "send", `{}`), `"session":{"labels":["private"]}`),
			true},
		{"flow", "deny", with(call("mail", "send", `{}`), `"session":{"labels":[]}`), false},
		{"injected", "deny", with(answer("web"), `"findings":[{"type":"override/x"}]`),
			true},
		{"injected", "deny", with(answer("web"), `"findings":[{"type":"aws-access-token"}]`),
			false},
		{"clients", "hide", with(list, `"session":{"client":{"name":"other"}}`), true},
		{"clients", "hide", list, true},
		{"clients", "hide", with(list, `"session":{"client":{"name":"ops-console"}}`), false},
	} {
		seen[c.recipe] = true
		var input any
		if err := json.Unmarshal([]byte(c.input), &input); err != nil {
			t.Fatalf("%v in %s", err, c.input)
		}
		results, err := rego.New(rego.Query("count(data.gatekit."+c.recipe+"."+c.effect+") > 0"),
			rego.Module("recipe.rego", recipes[c.recipe]), rego.Input(input)).Eval(t.Context())
		if err != nil {
			t.Errorf("%s: %v", c.recipe, err)
			continue
		}
		if got := results.Allowed(); got != c.want {
			t.Errorf("%s has the effect %s on %s: got %v, want %v", c.recipe, c.effect, c.input,
				got, c.want)
		}
	}
	for name := range recipes {
		if !seen[name] {
			t.Errorf("this test has no case for the policy %s, want one", name)
		}
	}
}
