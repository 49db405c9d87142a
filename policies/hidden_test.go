package policies_test

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/policies"
)

// isHidden reports whether a verdict denies the use of a hidden item.
func isHidden(verdict string) bool {
	return strings.HasPrefix(verdict, "denied: ") &&
		strings.HasSuffix(verdict, "hidden from this client")
}

// An item that a policy hides from lists for one principal cannot be used by that principal in any
// way, whether it was listed before or not. For another principal nothing changes.
func TestHiddenItemsCannotBeUsed(t *testing.T) {
	const rego = `
hide contains item.name if {
	input.principal.subject == "bob"
	input.method in {"tools/list", "prompts/list"}
	some item in input.items
	startswith(item.name, "secret")
}

hide contains item.uri if {
	input.principal.subject == "bob"
	input.method == "resources/list"
	some item in input.items
	startswith(item.uri, "file:///secret")
}

hide contains item.uriTemplate if {
	input.principal.subject == "bob"
	input.method == "resources/templates/list"
	some item in input.items
	startswith(item.uriTemplate, "secret:")
}
`
	as := func(who string, m *mcp.Message) *mcp.Message {
		m.Principal = who
		return m
	}
	request := func(method, params, name string) *mcp.Message {
		return sent(mcp.NewRequest("1", method, []byte(params)), mcp.ToServer, name)
	}
	notice := func(method, params, name string) *mcp.Message {
		return sent(mcp.NewNotification(method, []byte(params)), mcp.ToClient, name)
	}
	uses := map[string]func() *mcp.Message{
		"a call": func() *mcp.Message { return called("secret_tool", `{}`) },
		"a task's call": func() *mcp.Message {
			return request("tools/call", `{"name":"secret_tool","task":{}}`, "secret_tool")
		},
		"a prompt": func() *mcp.Message {
			return request("prompts/get", `{"name":"secret_prompt"}`, "secret_prompt")
		},
		"a completion of a prompt": func() *mcp.Message {
			return request("completion/complete",
				`{"ref":{"type":"ref/prompt","name":"secret_prompt"},"argument":{"name":"a","value":""}}`, "secret_prompt")
		},
		"a read": func() *mcp.Message { return reading("file:///secret/a") },
		"a subscribing": func() *mcp.Message {
			return request("resources/subscribe", `{"uri":"file:///secret/a"}`, "file:///secret/a")
		},
		"an update": func() *mcp.Message {
			return notice("notifications/resources/updated", `{"uri":"file:///secret/a"}`,
				"file:///secret/a")
		},
		"a completion of a template": func() *mcp.Message {
			return request("completion/complete",
				`{"ref":{"type":"ref/resource","uri":"secret://{id}"},"argument":{"name":"id","value":""}}`, "secret://{id}")
		},
		"a completion of a resource": func() *mcp.Message {
			return request("completion/complete",
				`{"ref":{"type":"ref/resource","uri":"file:///secret/a"},"argument":{"name":"id","value":""}}`, "file:///secret/a")
		},
		"a task's state": func() *mcp.Message {
			return request("tasks/get", `{"taskId":"t1"}`, "t1")
		},
		"a task's result": func() *mcp.Message {
			return request("tasks/result", `{"taskId":"t2"}`, "t2")
		},
		"a task's end": func() *mcp.Message {
			return request("tasks/cancel", `{"taskId":"t1"}`, "t1")
		},
		"a task's input": func() *mcp.Message {
			return request("tasks/update", `{"taskId":"t2"}`, "t2")
		},
		"a task's news": func() *mcp.Message {
			return notice("notifications/tasks", `{"taskId":"t2"}`, "t2")
		},
	}
	listen := func() *mcp.Message {
		return request("subscriptions/listen",
			`{"notifications":{"resourceSubscriptions":["file:///secret/a","file:///b"]}}`, "")
	}
	tasks := func() *mcp.Message {
		return answered(request("tasks/list", `{}`, ""),
			`{"tasks":[{"taskId":"t1"},{"taskId":"t3"}]}`)
	}
	for _, seen := range []bool{false, true} {
		for _, who := range []string{"ann", "bob"} {
			t.Run(fmt.Sprintf("%s, who has listed: %v", who, seen), func(t *testing.T) {
				memory := &policies.SessionStore{}
				// tasks of a time when nothing was hidden
				before, err := policies.Load(policies.Options{Rules: []string{"limits/rate"},
					Sessions: memory})
				if err != nil {
					t.Fatal(err)
				}
				verdictOf(t, before, as(who, answered(called("secret_tool", `{}`),
					`{"task":{"taskId":"t1"}}`)))
				verdictOf(t, before, as(who, answered(called("secret_tool", `{}`),
					`{"resultType":"task","taskId":"t2"}`)))
				verdictOf(t, before, as(who, answered(called("tool", `{}`),
					`{"task":{"taskId":"t3"}}`)))
				s, err := policies.Load(policies.Options{Files: []string{folder(t,
					map[string]string{"mine.rego": "package gatekit.mine\n" + rego})},
					Sessions: memory})
				if err != nil {
					t.Fatal(err)
				}
				if seen {
					got := verdictOf(t, s, as(who, answered(request("tools/list", `{}`, ""),
						`{"tools":[{"name":"secret_tool"},{"name":"tool"}]}`)))
					if strings.Contains(got, "secret_tool") != (who == "ann") {
						t.Errorf("the list is %s", got)
					}
				}
				for what, use := range uses {
					if got := verdictOf(t, s, as(who, use())); isHidden(got) != (who == "bob") {
						t.Errorf("%s: %s", what, got)
					}
					other := as(who, use())
					other.Session = "another"
					if got := verdictOf(t, s, other); isHidden(got) != (who == "bob") {
						t.Errorf("%s, in another session: %s", what, got)
					}
				}
				if got := verdictOf(t, s, as(who, listen())); strings.Contains(got,
					"secret") != (who == "ann") || !strings.Contains(got, "file:///b") {
					t.Errorf("a subscription: %s", got)
				}
				if got := verdictOf(t, s, as(who, tasks())); strings.Contains(got,
					"t1") != (who == "ann") || !strings.Contains(got, "t3") {
					t.Errorf("the tasks: %s", got)
				}
				for _, m := range []*mcp.Message{called("tool", `{}`), reading("file:///b"),
					request("tasks/get", `{"taskId":"t3"}`, "t3")} {
					if got := verdictOf(t, s, as(who, m)); strings.HasPrefix(got, "denied") {
						t.Errorf("what is not hidden: %s", got)
					}
				}
			})
		}
	}
}

