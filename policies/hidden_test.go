package policies_test

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/policies"
)

// isHidden reports whether a verdict denies the use of a hidden item.
func isHidden(verdict string) bool {
	return strings.HasPrefix(verdict, "denied: ") &&
		strings.HasSuffix(verdict, "hidden from this client")
}

// TestHiddenItemsCannotBeUsed checks items that a policy hides from lists for one principal. This
// principal cannot use them in any way, whether they were listed before or not. For another
// principal nothing changes.
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
	withPrincipal := func(principal string, m *mcp.Message) *mcp.Message {
		m.Principal = identity.FromID(principal)
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
		"a call as a task": func() *mcp.Message {
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
		"a subscription": func() *mcp.Message {
			return request("resources/subscribe", `{"uri":"file:///secret/a"}`, "file:///secret/a")
		},
		"an update notification": func() *mcp.Message {
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
		"tasks/get": func() *mcp.Message {
			return request("tasks/get", `{"taskId":"t1"}`, "t1")
		},
		"tasks/result": func() *mcp.Message {
			return request("tasks/result", `{"taskId":"t2"}`, "t2")
		},
		"tasks/cancel": func() *mcp.Message {
			return request("tasks/cancel", `{"taskId":"t1"}`, "t1")
		},
		"tasks/update": func() *mcp.Message {
			return request("tasks/update", `{"taskId":"t2"}`, "t2")
		},
		"a task notification": func() *mcp.Message {
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
	for _, listed := range []bool{false, true} {
		for _, principal := range []string{"ann", "bob"} {
			t.Run(fmt.Sprintf("%s, tools listed before: %v", principal, listed),
				func(t *testing.T) {
					sessions := &policies.SessionStore{}
					// these tasks were created before a rule hid their tools
					before, err := policies.Load(policies.Options{Rules: []string{"limits/rate"},
						Sessions: sessions})
					if err != nil {
						t.Fatal(err)
					}
					verdictOf(t, before, withPrincipal(principal,
						answered(called("secret_tool", `{}`),
							`{"task":{"taskId":"t1"}}`)))
					verdictOf(t, before, withPrincipal(principal,
						answered(called("secret_tool", `{}`),
							`{"resultType":"task","taskId":"t2"}`)))
					verdictOf(t, before, withPrincipal(principal, answered(called("tool", `{}`),
						`{"task":{"taskId":"t3"}}`)))
					s, err := policies.Load(policies.Options{Files: []string{folder(t,
						map[string]string{"mine.rego": "package gatekit.mine\n" + rego})},
						Sessions: sessions})
					if err != nil {
						t.Fatal(err)
					}
					if listed {
						got := verdictOf(t, s, withPrincipal(principal,
							answered(request("tools/list", `{}`, ""),
								`{"tools":[{"name":"secret_tool"},{"name":"tool"}]}`)))
						if strings.Contains(got, "secret_tool") != (principal == "ann") {
							t.Errorf("the list is %s, want secret_tool only for ann", got)
						}
					}
					for name, use := range uses {
						if got := verdictOf(t, s, withPrincipal(principal,
							use())); isHidden(got) != (principal == "bob") {
							t.Errorf("%s by %s: %s, want it denied only for bob", name,
								principal, got)
						}
						other := withPrincipal(principal, use())
						other.Session = "another"
						if got := verdictOf(t, s, other); isHidden(got) != (principal == "bob") {
							t.Errorf("%s by %s in another session: %s, want it denied only "+
								"for bob", name, principal, got)
						}
					}
					if got := verdictOf(t, s, withPrincipal(principal,
						listen())); strings.Contains(got,
						"secret") != (principal == "ann") || !strings.Contains(got, "file:///b") {
						t.Errorf("subscriptions/listen by %s: %s, want file:///b, and the "+
							"secret only for ann", principal, got)
					}
					if got := verdictOf(t, s, withPrincipal(principal,
						tasks())); strings.Contains(got,
						"t1") != (principal == "ann") || !strings.Contains(got, "t3") {
						t.Errorf("tasks/list by %s: %s, want t3, and t1 only for ann",
							principal, got)
					}
					for _, m := range []*mcp.Message{called("tool", `{}`), reading("file:///b"),
						request("tasks/get", `{"taskId":"t3"}`, "t3")} {
						if got := verdictOf(t, s, withPrincipal(principal,
							m)); strings.HasPrefix(got, "denied") {
							t.Errorf("the use of an item that is not hidden: %s, want it "+
								"allowed", got)
						}
					}
				})
		}
	}
}

// TestHideRuleReadsDefinition checks a hide rule that reads definitions: for a call, the rule gets
// the listed definition. In shadow mode the call passes, and a finding says what the rule would
// hide.
func TestHideRuleReadsDefinition(t *testing.T) {
	const rego = `hide contains item.name if { input.method == "tools/list"; some item in input.items; item.annotations.destructiveHint }`
	list := func() *mcp.Message {
		return answered(sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, ""),
			`{"tools":[{"name":"x","annotations":{"destructiveHint":true}},{"name":"y"}]}`)
	}
	s := loaded(t, rego)
	verdictOf(t, s, list())
	if got := verdictOf(t, s, called("x", `{}`)); !isHidden(got) {
		t.Errorf("the call of a hidden tool: %s, want it denied", got)
	}
	if got := verdictOf(t, s, called("y", `{}`)); strings.HasPrefix(got, "denied") {
		t.Errorf("the call of a tool that is not hidden: %s, want it allowed", got)
	}
	shadow, err := policies.Load(policies.Options{Files: s.Files(), Shadow: true})
	if err != nil {
		t.Fatal(err)
	}
	verdictOf(t, shadow, list())
	j := &journal{}
	if _, err := pipeline.New(j, pipeline.Options{}, pipeline.StageConfig{Name: "policy",
		Stage: shadow}).Pass(t.Context(), called("x", `{}`)); err != nil {
		t.Errorf("in shadow mode: error %v, want that the call passes", err)
	}
	if f := j.last.Steps[0].Findings; len(f) != 1 || !strings.Contains(f[0].Type,
		`would hide: t: "x"`) {
		t.Errorf("in shadow mode the findings are %v, want one that the rule would hide x", f)
	}
}

// TestFailingHideRuleDenies checks that a call is denied when a hide rule fails for the called
// tool.
func TestFailingHideRuleDenies(t *testing.T) {
	s := loaded(t, `hide contains item.name if { input.method == "tools/list"; some item in input.items; to_number(item.name) > 1 }`)
	if got := verdictOf(t, s, called("x", `{}`)); !strings.HasPrefix(got,
		`error: stage "policy": evaluate the policies`) {
		t.Errorf("got %s, want an error of the evaluation", got)
	}
}

// TestHiddenCallIsNotCounted checks that a call does not count against a limit when it is denied
// because its tool is hidden.
func TestHiddenCallIsNotCounted(t *testing.T) {
	for name, rego := range map[string]string{
		"rule that ignores the list": `hide contains "x"`,
		"rule that reads the list":   `hide contains item.name if { some item in input.items; item.name == "x" }`,
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
					t.Fatalf("the call of a hidden tool: %s, want it denied", got)
				}
			}
			for i := range 3 {
				if got := verdictOf(t, s, called("y", `{}`)); strings.HasPrefix(got,
					"denied") != (i == 2) {
					t.Errorf("call %d: %s, want only call 3 denied", i+1, got)
				}
			}
		})
	}
}

