package policies_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/policies"
)

// effectCase is a message for which each effect is evaluated.
type effectCase struct {
	m    *mcp.Message
	hide string // a name in the message that the hide rule hides; "" if there is none
	path string // the place of the text that the redact and set rules replace
}

// effectCases returns messages of each kind in each direction, by a description.
func effectCases() map[string]effectCase {
	request := func(method, params string, to mcp.Direction) *mcp.Message {
		return sent(mcp.NewRequest("1", method, []byte(params)), to, "")
	}
	notification := func(method, params string, to mcp.Direction) *mcp.Message {
		return sent(mcp.NewNotification(method, []byte(params)), to, "")
	}
	answer := func(method, result string, to mcp.Direction) *mcp.Message {
		m := sent(mcp.NewResponse("1", []byte(result)), to, "")
		m.Method = method
		return m
	}
	fault := func(method string, to mcp.Direction) *mcp.Message {
		m := sent(mcp.NewError("1", -5, "MARK", []byte(`{"a":1}`)), to, "")
		m.Method = method
		return m
	}
	const up, down = mcp.ToServer, mcp.ToClient
	return map[string]effectCase{
		"call": {called("HIDDEN", `{"a":"MARK"}`), "HIDDEN", "/arguments/a"},
		"a call's result": {answer("tools/call", `{"content":[{"type":"text","text":"MARK"}]}`,
			down), "", "/content/0/text"},
		"a call's error":   {fault("tools/call", down), "", "/message"},
		"tools":            {answer("tools/list", `{"tools":[{"name":"HIDDEN","title":"MARK"},{"name":"x"}]}`, down), "HIDDEN", "/tools/0/title"},
		"prompts":          {answer("prompts/list", `{"prompts":[{"name":"HIDDEN","title":"MARK"},{"name":"x"}]}`, down), "HIDDEN", "/prompts/0/title"},
		"resources":        {answer("resources/list", `{"resources":[{"uri":"x:HIDDEN","name":"MARK"}]}`, down), "x:HIDDEN", "/resources/0/name"},
		"templates":        {answer("resources/templates/list", `{"resourceTemplates":[{"uriTemplate":"x:HIDDEN{a}","name":"MARK"}]}`, down), "x:HIDDEN{a}", "/resourceTemplates/0/name"},
		"tasks":            {answer("tasks/list", `{"tasks":[{"taskId":"HIDDEN","status":"MARK"}]}`, down), "HIDDEN", "/tasks/0/status"},
		"skills":           {answer("skills/list", `{"skills":[{"uri":"x:HIDDEN","description":"MARK"}]}`, down), "x:HIDDEN", "/skills/0/description"},
		"skill":            {answer("skills/get", `{"skill":{"uri":"x:HIDDEN","description":"MARK"}}`, down), "x:HIDDEN", "/skill/description"},
		"directory":        {answer("resources/directory/read", `{"resources":[{"uri":"x:HIDDEN","name":"MARK"},{"uri":"x:y"}]}`, down), "x:HIDDEN", "/resources/0/name"},
		"roots":            {answer("roots/list", `{"roots":[{"uri":"file:///HIDDEN","name":"MARK"},{"uri":"file:///good"}]}`, up), "file:///HIDDEN", "/roots/0/name"},
		"read":             {request("resources/read", `{"uri":"x:HIDDEN","_meta":{"a":"MARK"}}`, up), "x:HIDDEN", "/_meta/a"},
		"subscribe":        {request("resources/subscribe", `{"uri":"x:HIDDEN","_meta":{"a":"MARK"}}`, up), "x:HIDDEN", "/_meta/a"},
		"get a prompt":     {request("prompts/get", `{"name":"HIDDEN","arguments":{"a":"MARK"}}`, up), "HIDDEN", "/arguments/a"},
		"get a skill":      {request("skills/get", `{"uri":"x:HIDDEN","_meta":{"a":"MARK"}}`, up), "x:HIDDEN", "/_meta/a"},
		"read a directory": {request("resources/directory/read", `{"uri":"x:HIDDEN","_meta":{"a":"MARK"}}`, up), "x:HIDDEN", "/_meta/a"},
		"list skills":      {request("skills/list", `{"_meta":{"a":"MARK"}}`, up), "", "/_meta/a"},
		"list tools":       {request("tools/list", `{"_meta":{"a":"MARK"}}`, up), "", "/_meta/a"},
		"complete":         {request("completion/complete", `{"ref":{"type":"ref/prompt","name":"HIDDEN"},"argument":{"name":"a","value":"MARK"}}`, up), "HIDDEN", "/argument/value"},
		"listen":           {request("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["x:HIDDEN","x:y"]},"_meta":{"a":"MARK"}}`, up), "x:HIDDEN", "/_meta/a"},
		"ping":             {request("ping", `{"_meta":{"a":"MARK"}}`, up), "", "/_meta/a"},
		"server's ping":    {request("ping", `{"_meta":{"a":"MARK"}}`, down), "", "/_meta/a"},
		"client's roots":   {request("roots/list", `{"_meta":{"a":"MARK"}}`, down), "", "/_meta/a"},
		"unknown method":   {request("no/such", `{"a":"MARK"}`, up), "", "/a"},
		"sampling": {request("sampling/createMessage", `{"messages":[{"role":"user","content":`+
			`{"type":"text","text":"MARK"}}]}`, down), "", "/messages/0/content/text"},
		"sampling result": {answer("sampling/createMessage", `{"role":"assistant","content":`+
			`{"type":"text","text":"MARK"}}`, up), "", "/content/text"},
		"elicitation":        {request("elicitation/create", `{"message":"MARK"}`, down), "", "/message"},
		"elicitation result": {answer("elicitation/create", `{"action":"accept","content":{"a":"MARK"}}`, up), "", "/content/a"},
		"client's error":     {fault("sampling/createMessage", up), "", "/message"},
		"log":                {notification("notifications/message", `{"level":"info","data":"MARK"}`, down), "", "/data"},
		"progress":           {notification("notifications/progress", `{"progressToken":"t","progress":1,"message":"MARK"}`, down), "", "/message"},
		"client progress":    {notification("notifications/progress", `{"progressToken":"t","progress":1,"message":"MARK"}`, up), "", "/message"},
		"cancelled":          {notification("notifications/cancelled", `{"requestId":1,"reason":"MARK"}`, up), "", "/reason"},
		"resource updated":   {notification("notifications/resources/updated", `{"uri":"x:HIDDEN","_meta":{"a":"MARK"}}`, down), "x:HIDDEN", "/_meta/a"},
	}
}

// TestEveryEffectWorksOrDenies evaluates each effect for messages of each kind in each direction.
// The effect must change the message, or the message must be denied. A message must never pass with
// a name that a rule hides or a text that a rule redacts, or without a value that a rule sets.
func TestEveryEffectWorksOrDenies(t *testing.T) {
	for name, c := range effectCases() {
		if name := c.hide; name != "" && c.m.Kind != mcp.Response {
			c.m.Name = name
		}
		// check evaluates a rule. If the message passes, it must contain present, and must not
		// contain gone. If both are empty, the message must be denied.
		check := func(effect, rego, gone, present string) {
			t.Run(name+"/"+effect, func(t *testing.T) {
				body := string(c.m.Body())
				got := verdictOf(t, loaded(t, rego), c.m)
				switch {
				case strings.HasPrefix(got, "denied: "):
				case strings.HasPrefix(got, "error: "):
					t.Errorf("got %s, want the effect or a denial with the rule's reason", got)
				case gone == "" && present == "":
					t.Errorf("%s passes as %s, want a denial", body, got)
				case gone != "" && strings.Contains(got, gone):
					t.Errorf("%s passes as %s, want it without %s", body, got, gone)
				case !strings.Contains(got, present):
					t.Errorf("%s passes as %s, want it with %s", body, got, present)
				}
			})
		}
		check("deny", `deny contains "no"`, "", "")
		check("ask", `ask contains "no"`, "", "")
		check("scope", `scope contains "write"`, "", "")
		check("redact a path", `redact contains {"path": "`+c.path+`", "with": "NEW"}`, "MARK", "NEW")
		check("redact a pattern", `redact contains {"pattern": "MARK", "with": "NEW"}`, "MARK",
			"NEW")
		check("set", `set contains {"path": "`+c.path+`", "value": "NEW"}`, "MARK", "NEW")
		if c.hide != "" {
			check("hide", `hide contains "`+c.hide+`"`, "HIDDEN", `"`)
		}
		check("label and note", `label contains "l"`+"\n"+`note contains "n"`, "NEW", "MARK")
	}
}

// documentedEffects returns the table of docs/policies.md that says for which messages ask, scope
// and hide work. The keys are "kind direction method", the values are the last two cells of a row.
func documentedEffects(t *testing.T) map[string][2]string {
	t.Helper()
	b, err := os.ReadFile("../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][2]string{}
	const header = "| Kind | Direction | Methods | `ask`, `scope` | `hide` |\n"
	_, table, _ := strings.Cut(string(b), header)
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if len(cells) != 5 {
			if strings.HasPrefix(line, "|---") {
				continue
			}
			break
		}
		for method := range strings.SplitSeq(cells[2], ", ") {
			message := strings.TrimPrefix(cells[0], "| ") + " " + cells[1] + " " +
				strings.Trim(method, "`")
			all[message] = [2]string{cells[3], strings.TrimSuffix(cells[4], " |\n")}
		}
	}
	return all
}

// TestEffectsAreDocumented compares the table of effects in the docs with rules that are only about
// the messages of a row.
func TestEffectsAreDocumented(t *testing.T) {
	documented := documentedEffects(t)
	for name, c := range effectCases() {
		method, known := mcp.LookupMethod(c.m.Method)
		if !known {
			continue
		}
		if c.m.Kind != mcp.Response && (method.NamePointer != "" ||
			method.Route == mcp.RouteByReference) {
			c.m.Name = c.hide // as the proxy does
		}
		message := fmt.Sprintf("%s %s %s", c.m.Kind, c.m.Direction, c.m.Method)
		body := string(c.m.Body())
		// effect returns the effect of a rule that is only about the message: no, yes, denies or
		// removes.
		effect := func(head string) string {
			s, err := load(t, fmt.Sprintf("%s if {\n\tinput.kind == %q\n\tinput.direction == %q\n"+
				"\tinput.method == %q\n}", head, c.m.Kind, c.m.Direction, c.m.Method))
			if err != nil {
				return "no"
			}
			switch got := verdictOf(t, s, c.m); {
			case strings.HasPrefix(got, "denied: needs approval: "),
				strings.HasPrefix(got, "denied: the access token lacks the scopes "):
				return "yes"
			case strings.HasPrefix(got, "denied: "):
				return "denies"
			case got != body && !strings.Contains(got, "HIDDEN"):
				return "removes"
			default:
				return got
			}
		}
		want, isDocumented := documented[message]
		if !isDocumented {
			t.Errorf("%s: docs/policies.md has no row for %q", name, message)
			continue
		}
		delete(documented, message)
		hidden := cmp.Or(c.hide, "HIDDEN")
		for head, want := range map[string]string{`ask contains "no"`: want[0],
			`scope contains "write"`: want[0], `hide contains "` + hidden + `"`: want[1]} {
			if got := effect(head); got != want {
				t.Errorf("%s: the effect of %s is %q, but docs/policies.md says %q", message, head,
					got, want)
			}
		}
	}
	for message := range documented {
		t.Errorf("docs/policies.md has a row for %q, but no case tests it", message)
	}
}

// TestHideLeavesTheOtherItems hides one of several roots. The other roots must stay.
func TestHideLeavesTheOtherItems(t *testing.T) {
	m := sent(mcp.NewResponse("1", []byte(`{"roots":[{"uri":"file:///a"},{"uri":"file:///b"},`+
		`{"uri":"file:///c"}]}`)), mcp.ToServer, "")
	m.Method = "roots/list"
	if got, want := verdictOf(t, loaded(t, `hide contains "file:///b"`), m),
		`{"roots":[{"uri":"file:///a"},{"uri":"file:///c"}]}`; got != want {
		t.Errorf("the roots are forwarded as %s, want %s", got, want)
	}
}

// TestEffectsAtInvalidPathsDeny evaluates effects whose path is computed, and does not begin with
// "/". The error denies the message.
func TestEffectsAtInvalidPathsDeny(t *testing.T) {
	for _, rego := range []string{`redact contains {"path": substring(input.name, 0, 0), "with": "x"}`,
		`redact contains {"path": concat("/", ["arguments", input.name]), "with": "x"}`,
		`set contains {"path": concat("/", ["arguments", input.name]), "value": 1}`} {
		if got := verdictOf(t, loaded(t, rego), called("x", `{"a":1}`)); !strings.HasPrefix(got,
			"error: ") {
			t.Errorf("%s: got %s, want an error that denies", rego, got)
		}
	}
}

// TestEffectsThatCannotWorkAreRefusedAtLoad loads rules whose effect can never work. It also loads
// similar rules whose effect can work.
func TestEffectsThatCannotWorkAreRefusedAtLoad(t *testing.T) {
	for _, c := range []struct {
		rego string
		want string // part of the error; "" for no error
	}{
		{`redact contains {"path": "arguments/a", "with": "x"}`,
			`t.rego:3: redact: the path "arguments/a" must begin with "/"`},
		{`set contains {"path": "a", "value": input.name}`,
			`t.rego:3: set: the path "a" must begin with "/"`},
		{`redact contains {"path": "a", "with": input.name}`,
			`t.rego:3: redact: the path "a" must begin with "/"`},
		{`deny contains {"path": "a", "reason": input.name}`, ""},
		{`redact contains {"pattern": "(", "with": input.name}`, "t.rego:3: redact: pattern \"(\""},
		{`redact contains {"path": "/a"}`, "t.rego:3: redact contains an element of type object"},
		{`deny contains 3`, "t.rego:3: deny contains an element of type number"},
		{`hide contains {"name": "x"}`, "t.rego:3: hide contains an element of type object"},
		{`hide contains "x" if input.kind == "error"`, "t.rego:3: hide: it removes items"},
		{`hide contains "x" if input.method == "ping"`, "t.rego:3: hide: it removes items"},
		{`hide contains "x" if input.method in {"initialize", "sampling/createMessage"}`,
			"t.rego:3: hide: it removes items"},
		{`hide contains "x" if {
	input.kind == "request"
	input.method == "tools/list"
}`, "t.rego:3: hide: it removes items"},
		{`ask contains "x" if input.kind == "response"`, "t.rego:3: ask: only requests to servers"},
		{`ask contains "x" if input.direction == "to_client"`,
			"t.rego:3: ask: only requests to servers"},
		{`ask contains "x" if input.method == "elicitation/create"`,
			"t.rego:3: ask: only requests to servers"},
		{`scope contains "x" if input.kind == "notification"`,
			"t.rego:3: scope: only requests to servers can need scopes"},
		{`scope contains "a b"`, "t.rego:3: scope contains an element of type string, want scopes"},
		{`scope contains "a\"b"`, "t.rego:3: scope contains an element of type string, want scopes"},
		{`scope contains ""`, "t.rego:3: scope contains an element of type string, want scopes"},
		{`scope contains "https://api.example/notes.read" if input.method == "tools/call"`, ""},
		{`hide contains input.items[_].name if input.method == "tools/list"`, ""},
		{`hide contains "x" if input.kind == "response"`, ""},
		{`hide contains "x" if input.method in {"ping", "roots/list"}`, ""},
		{`hide contains "x" if input.method == "tools/call"`, ""},
		{`hide contains "x" if input.method == "skills/list"`, ""},
		{`hide contains "x" if input.method == "skills/get"`, ""},
		{`hide contains "x" if input.method == "resources/directory/read"`, ""},
		{`hide contains "x" if {
	input.kind == "request"
	input.method == "skills/list"
}`, "t.rego:3: hide: it removes items"},
		{`ask contains "x" if input.method in {"skills/get", "resources/directory/read"}`, ""},
		{`ask contains "x" if {
	input.kind == "response"
	input.method == "skills/get"
}`, "t.rego:3: ask: only requests to servers"},
		{`hide contains "x" if input.method == "notifications/resources/updated"`, ""},
		{`ask contains "x" if input.method == "tools/call"`, ""},
		{`ask contains "x" if input.method == "acme/vendor"`, ""},
		{`redact contains {"path": concat("", ["/", input.name]), "with": "x"}`, ""},
	} {
		file := filepath.Join(t.TempDir(), "t.rego")
		os.WriteFile(file, []byte("package gatekit.t\n\n"+c.rego+"\n"), 0o600)
		_, err := policies.Load(policies.Options{Files: []string{file}})
		if c.want == "" && err != nil || c.want != "" && (err == nil ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s\nloaded with the error %v, want %q", c.rego, err, c.want)
		}
	}
}

// TestPatternsDoNotRedactIdentifiers redacts a pattern that occurs in content and in identifiers.
// The identifiers must stay, so that a listed resource can still be read.
func TestPatternsDoNotRedactIdentifiers(t *testing.T) {
	s := loaded(t, `redact contains {"pattern": "k1", "with": "K"}`)
	list := sent(mcp.NewResponse("1", []byte(`{"resources":[{"uri":"x:k1","name":"k1"}],`+
		`"nextCursor":"k1"}`)), mcp.ToClient, "")
	list.Method = "resources/list"
	if got, want := verdictOf(t, s, list), `{"resources":[{"uri":"x:k1","name":"K"}],`+
		`"nextCursor":"k1"}`; got != want {
		t.Errorf("the list passes as %s, want %s", got, want)
	}
	if got, want := verdictOf(t, s, called("k1", `{"uri":"k1"}`)),
		`{"name":"k1","arguments":{"uri":"K"}}`; got != want {
		t.Errorf("the call passes as %s, want %s", got, want)
	}
	byPath := loaded(t, `redact contains {"path": "/resources/0/uri", "with": "K"}`)
	if got := verdictOf(t, byPath, list); !strings.Contains(got, `"uri":"K"`) {
		t.Errorf("a redaction by path leaves the URI: %s", got)
	}
}
