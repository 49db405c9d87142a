package policies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/policies"
	"gatekit/policies/library"
)

// guarded are rules with every kind of expression that excludes messages, and rules without one.
// Each line is a policy of its own, together with usedByGuarded.
const guarded = `
deny contains "equal" if { input.method == "tools/call"; input.kind == "request"; input.name == "x" }
deny contains "turned" if { "error" == input.kind }
deny contains "one of" if { input.method in {"prompts/get", "ping"}; input.kind != "response" }
deny contains "one of a list" if input.name in ["p", "x y"]
deny contains "one of a list with a call" if input.name in [lower("X"), "y"]
deny contains "one of a set with a rule" if input.name in {held, "y"}
deny contains "one of a list with a part of the input" if input.name in ["y", input.params.held]
deny contains "one of the values of an object" if input.name in {"a": "z", "b": input.params.held}
deny contains "a variable of a list" if { x := input.name; x in ["a", input.params.held] }
deny contains "one of a list with a comprehension's" if input.name in ["a", concat("", [y | some y in ["x"]])]
deny contains "by way of a variable" if { m := input.method; m == "resources/read"; input.direction == "to_server" }
deny contains "by way of a rule" if reading
deny contains "not by way of a rule" if { input.kind == "notification"; not reading }
deny contains "by way of a default" if { input.server == "b"; quiet }
deny contains "by way of a false default" if usual
deny contains "by way of another rule's else" if graded
deny contains "by way of a function" if on("completion/complete")
deny contains "by way of a set" if "tools/list" in spoken
deny contains "all of them" if { every m in [input.method] { m == "logging/setLevel" } }
deny contains "both at once" if { input.kind == "request"; input.kind == "response" }
deny contains sprintf("whatever it is: %v", [input.params.secret]) if input.params.secret
deny contains "a way round" if input[part] == "roots/list"
deny contains "disguised" if gatekit.path.disguised(input.params.arguments)
deny contains "disguised by way of a variable" if { x := input.params.arguments; gatekit.path.disguised(x) }
deny contains "disguised by way of an answer" if { x := gatekit.path.disguised(input.params.arguments); x == true }
deny contains "not disguised" if { input.kind == "request"; not gatekit.path.disguised(input.params.arguments) }
deny contains "disguised and more" if { gatekit.path.disguised(input.params.arguments); gatekit.path.disguised(input.params.arguments.path) }
deny contains "disguised elsewhere" if { input.params.arguments.path; gatekit.path.disguised(input.params.other) }
deny contains "arguments that are true" if { x := input.params.arguments; x == "true" }
deny contains "a setting" if { input.kind == "request"; not data.config.nobody.has }
deny contains "another setting" if { data.config.nobody.has; input.kind == "request" }
deny contains "with another input" if { input.kind == "request"; input.method == "tools/list" with input.method as "tools/list" }
deny contains "a rule with another input" if { input.kind == "request"; listing with input as {"method": "tools/list"} }
deny contains "a name that is none" if { not input.name; input.method == "tools/call" }
label contains "seen" if { input.method == "tools/call"; input.kind == "response"; input.request.arguments.deep.down == 1 }
note contains input.result if { input.kind == "response"; input.method == "ping" }
hide contains item.name if { input.method == "tools/list"; some item in input.items; startswith(item.name, "d") }
`

// usedByGuarded are the helper rules of guarded.
const usedByGuarded = `
part := "method"
held := "x"
reading if { input.method in {"resources/read", "resources/subscribe"}; input.server == "a" }
default quiet := true
quiet := false if input.method == "ping"
listing if input.method == "tools/list"
default usual := false
usual if { input.method == "initialize"; input.kind == "request" }
graded := false if { input.method == "tools/call" } else := true if { input.method == "tasks/get" }
on(method) if input.method == method
spoken contains input.method if input.kind == "response"
`

// Only the rules that can hold for a message are evaluated, and only what they read of it is in the
// input. The outcome must be the same as with all rules and the whole input, as in Explain.
func TestSelectedRulesDecideAsAllRules(t *testing.T) {
	dir := t.TempDir()
	for i, line := range strings.Split(strings.TrimSpace(guarded), "\n") {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("g%d.rego", i)),
			fmt.Appendf(nil, "package gatekit.g%d\n\n%s\n%s", i, line, usedByGuarded),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, o := range map[string]policies.Options{
		"guards":      {Files: []string{dir}},
		"the library": {Rules: library.Names()},
		"the default": {Rules: []string{"elicitation/gate", "roots/traversal", "sampling/gate"},
			Config: library.DefaultRules()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := policies.Load(o)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, text := range messages() {
				c, err := policies.ParseCase([]byte(text))
				if err != nil {
					t.Fatalf("%v: %s", err, text)
				}
				e, err := s.Explain(t.Context(), c)
				if err != nil {
					t.Fatalf("%v: %s", err, text)
				}
				var want, got []string
				for _, f := range e.Effects {
					if f.Effect == "deny" {
						want = append(want, f.Rule+": "+strings.Trim(f.Value, `"`))
						seen[f.Value] = true
					}
				}
				if e.Outcome.Action == "deny" && !isHidden("denied: "+e.Outcome.Reason) {
					got = strings.Split(e.Outcome.Reason, "; ")
				}
				slices.Sort(want)
				slices.Sort(got)
				if !isHidden("denied: "+e.Outcome.Reason) && !slices.Equal(got, want) {
					t.Errorf("%s\nasked  %q\nall of %q", text, got, want)
				}
			}
			for _, reason := range []string{"equal", "turned", "one of", "one of a list",
				"one of a list with a call", "one of a set with a rule",
				"one of a list with a part of the input",
				"one of the values of an object", "a variable of a list",
				"one of a list with a comprehension's", "by way of a variable", "by way of a rule",
				"not by way of a rule", "by way of a default", "by way of a false default",
				"by way of another rule's else", "by way of a function", "by way of a set",
				"all of them", "whatever it is: 1", "a way round",
				"disguised", "disguised by way of a variable", "disguised by way of an answer",
				"not disguised", "disguised and more", "disguised elsewhere",
				"arguments that are true", "a setting", "with another input",
				"a rule with another input",
				"a name that is none"} {
				if name == "guards" && !seen[`"`+reason+`"`] {
					t.Errorf("no message shows %q", reason)
				}
			}
		})
	}
}

