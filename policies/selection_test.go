package policies_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/policies"
	"gatekit/policies/library"
)

// conditionRules are rules with every kind of expression that excludes messages, and rules without
// such an expression. Each line becomes a policy of its own, together with helperRules.
const conditionRules = `
deny contains "equal" if { input.method == "tools/call"; input.kind == "request"; input.name == "x" }
deny contains "equal, operands swapped" if { "error" == input.kind }
deny contains "in a set" if { input.method in {"prompts/get", "ping"}; input.kind != "response" }
deny contains "in a list" if input.name in ["p", "x y"]
deny contains "in a list with a call" if input.name in [lower("X"), "y"]
deny contains "in a set with a rule" if input.name in {listedName, "y"}
deny contains "in a list with a member of the input" if input.name in ["y", input.params.held]
deny contains "in the values of an object" if input.name in {"a": "z", "b": input.params.held}
deny contains "a variable in a list" if { x := input.name; x in ["a", input.params.held] }
deny contains "in a list with a comprehension" if input.name in ["a", concat("", [y | some y in ["x"]])]
deny contains "through a variable" if { m := input.method; m == "resources/read"; input.direction == "to_server" }
deny contains "through a rule" if isResourceUse
deny contains "through a negated rule" if { input.kind == "notification"; not isResourceUse }
deny contains "through a default" if { input.server == "b"; notPing }
deny contains "through a false default" if isInitialize
deny contains "through an else of another rule" if isTaskGet
deny contains "through a function" if hasMethod("completion/complete")
deny contains "through a set" if "tools/list" in answeredMethods
deny contains "through every" if { every m in [input.method] { m == "logging/setLevel" } }
deny contains "impossible" if { input.kind == "request"; input.kind == "response" }
deny contains sprintf("without a condition: %v", [input.params.secret]) if input.params.secret
deny contains "a computed member of the input" if input[memberName] == "roots/list"
deny contains "disguised" if gatekit.path.disguised(input.params.arguments)
deny contains "disguised through a variable" if { x := input.params.arguments; gatekit.path.disguised(x) }
deny contains "disguised, result in a variable" if { x := gatekit.path.disguised(input.params.arguments); x == true }
deny contains "not disguised" if { input.kind == "request"; not gatekit.path.disguised(input.params.arguments) }
deny contains "disguised and more" if { gatekit.path.disguised(input.params.arguments); gatekit.path.disguised(input.params.arguments.path) }
deny contains "disguised in another member" if { input.params.arguments.path; gatekit.path.disguised(input.params.other) }
deny contains "arguments that are the string true" if { x := input.params.arguments; x == "true" }
deny contains "a setting" if { input.kind == "request"; not data.config.nobody.has }
deny contains "another setting" if { data.config.nobody.has; input.kind == "request" }
deny contains "a value of a setting" if { data.config.nobody.has == "x"; input.kind == "request" }
deny contains "not a value of a setting" if { not data.config.nobody.has == "x"; input.kind == "request" }
note contains "unlisted" if { input.schema.unlisted == "first" }
note contains "unlisted before" if { input.schema.unlisted in {"again", "never"} }
deny contains "with another input" if { input.kind == "request"; input.method == "tools/list" with input.method as "tools/list" }
deny contains "a rule with another input" if { input.kind == "request"; isToolsList with input as {"method": "tools/list"} }
deny contains "no name" if { not input.name; input.method == "tools/call" }
label contains "seen" if { input.method == "tools/call"; input.kind == "response"; input.request.arguments.deep.down == 1 }
note contains input.result if { input.kind == "response"; input.method == "ping" }
hide contains item.name if { input.method == "tools/list"; some item in input.items; startswith(item.name, "d") }
`

// helperRules are the rules that conditionRules use.
const helperRules = `
memberName := "method"
listedName := "x"
isResourceUse if { input.method in {"resources/read", "resources/subscribe"}; input.server == "a" }
default notPing := true
notPing := false if input.method == "ping"
isToolsList if input.method == "tools/list"
default isInitialize := false
isInitialize if { input.method == "initialize"; input.kind == "request" }
isTaskGet := false if { input.method == "tools/call" } else := true if { input.method == "tasks/get" }
hasMethod(method) if input.method == method
answeredMethods contains input.method if input.kind == "response"
`

// TestSelectedRulesDecideAsAllRules compares two evaluations. For a live message, only the rules
// that can hold are evaluated, and the input has only the members that they read. Explain evaluates
// all rules with the whole input. The outcomes must be the same.
func TestSelectedRulesDecideAsAllRules(t *testing.T) {
	dir := t.TempDir()
	// This rule never holds. It uses all helpers, because Load rejects rules that nothing uses.
	uses := "package gatekit.uses\n\nnote contains \"uses\" if {\n" +
		"\tinput.method == \"never/used\"\n"
	for i, line := range strings.Split(strings.TrimSpace(conditionRules), "\n") {
		uses += fmt.Sprintf("\tdata.gatekit.g%d != 1\n", i)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("g%d.rego", i)),
			fmt.Appendf(nil, "package gatekit.g%d\n\n%s\n%s", i, line, helperRules),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "uses.rego"), []byte(uses+"}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]policies.Options{
		"conditions":  {Files: []string{dir}},
		"the library": {Rules: library.Names()},
		"the defaults": {Rules: slices.Sorted(maps.Keys(library.DefaultRules())),
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
					t.Errorf("%s\nthe selected rules deny with %q\nwant, from all rules, %q",
						text, got, want)
				}
			}
			// The comparison is useful only if the rules hold for some messages.
			for _, reason := range []string{"equal", "equal, operands swapped", "in a set",
				"in a list",
				"in a list with a call", "in a set with a rule",
				"in a list with a member of the input",
				"in the values of an object", "a variable in a list",
				"in a list with a comprehension", "through a variable", "through a rule",
				"through a negated rule", "through a default", "through a false default",
				"through an else of another rule", "through a function", "through a set",
				"through every", "without a condition: 1", "a computed member of the input",
				"disguised", "disguised through a variable", "disguised, result in a variable",
				"not disguised", "disguised and more", "disguised in another member",
				"arguments that are the string true", "a setting", "with another input",
				"a rule with another input",
				"no name"} {
				if name == "conditions" && !seen[`"`+reason+`"`] {
					t.Errorf("no message is denied by the rule %q", reason)
				}
			}
		})
	}
}

