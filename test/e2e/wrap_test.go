package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// wrapped is a client of `gatekit wrap FLAGS -- COMMAND`, which has not shaken hands; env is names
// and values.
func wrapped(t *testing.T, revision string, flags, command []string,
	env ...string) (*gatekit, *mcptest.Client) {
	t.Helper()
	g := prepare(t, "")
	args := append([]string{"wrap", "--audit", filepath.Join(g.dir, "audit.jsonl"),
		"--env", "GATEKIT_E2E=" + g.mark}, flags...)
	for i := 0; i < len(env); i += 2 {
		args = append(args, "--env", env[i]+"="+env[i+1])
	}
	g.cmd = exec.Command(peers.Gatekit(t), append(append(args, "--"), command...)...)
	g.cmd.Dir, g.cmd.Stderr, g.cmd.WaitDelay = g.dir, g.stderr, 10*time.Second
	p, err := mcptest.Command(g.cmd)
	if err != nil {
		t.Fatal(err)
	}
	c := mcptest.NewClient(p, revision)
	g.reap(p.Wait)
	t.Cleanup(func() { c.Close() })
	return g, c
}

// wrappedBox is a scripted server under wrap, after the handshake.
func wrappedBox(t *testing.T, revision string, flags ...string) (*gatekit, *mcptest.Client) {
	t.Helper()
	g, c := wrapped(t, revision, flags, []string{os.Args[0]}, "MCPTEST_SERVE", "1", "GORACE",
		"atexit_sleep_ms=0")
	c.Capabilities = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}`
	open(t, c)
	return g, c
}

// undisturbed wants no record of anything that was refused or changed.
func (g *gatekit) undisturbed() {
	g.t.Helper()
	judged := 0
	for _, r := range g.records() {
		switch r.Action {
		case "deny", "modify", "hide", "ask", "skip":
			g.t.Errorf("the defaults annoy: %s: %s %s", r, r.Reason, r.Error)
		case "pass":
			judged++
		}
	}
	if judged == 0 {
		g.t.Error("nothing was judged")
	}
}

// What wrap has by default refuses and changes nothing of what clients do with fourteen servers of
// many makers: every list, and a call of every tool.
func TestTheDefaultsOfWrapDoNotAnnoy(t *testing.T) {
	if testing.Short() {
		t.Skip("starts fourteen servers of Node")
	}
	r := fourteen(t)
	turns := make(chan struct{}, 3) // that many servers at a time
	for _, name := range r.names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{}
			t.Cleanup(func() { <-turns })
			g, c := wrapped(t, "2025-11-25", nil, r.commands[name], r.env[name]...)
			c.Capabilities = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}`
			r.open(t, c)
			tools := items(t, c, "tools/list", "tools")
			for _, method := range []string{"prompts/list", "resources/list",
				"resources/templates/list"} {
				ask(t, c, method, `{}`)
			}
			for _, tool := range tools {
				name := mcptest.Text(tool, "name")
				if name == "trigger-long-running-operation" {
					continue
				}
				ask(t, c, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name,
					least(mcptest.At(tool, "inputSchema"))))
				g.recorded("to_server request tools/call node " + name + " pass")
			}
			g.undisturbed()
		})
	}
}

// The three servers of the specification's authors answer under wrap what they answer directly:
// sampling, elicitation and roots among it.
func TestRealServersAnswerUnderWrapAsTheyDoDirectly(t *testing.T) {
	r := realServers(t)
	for _, name := range r.names {
		t.Run(name, func(t *testing.T) {
			direct, end := r.direct(t, name)
			settle(t, name, direct)
			answers := map[step]mcptest.Message{}
			for _, s := range r.steps() {
				if s.server == name {
					_, _, answers[s] = take(t, direct, s.method, s.params)
				}
			}
			end()
			if name == "memory" {
				os.Remove(r.env[name][1])
			}
			g, c := wrapped(t, "2025-11-25", nil, r.commands[name], r.env[name]...)
			r.open(t, c)
			settle(t, name, c)
			for _, s := range r.steps() {
				switch {
				case s.server != name:
				case strings.Contains(s.params, "/etc/passwd"): // the server refuses it, too
					denied(t, c, s.method, s.params)
					g.recorded("to_server request tools/call node read_text_file deny")
					return
				default:
					_, _, a := take(t, c, s.method, s.params)
					if got, want := string(renumber(a)), string(renumber(answers[s])); got != want {
						t.Errorf("%s\ndirect  %s\nwrapped %s", s, clip([]byte(want)),
							clip([]byte(got)))
					}
				}
			}
			g.undisturbed()
		})
	}
}

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
			"elicitation/gate: URL refused: the host is not public"},
		{"a page with a user", "tools/call", page("https://bank.example@evil.example/"),
			"elicitation/gate: URL refused: the URL contains a user name"},
		{"a page with other letters", "tools/call", page("https://раураl.com/"),
			"elicitation/gate: URL refused: the host has letters that are not ASCII"},
		{"a question to the model", "tools/call", sampling("thisServer"), ""},
		{"a question with other servers' context", "tools/call", sampling("allServers"),
			"sampling/gate: the request asks for more context than is allowed"},
	}
	for _, revision := range eras {
		t.Run(revision, func(t *testing.T) {
			g, c := wrappedBox(t, revision)
			for _, k := range cases {
				before := len(g.records())
				ask(t, c, k.method, k.params)
				reason := ""
				for _, r := range g.records()[before:] {
					if r.Action == "deny" {
						reason += r.Reason
					}
				}
				if k.reason == "" && reason != "" || !strings.HasPrefix(reason, k.reason) {
					t.Errorf("%s: refused for %q, want %q", k.what, reason, k.reason)
				}
			}
			for range 60 {
				ask(t, c, "tools/call", sampling("none"))
			}
			g.reasoned("sampling/gate: too many sampling requests within a minute")
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
			g, client := wrappedBox(t, "2025-11-25", c.flags...)
			if name == "a plugin is added to the rules" {
				if m := ask(t, client, "tools/call", `{"name":"echo","arguments":{"text":"`+planted+
					`"}}`); strings.Contains(string(m.Raw), planted) {
					t.Errorf("the key was not taken out: %s", m.Raw)
				}
			}
			ask(t, client, "tools/call", c.params)
			g.recorded("to_server request tools/call e2e-test echo " + c.action)
			if name == "a shadow refuses nothing" {
				b, err := os.ReadFile(filepath.Join(g.dir, "audit.jsonl"))
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
			g, client := wrapped(t, "2025-11-25", c.flags, []string{os.Args[0],
				"mcp-server-filesystem", dir}, "MCPTEST_SERVE", "1", "GORACE", "atexit_sleep_ms=0")
			open(t, client)
			ask(t, client, "tools/call", `{"name":"echo","arguments":{"path":"`+c.path+`"}}`)
			g.recorded("to_server request tools/call e2e-test echo " + c.action)
		})
	}
}