// A rule may read a setting in other ways than its literal place in data.config.
func TestTrueSettingDoesNotExcludeRule(t *testing.T) {
	settings := map[string]map[string]any{"tools/arguments": {
		"rules": []any{map[string]any{"argument": "path"}}}}
	for name, tt := range map[string]struct{ condition, beside string }{
		"a list's element by text": {`data.config["tools/arguments"].rules["0"]`,
			"package gatekit.other"},
		"a package without rules":  {"data.config.void", "package config.void"},
		"and what it is a part of": {"data.config.void", "package config.void.deep"},
		"a rule in a package there": {"data.config.void.rule",
			"package config.void\n\nrule if input.method"},
		"and what is not there": {"not data.config.void", "package gatekit.other"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"t.rego": "package gatekit.t\n\ndeny " +
				"contains \"it holds\" if " + tt.condition, "beside.rego": tt.beside} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, err := policies.Load(policies.Options{Files: []string{dir},
				Rules: []string{"tools/arguments"}, Config: settings})
			if err != nil {
				t.Fatal(err)
			}
			if got := verdictOf(t, s, called("x", "{}")); got != "denied: t: it holds" {
				t.Error(got)
			}
		})
	}
}

// Rules that compare servers and rules that compare tools make as many classes as the product of
// both. Most of these have the same rules, and share a prepared query.
func TestQueriesAreCachedForManyClasses(t *testing.T) {
	var servers, tools []string
	for i := range 70 {
		servers, tools = append(servers, fmt.Sprintf("%q", fmt.Sprint("s", i))),
			append(tools, fmt.Sprintf("%q", fmt.Sprint("t", i)))
	}
	s := loaded(t, fmt.Sprintf("deny contains \"server\" if { input.server in {%s}; "+
		"input.params.x }\ndeny contains \"tool\" if { input.name in {%s}; input.params.y }",
		strings.Join(servers, ","), strings.Join(tools, ",")))
	call := func(i, j int) *mcp.Message {
		m := called(fmt.Sprint("t", j), `{}`)
		m.Server = fmt.Sprint("s", i)
		return m
	}
	for i := range 70 {
		for j := range 70 {
			if _, err := s.Inspect(t.Context(), call(i, j)); err != nil {
				t.Fatal(err)
			}
		}
	}
	last := call(69, 69)
	if n := testing.AllocsPerRun(10, func() { _, _ = s.Inspect(t.Context(), last) }); n > 300 {
		t.Errorf("the last takes %.0f allocations", n)
	}
}

// messages are all methods, as every kind of message, from two servers, with bodies that have
// something for each of the rules.
func messages() (all []string) {
	const params = `{"name":%q,"uri":"file:///etc/passwd","secret":1,"held":"x","other":"..%%2fx","arguments":%s,"includeContext":"allServers","mode":"form","message":"your password",` +
		`"requestedSchema":{"type":"object","properties":{"password":{"type":"string"}}},"task":{},"maxTokens":1,"messages":[],"tools":[],"argument":{"name":"path","value":"../x"},"ref":{"type":"ref/prompt","name":%q},` +
		`"notifications":{"resourceSubscriptions":["file:///etc"]}}`
	const result = `{"roots":[{"uri":"http://x"}],"tools":[{"name":"d1"}],"resources":[{"uri":"file:///etc/x","name":"x"}],"contents":[{"uri":"file:///x","text":"y"}],"model":"m","content":[]}`
	arguments := map[string]string{"x": `{"path":"..%2f..%2fx","deep":{"down":1}}`, "p": `"true"`,
		"": `{"path":"a\n/b."}`}
	for _, method := range []string{"tools/call", "tools/list", "prompts/get", "resources/read",
		"resources/subscribe", "resources/list", "completion/complete", "sampling/createMessage",
		"elicitation/create",
		"roots/list", "initialize", "ping", "tasks/get", "logging/setLevel", "subscriptions/listen",
		"acme/vendor"} {
		for _, server := range []string{"a", "b"} {
			for _, name := range []string{"x", "p", ""} {
				request := fmt.Sprintf(params, name, arguments[name], name)
				for _, body := range []string{
					`"kind":"request","params":` + request,
					`"kind":"notification","params":` + request,
					`"kind":"response","request":` + request + `,"result":` + result,
					`"kind":"error","request":` + request +
						`,"error":{"code":-32042,"message":"m","data":{"elicitations":[{"url":"http://x"}]}}`,
				} {
					direction := "to_server"
					if strings.Contains(body,
						`"kind":"response"`) != (method == "sampling/createMessage" ||
						method == "elicitation/create" || method == "roots/list") {
						direction = "to_client"
					}
					named := ""
					if name != "" {
						named = fmt.Sprintf(`"name":%q,`, name)
					}
					all = append(all, fmt.Sprintf(`{"method":%q,"direction":%q,"server":%q,%s%s}`,
						method, direction, server, named, body))
				}
			}
		}
	}
	return all
}
