package policies

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// What they refuse is refused, and what only looks like it is not.
func TestTheDefaultsOfWrapRefuseAttacks(t *testing.T) {
	question := func(method, params string) string {
		return fmt.Sprintf(`{"name":"ask","arguments":{"method":%q,"params":%s}}`, method, params)
	}
	form := func(properties, message string) string {
		return question("elicitation/create",
			fmt.Sprintf(`{"mode":"form","message":%q,"requestedSchema":{"type":"object","properties":{%s}}}`, message, properties))
	}
	page := func(url string) string {
		return question("elicitation/create",
			fmt.Sprintf(`{"mode":"url","elicitationId":"e","message":"go there","url":%q}`, url))
	}
	sampling := func(context string) string {
		return question("sampling/createMessage",
			fmt.Sprintf(`{"messages":[{"role":"user","content":{"type":"text","text":"say it"}}],"maxTokens":9,"includeContext":%q}`, context))
	}
	path := func(path string) string {
		return `{"name":"echo","arguments":{"path":` + mcptest.Quote(path) + `}}`
	}
	cases := []struct {
		what, method, params, reason string // the reason is in the record; "" passes
	}{
		{"a path", "tools/call", path("/srv/data/x"), ""},
		{"a path that climbs as it says", "tools/call", path("../x"), ""},
		{"a name with dots in it", "tools/call", path("notes...v1..2/%41.md"), ""},
		{"a text that is no path",
			"tools/call", `{"name":"echo","arguments":{"text":"what does ..%2f..%2f mean?"}}`, ""},
		{"a path that climbs in disguise", "tools/call", path("/srv/data/..%2f..%2fetc/passwd"),
			"roots/traversal: argument path: the path hides `../` in an encoded form"},
		{"a path that climbs in two disguises",
			"tools/call", path("/srv/data/%252e%252e%252fetc/passwd"),
			"roots/traversal: argument path: the path hides `../` in an encoded form"},
		{"a path that climbs in other characters", "tools/call", path("/srv/data/．．／etc/passwd"),
			"roots/traversal: argument path: the path hides `../` in an encoded form"},
		{"a path that climbs backwards", "tools/call", path(`/srv/data/..\..\etc`),
			"roots/traversal: argument path: the path hides `../` in an encoded form"},
		{"a path with an end within", "tools/call", path("/srv/data/x\x00.png"),
			"roots/traversal: argument path: the path contains a NUL character"},
		{"a resource", "resources/read", `{"uri":"file:///data/b%20c.txt"}`, ""},
		{"a resource that climbs in disguise", "resources/read",
			`{"uri":"file:///data/%2e%2e%2fetc/passwd"}`,
			"roots/traversal: URI: the path hides `../` in an encoded form"},
		{"a form", "tools/call", form(`"name":{"type":"string"}`, "Who are you?"), ""},
		{"a confirmation", "tools/call", form(`"sure":{"type":"boolean"}`, "Delete the API key?"),
			""},
		{"a form for a password", "tools/call", form(`"password":{"type":"string"}`, "Sign in"),
			"elicitation/gate: the form asks for a secret"},
		{"a form for a key by another name",
			"tools/call", form(`"answer":{"type":"string","description":"Your OpenAI API key"}`,
				"One more thing"), "elicitation/gate: the form asks for a secret"},
		{"a form with a link", "tools/call", form(`"name":{"type":"string"}`,
			"First see https://evil.example/"), "elicitation/gate: the form contains a link"},
		{"a page", "tools/call", page("https://example.com/sign-in"), ""},
		{"a page of this machine", "tools/call", page("http://localhost:8080/sign-in"), ""},
		{"a page without https", "tools/call", page("http://example.com/"),
			"elicitation/gate: URL refused: the scheme is not https"},
		{"a page of the cloud's own", "tools/call", page("https://169.254.169.254/latest/"),
			"elicitation/gate: URL refused: the host is an address"},
		{"a page with a user", "tools/call", page("https://bank.example@evil.example/"),
			"elicitation/gate: URL refused: the URL contains a user name"},
		{"a page with other letters", "tools/call", page("https://раураl.com/"),
			"elicitation/gate: URL refused: the host has letters that are not ASCII"},
		{"a question to the model", "tools/call", sampling("thisServer"), ""},
		{"a question with other servers' context", "tools/call", sampling("allServers"),
			"sampling/gate: the request asks for more context than is allowed"},
	}
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			g, c := harness.WrapScripted(t, revision)
			for _, k := range cases {
				before := len(g.Records())
				harness.Request(t, c, k.method, k.params)
				reason := ""
				for _, r := range g.Records()[before:] {
					if r.Action == "deny" {
						reason += r.Reason
					}
				}
				if k.reason == "" && reason != "" || !strings.HasPrefix(reason, k.reason) {
					t.Errorf("%s: refused for %q, want %q", k.what, reason, k.reason)
				}
			}
			for range 60 {
				harness.Request(t, c, "tools/call", sampling("none"))
			}
			g.WantReasons("sampling/gate: too many sampling requests within a minute")
		})
	}
}