// TestItemsHiddenByLibraryCannotBeUsed checks the uses of items for which library rules have no
// deny rule: tasks, notifications and completions. These uses are denied, too.
func TestItemsHiddenByLibraryCannotBeUsed(t *testing.T) {
	sessions := &policies.SessionStore{}
	load := func(o policies.Options) *policies.Stage {
		o.Sessions = sessions
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
			t.Errorf("%s: %s, want it denied", name, got)
		}
	}
	for name, m := range map[string]*mcp.Message{"a task": task("t2"),
		"an update notification":     updated("file:///data/x"),
		"a template":                 complete("file:///data/{x}"),
		"a template above the roots": complete("file:///{path}")} {
		if got := verdictOf(t, s, m); strings.HasPrefix(got, "denied") {
			t.Errorf("%s: %s, want it allowed", name, got)
		}
	}
}

// TestAmbiguousDefinitionIsNotUsed checks servers that list a tool twice. If the definitions
// differ, rules get none of them for a call. When a server lists the tool again, the new definition
// replaces the old one.
func TestAmbiguousDefinitionIsNotUsed(t *testing.T) {
	const good, bad = `{"name":"x","annotations":{"readOnlyHint":true}}`,
		`{"name":"x","annotations":{"destructiveHint":true}}`
	large := `{"name":"x","description":"` + strings.Repeat("d", 1_000_001) + `"}`
	for name, c := range map[string]struct {
		lists    [][]string
		readonly bool // tools/readonly allows the call
		// a rule that hides destructive tools denies the call, because the tool is destructive or
		// its definition is not known
		hidden bool
	}{
		"one definition":                      {[][]string{{good}}, true, false},
		"the same definition twice":           {[][]string{{good, good}}, true, false},
		"the good one last":                   {[][]string{{bad, good}}, false, true},
		"the good one first":                  {[][]string{{good, bad}}, false, true},
		"good, bad, good":                     {[][]string{{good, bad, good}}, false, true},
		"good, then replaced by bad":          {[][]string{{good}, {bad}}, false, true},
		"ambiguous, then replaced by good":    {[][]string{{bad, good}, {good}}, true, false},
		"replaced by a too large one":         {[][]string{{good}, {large}}, false, true},
		"too large and good in the same list": {[][]string{{large, good}}, false, true},
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
					t.Errorf("%s: %s, want the call allowed: %v", rule, got, want)
				}
			}
		})
	}
}

