package policies_test

import (
	"strings"
	"testing"

	"gatekit/core/mcp"
)

// TestEveryEffectWorksOrDenies evaluates each effect for messages of each kind in each direction.
// An effect changes the message, or the message is denied. It must never pass with what a rule
// hides or redacts, or without what a rule sets.
func TestEveryEffectWorksOrDenies(t *testing.T) {
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
	for name, c := range map[string]struct {
		m    *mcp.Message
		hide string // a name that the message has: hidden from it, or the message is denied
		path string // a value of the message
	}{
		"call": {called("HIDDEN", `{"a":"MARK"}`), "HIDDEN", "/arguments/a"},
		"a call's result": {answer("tools/call", `{"content":[{"type":"text","text":"MARK"}]}`,
			down), "", "/content/0/text"},
		"a call's error": {fault("tools/call", down), "", "/message"},
		"tools":          {answer("tools/list", `{"tools":[{"name":"HIDDEN","title":"MARK"},{"name":"x"}]}`, down), "HIDDEN", "/tools/0/title"},
		"prompts":        {answer("prompts/list", `{"prompts":[{"name":"HIDDEN","title":"MARK"},{"name":"x"}]}`, down), "HIDDEN", "/prompts/0/title"},
		"resources":      {answer("resources/list", `{"resources":[{"uri":"x:HIDDEN","name":"MARK"}]}`, down), "x:HIDDEN", "/resources/0/name"},
		"templates":      {answer("resources/templates/list", `{"resourceTemplates":[{"uriTemplate":"x:HIDDEN{a}","name":"MARK"}]}`, down), "x:HIDDEN{a}", "/resourceTemplates/0/name"},
		"tasks":          {answer("tasks/list", `{"tasks":[{"taskId":"HIDDEN","status":"MARK"}]}`, down), "HIDDEN", "/tasks/0/status"},
		"roots":          {answer("roots/list", `{"roots":[{"uri":"file:///HIDDEN","name":"MARK"},{"uri":"file:///good"}]}`, up), "file:///HIDDEN", "/roots/0/name"},
		"read":           {request("resources/read", `{"uri":"x:HIDDEN","_meta":{"a":"MARK"}}`, up), "x:HIDDEN", "/_meta/a"},
		"subscribe":      {request("resources/subscribe", `{"uri":"x:HIDDEN","_meta":{"a":"MARK"}}`, up), "x:HIDDEN", "/_meta/a"},
		"get a prompt":   {request("prompts/get", `{"name":"HIDDEN","arguments":{"a":"MARK"}}`, up), "HIDDEN", "/arguments/a"},
		"complete":       {request("completion/complete", `{"ref":{"type":"ref/prompt","name":"HIDDEN"},"argument":{"name":"a","value":"MARK"}}`, up), "HIDDEN", "/argument/value"},
		"listen":         {request("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["x:HIDDEN","x:y"]},"_meta":{"a":"MARK"}}`, up), "x:HIDDEN", "/_meta/a"},
		"ping":           {request("ping", `{"_meta":{"a":"MARK"}}`, up), "", "/_meta/a"},
		"server's ping":  {request("ping", `{"_meta":{"a":"MARK"}}`, down), "", "/_meta/a"},
		"unknown":        {request("no/such", `{"a":"MARK"}`, up), "", "/a"},
		"sampling": {request("sampling/createMessage", `{"messages":[{"role":"user","content":`+
			`{"type":"text","text":"MARK"}}]}`, down), "", "/messages/0/content/text"},
		"sampled": {answer("sampling/createMessage", `{"role":"assistant","content":`+
			`{"type":"text","text":"MARK"}}`, up), "", "/content/text"},
		"elicitation":     {request("elicitation/create", `{"message":"MARK"}`, down), "", "/message"},
		"elicited":        {answer("elicitation/create", `{"action":"accept","content":{"a":"MARK"}}`, up), "", "/content/a"},
		"client's error":  {fault("sampling/createMessage", up), "", "/message"},
		"log":             {notification("notifications/message", `{"level":"info","data":"MARK"}`, down), "", "/data"},
		"progress":        {notification("notifications/progress", `{"progressToken":"t","progress":1,"message":"MARK"}`, down), "", "/message"},
		"client progress": {notification("notifications/progress", `{"progressToken":"t","progress":1,"message":"MARK"}`, up), "", "/message"},
		"cancelled":       {notification("notifications/cancelled", `{"requestId":1,"reason":"MARK"}`, up), "", "/reason"},
		"updated":         {notification("notifications/resources/updated", `{"uri":"x:HIDDEN","_meta":{"a":"MARK"}}`, down), "x:HIDDEN", "/_meta/a"},
	} {
		if name := c.hide; name != "" && c.m.Kind != mcp.Response {
			c.m.Name = name
		}
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

// TestHideLeavesTheOtherItems hides one root of several: a bad root does not cost the good ones.
func TestHideLeavesTheOtherItems(t *testing.T) {
	m := sent(mcp.NewResponse("1", []byte(`{"roots":[{"uri":"file:///a"},{"uri":"file:///b"},`+
		`{"uri":"file:///c"}]}`)), mcp.ToServer, "")
	m.Method = "roots/list"
	if got, want := verdictOf(t, loaded(t, `hide contains "file:///b"`), m),
		`{"roots":[{"uri":"file:///a"},{"uri":"file:///c"}]}`; got != want {
		t.Errorf("the roots are forwarded as %s, want %s", got, want)
	}
}

// TestEffectsWithoutAPlaceDeny has effects that name no place of a message.
func TestEffectsWithoutAPlaceDeny(t *testing.T) {
	for _, rego := range []string{`redact contains {"path": "", "with": "x"}`,
		`redact contains {"path": "arguments/a", "with": "x"}`,
		`set contains {"path": "arguments/a", "value": 1}`} {
		if got := verdictOf(t, loaded(t, rego), called("x", `{"a":1}`)); !strings.HasPrefix(got,
			"error: ") {
			t.Errorf("%s: got %s, want an error that denies", rego, got)
		}
	}
}

// TestPatternsLeaveIdentifiers redacts a pattern that occurs in content and in identifiers: a
// listed resource can still be read.
func TestPatternsLeaveIdentifiers(t *testing.T) {
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
		t.Errorf("a path does not reach a URI: %s", got)
	}
}