// A hide that goes by the definition is asked with the one that was listed; in shadow it only says
// what it would do.
func TestHideRuleReadsDefinition(t *testing.T) {
	const rego = `hide contains item.name if { input.method == "tools/list"; some item in input.items; item.annotations.destructiveHint }`
	list := func() *mcp.Message {
		return answered(sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, ""),
			`{"tools":[{"name":"x","annotations":{"destructiveHint":true}},{"name":"y"}]}`)
	}
	s := loaded(t, rego)
	verdictOf(t, s, list())
	if got := verdictOf(t, s, called("x", `{}`)); !isHidden(got) {
		t.Errorf("what is hidden: %s", got)
	}
	if got := verdictOf(t, s, called("y", `{}`)); strings.HasPrefix(got, "denied") {
		t.Errorf("what is not hidden: %s", got)
	}
	quiet := loaded(t, rego)
	shadow, err := policies.Load(policies.Options{Files: quiet.Files(), Shadow: true})
	if err != nil {
		t.Fatal(err)
	}
	verdictOf(t, shadow, list())
	j := &journal{}
	if _, err := pipeline.New(j, pipeline.Options{}, pipeline.StageConfig{Name: "policy",
		Stage: shadow}).Pass(t.Context(), called("x", `{}`)); err != nil {
		t.Errorf("in shadow: %v", err)
	}
	if f := j.last.Steps[0].Findings; len(f) != 1 || !strings.Contains(f[0].Type,
		`would hide: t: "x"`) {
		t.Errorf("in shadow it says %v", f)
	}
}

// A hide that fails for what is used denies, as it would fail the list.
func TestFailingHideRuleDenies(t *testing.T) {
	s := loaded(t, `hide contains item.name if { input.method == "tools/list"; some item in input.items; to_number(item.name) > 1 }`)
	if got := verdictOf(t, s, called("x", `{}`)); !strings.HasPrefix(got,
		`error: stage "policy": evaluate the policies`) {
		t.Errorf("it is %s", got)
	}
}