// TestTasksOfOnePrincipalDoNotEvictThoseOfAnother creates very many tasks of one principal. The
// stage must still know the tools of another principal's tasks.
func TestTasksOfOnePrincipalDoNotEvictThoseOfAnother(t *testing.T) {
	s := loaded(t, `hide contains "write" if { input.method == "tools/list"; input.kind == "response" }`)
	createTask := func(principal, tool, id string) {
		m := answered(called(tool, `{}`), `{"task":{"taskId":"`+id+`"}}`)
		m.Principal = identity.FromID(principal)
		verdictOf(t, s, m)
	}
	createTask("alice", "write", "t")
	for i := range 10_001 {
		createTask("mallory", "read", fmt.Sprint(i))
	}
	m := sent(mcp.NewRequest("1", "tasks/result", []byte(`{"taskId":"t"}`)), mcp.ToServer, "t")
	m.Principal = identity.FromID("alice")
	if got := verdictOf(t, s, m); got != "denied: t: the task belongs to the tool write, which is "+
		"hidden from this client" {
		t.Errorf("got %s, want that the tool of alice's task is hidden", got)
	}
}

// TestUnlistedItemIsDeniedWhenHidingNeedsItsDefinition calls a tool that was not listed. The call
// is denied when a hide rule reads more of an item than its name, or may hide an item because of
// another item. Otherwise the call is allowed.
func TestUnlistedItemIsDeniedWhenHidingNeedsItsDefinition(t *testing.T) {
	for rule, denied := range map[string]bool{
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
		// rules about resources, which cannot hide a tool
		`hide contains item.uri if { some item in input.items; item.annotations.audience == ["user"] }`:           false,
		`hide contains item.uri if { input.method == "resources/list"; some item in input.items; item.size > 5 }`: false,
		`hide contains "y"`: false,
		// rules that may hide an item because of another item, or because of its position
		`hide contains item.name if { some item in input.items; some other in input.items; other.name == "y"; item.name == "x" }`: true,
		`hide contains item.name if { some i, item in input.items; i > 0 }`:                                                       true,
		`hide contains item.name if { some item in input.items; item.name == input.items[1].name }`:                               true,
		`hide contains "x" if { some item in input.items; item.name == "y" }`:                                                     true,
		"hide contains item.name if { some item in input.items; has_y }\n" +
			"has_y if { some item in input.items; item.name == \"y\" }": true,
	} {
		s := loaded(t, rule)
		if got := verdictOf(t, s, called("x", `{}`)); strings.HasPrefix(got,
			"denied: the tool x was not listed, and may be hidden: request tools/list first") !=
			denied && !isHidden(got) || strings.HasPrefix(got, "denied") != denied {
			t.Errorf("%s\ngot %s, want it denied: %v", rule, got, denied)
		}
		shadow, err := policies.Load(policies.Options{Files: s.Files(), Shadow: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := verdictOf(t, shadow, called("x", `{}`)); strings.HasPrefix(got, "denied") {
			t.Errorf("%s\nin shadow mode: %s, want the call allowed", rule, got)
		}
		verdictOf(t, s, answered(sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, ""),
			`{"tools":[{"name":"x","annotations":{"readOnlyHint":true}}]}`))
		if got := verdictOf(t, s, called("x", `{}`)); strings.HasPrefix(got, "denied") {
			t.Errorf("%s\nafter tools/list: %s, want the call allowed", rule, got)
		}
	}
}

// TestOtherSpellingsOfHiddenResourceAreDenied checks that a hidden resource is hidden in every
// spelling of its URI.
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
				t.Errorf("%s\n%s: %s, want it hidden", rule, uri, got)
			}
		}
		// A listed URI names its own resource, even if it resembles a hidden URI, because the rules
		// were evaluated for the listed URI.
		for list, hidden := range map[string]bool{`{"uri":"file:///secret/a"}`: true,
			`{"uri":"file:///secret/a"},{"uri":"file:///Secret/A"}`: false} {
			s := loaded(t, rule)
			verdictOf(t, s, answered(sent(mcp.NewRequest("1", "resources/list", nil), mcp.ToServer,
				""), `{"resources":[`+list+`]}`))
			if got := verdictOf(t, s, reading(
				"file:///Secret/A")); isHidden(got) != hidden {
				t.Errorf("%s\nlisted %s: %s, want it hidden: %v", rule, list, got, hidden)
			}
		}
		if got := verdictOf(t, s, reading("file:///secret/a")); !isHidden(got) {
			t.Errorf("%s\nthe second read of file:///secret/a: %s, want it hidden", rule, got)
		}
		for _, uri := range []string{"file:///secrets", "FILE:///b", "file:///x/../b%20c",
			"note://secret/a"} {
			if got := verdictOf(t, s, reading(uri)); strings.HasPrefix(got, "denied") {
				t.Errorf("%s\n%s: %s, want it allowed", rule, uri, got)
			}
		}
	}
}