func TestTheFlagsOfWrapChangeItsRules(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "own.rego")
	if err := os.WriteFile(own,
		[]byte("package gatekit.own\n\ndeny contains \"no echo\" if { input.method == "+
			"\"tools/call\"; input.kind == \"request\"; input.name == \"echo\" }\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	const disguised = `{"name":"echo","arguments":{"path":"/srv/%2e%2e/etc"}}`
	for name, c := range map[string]struct {
		flags          []string
		params, action string
	}{
		"a root keeps paths in": {[]string{"--root", dir},
			`{"name":"echo","arguments":{"path":"/etc/hosts"}}`, "deny"},
		"a root lets in what is in it": {[]string{"--root", dir},
			`{"name":"echo","arguments":{"path":"` + own + `"}}`, "pass"},
		"a rule is added": {[]string{"--rule", "tools/readonly"},
			`{"name":"echo","arguments":{}}`, "deny"},
		"a default rule is made strict": {[]string{"--rule", "roots/traversal"},
			`{"name":"echo","arguments":{"path":"/srv"}}`, "deny"},
		"a policy is added": {[]string{"--policy", own},
			`{"name":"echo","arguments":{}}`, "deny"},
		"without rules nothing is refused": {[]string{"--no-default-rules"}, disguised, "pass"},
		"a policy alone": {[]string{"--no-default-rules", "--policy", own},
			disguised, "deny"},
		"a shadow refuses nothing":            {[]string{"--shadow"}, disguised, "pass"},
		"a plugin is added to the rules":      {[]string{"--plugin", "secrets"}, disguised, "deny"},
		"the defaults are those of the rules": {nil, disguised, "deny"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, client := harness.WrapScripted(t, "2025-11-25", c.flags...)
			if name == "a plugin is added to the rules" {
				if m := harness.Request(t, client,
					"tools/call", `{"name":"echo","arguments":{"text":"`+harness.PlantedKey+
						`"}}`); strings.Contains(string(m.Raw), harness.PlantedKey) {
					t.Errorf("the key was not taken out: %s", m.Raw)
				}
			}
			harness.Request(t, client, "tools/call", c.params)
			g.WantRecords("to_server request tools/call policies-test echo " + c.action)
			if name == "a shadow refuses nothing" {
				b, err := os.ReadFile(filepath.Join(g.Dir, "audit.jsonl"))
				if err != nil || !strings.Contains(string(b), "would deny: roots/traversal") {
					t.Errorf("the record does not say what it would do (%v): %s", err, b)
				}
			}
		})
	}
}

// --rule makes roots/traversal as strict as it is without settings, also before a server whose
// folders are known from its command; with --root, it has those roots and nothing else.
func TestARuleThatIsNamedHasTheSettingsOfNobody(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		flags        []string
		path, action string
	}{
		"by default relative paths start in its folders": {nil, "x.txt", "pass"},
		"by default paths stay in its folders":           {nil, "/etc/hosts", "deny"},
		"the rule is named": {[]string{"--rule", "roots/traversal"},
			"x.txt", "deny"},
		"the rule is named, without defaults": {[]string{"--no-default-rules",
			"--rule", "roots/traversal"}, filepath.Join(dir, "x.txt"), "deny"},
		"the rule is named with a root": {[]string{"--rule", "roots/traversal",
			"--root", dir}, filepath.Join(dir, "x.txt"), "pass"},
		"the rule is named with a root, relative paths": {[]string{"--rule", "roots/traversal",
			"--root", dir}, "x.txt", "deny"},
		"a root alone": {[]string{"--root", dir}, "x.txt", "pass"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, client := harness.Wrap(t, "2025-11-25", c.flags, []string{os.Args[0],
				"mcp-server-filesystem", dir}, "MCPTEST_SERVE", "1", "GORACE", "atexit_sleep_ms=0")
			harness.Handshake(t, client)
			harness.Request(t, client, "tools/call", `{"name":"echo","arguments":{"path":"`+c.path+
				`"}}`)
			g.WantRecords("to_server request tools/call policies-test echo " + c.action)
		})
	}
}