// TestTrueSettingDoesNotExcludeRule checks rules that read true settings in unusual ways. The
// selector must not leave these rules out.
func TestTrueSettingDoesNotExcludeRule(t *testing.T) {
	settings := map[string]map[string]any{"tools/arguments": {
		"rules": []any{map[string]any{"argument": "path"}}}}
	for name, tt := range map[string]struct{ condition, otherModule string }{
		"a list element by a string index": {`data.config["tools/arguments"].rules["0"]`,
			""},
		"a package": {"data.config.void", "package config.void\n\nrule := 1"},
		"a package above a package": {"data.config.void",
			"package config.void.deep\n\nrule := 1"},
		"a rule in a package below data.config": {"data.config.void.rule",
			"package config.void\n\nrule if input.method"},
		"the negation of an absent setting": {"not data.config.void", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"t.rego": "package gatekit.t\n\ndeny " +
				"contains \"it holds\" if " + tt.condition, "other.rego": tt.otherModule} {
				if text == "" {
					continue
				}
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
				t.Errorf("got %s, want that the rule holds", got)
			}
		})
	}
}

// TestRulesThatCannotHoldAreNotEvaluated has a rule that fails when it is evaluated, so that the
// message is denied with an error. A further condition shows that the rule cannot hold. The rule
// must be evaluated only if the condition may be true.
func TestRulesThatCannotHoldAreNotEvaluated(t *testing.T) {
	const helpers = "\nisOther if input.name == \"other\"\nisX if input.name == \"x\"\n" +
		"note contains \"helpers\" if { isOther; isX; input.method == \"never/used\" }"
	for condition, evaluated := range map[string]bool{
		`data.config.nobody`:                                     false,
		`data.config["elicitation/gate"]`:                        true,
		`data.config["elicitation/gate"].forms`:                  true,
		`data.config["elicitation/gate"].pages`:                  false,
		`data.config["elicitation/gate"].loopback`:               false,
		`data.config["elicitation/gate"].loopback.deep`:          false,
		`not data.config["elicitation/gate"].forms`:              false,
		`not data.config["elicitation/gate"].pages`:              true,
		`not data.config["elicitation/gate"].loopback`:           true,
		`gatekit.path.disguised(input.params.arguments)`:         false,
		`x := input.params.arguments; gatekit.path.disguised(x)`: false,
		`gatekit.path.disguised(input.params.other)`:             true,
		`is_object(input.params.arguments)`:                      true,
		`data.config["elicitation/gate"].forms == "x"`:           false,
		`"x" == data.config["elicitation/gate"].forms`:           false,
		`data.config["elicitation/gate"].forms != "x"`:           true,
		`data.config["elicitation/gate"].forms == true`:          true,
		`isOther`:     false,
		`isX`:         true,
		`not isOther`: true,
	} {
		s, err := policies.Load(policies.Options{Rules: []string{"elicitation/gate"},
			Config: map[string]map[string]any{"elicitation/gate": {"forms": true, "pages": false}},
			Files: loaded(t, `deny contains "no" if { to_number(input.name) == 1; `+condition+
				" }"+helpers).Files()})
		if err != nil {
			t.Fatal(err)
		}
		m := request("tools/call", `{"name":"x","arguments":{"path":"a"},"other":"..%2fx"}`, "x")
		if got := strings.HasPrefix(verdictOf(t, s, m), "error: "); got != evaluated {
			t.Errorf("a rule with the condition %s is evaluated: %v, want %v", condition, got,
				evaluated)
		}
	}
}

// TestRulesAboutTheStateOfTheCheck has one rule about a call's arguments, and one about tools that
// are not listed.
func TestRulesAboutTheStateOfTheCheck(t *testing.T) {
	s := loaded(t, `deny contains "arguments" if input.schema.state == "mismatch"
deny contains "not listed" if input.schema.unlisted == "first"`)
	verdictOf(t, s, answered(request("tools/list", `{}`, ""),
		`{"tools":[{"name":"x","inputSchema":{"properties":{"n":{"type":"number"}}}}]}`))
	for m, want := range map[*mcp.Message]string{called("x", `{"n":"1"}`): "denied: t: arguments",
		called("y", `{}`): "denied: t: not listed", called("x", `{"n":1}`): `{"name":"x"`} {
		if got := verdictOf(t, s, m); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", m.Body(), got, want)
		}
	}
}

// TestQueriesAreCachedForManyClasses has rules that compare servers and rules that compare tools.
// The number of classes is the product of both. Most classes have the same rules, and share a
// prepared query.
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
		t.Errorf("the call of the last class takes %.0f allocations, want at most 300: its "+
			"query is not cached", n)
	}
}

// messages returns messages of all methods and kinds, of two servers. Their bodies have the members
// that conditionRules and the library rules read.
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