// TestListedURIIsHiddenInOtherCase reads a resource that was listed before a rule hid it. The URI
// in the request differs from the listed URI only in case.
func TestListedURIIsHiddenInOtherCase(t *testing.T) {
	sessions := &policies.SessionStore{}
	before, err := policies.Load(policies.Options{Rules: []string{"limits/rate"},
		Sessions: sessions})
	if err != nil {
		t.Fatal(err)
	}
	verdictOf(t, before, answered(request("resources/list", `{}`, ""),
		`{"resources":[{"uri":"file:///A/x"}]}`))
	s, err := policies.Load(policies.Options{Sessions: sessions, Files: loaded(t,
		`hide contains item.uri if { input.method == "resources/list"; some item in input.items; item.uri == "file:///A/x" }`).Files()})
	if err != nil {
		t.Fatal(err)
	}
	for uri, want := range map[string]bool{"file:///A/x": true, "file:///a/x": true,
		"file:///b/x": false} {
		if got := verdictOf(t, s, reading(uri)); isHidden(got) != want {
			t.Errorf("%s: %s, want it hidden: %v", uri, got, want)
		}
	}
}

// TestBothListedSpellingsAreHidden subscribes to two listed URIs that are spellings of one
// resource. The rule hides one of them, and so both are hidden.
func TestBothListedSpellingsAreHidden(t *testing.T) {
	sessions := &policies.SessionStore{}
	before, err := policies.Load(policies.Options{Rules: []string{"limits/rate"},
		Sessions: sessions})
	if err != nil {
		t.Fatal(err)
	}
	verdictOf(t, before, answered(request("resources/list", `{}`, ""),
		`{"resources":[{"uri":"FILE:///a"},{"uri":"file:///a"},{"uri":"file:///b"}]}`))
	s, err := policies.Load(policies.Options{Sessions: sessions, Files: loaded(t,
		`hide contains item.uri if { input.method == "resources/list"; some item in input.items; item.uri == "FILE:///a" }`).Files()})
	if err != nil {
		t.Fatal(err)
	}
	got := verdictOf(t, s, request("subscriptions/listen",
		`{"notifications":{"resourceSubscriptions":["file:///a","FILE:///a","file:///b"]}}`, ""))
	if want := `{"notifications":{"resourceSubscriptions":["file:///b"]}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestSubscriptionsWithoutResourcesAreNotHidden subscribes to no resource. The rule that hides
// resources fails for every list, so it must not be evaluated.
func TestSubscriptionsWithoutResourcesAreNotHidden(t *testing.T) {
	s := loaded(t, `hide contains "x" if { input.method == "resources/list"; to_number(input.server) == 1 }`)
	const none = `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":[]}}`
	if got := verdictOf(t, s, request("subscriptions/listen", none, "")); got != none {
		t.Errorf("got %s, want that the request passes", got)
	}
}

// TestOtherSpellingsOfListedURIGetItsDefinition subscribes to a hidden resource by its listed URI
// and by other spellings of this URI. For each spelling, the hide rule gets the listed definition.
func TestOtherSpellingsOfListedURIGetItsDefinition(t *testing.T) {
	s := loaded(t, `hide contains item.uri if { input.method == "resources/list"; some item in input.items; item.size > 5 }`)
	verdictOf(t, s, answered(sent(mcp.NewRequest("1", "resources/list", nil), mcp.ToServer, ""),
		`{"resources":[{"uri":"file:///a","size":9},{"uri":"file:///b","size":1}]}`))
	m := sent(mcp.NewRequest("1", "subscriptions/listen",
		[]byte(`{"notifications":{"resourceSubscriptions":["FILE:///a","file:///A","file:///a","file:///b"]}}`)), mcp.ToServer, "")
	if got := verdictOf(t, s,
		m); got != `{"notifications":{"resourceSubscriptions":["file:///b"]}}` {
		t.Errorf("got %s, want only the subscription to file:///b", got)
	}
}