// A call that is refused because its tool is hidden takes nothing of a limit.
func TestHiddenCallIsNotCounted(t *testing.T) {
	for name, rego := range map[string]string{
		"by its name":  `hide contains "x"`,
		"in the lists": `hide contains item.name if { some item in input.items; item.name == "x" }`,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := policies.Load(policies.Options{Files: loaded(t, rego).Files(),
				Rules: []string{"limits/rate"},
				Config: map[string]map[string]any{"limits/rate": {"per_session": 2,
					"per_minute": 2}}})
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if got := verdictOf(t, s, called("x", `{}`)); !isHidden(got) {
					t.Fatalf("what is hidden: %s", got)
				}
			}
			for i := range 3 {
				if got := verdictOf(t, s, called("y", `{}`)); strings.HasPrefix(got,
					"denied") != (i == 2) {
					t.Errorf("call %d: %s", i+1, got)
				}
			}
		})
	}
}

// What the library's rules hide is out of reach in the ways, too, that they say nothing of
// themselves.
func TestItemsHiddenByLibraryCannotBeUsed(t *testing.T) {
	memory := &policies.SessionStore{}
	load := func(o policies.Options) *policies.Stage {
		o.Sessions = memory
		s, err := policies.Load(o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := load(policies.Options{Rules: []string{"limits/rate"}})
	verdictOf(t, before, answered(called("write", `{}`), `{"task":{"taskId":"t1"}}`))
	verdictOf(t, before, answered(called("read", `{}`), `{"task":{"taskId":"t2"}}`))
	s := load(policies.Options{Rules: []string{"tools/allowlist", "resources/uris",
		"roots/traversal"}, Config: map[string]map[string]any{
		"tools/allowlist": {"tools": []any{"read"}},
		"resources/uris":  {"schemes": []any{"file"}},
		"roots/traversal": {"roots": []any{"/data"}},
	}})
	task := func(id string) *mcp.Message {
		return sent(mcp.NewRequest("1", "tasks/result", []byte(`{"taskId":"`+id+`"}`)),
			mcp.ToServer, id)
	}
	updated := func(uri string) *mcp.Message {
		return sent(mcp.NewNotification("notifications/resources/updated",
			[]byte(`{"uri":"`+uri+`"}`)), mcp.ToClient, uri)
	}
	complete := func(uri string) *mcp.Message {
		return sent(mcp.NewRequest("1", "completion/complete",
			[]byte(`{"ref":{"type":"ref/resource","uri":"`+uri+
				`"},"argument":{"name":"x","value":""}}`)), mcp.ToServer, uri)
	}
	for name, m := range map[string]*mcp.Message{"a task of a hidden tool": task("t1"),
		"an update outside the roots":  updated("file:///etc/x"),
		"an update of another scheme":  updated("note://x"),
		"a template outside the roots": complete("file:///etc/{x}")} {
		if got := verdictOf(t, s, m); !strings.HasPrefix(got, "denied") {
			t.Errorf("%s: %s", name, got)
		}
	}
	for name, m := range map[string]*mcp.Message{"a task": task("t2"),
		"an update": updated("file:///data/x"), "a template": complete("file:///data/{x}"),
		"a template above the roots": complete("file:///{path}")} {
		if got := verdictOf(t, s, m); strings.HasPrefix(got, "denied") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A server cannot have a tool judged by the better of two definitions, or by one that it has
// replaced.
func TestAmbiguousDefinitionIsNotUsed(t *testing.T) {
	const good, bad = `{"name":"x","annotations":{"readOnlyHint":true}}`,
		`{"name":"x","annotations":{"destructiveHint":true}}`
	large := `{"name":"x","description":"` + strings.Repeat("d", 1_000_001) + `"}`
	for name, c := range map[string]struct {
		lists    [][]string
		readonly bool // tools/readonly lets it be called
		hidden   bool // a rule that hides what destroys refuses it: it is such, or nobody knows
	}{
		"one":                          {[][]string{{good}}, true, false},
		"one, twice":                   {[][]string{{good, good}}, true, false},
		"the good one last":            {[][]string{{bad, good}}, false, true},
		"the good one first":           {[][]string{{good, bad}}, false, true},
		"three":                        {[][]string{{good, bad, good}}, false, true},
		"replaced":                     {[][]string{{good}, {bad}}, false, true},
		"made good":                    {[][]string{{bad, good}, {good}}, true, false},
		"replaced by one that is huge": {[][]string{{good}, {large}}, false, true},
		"huge, and a good one":         {[][]string{{large, good}}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			for rule, s := range map[string]*policies.Stage{"readonly": fromLibrary(t,
				"tools/readonly", nil), "hidden": loaded(t,
				`hide contains item.name if { input.method == "tools/list"; some item in input.items; item.annotations.destructiveHint }`)} {
				for _, list := range c.lists {
					verdictOf(t, s, answered(sent(mcp.NewRequest("1", "tools/list", nil),
						mcp.ToServer,
						""), `{"tools":[`+strings.Join(list, ",")+`]}`))
				}
				want := map[string]bool{"readonly": c.readonly, "hidden": !c.hidden}[rule]
				if got := verdictOf(t, s, called("x", `{}`)); strings.HasPrefix(got,
					"denied") == want {
					t.Errorf("%s: %s", rule, got)
				}
			}
		})
	}
}

// Whoever begins tasks without end does not make the tools of another's unknown.
func TestTasksOfOnePrincipalDoNotEvictThoseOfAnother(t *testing.T) {
	s := loaded(t, `hide contains "write" if { input.method == "tools/list"; input.kind == "response" }`)
	begins := func(principal, tool, id string) {
		m := answered(called(tool, `{}`), `{"task":{"taskId":"`+id+`"}}`)
		m.Principal = principal
		verdictOf(t, s, m)
	}
	begins("alice", "write", "t")
	for i := range 10_001 {
		begins("mallory", "read", fmt.Sprint(i))
	}
	m := sent(mcp.NewRequest("1", "tasks/result", []byte(`{"taskId":"t"}`)), mcp.ToServer, "t")
	m.Principal = "alice"
	if got := verdictOf(t, s, m); got != "denied: t: the task belongs to the tool write, which is "+
		"hidden from this client" {
		t.Error(got)
	}
}

// What is hidden by more than its name cannot be used before its definition is known. What its name
// alone decides can.
func TestUnlistedItemIsDeniedWhenHidingNeedsItsDefinition(t *testing.T) {
	for rule, refused := range map[string]bool{
		`hide contains item.name if { input.method == "tools/list"; some item in input.items; item.annotations.destructiveHint }`:  true,
		`hide contains item.name if { some item in input.items; not item.annotations.readOnlyHint; input.method == "tools/list" }`: true,
		`hide contains item.name if { item := input.items[_]; contains(item.description, "!"); input.method == "tools/list" }`:     true,
		`hide contains name if { some i; input.items[i].annotations.destructiveHint; name := input.items[i].name }`:                true,
		"hide contains item.name if { some item in input.items; bad(item) }\nbad(item) if " +
			"item.annotations.destructiveHint": true,
		"hide contains name if some name in bad\nbad contains item.name if { some item in " +
			"input.items; item.annotations.destructiveHint }": true,
		`hide contains input.items[i].name if { walk(input.items, [[i, "annotations", "destructiveHint"], true]) }`:                    true,
		`hide contains item.name if { some item in input.result.tools; item.annotations.destructiveHint }`:                             true,
		`hide contains item.name if { some part in ["items"]; some item in input[part]; item.annotations.destructiveHint }`:            true,
		`hide contains item.name if { some item in input.items; some key in ["annotations"]; item[key].destructiveHint }`:              true,
		`hide contains item.name if { {"name": "y", "annotations": a} = input.items[_]; a.destructiveHint; some item in input.items }`: true,
		`hide contains item.name if { every i in input.items { i.annotations.destructiveHint }; some item in input.items }`:            true,
		`hide contains item.name if { some item in input.items; startswith(item.name, "secret") }`:                                     false,
		"hide contains item.name if { some item in input.items; bad(item.name); " +
			"input.principal.subject == \"bob\" }\n" +
			"bad(name) if startswith(name, \"secret\")": false,
		`hide contains input.items[i].name if { some i; input.items[i].name == "y" }`: false,
		// of resources
		`hide contains item.uri if { some item in input.items; item.annotations.audience == ["user"] }`:           false,
		`hide contains item.uri if { input.method == "resources/list"; some item in input.items; item.size > 5 }`: false,
		`hide contains "y"`: false,
	} {
		s := loaded(t, rule)
		if got := verdictOf(t, s, called("x", `{}`)); strings.HasPrefix(got,
			"denied: the tool x was not listed, and may be hidden: request tools/list first") !=
			refused && !isHidden(got) || strings.HasPrefix(got, "denied") != refused {
			t.Errorf("%s\n%s", rule, got)
		}
		quiet, err := policies.Load(policies.Options{Files: s.Files(), Shadow: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := verdictOf(t, quiet, called("x", `{}`)); strings.HasPrefix(got, "denied") {
			t.Errorf("%s\nin shadow: %s", rule, got)
		}
		verdictOf(t, s, answered(sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, ""),
			`{"tools":[{"name":"x","annotations":{"readOnlyHint":true}}]}`))
		if got := verdictOf(t, s, called("x", `{}`)); strings.HasPrefix(got, "denied") {
			t.Errorf("%s\nlisted: %s", rule, got)
		}
	}
}

// A resource that is hidden is hidden however it is spelled.
func TestOtherSpellingsOfHiddenResourceAreDenied(t *testing.T) {
	for _, rule := range []string{
		`hide contains "file:///secret/a" if input.method in {"resources/list", "resources/read"}`,
		`hide contains item.uri if { input.method == "resources/list"; some item in input.items; item.uri == "file:///secret/a" }`,
		`hide contains item.uri if { input.method == "resources/list"; some item in input.items; startswith(item.uri, "file:///secret/") }`,
	} {
		s := loaded(t, rule)
		for _, uri := range []string{"file:///secret/a", "FILE:///secret/a",
			"file:///x/../secret/a", "file:///%73ecret/a", "file:///./secret/%61"} {
			if got := verdictOf(t, s, reading(uri)); !isHidden(got) {
				t.Errorf("%s\n%s: %s", rule, uri, got)
			}
		}
		// listed beside what is hidden, it is another: list and use are one
		for list, hidden := range map[string]bool{`{"uri":"file:///secret/a"}`: true,
			`{"uri":"file:///secret/a"},{"uri":"file:///Secret/A"}`: false} {
			s := loaded(t, rule)
			verdictOf(t, s, answered(sent(mcp.NewRequest("1", "resources/list", nil), mcp.ToServer,
				""), `{"resources":[`+list+`]}`))
			if got := verdictOf(t, s, reading(
				"file:///Secret/A")); isHidden(got) != hidden {
				t.Errorf("%s\n%s: %s", rule, list, got)
			}
		}
		if got := verdictOf(t, s, reading("file:///secret/a")); !isHidden(got) {
			t.Errorf("%s\nlisted: %s", rule, got)
		}
		for _, uri := range []string{"file:///secrets", "FILE:///b", "file:///x/../b%20c",
			"note://secret/a"} {
			if got := verdictOf(t, s, reading(uri)); strings.HasPrefix(got, "denied") {
				t.Errorf("%s\n%s: %s", rule, uri, got)
			}
		}
	}
}

// Beside another spelling of it, a resource is asked about with the definition that was listed.
func TestListedResourceIsNotASpellingOfAnother(t *testing.T) {
	s := loaded(t, `hide contains item.uri if { input.method == "resources/list"; some item in input.items; item.size > 5 }`)
	verdictOf(t, s, answered(sent(mcp.NewRequest("1", "resources/list", nil), mcp.ToServer, ""),
		`{"resources":[{"uri":"file:///a","size":9},{"uri":"file:///b","size":1}]}`))
	m := sent(mcp.NewRequest("1", "subscriptions/listen",
		[]byte(`{"notifications":{"resourceSubscriptions":["FILE:///a","file:///A","file:///a","file:///b"]}}`)), mcp.ToServer, "")
	if got := verdictOf(t, s,
		m); got != `{"notifications":{"resourceSubscriptions":["file:///b"]}}` {
		t.Error(got)
	}
}
